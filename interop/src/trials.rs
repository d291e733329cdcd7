//! What is tried with each foreign client, from both sides.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lock_core::Moment;
use lock_testkit::RedisServer;

use crate::client::{Client, LateRelease, Store};
use crate::ground::{Ground, Side};

/// A lease that no trial outlives: whatever is freed was released. (ZooKeeper grants 10 s, and both sides keep that alive.)
const LONG: Duration = Duration::from_secs(60);
/// A lease that is waited for.
const SHORT: Duration = Duration::from_secs(3);
/// How much later than its lease a lock may be free: the pause of a waiter that asks, and a busy machine.
const ROOM: Duration = Duration::from_secs(2);

type Run = fn(&Ground, &Client);

/// The trials of a client by name; what does not apply to it is not among them.
pub(crate) fn of(client: &Client) -> Vec<(&'static str, Run)> {
    let mut trials: Vec<(&'static str, Run)> = vec![
        ("they_hold_and_we_do_not_get_it", |ground, client| excludes(ground, client, Side::Theirs)),
        ("we_hold_and_they_do_not_get_it", |ground, client| excludes(ground, client, Side::Ours)),
        ("we_come_after_their_release", |ground, client| hands_over(ground, client, Side::Theirs)),
        ("they_come_after_our_release", |ground, client| hands_over(ground, client, Side::Ours)),
        ("we_come_when_they_are_killed", |ground, client| is_killed(ground, client, Side::Theirs)),
        ("they_come_when_we_are_killed", |ground, client| is_killed(ground, client, Side::Ours)),
        ("their_killed_waiter_stands_in_nobodys_way", |ground, client| dies_waiting(ground, client, Side::Theirs)),
        ("our_killed_waiter_stands_in_nobodys_way", |ground, client| dies_waiting(ground, client, Side::Ours)),
        ("we_lose_it_to_them_when_paused", |ground, client| is_paused(ground, client, Side::Ours)),
        ("a_mixed_crowd_never_overlaps", crowds),
    ];
    if client.late_release != LateRelease::Untried {
        trials.push(("they_lose_it_to_us_when_paused", |ground, client| is_paused(ground, client, Side::Theirs)));
    }
    if !matches!(client.store, Store::Redis) {
        trials.push(("a_mixed_queue_is_served_in_order", queues));
    }
    if matches!(client.store, Store::ZooKeeper) {
        trials.push(("their_lock_outlives_its_empty_path", outlives_its_path));
    }
    if client.reentrant {
        trials.push(("they_re_enter_and_the_counts_agree", |ground, client| re_enters(ground, client, Side::Theirs)));
        trials.push(("we_re_enter_and_the_counts_agree", |ground, client| re_enters(ground, client, Side::Ours)));
        trials.push(("one_owner_in_both_programs_counts_together", shares_an_owner));
    }
    trials
}

fn excludes(ground: &Ground, client: &Client, holding: Side) {
    let name = ground.name();
    let mut holder = ground.driver(client, holding, LONG);
    let mut other = ground.driver(client, holding.other(), LONG);
    assert_eq!(holder.ask("acquire", &name), "ok");
    assert_eq!(other.ask("try", &name), "busy");
    other.send("acquire", &name);
    other.stays_silent_for(Duration::from_secs(1));
    assert_eq!(holder.ask("release", &name), "ok");
    assert_eq!(other.answer(ROOM), "ok");
    assert_eq!(holder.ask("try", &name), "busy");
    assert_eq!(other.ask("release", &name), "ok");
    assert_eq!(holder.ask("try", &name), "ok");
    assert_eq!(holder.ask("release", &name), "ok");
}

