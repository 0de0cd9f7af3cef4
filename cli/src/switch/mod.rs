//! `quicket switch`: a UDP address for many programs.

mod report;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use quicket_handshake::{AwsLcProvider, SystemRandom};
use quicket_switch::client;
use quicket_switch::daemon::{Daemon, IDLE, Listener, Tools};
use quicket_switch::rendezvous;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Switch, SwitchCommand, SwitchStatus};
use crate::exit::{Failure, Kind};

pub(crate) fn run(args: &Switch) -> Result<(), Failure> {
    match &args.command {
        Some(SwitchCommand::Status(status)) => show(status),
        Some(SwitchCommand::Upgrade(name)) => upgrade(&name.get()),
        None if args.detach => detach(args),
        None => switch(args),
    }
}

/// Starts the switch in a session of its own, so that signals of a terminal leave it alone.
fn detach(args: &Switch) -> Result<(), Failure> {
    let cannot = |error| Failure::environment("cannot start the switch", error);
    // Sockets of a service manager are for this process (LISTEN_PID), and no use to the next one either.
    quicket_switch::daemon::hand_nothing_on().map_err(cannot)?;
    let program = std::env::current_exe().map_err(cannot)?;
    // Who leads a process group cannot have a session; then it is started in a group of its own.
    let _ = rustix::process::setsid();
    let mut command = Command::new(program);
    // A relative path is one of the folder that this is started in.
    let name = args.name.get();
    let path = rendezvous::path(&name);
    let path = path.map_err(|error| Failure::environment("cannot start the switch", error))?;
    command.args(["switch", "--name"]).arg(path);
    if args.stay {
        command.arg("--stay");
    }
    if args.forward {
        command.arg("--forward");
    }
    command.current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn().map(drop).map_err(cannot)
}

/// Switches until nobody is there, or it is told to stop.
fn switch(args: &Switch) -> Result<(), Failure> {
    let name = args.name.get();
    crate::serve::raise_limit();
    let listener = listener(&name)?;
    let tools = Tools {
        crypto: std::sync::Arc::new(AwsLcProvider),
        aes_128: quicket::steering::aes_128,
        random: Box::new(SystemRandom::new()),
    };
    let cannot = |error| Failure::environment("the switch cannot go on", error);
    let daemon = Daemon::new(listener, tools, (!args.stay).then_some(IDLE)).map_err(cannot)?;
    let daemon = if args.forward { daemon.forwarding() } else { daemon };
    let (stop, stopped) = UnixStream::pair().map_err(cannot)?;
    let runtime = crate::one_thread()?;
    let ended = runtime.block_on(async {
        let watch = |kind| {
            signal(kind).map_err(|error| Failure::environment("cannot watch for signals", error))
        };
        let (mut terminate, mut interrupt) =
            (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
        eprintln!("quicket: switch {name} is ready");
        crate::notify::ready(&format!("switch {name}"));
        let mut work = tokio::task::spawn_blocking(move || daemon.run(stopped.as_fd()));
        tokio::select! {
            ended = &mut work => return Ok(ended),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        crate::notify::stopping("told to stop");
        // The other end becomes readable.
        drop(stop);
        Ok(work.await)
    });
    match ended? {
        Ok(ended) => ended.map_err(cannot),
        Err(error) => Err(cannot(io::Error::other(error))),
    }
}

/// The socket on which programs find the switch: the service manager's, or one of this name.
fn listener(name: &str) -> Result<Listener, Failure> {
    let cannot = |error| Failure::environment(format!("cannot be the switch {name}"), error);
    if let Some(listener) = Listener::activated().map_err(cannot)? {
        return Ok(listener);
    }
    Listener::bind(name).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Kind::Environment,
            format!("there is a switch {name} already; quicket switch status shows what it does"),
        ),
        _ => cannot(error),
    })
}

fn cannot_ask(name: &str, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::new(
            Kind::Environment,
            format!(
                "no switch {name} runs in this network namespace; the first program that needs it \
                 starts it"
            ),
        ),
        _ => Failure::environment(format!("cannot ask the switch {name}"), error),
    }
}

fn upgrade(name: &str) -> Result<(), Failure> {
    client::upgrade(name).map_err(|error| cannot_ask(name, error))
}

fn show(args: &SwitchStatus) -> Result<(), Failure> {
    let name = args.name.get();
    let report = client::status(&name).map_err(|error| cannot_ask(&name, error))?;
    if args.json {
        return crate::print(&report);
    }
    let value: Value = serde_json::from_str(&report).map_err(|error| {
        Failure::new(Kind::Environment, format!("the switch's answer: {error}"))
    })?;
    let text = if args.prometheus { report::prometheus(&value) } else { report::text(&value) };
    crate::print(&text)
}
