//! The laboratory's own command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use quicket_lab::bench::{self, Contender, NetworkKind, Row};
use quicket_lab::interop::{self, Case, Options};
use quicket_lab::peers::{Implementation, Workshop};

#[derive(Parser)]
#[command(name = "quicket-lab", about = "Measures Quicket, and drives it against real peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build all peers, so that what is run later need not.
    Peers,
    /// Run interoperability cases between implementations.
    Interop {
        /// Only this case; may be given several times.
        #[arg(long)]
        case: Vec<Case>,
        /// Only this client; may be given several times.
        #[arg(long)]
        client: Vec<Implementation>,
        /// Only this server; may be given several times.
        #[arg(long)]
        server: Vec<Implementation>,
        /// Write the report as JSON to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Measure implementations side by side.
    Bench(BenchArguments),
}

#[derive(Args)]
struct BenchArguments {
    /// Only this implementation; may be given several times.
    #[arg(long)]
    implementation: Vec<Contender>,
    /// Only this network; may be given several times.
    #[arg(long)]
    network: Vec<NetworkKind>,
    /// Only this row; may be given several times.
    #[arg(long)]
    row: Vec<Row>,
    /// Measurements of each row, of which the median counts.
    #[arg(long)]
    runs: Option<usize>,
    /// Make everything small: it shows that all of it runs, and no more.
    #[arg(long)]
    quick: bool,
    /// Write `bench.md`, `bench.json`, `bench.html` and plots as SVG into this folder.
    #[arg(long)]
    out: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    if let Some(code) = quicket_lab::hidden_process() {
        return code;
    }
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("quicket-lab: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<bool, Failure> {
    match command {
        Command::Peers => peers(),
        Command::Interop { case, client, server, json } => {
            let mut options = Options::everything();
            let wanted = |list: &[Implementation], one| list.is_empty() || list.contains(&one);
            options.pairs.retain(|pair| wanted(&client, pair.0) && wanted(&server, pair.1));
            options.cases.retain(|one| case.is_empty() || case.contains(one));
            run_interop(&options, json)
        }
        Command::Bench(arguments) => run_bench(arguments),
    }
}

fn peers() -> Result<bool, Failure> {
    let workshop = Workshop::new()?;
    for implementation in Implementation::ALL {
        let program = workshop.prepare(implementation)?;
        println!("{implementation}: {}", program.executable.display());
    }
    Ok(true)
}

fn run_interop(options: &Options, json: Option<PathBuf>) -> Result<bool, Failure> {
    let report = interop::run(options, &Workshop::new()?, |run| {
        let outcome = match &run.outcome {
            interop::Outcome::Passed => "ok",
            interop::Outcome::Failed { .. } => "FAIL",
        };
        let interop::Run { case, client, server, seconds, .. } = run;
        eprintln!("{client:<9} {server:<9} {case:<13} {outcome:<4} {seconds:5.2} s");
    })?;
    print!("{}", report.table());
    if let Some(path) = json {
        std::fs::write(path, report.to_json())?;
    }
    Ok(report.passed())
}

fn run_bench(arguments: BenchArguments) -> Result<bool, Failure> {
    let mut options = bench::Options::everything(std::env::current_exe()?);
    let BenchArguments { implementation, network, row, runs, quick, out } = arguments;
    options.contenders.retain(|one| implementation.is_empty() || implementation.contains(one));
    options.networks.retain(|one| network.is_empty() || network.contains(one));
    options.rows.retain(|one| row.is_empty() || row.contains(one));
    options.quick = quick;
    options.runs = runs.unwrap_or(if quick { 1 } else { options.runs }).max(1);
    let report = bench::run(&options, |next| eprintln!("{next}"))?;
    print!("{}", report.to_markdown());
    if let Some(folder) = out {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("bench.md"), report.to_markdown())?;
        std::fs::write(folder.join("bench.json"), report.to_json())?;
        std::fs::write(folder.join("bench.html"), report.to_html())?;
        for network in report.networks() {
            std::fs::write(folder.join(format!("bench-{network}.svg")), report.to_svg(network))?;
        }
    }
    Ok(true)
}