fn hands_over(ground: &Ground, client: &Client, holding: Side) {
    let told = match holding {
        Side::Theirs => client.tells,
        Side::Ours => client.listens,
    };
    let name = ground.name();
    let mut holder = ground.driver(client, holding, LONG);
    let mut waiter = ground.driver(client, holding.other(), LONG);
    let mut taken: Vec<Duration> = (0..5)
        .map(|_| {
            assert_eq!(holder.ask("acquire", &name), "ok");
            waiter.send("acquire", &name);
            waiter.stays_silent_for(Duration::from_millis(300));
            let released = Moment::now();
            assert_eq!(holder.ask("release", &name), "ok");
            assert_eq!(waiter.answer(ROOM), "ok");
            let taken = Moment::now().saturating_duration_since(released);
            assert_eq!(waiter.ask("release", &name), "ok");
            taken
        })
        .collect();
    taken.sort();
    assert!(taken[4] < Duration::from_secs(1), "{taken:?}");
    // Our waiters ask at 600 ms at the earliest, so who comes this soon after 300 ms was told.
    assert!(!told || taken[2] < Duration::from_millis(150), "{taken:?}");
}

fn is_killed(ground: &Ground, client: &Client, holding: Side) {
    let name = ground.name();
    let mut holder = ground.driver(client, holding, SHORT);
    let mut waiter = ground.driver(client, holding.other(), SHORT);
    assert_eq!(holder.ask("acquire", &name), "ok");
    if holding == Side::Ours || client.renews {
        waiter.stays_silent_for(SHORT * 3 / 2);
        assert_eq!(waiter.ask("try", &name), "busy", "it is kept alive");
    }
    waiter.send("acquire", &name);
    waiter.stays_silent_for(Duration::from_millis(300));
    holder.process().kill().unwrap();
    assert_eq!(waiter.answer(SHORT + ROOM), "ok");
    assert_eq!(waiter.ask("release", &name), "ok");
}

fn dies_waiting(ground: &Ground, client: &Client, waiting: Side) {
    let name = ground.name();
    let mut holder = ground.driver(client, waiting.other(), SHORT);
    let mut waiter = ground.driver(client, waiting, SHORT);
    assert_eq!(holder.ask("acquire", &name), "ok");
    waiter.send("acquire", &name);
    waiter.stays_silent_for(Duration::from_millis(500));
    waiter.process().kill().unwrap();
    assert_eq!(holder.ask("release", &name), "ok");
    holder.send("acquire", &name);
    assert_eq!(holder.answer(SHORT + ROOM), "ok");
}

fn is_paused(ground: &Ground, client: &Client, holding: Side) {
    let name = ground.name();
    let mut holder = ground.driver(client, holding, SHORT);
    let mut next = ground.driver(client, holding.other(), LONG);
    assert_eq!(holder.ask("acquire", &name), "ok");
    holder.process().stop().unwrap();
    next.send("acquire", &name);
    assert_eq!(next.answer(SHORT + ROOM), "ok");
    holder.process().cont().unwrap();
    let late = holder.ask("release", &name);
    let may_be_unnoticed = holding == Side::Theirs && client.late_release == LateRelease::Unnoticed;
    assert!(late == "lost" || may_be_unnoticed && late == "ok", "{late}");
    let mut third = ground.driver(client, holding, SHORT);
    assert_eq!(third.ask("try", &name), "busy", "the late release took nothing");
    assert_eq!(next.ask("release", &name), "ok");
}

fn crowds(ground: &Ground, client: &Client) {
    let name = ground.name();
    let inside = AtomicBool::new(false);
    thread::scope(|scope| {
        for side in [Side::Theirs, Side::Ours, Side::Theirs, Side::Ours] {
            let mut driver = ground.driver(client, side, LONG);
            let (name, inside) = (&name, &inside);
            scope.spawn(move || {
                for _ in 0..5 {
                    driver.send("acquire", name);
                    assert_eq!(driver.answer(LONG), "ok");
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold it");
                    thread::sleep(Duration::from_millis(5));
                    inside.store(false, Ordering::SeqCst);
                    assert_eq!(driver.ask("release", name), "ok");
                }
            });
        }
    });
}

