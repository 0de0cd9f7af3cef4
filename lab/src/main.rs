//! The laboratory's own command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
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
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
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
    let workshop = Workshop::new()?;
    match command {
        Command::Peers => {
            for implementation in Implementation::ALL {
                let program = workshop.prepare(implementation)?;
                println!("{implementation}: {}", program.executable.display());
            }
            Ok(true)
        }
        Command::Interop { case, client, server, json } => {
            let mut options = Options::everything();
            let wanted = |list: &[Implementation], one| list.is_empty() || list.contains(&one);
            options.pairs.retain(|pair| wanted(&client, pair.0) && wanted(&server, pair.1));
            options.cases.retain(|one| case.is_empty() || case.contains(one));
            let report = interop::run(&options, &workshop, |run| {
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
    }
}
