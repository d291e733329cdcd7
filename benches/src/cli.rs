//! The command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::{Size, Workload, bench};
use crate::compare::{Agenda, Effort, compare, list};
use crate::report::wants_colours;
use crate::scenario::Scenario;
use crate::soak::{Task, Unfit, soak};
use crate::tell::tell;
use crate::{Failure, Progress, Strategy, Unknown};
use crate::{lab, mutant};

/// Compares Hasp's lock strategies: how fast each is, and what breaks it.
///
/// Everything runs on private servers that are started for it on free ports and killed with it (Redis and etcd from PATH or
/// as HASP_REDIS_SERVER and HASP_ETCD say, ZooKeeper from Debian's jars). Nothing that is already running is touched.
#[derive(Debug, Parser)]
#[command(name = "lock-bench", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0   everything is as documented
  1   something broke that its docs say holds, or held what they say breaks it, or a fault could not be made
  64  the command line is wrong, or names a server that there is not; a server's program is missing, or no port is free
  69  it could not be run for another reason, such as a report that cannot be written";

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs every strategy on private servers, side by side: speed, and what breaks it.
    ///
    /// Speed: an uncontended acquire and release beside the raw two commands, 64 tasks on distinct keys, and 8 clients on one
    /// key that guards a counter. Faults: each is made with real parts, and its outcome is held against what the strategy's
    /// docs say, both ways; `lock-bench list` tells them step by step.
    Compare(CompareArgs),
    /// Measures against the raw commands: a JSON line per result, tables, and the ratios that we hold ourselves to.
    ///
    /// All entrants of a run take turns in short slices, because a figure says nothing without its floor in the same run.
    Bench(BenchArgs),
    /// Makes random faults to one strategy, for as long as you like, and looks at what happened.
    ///
    /// In rounds: four contenders, which are processes, fight for two keys and write what these guard; meanwhile messages are late
    /// or lost, contenders are stopped and killed, servers are stopped and started again, and clocks jump: whatever the strategy's
    /// promise covers. Then the history is checked. A sound strategy must show nothing, a weak one its known faults. The seed is
    /// always printed. The same seed gives the same schedule of faults, which come at steps of the contenders' own; but real servers
    /// and processes take their time, so a seed that failed may have to be played more than once. What is not documented is played
    /// again with parts of the schedule left out, and the shortest part that fails is told step by step.
    Soak(SoakArgs),
    /// Lists the strategies, and the faults step by step.
    List,
    /// A holder of locks in a process of its own, which the faults start for themselves.
    #[command(name = "__contender", hide = true)]
    Contender {
        #[arg(long)]
        current_thread: bool,
    },
}

#[derive(Debug, Args)]
struct CompareArgs {
    /// Where the report goes; its last line says so.
    #[arg(long, value_name = "FILE", default_value = "target/hasp-compare.json")]
    json: PathBuf,
    /// The strategies to compare, as `a,b`; all, unless given.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    strategy: Vec<String>,
    /// Plays faults instead of measuring: those of these numbers, as `S07,S19`, or the whole catalogue.
    #[arg(long, value_delimiter = ',', value_name = "IDS", num_args = 0..)]
    faults: Option<Vec<String>>,
    /// Plays one fault with one strategy, and tells it as a time line with what went over the wire.
    #[arg(long, value_name = "ID", requires = "strategy", conflicts_with = "faults")]
    tell: Option<String>,
    /// Plays the mutants instead, strategies that are wrong on purpose, in the scenarios that must catch them.
    #[arg(long, conflicts_with_all = ["faults", "strategy"])]
    mutants: bool,
    /// A page whose tables of strategies and guarantees are to be made from this run, which must be of all faults.
    #[arg(long, value_name = "FILE", requires = "faults")]
    docs: Option<PathBuf>,
    /// Measures, and plays no faults.
    #[arg(long, conflicts_with = "faults")]
    only_workloads: bool,
    /// Short workloads, whose figures mean little. The faults are the same.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// The strategies to measure, as `a,b`; all, unless given.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    strategy: Vec<String>,
    /// The workloads to run; all, unless given.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    workload: Vec<Workload>,
    /// For how long each entrant's throughput is counted; 5, unless given.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// A tenth of everything: enough to see that it works.
    #[arg(long)]
    quick: bool,
}

