//! One task acquires and releases one lock that nobody else wants: the raw commands, and the strategies behind the driver.
//!
//! Criterion runs one after the other, so that between two of them the machine may have changed: for the ratios that count
//! take `lock-bench bench`, where they take turns.

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use lock_bench::{Floor, FloorKind, Stores, Strategy};
use lock_memory::Memory;
use tokio::runtime::{Builder, Runtime};

const KEY: &str = "bench/criterion";

const STRATEGIES: [&str; 4] = ["memory", "redis-token", "redis-token-watch", "redis-reentrant"];

fn uncontended(criterion: &mut Criterion) {
    // One thread for caller and connection: where there are several, it is chance whether the two share one, and a run in
    // which they do takes a third of the time.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let stores = Stores::start().expect("a redis-server; `./x setup` installs one");
    let mut group = criterion.benchmark_group("uncontended");
    for kind in [FloorKind::SetNx, FloorKind::TokenScripts, FloorKind::ReentrantScripts] {
        raw(&mut group, &runtime, &stores, kind);
    }
    for strategy in Strategy::named(&STRATEGIES.map(str::to_owned)).expect("their names") {
        locks(&mut group, &runtime, &stores, &strategy);
    }
    group.finish();
}

fn raw(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, stores: &Stores, kind: FloorKind) {
    let floor = runtime.block_on(Floor::connect(kind, stores)).expect("a connection");
    let key = floor.key(KEY);
    group.bench_function(kind.name(), |bencher| {
        bencher.to_async(runtime).iter(async || key.pair().await.expect("a pair"));
    });
}

fn locks(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, stores: &Stores, strategy: &Strategy) {
    let seat = strategy.seat(stores, &Memory::new()).expect("its servers can be started");
    let locks = runtime.block_on(strategy.connect(&seat)).expect("a connection");
    let lock = locks.lock(KEY).expect("a valid name");
    group.bench_function(strategy.name(), |bencher| {
        bencher.to_async(runtime).iter(async || {
            let guard = lock.acquire().await.expect("a free lock");
            guard.release().await.expect("an answer")
        });
    });
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
