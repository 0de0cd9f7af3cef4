//! The laboratory's own program.

use std::io::{Write, stderr};
use std::process::ExitCode;

use clap::Parser;
use quicket_lab::command::{self, Command, Outcome, UNSUPPORTED};

#[derive(Parser)]
#[command(name = "quicket-lab", about = "Measures Quicket, and drives it against real peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    if let Some(code) = quicket_lab::hidden_process() {
        return code;
    }
    match command::run(Arguments::parse().command) {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Ok(Outcome::Unsupported) => ExitCode::from(UNSUPPORTED),
        Err(failure) => {
            let _ = writeln!(stderr(), "quicket-lab: {failure}");
            ExitCode::FAILURE
        }
    }
}
