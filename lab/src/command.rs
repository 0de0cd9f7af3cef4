//! The laboratory's command line, for its own program and for `quicket lab`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
pub use quicket_peer::endpoint::UNSUPPORTED;
use quicket_peer::endpoint::{self, EndpointArguments, Verdict};

use crate::bench::{self, Contender, NetworkKind, Row};
use crate::hold::{self, HoldArguments};
use crate::interop::{self, CASES, CaseName};
use crate::link::{self, LinkArguments};
use crate::peers::{Implementation, Workshop};

const INTEROP_EXAMPLES: &str = "\
Examples:
  quicket lab interop                            everything; the page is out/interop/index.html
  quicket lab interop --peer quinn --case retry --case zerortt
  quicket lab interop --client quic-go --server quinn --json report.json
  quicket lab interop --case retry --onto out/interop/report.json    that again, the rest as it was

Each case runs over a link as `quicket lab link` lays it, and is judged by the files that arrive and by
the captured packets, decrypted. What a failed case leaves (captures, key logs, qlogs) is in a folder
beside the page.";

/// What people write of a table stands below this.
const FINDINGS: &str = "\n## Findings\n";

const BENCH_EXAMPLES: &str = "\
Examples:
  quicket lab bench                                      the everyday rows over loopback, 5 minutes
  quicket lab bench --row all --out results              everything; the page is results/bench.html
  quicket lab bench --network veth --row upload --runs 9
  quicket lab bench --network link --row loss --row fairness
  quicket lab bench --implementation quicket --row idle --connections 50000
  quicket lab bench --row gateway                        gateways, and what their processes take
  quicket lab bench --row switch                         all of the switch for packets
  quicket lab bench --from run1/bench.json run2/bench.json run3/bench.json --out results

Rows run over the networks that they are meant for; those other than loopback need root. A
measurement during which other programs had the processor is thrown away and made again.
--row all takes 28 minutes for each of --runs.";

/// What to do in the laboratory.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Build the other implementations, so that what is run later need not
    Peers,
    /// Run interoperability cases between implementations
    #[command(after_help = INTEROP_EXAMPLES)]
    Interop(InteropArguments),
    /// Lay an impaired link between two sockets: delay, rate, loss, rebinding and more
    Link(Box<LinkArguments>),
    /// Hold many connections, and say which of them are lost or end up at another server
    Hold(HoldArguments),
    /// Be one end of a test of the QUIC interop runner, as its environment variables say
    Endpoint(Box<EndpointArguments>),
    /// Measure implementations side by side
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArguments),
}

/// What to run.
#[derive(Debug, Clone, Args)]
pub struct InteropArguments {
    /// Only this case; may be given several times. transfer-4gib runs when it is named only
    #[arg(long, value_name = "NAME", value_parser = known_case())]
    case: Vec<CaseName>,
    /// Only Quicket with this implementation; may be given several times
    #[arg(long, value_name = "NAME", value_parser = known(&Implementation::ALL, Implementation::name))]
    peer: Vec<Implementation>,
    /// Only this client; may be given several times
    #[arg(long, value_name = "NAME", value_parser = known(&Implementation::ALL, Implementation::name))]
    client: Vec<Implementation>,
    /// Only this server; may be given several times. With --client, Quicket need not take part
    #[arg(long, value_name = "NAME", value_parser = known(&Implementation::ALL, Implementation::name))]
    server: Vec<Implementation>,
    /// How often to run a case again that failed and depends on chance (handshakeloss and
    /// handshakecorruption), each time with another seed
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    again: u64,
    /// Runs at once; most of the time they wait for the link
    #[arg(long, value_name = "NUMBER", default_value_t = 6)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Folder for the page index.html, report.json, and what failed runs leave
    #[arg(long, value_name = "DIR", default_value = "out/interop")]
    out: PathBuf,
    /// Keep what runs leave that passed, too
    #[arg(long)]
    keep: bool,
    /// Take over what this report, an earlier report.json, has of other runs
    #[arg(long, value_name = "FILE")]
    onto: Option<PathBuf>,
    /// Write the report as JSON to this file as well
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table as Markdown to this file; what it has from a heading Findings on stays
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl InteropArguments {
    fn options(&self) -> interop::Options {
        let wanted = |list: &[Implementation], one| list.is_empty() || list.contains(&one);
        let pairs = if self.client.is_empty() || self.server.is_empty() {
            let peers = if self.peer.is_empty() { &Implementation::ALL[..] } else { &self.peer };
            let mut pairs = interop::pairs_with(Implementation::Quicket, peers);
            pairs.retain(|pair| {
                self.peer.is_empty() || self.peer.contains(&pair.0) || self.peer.contains(&pair.1)
            });
            pairs.retain(|pair| wanted(&self.client, pair.0) && wanted(&self.server, pair.1));
            pairs
        } else {
            let with = |&client| self.server.iter().map(move |&server| (client, server));
            self.client.iter().flat_map(with).collect()
        };
        let wanted = |case: &&'static interop::Case| {
            (self.case.is_empty() && !case.on_request)
                || self.case.iter().any(|name| name.0 == *case)
        };
        interop::Options {
            cases: CASES.iter().filter(wanted).collect(),
            pairs,
            again: self.again,
            jobs: self.jobs.into(),
            out: self.out.clone(),
            keep: self.keep,
        }
    }
}

