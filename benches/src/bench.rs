//! `lock-bench bench`: the workloads whose figures stand in one table with those of other programs, and the limits that we set
//! ourselves.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;

use crate::measure::Measured;
use crate::report::{Cell, Table, Tone, figure, wants_colours};
use crate::workload::{Entrant, Runs, handover, herd, throughput, uncontended};
use crate::{Failure, FloorKind, Progress, Stores, Strategy};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    uncontended: uncontended::Plan,
    throughput: throughput::Plan,
    handover: handover::Plan,
    herd: herd::Plan,
}

impl Size {
    /// As the workloads are defined.
    pub(crate) const FULL: Self = Self {
        uncontended: uncontended::Plan { repeats: 7, warm_up: 500, pairs: 5_000, slices: 10 },
        throughput: throughput::Plan {
            tasks: 256,
            slices: 10,
            warm_up: Duration::from_secs(1),
            counted: Duration::from_secs(5),
        },
        handover: handover::Plan { warm_up: 20, rounds: 300 },
        herd: herd::Plan { clients: 10, waiters: 100, grants: 500 },
    };

    /// Enough to see that it works, and no more.
    pub(crate) const QUICK: Self = Self {
        uncontended: uncontended::Plan { repeats: 3, warm_up: 50, pairs: 500, slices: 5 },
        throughput: throughput::Plan {
            tasks: 256,
            slices: 3,
            warm_up: Duration::from_millis(150),
            counted: Duration::from_millis(600),
        },
        handover: handover::Plan { warm_up: 2, rounds: 10 },
        herd: herd::Plan { clients: 10, waiters: 100, grants: 100 },
    };

    /// The same with another duration for each entrant of `throughput`.
    pub(crate) fn with_counted(mut self, counted: Duration) -> Self {
        self.throughput.counted = counted;
        self
    }
}

/// The workloads of `bench`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// One task, one key: the latency of an acquire and a release.
    Uncontended,
    /// 256 tasks, a key each: pairs a second.
    Throughput,
    /// From one client's release to another's grant.
    Handover,
    /// 100 waiters in 10 clients behind one key: the cost of a grant, and who is served.
    Herd,
}

impl Workload {
    const ALL: [Self; 4] = [Self::Uncontended, Self::Throughput, Self::Handover, Self::Herd];
}

/// One result, as all programs write it.
#[derive(Debug, Serialize)]
struct Line<'a, T> {
    peer: &'a str,
    version: &'a str,
    workload: &'a str,
    #[serde(flatten)]
    measured: T,
}