fn queues(ground: &Ground, client: &Client) {
    let name = ground.name();
    let mut holder = ground.driver(client, Side::Ours, LONG);
    assert_eq!(holder.ask("acquire", &name), "ok");
    let mut queue = VecDeque::new();
    for side in [Side::Theirs, Side::Ours, Side::Theirs, Side::Ours] {
        let mut waiter = ground.driver(client, side, LONG);
        waiter.send("acquire", &name);
        waiter.stays_silent_for(Duration::from_millis(500));
        queue.push_back(waiter);
    }
    while let Some(mut next) = queue.pop_front() {
        assert_eq!(holder.ask("release", &name), "ok");
        assert_eq!(next.answer(ROOM), "ok");
        for waiter in &mut queue {
            waiter.stays_silent_for(Duration::from_millis(50));
        }
        holder = next;
    }
}

/// A program keeps a lock object for long, and the lock is free for so long that the server removes an empty container.
fn outlives_its_path(ground: &Ground, client: &Client) {
    let name = ground.name();
    let mut ours = ground.driver(client, Side::Ours, LONG);
    let mut theirs = ground.driver(client, Side::Theirs, LONG);
    for pause in [0, 3, 3] {
        thread::sleep(Duration::from_secs(pause));
        // Ours makes the path the first time, and each finds it empty once.
        let drivers = if pause == 0 { [&mut ours, &mut theirs] } else { [&mut theirs, &mut ours] };
        for driver in drivers {
            assert_eq!(driver.ask("try", &name), "ok");
            assert_eq!(driver.ask("release", &name), "ok");
        }
    }
}

fn re_enters(ground: &Ground, client: &Client, holding: Side) {
    let name = ground.name();
    let mut holder = ground.driver(client, holding, LONG);
    let mut other = ground.driver(client, holding.other(), LONG);
    if holding == Side::Ours {
        assert_eq!(holder.ask("owner", "00000000-0000-0000-0000-000000000007"), "ok");
    }
    let holds = || holds(ground.redis(), &name);
    for hold in 1..=3 {
        assert_eq!(holder.ask("acquire", &name), "ok");
        assert_eq!(holds(), [hold]);
    }
    for hold in [2, 1] {
        assert_eq!(holder.ask("release", &name), "ok");
        assert_eq!(holds(), [hold]);
        assert_eq!(other.ask("try", &name), "busy");
    }
    assert_eq!(holder.ask("release", &name), "ok");
    assert_eq!(other.ask("try", &name), "ok");
    assert_eq!(holds(), [1]);
}

/// Redisson's client and we show the same owner, so each re-enters what the other holds.
fn shares_an_owner(ground: &Ground, client: &Client) {
    let mut theirs = ground.driver(client, Side::Theirs, LONG);
    let mut ours = ground.driver(client, Side::Ours, LONG);
    let owner = theirs.ask("owner", "");
    assert_eq!(ours.ask("owner", &owner), "ok");

    for theirs_first_in in [true, false] {
        for theirs_first_out in [true, false] {
            let name = ground.name();
            let (first, second) = if theirs_first_in { (&mut theirs, &mut ours) } else { (&mut ours, &mut theirs) };
            assert_eq!(first.ask("try", &name), "ok");
            assert_eq!(second.ask("try", &name), "ok");
            assert_eq!(theirs.ask("count", &name), "2");
            let (first, second) = if theirs_first_out { (&mut theirs, &mut ours) } else { (&mut ours, &mut theirs) };
            assert_eq!(first.ask("release", &name), "ok");
            assert_eq!(holds(ground.redis(), &name), [1]);
            assert_eq!(second.ask("release", &name), "ok");
            assert_eq!(theirs.ask("count", &name), "0");
            assert_eq!(holds(ground.redis(), &name), [0; 0]);
        }
    }
}

/// The counts in the hash of a lock, one for each owner.
fn holds(redis: &RedisServer, name: &str) -> Vec<u64> {
    redis.command(&["HVALS", name]).unwrap()
}