fn known_case() -> impl TypedValueParser<Value = CaseName> {
    PossibleValuesParser::new(CASES.iter().map(|case| case.name))
        .try_map(|name| name.parse::<CaseName>())
}

/// What to measure.
#[derive(Debug, Clone, Args)]
pub struct BenchArguments {
    /// Only this implementation; may be given several times. quiche, which takes minutes to build,
    /// if it is named or with --row all
    #[arg(long, value_name = "NAME", value_parser = known(&Contender::ALL, Contender::name))]
    implementation: Vec<Contender>,
    /// Only this network; may be given several times. Loopback if neither it nor a row is given
    #[arg(long, value_name = "NAME", value_parser = known(&NetworkKind::ALL, NetworkKind::name))]
    network: Vec<NetworkKind>,
    /// Only this row, `all`, or `switch`, which is those of the switch for packets; may be given several times. A few everyday
    /// ones if it is not given
    #[arg(long, value_name = "NAME", value_parser = rows())]
    row: Vec<Rows>,
    /// Measurements of each row, of which the median counts
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: Option<u16>,
    /// Connections of the row `idle`, and idle ones of the row `gateway`
    ///
    /// Over TCP each takes an open file on both sides, and a port; over QUIC all of a side share a
    /// socket.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=i64::from(bench::MAX_IDLE_CONNECTIONS)))]
    connections: Option<u32>,
    /// Count measurements although other programs had the processor meanwhile
    #[arg(long)]
    keep_disturbed: bool,
    /// Put earlier runs, each a bench.json, into one report instead of measuring
    #[arg(long, value_name = "FILE", num_args = 1..)]
    #[arg(conflicts_with_all = ["implementation", "network", "row", "runs", "connections", "quick", "keep_disturbed"])]
    from: Vec<PathBuf>,
    /// Make everything small: it shows that all of it runs, and no more
    #[arg(long)]
    quick: bool,
    /// Write bench.md, bench.json, bench.html and plots as SVG into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// One row, or all.
#[derive(Debug, Clone, Copy)]
enum Rows {
    All,
    Switch,
    One(Row),
}

fn rows() -> impl TypedValueParser<Value = Rows> {
    const ALL: &str = "all";
    const SWITCH: &str = "switch";
    let names = [ALL, SWITCH].into_iter().chain(Row::ALL.iter().map(|row| row.name()));
    PossibleValuesParser::new(names).try_map(|name| match &*name {
        ALL => Ok(Rows::All),
        SWITCH => Ok(Rows::Switch),
        name => name.parse().map(Rows::One),
    })
}

impl BenchArguments {
    fn options(&self, executable: PathBuf) -> bench::Options {
        let mut options = bench::Options::everything(executable);
        let all = self.row.iter().any(|rows| matches!(rows, Rows::All));
        options.contenders.retain(|one| {
            self.implementation.contains(one)
                || self.implementation.is_empty() && !one.shares() && (all || !one.is_costly())
        });
        let everything = all || self.quick && self.row.is_empty();
        if self.row.is_empty() && !self.quick {
            options.rows = Row::DEFAULT.to_vec();
        } else {
            let asked = |row: &Row| {
                self.row.iter().any(|rows| match rows {
                    Rows::All => true,
                    Rows::Switch => Row::SWITCH.contains(row),
                    Rows::One(one) => one == row,
                })
            };
            options.rows.retain(|row| everything || asked(row));
        }
        if self.network.is_empty() && self.row.is_empty() && !self.quick {
            options.networks = vec![NetworkKind::Loopback];
        } else {
            options.networks.retain(|one| self.network.is_empty() || self.network.contains(one));
        }
        options.quick = self.quick;
        options.keep_disturbed = self.keep_disturbed;
        options.idle_connections = self.connections.map(|count| count as usize);
        options.runs = self.runs.map_or(if self.quick { 1 } else { options.runs }, usize::from);
        options
    }
}

/// Accepts the names of all of these, and lists them in help and completion.
fn known<T>(all: &[T], name: fn(T) -> &'static str) -> impl TypedValueParser<Value = T> + use<T>
where
    T: FromStr<Err = String> + Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.iter().map(|one| name(*one))).try_map(|name| name.parse())
}