/// A limit that we hold ourselves to.
struct Limit {
    what: &'static str,
    /// The ratio of which figure, of whom to whom.
    of: &'static str,
    to: FloorKind,
    workload: Workload,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

const LIMITS: [Limit; 7] = [
    Limit {
        what: "Token, one task: latency of a pair, to raw SET NX PX + EVALSHA",
        of: "redis-token",
        to: FloorKind::SetNx,
        workload: Workload::Uncontended,
        bound: Bound::AtMost(1.15),
    },
    Limit {
        what: "Token, 256 tasks: pairs a second, to the same two scripts sent raw",
        of: "redis-token",
        to: FloorKind::TokenScripts,
        workload: Workload::Throughput,
        bound: Bound::AtLeast(0.80),
    },
    Limit {
        what: "Token, 256 tasks: pairs a second, to raw SET NX PX + EVALSHA",
        of: "redis-token",
        to: FloorKind::SetNx,
        workload: Workload::Throughput,
        bound: Bound::AtLeast(0.45),
    },
    Limit {
        what: "Redlock, one task: latency of a pair, to the raw commands on five nodes",
        of: "redlock",
        to: FloorKind::Quorum,
        workload: Workload::Uncontended,
        bound: Bound::AtMost(1.4),
    },
    Limit {
        what: "Etcd, one task: latency of a pair, to two raw transactions",
        of: "etcd",
        to: FloorKind::EtcdTxns,
        workload: Workload::Uncontended,
        bound: Bound::AtMost(1.25),
    },
    Limit {
        what: "Etcd, hand-over: to one raw transaction after the same pause",
        of: "etcd",
        to: FloorKind::EtcdTxns,
        workload: Workload::Handover,
        bound: Bound::AtMost(3.0),
    },
    Limit {
        what: "ZooKeeper, one task: latency of a pair, to a raw create and delete",
        of: "zookeeper",
        to: FloorKind::ZooKeeperNodes,
        workload: Workload::Uncontended,
        bound: Bound::AtMost(1.3),
    },
];

/// Runs `workloads` (all, if none is named) and writes a line per result, then the ratios, to `out`.
pub(crate) async fn bench(
    strategies: &[Strategy],
    workloads: &[Workload],
    size: Size,
    progress: &mut Progress,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let stores = Stores::start()?;
    let workloads = if workloads.is_empty() { &Workload::ALL[..] } else { workloads };
    let mut ratios = Vec::new();
    for workload in workloads {
        match workload {
            Workload::Uncontended => {
                let entrants = Entrant::all(strategies, &FloorKind::ALL);
                progress.expect(size.uncontended.repeats);
                let runs = uncontended::run(&stores, &entrants, size.uncontended, progress).await?;
                lines(out, "uncontended", &entrants, &runs)?;
                writeln!(out, "\n{}", table(&entrants, &runs, "uncontended").render(wants_colours()))?;
                ratios.extend(held_against(*workload, &entrants, &runs, |run| run.p50_us));
            }
            Workload::Throughput => {
                let entrants = Entrant::all(strategies, &FloorKind::ALL);
                progress.expect(size.throughput.slices as usize * entrants.len());
                let runs = throughput::run(&stores, &entrants, size.throughput, progress).await?;
                lines(out, "throughput", &entrants, &runs)?;
                writeln!(out, "\n{}", table(&entrants, &runs, "throughput").render(wants_colours()))?;
                ratios.extend(held_against(*workload, &entrants, &runs, |run| run.ops_per_s));
            }
            Workload::Handover => {
                progress.expect(strategies.len());
                let (measured, floors) = handover::run(&stores, strategies, size.handover, progress).await?;
                let mut table = Table::new(["handover", "p50 us", "p95 us", "p99 us", "x PING"]);
                let ping = floors[0].1;
                let of_strategies = strategies.iter().zip(&measured);
                let rows = of_strategies
                    .map(|(strategy, measured)| (strategy.peer(), strategy.name(), measured))
                    .chain(floors.iter().map(|(kind, measured)| (once(*kind), once(*kind), measured)));
                for (peer, name, measured) in rows {
                    line(out, peer, "handover", measured)?;
                    let ratio = measured.p50_us / ping.p50_us;
                    let figures = [measured.p50_us, measured.p95_us, measured.p99_us, ratio].map(figure);
                    table.row([name.into()].into_iter().chain(figures.map(Cell::from)));
                }
                writeln!(out, "\n{}", table.render(wants_colours()))?;
                ratios.extend(LIMITS.iter().filter(|limit| limit.workload == *workload).filter_map(|limit| {
                    let of = strategies.iter().position(|strategy| strategy.name() == limit.of)?;
                    let to = floors.iter().find(|(kind, _)| *kind == limit.to)?;
                    Some((limit, measured[of].p50_us / to.1.p50_us))
                }));
            }
            Workload::Herd => {
                progress.expect(strategies.len());
                let herds = herd::run(&stores, strategies, size.herd, progress).await?;
                let mut table =
                    Table::new(["herd", "us/grant", "wait p50 us", "wait p99 us", "reads/grant", "served", "most"]);
                for (strategy, herd) in strategies.iter().zip(&herds) {
                    line(out, strategy.peer(), "herd", herd)?;
                    let reads = herd.measured.reads_per_op.map_or_else(|| "-".to_owned(), figure);
                    table.row([
                        strategy.name().into(),
                        figure(herd.per_grant_us).into(),
                        figure(herd.measured.p50_us).into(),
                        figure(herd.measured.p99_us).into(),
                        reads.into(),
                        herd.served.to_string().into(),
                        herd.most.to_string().into(),
                    ]);
                }
                writeln!(out, "\n{}", table.render(wants_colours()))?;
            }
        }
    }
    if !ratios.is_empty() {
        let mut table = Table::new(["limit", "", "ratio", "verdict"]);
        for (limit, ratio) in ratios {
            let (bound, met) = match limit.bound {
                Bound::AtMost(most) => (format!("at most {most:.2}"), ratio <= most),
                Bound::AtLeast(least) => (format!("at least {least:.2}"), ratio >= least),
            };
            let verdict = if met { Cell::new("met", Tone::Good) } else { Cell::new("MISSED", Tone::Alarm) };
            table.row([limit.what.into(), bound.into(), format!("{ratio:.3}").into(), verdict]);
        }
        writeln!(out, "{}", table.render(wants_colours()))?;
    }
    Ok(())
}

/// What one request of a floor is called.
const fn once(kind: FloorKind) -> &'static str {
    match kind {
        FloorKind::EtcdTxns => "raw-etcd-txn",
        _ => "raw-ping",
    }
}

fn lines(out: &mut (dyn Write + Send), workload: &str, entrants: &[Entrant], runs: &Runs) -> Result<(), Failure> {
    for (at, entrant) in entrants.iter().enumerate() {
        line(out, entrant.peer(), workload, runs.of(at))?;
    }
    Ok(())
}

fn line(out: &mut (dyn Write + Send), peer: &str, workload: &str, measured: impl Serialize) -> Result<(), Failure> {
    let line = Line { peer, version: env!("CARGO_PKG_VERSION"), workload, measured };
    Ok(writeln!(out, "{}", serde_json::to_string(&line)?)?)
}

fn table(entrants: &[Entrant], runs: &Runs, title: &str) -> Table {
    let mut table = Table::new([title, "p50 us", "x raw", "p99 us", "pairs/s", "x raw", "reads/pair"]);
    let raw = entrants.iter().position(|entrant| entrant.name() == FloorKind::SetNx.name());
    for (at, entrant) in entrants.iter().enumerate() {
        let measured = runs.of(at);
        let to_raw = |figure: fn(&Measured) -> f64| {
            raw.map_or_else(|| "-".to_owned(), |raw| format!("{:.2}", runs.ratio(at, raw, figure)))
        };
        table.row([
            entrant.name().into(),
            figure(measured.p50_us).into(),
            to_raw(|run| run.p50_us).into(),
            figure(measured.p99_us).into(),
            figure(measured.ops_per_s).into(),
            to_raw(|run| run.ops_per_s).into(),
            measured.reads_per_op.map_or_else(|| "-".to_owned(), figure).into(),
        ]);
    }
    table
}

/// The limits of this workload whose strategies were run, with the ratios that were reached.
fn held_against(
    workload: Workload,
    entrants: &[Entrant],
    runs: &Runs,
    figure: fn(&Measured) -> f64,
) -> Vec<(&'static Limit, f64)> {
    let place = |name: &str| entrants.iter().position(|entrant| entrant.name() == name);
    LIMITS
        .iter()
        .filter(|limit| limit.workload == workload)
        .filter_map(|limit| Some((limit, runs.ratio(place(limit.of)?, place(limit.to.name())?, figure))))
        .collect()
}
