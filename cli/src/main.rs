//! The command `quicket`: files over HTTP/3, on the sockets of Quicket.
#![deny(unsafe_code)]

mod args;
#[cfg(target_os = "linux")]
mod balance;
#[cfg(target_os = "linux")]
mod connect;
#[cfg(target_os = "linux")]
mod control;
mod demo;
mod digest;
mod exit;
#[cfg(target_os = "linux")]
mod gateway;
#[cfg(target_os = "linux")]
mod generations;
mod get;
mod heap;
#[cfg(target_os = "linux")]
mod heritage;
#[cfg(target_os = "linux")]
mod keyd;
#[cfg(target_os = "linux")]
mod notify;
mod pages;
mod places;
#[cfg(target_os = "linux")]
mod run;
mod secrets;
mod serve;
mod site;
#[cfg(target_os = "linux")]
mod switch;
mod transport;
mod trust;
#[cfg(target_os = "linux")]
mod tunnel;
mod units;

use std::process::ExitCode;

use clap::Parser;

use self::args::{Args, Command};
use self::exit::{Failure, Kind};

/// Takes all signals again.
#[cfg(target_os = "linux")]
fn unblock_signals() {
    // It cannot fail for a set that there is.
    let _ = nix::sys::signal::SigSet::empty().thread_set_mask();
}

fn main() -> ExitCode {
    // Whoever started this may have done so on a thread that signals are to leave alone, and a process
    // inherits that: the switch, or the next generation of a server, could not be told to end.
    #[cfg(target_os = "linux")]
    unblock_signals();
    #[cfg(target_os = "linux")]
    if let Some(code) = quicket_lab::hidden_process() {
        return code;
    }
    let args = Args::parse();
    // Warnings of the libraries, or what RUST_LOG asks for.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"))
        .format_timestamp(None)
        .init();
    let outcome = match &args.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Get(get) => get::run(get),
        Command::Demo(demo) => demo::run(demo),
        #[cfg(target_os = "linux")]
        Command::Run(args) => run::run(args),
        #[cfg(target_os = "linux")]
        Command::Tunnel(args) => tunnel::run(args),
        #[cfg(target_os = "linux")]
        Command::Balance(args) => balance::run(args),
        #[cfg(target_os = "linux")]
        Command::Gateway(args) => gateway::run(args),
        #[cfg(target_os = "linux")]
        Command::Keyd(args) => keyd::run(args),
        #[cfg(target_os = "linux")]
        Command::Connect(args) => connect::run(args),
        #[cfg(target_os = "linux")]
        Command::Switch(args) => switch::run(args),
        #[cfg(target_os = "linux")]
        Command::Lab(command) => lab((**command).clone()),
        Command::Completion { shell } => pages::completion(*shell),
        Command::Man { dir } => pages::manual(dir.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("quicket: {failure}");
            failure.exit_code()
        }
    }
}

/// Prints an answer. Whoever reads may have had enough.
#[cfg(target_os = "linux")]
fn print(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write, stdout};
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::environment("cannot print", error)),
    }
}

/// Carries out a command of the laboratory.
#[cfg(target_os = "linux")]
fn lab(command: quicket_lab::command::Command) -> Result<(), Failure> {
    use quicket_lab::command::Outcome;

    match quicket_lab::command::run(command) {
        Ok(Outcome::Passed) => Ok(()),
        Ok(Outcome::Unsupported) => Err(Failure::new(
            Kind::Unsupported,
            "this test case is not known; quicket lab endpoint --help says more",
        )),
        Ok(Outcome::Failed) => {
            Err(Failure::new(Kind::Refused, "not everything passed: see the table above"))
        }
        Err(failure) => Err(Failure::new(Kind::Environment, failure.to_string())),
    }
}

/// The threads that a server runs on: as many as there are processors for connections and what is
/// said on them; more come and go for files.
fn threads() -> Result<tokio::runtime::Runtime, Failure> {
    runtime(tokio::runtime::Builder::new_multi_thread())
}

/// What a client runs on, and a gateway with one processor: this thread. A client's connections are few, and waking other
/// threads for what one can do costs more than it saves; more come and go for files.
fn one_thread() -> Result<tokio::runtime::Runtime, Failure> {
    runtime(tokio::runtime::Builder::new_current_thread())
}

fn runtime(mut builder: tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Failure> {
    builder
        .enable_all()
        .build()
        .map_err(|error| Failure::environment("cannot start threads", error))
}