/// Why a command could not be carried out, in a sentence.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What came of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything went well.
    Passed,
    /// A case failed; the report says which.
    Failed,
    /// What was asked for is not known: the process is to end with [`UNSUPPORTED`].
    Unsupported,
}

impl Outcome {
    const fn of(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// Carries out a command: prints its report, and returns what came of it.
///
/// The program that calls this must have called [`hidden_process`](crate::hidden_process) first.
///
/// # Errors
///
/// When a peer cannot be built, a process cannot be started, or a file cannot be written.
pub fn run(command: Command) -> Result<Outcome, Failure> {
    match command {
        Command::Peers => peers(),
        Command::Interop(arguments) => run_interop(&arguments),
        Command::Link(arguments) => link::run(&arguments).map(|()| Outcome::Passed),
        Command::Hold(arguments) => hold::run(&arguments),
        Command::Endpoint(arguments) => Ok(match endpoint::run(&arguments)? {
            Verdict::Done => Outcome::Passed,
            Verdict::Unsupported => Outcome::Unsupported,
        }),
        Command::Bench(arguments) => run_bench(&arguments),
    }
}

fn peers() -> Result<Outcome, Failure> {
    let workshop = Workshop::new()?;
    for implementation in Implementation::ALL {
        let program = workshop.prepare(implementation)?;
        print(&format!("{implementation}: {}\n", program.executable.display()))?;
    }
    Ok(Outcome::Passed)
}

fn run_interop(arguments: &InteropArguments) -> Result<Outcome, Failure> {
    let options = arguments.options();
    let earlier = arguments.onto.as_deref().map(read_json).transpose()?;
    let mut report = interop::run(&options, &Workshop::new()?)?;
    if let Some(earlier) = earlier {
        report = report.onto(earlier);
    }
    print(&format!("{}\n", report.table()))?;
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let page = options.out.join("index.html");
    write(&page, report.to_html())?;
    write(&options.out.join("report.json"), report.to_json())?;
    if let Some(path) = &arguments.json {
        write(path, report.to_json())?;
    }
    if let Some(path) = &arguments.markdown {
        let findings = std::fs::read_to_string(path).unwrap_or_default();
        let findings = findings.find(FINDINGS).map_or("", |start| &findings[start..]);
        write(path, report.to_markdown() + findings)?;
    }
    print(&format!("{}\n", page.display()))?;
    Ok(Outcome::of(report.passed()))
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let report = serde_json::from_slice(&text);
    Ok(report.map_err(|error| format!("{} is no report: {error}", path.display()))?)
}

fn run_bench(arguments: &BenchArguments) -> Result<Outcome, Failure> {
    let report = if arguments.from.is_empty() {
        let options = arguments.options(std::env::current_exe()?);
        bench::run(&options, |next| tell(next))?
    } else {
        let runs = arguments.from.iter().map(|path| read_json(path));
        bench::Report::of_runs(runs.collect::<Result<_, _>>()?)?
    };
    print(&report.to_markdown())?;
    if let Some(folder) = &arguments.out {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("bench.md"), report.to_markdown())?;
        std::fs::write(folder.join("bench.json"), report.to_json())?;
        std::fs::write(folder.join("bench.html"), report.to_html())?;
        for network in report.networks() {
            std::fs::write(folder.join(format!("bench-{network}.svg")), report.to_svg(network))?;
        }
    }
    Ok(Outcome::of(report.failures.is_empty()))
}

/// Prints to standard output. It is no failure that whoever reads has had enough.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| {
            let text = format!("cannot write standard output: {error}");
            io::Error::new(error.kind(), text)
        }),
    }
}

/// Writes a line on standard error. One that cannot be written is lost, and ends nothing.
pub(crate) fn tell(line: impl std::fmt::Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}
