//! The command `quicket`: files over HTTP/3, on the sockets of Quicket.
#![deny(unsafe_code)]
// They panic where nothing can be written: see `out`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod analyze;
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
mod exposition;
#[cfg(target_os = "linux")]
mod gateway;
#[cfg(target_os = "linux")]
mod generations;
mod get;
mod heap;
#[cfg(target_os = "linux")]
mod heritage;
mod html;
#[cfg(target_os = "linux")]
mod keyd;
#[cfg(target_os = "linux")]
mod notify;
mod out;
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

use self::args::{Args, Command};
use self::exit::{Failure, Kind};
use self::out::{print, tell};

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
    let args = match arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    // Warnings of the libraries, or what RUST_LOG asks for.
    let warnings = env_logger::Env::default().default_filter_or("warn");
    let mut logger = env_logger::Builder::from_env(warnings);
    logger.format_timestamp(None);
    #[cfg(target_os = "linux")]
    if forwards_packets(&args.command) {
        // The thread that forwards says what is wrong: others would wait for who reads that.
        logger.target(env_logger::Target::Pipe(Box::new(serve::Lines)));
    }
    logger.init();
    let outcome = match &args.command {
        Command::Serve(serve) => serve::run(serve),
        Command::Get(get) => get::run(get),
        Command::Demo(demo) => demo::run(demo),
        Command::Analyze(args) => analyze::run(args),
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
    // What waits to be written came before the end.
    serve::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tell!("quicket: {failure}");
            failure.exit_code()
        }
    }
}

/// Whether a thread of this command forwards packets.
#[cfg(target_os = "linux")]
fn forwards_packets(command: &Command) -> bool {
    use self::args::SwitchCommand::Packets;

    matches!(command, Command::Switch(switch) if matches!(switch.command, Some(Packets(_))))
}

/// The command line, or the code to end with where it asked for help, or makes no sense.
fn arguments() -> Result<Args, ExitCode> {
    use std::io::{ErrorKind, Write, stdout};

    args::read().map_err(|answer| {
        let is_asked_for = !answer.use_stderr();
        match answer.print().and_then(|()| stdout().flush()) {
            Err(error) if is_asked_for && error.kind() != ErrorKind::BrokenPipe => {
                let failure = out::unwritable(&error);
                tell!("quicket: {failure}");
                failure.exit_code()
            }
            _ => u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
        }
    })
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
        Ok(Outcome::Failed) => Err(Failure::new(
            Kind::Refused,
            "not everything passed: what was printed says what did not",
        )),
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