#[derive(Debug, Args)]
struct SoakArgs {
    /// The strategy, or one of the mutants that `compare --mutants` lists.
    #[arg(long, value_name = "NAME")]
    strategy: String,
    /// For how long rounds are begun; a round takes some seconds, and there is always one.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of the first round; each further one has the next. One is drawn and printed, unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// How often a schedule that failed may be played again to shorten it; 40, or none for a fault that is documented, unless
    /// given.
    #[arg(long, value_name = "COUNT")]
    replays: Option<usize>,
    /// Tells the steps of every round, and not only of one that shows something.
    #[arg(long)]
    verbose: bool,
    /// Where the history of what was found goes, as lines of JSON.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// Runs what the command line says.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing can be done for a user who has closed the terminal.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match cli.command.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("lock-bench: {error}");
            ExitCode::from(if is_usage(&error) { USAGE } else { UNAVAILABLE })
        }
    }
}

/// Whether the user can mend it: a name that there is not, a strategy that cannot be soaked, a server whose program is missing,
/// no port to start it on.
fn is_usage(error: &Failure) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    error.is::<Unknown>()
        || error.is::<Unfit>()
        || matches!(kind, Some(io::ErrorKind::NotFound | io::ErrorKind::AddrInUse))
}

/// As sysexits.h has it.
const USAGE: u8 = 64;
const UNAVAILABLE: u8 = 69;

impl Command {
    fn run(self) -> Result<u8, Failure> {
        if let Self::Contender { current_thread } = self {
            lab::run_contender(current_thread)?;
            return Ok(0);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        match self {
            Self::Compare(args) => runtime.block_on(args.run()),
            Self::Soak(args) => runtime.block_on(args.run()),
            Self::List => {
                print!("{}", list());
                Ok(0)
            }
            Self::Bench(args) => runtime.block_on(args.run()),
            Self::Contender { .. } => unreachable!("it has a runtime of its own"),
        }
    }
}

impl CompareArgs {
    async fn run(self) -> Result<u8, Failure> {
        let program = std::env::current_exe()?;
        if self.mutants {
            let hunt = mutant::hunt(&program, &mut Progress::on_stderr()).await?;
            print!("{}", hunt.to_text(wants_colours()));
            return Ok(u8::from(!hunt.is_complete()));
        }
        if let Some(id) = &self.tell {
            let scenario = Scenario::find(id).ok_or_else(|| Unknown::scenario(id))?;
            let mut as_documented = true;
            for name in &self.strategy {
                let (text, agrees) = tell(&program, scenario, &Strategy::known(name)?, wants_colours()).await?;
                print!("{text}");
                as_documented &= agrees;
            }
            return Ok(u8::from(!as_documented));
        }
        let strategies = Strategy::named(&self.strategy)?;
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        let mut progress = Progress::on_stderr();
        let agenda = match &self.faults {
            Some(ids) => Agenda::faults(ids)?,
            None if self.only_workloads => Agenda::workloads(effort),
            None => Agenda::usual(effort),
        };
        let comparison = compare(&program, &strategies, &agenda, &mut progress).await?;
        drop(progress);
        print!("{}", comparison.to_text(wants_colours()));
        write(&self.json, &comparison.to_json()?)?;
        if let Some(page) = &self.docs {
            let text = fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
            write(page, &comparison.renew(&text)?)?;
        }
        println!("The report lies in {}", self.json.display());
        Ok(comparison.exit_code())
    }
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = folder.map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(file, text));
    written.map_err(|error| format!("the report cannot be written to {}: {error}", file.display()).into())
}

impl BenchArgs {
    async fn run(self) -> Result<u8, Failure> {
        let strategies = Strategy::named(&self.strategy)?;
        let mut size = if self.quick { Size::QUICK } else { Size::FULL };
        if let Some(seconds) = self.seconds {
            size = size.with_counted(Duration::from_secs(seconds));
        }
        bench(&strategies, &self.workload, size, &mut Progress::on_stderr(), &mut io::stdout()).await?;
        Ok(0)
    }
}

impl SoakArgs {
    async fn run(self) -> Result<u8, Failure> {
        let task = Task {
            strategy: Strategy::known(&self.strategy)?,
            time: Duration::from_secs(self.seconds),
            // Short enough to be typed again.
            seed: self.seed.unwrap_or_else(|| fastrand::u32(..).into()),
            replays: self.replays,
            verbose: self.verbose,
            history: self.history,
        };
        let as_documented = soak(&std::env::current_exe()?, &task, &mut io::stdout()).await?;
        Ok(u8::from(!as_documented))
    }
}
