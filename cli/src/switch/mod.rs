//! `quicket switch`: a UDP address for many programs.

mod background;
mod devices;
mod dump;
mod open;
pub(crate) mod packets;
mod reload;
mod report;
mod secrets;
mod told;
mod traffic;

use std::ffi::OsString;
use std::io::{self, Read};
use std::net::UdpSocket;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::Command;

use quicket_handshake::{AwsLcProvider, SystemRandom};
use quicket_switch::client;
use quicket_switch::daemon::{Daemon, IDLE, Listener, Store, Tools};
use quicket_switch::protocol::ProtocolError;
use quicket_switch::rendezvous;
use quicket_switch::rule::{MAX_RULE, Rule};
use serde_json::Value;
use tokio::signal::unix::SignalKind;

use crate::args::{Switch, SwitchCommand, SwitchStatus, server_id};
use crate::exit::{Failure, Kind};
use crate::out::tell;
use crate::secrets::Source;
use reload::Files;
use told::{until_told, watch};

/// Where a switch without flags has the secrets of the site ...
const SECRETS_VARIABLE: &str = "QUICKET_SWITCH_SECRETS";
/// ... and the number of its host.
const SERVER_ID_VARIABLE: &str = "QUICKET_SWITCH_SERVER_ID";

pub(crate) fn run(args: &Switch) -> Result<(), Failure> {
    match &args.command {
        Some(SwitchCommand::Status(status)) => show(status),
        Some(SwitchCommand::Upgrade(name)) => upgrade(&name.get()),
        Some(SwitchCommand::Packets(args)) => packets::run(args),
        Some(SwitchCommand::Open(args)) => open::run(args),
        Some(SwitchCommand::Dump(args)) => dump::run(args),
        Some(SwitchCommand::Generate(args)) => traffic::generate(args),
        Some(SwitchCommand::Sink(args)) => traffic::sink(args),
        Some(SwitchCommand::Attach(args)) => devices::attach(args),
        Some(SwitchCommand::Detach(args)) => devices::detach(args),
        Some(SwitchCommand::Devices(args)) => devices::list(args),
        Some(SwitchCommand::Secrets(command)) => secrets::run(command),
        None if args.detach => detach(args),
        None => switch(args),
    }
}

/// Starts the switch in a session of its own, so that signals of a terminal leave it alone.
fn detach(args: &Switch) -> Result<(), Failure> {
    let cannot = |error| Failure::environment("cannot start the switch", error);
    // Sockets of a service manager are for this process (LISTEN_PID), and no use to the next one either.
    quicket_switch::daemon::hand_nothing_on().map_err(cannot)?;
    let secrets = detached_secrets(args)?;
    // In the background nobody hears what is wrong with them.
    if let Some((source, _)) = site(args)? {
        source.read()?;
    }
    let program = std::env::current_exe().map_err(cannot)?;
    // Who leads a process group cannot have a session; then it is started in a group of its own.
    let _ = rustix::process::setsid();
    let mut command = Command::new(program);
    if let Some(path) = &args.users {
        rule(Some(path))?;
    }
    // A relative path is one of the folder that this is started in.
    let name = name_of(args);
    let path = rendezvous::path(&name);
    let path = path.map_err(|error| Failure::environment("cannot start the switch", error))?;
    let name = path.display().to_string();
    command.args(["switch", "--name"]).arg(path);
    if args.stay {
        command.arg("--stay");
    }
    if args.forward {
        command.arg("--forward");
    }
    if args.system {
        command.arg("--system");
    }
    if let Some(path) = &args.users {
        let path = std::path::absolute(path).map_err(cannot)?;
        command.arg("--users").arg(path);
    }
    if let Some(path) = secrets {
        command.arg("--secrets").arg(path);
    }
    if let Some(id) = args.server_id {
        command.args(["--server-id", &format!("{id:02x}")]);
    }
    command.current_dir("/");
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    background::start(&mut command, &name)
}

/// How the switch in the background gets its secrets: of an absolute path, as it is started in another folder.
fn detached_secrets(args: &Switch) -> Result<Option<PathBuf>, Failure> {
    match &args.secrets {
        None => Ok(None),
        Some(Source::File(path)) => {
            let path = std::path::absolute(path);
            let path = path.map_err(|error| Failure::environment("cannot start the switch", error));
            Ok(Some(path?))
        }
        Some(Source::Descriptor(_)) => {
            let message = "--detach hands no descriptors on: give --secrets a file";
            Err(Failure::new(Kind::Usage, message))
        }
    }
}

/// Where the secrets of a site are, and the number of this host, if there is a site: a switch that a program
/// starts again has no flags, and finds them in its environment.
fn site(args: &Switch) -> Result<Option<(Source, u8)>, Failure> {
    if let Some(source) = &args.secrets {
        return Ok(Some((source.clone(), args.server_id.unwrap_or(0))));
    }
    let variable = |name: &str| {
        let value = quicket_switch::environment::variable(name).filter(|value| !value.is_empty());
        let text = value.map(OsString::into_string).transpose();
        text.map_err(|_| Failure::new(Kind::Usage, format!("{name} is no text")))
    };
    let wrong = |name: &str, why: &str| Failure::new(Kind::Usage, format!("{name}: {why}"));
    let Some(source) = variable(SECRETS_VARIABLE)? else { return Ok(None) };
    let source = Source::parse(&source).map_err(|why| wrong(SECRETS_VARIABLE, why))?;
    let id = match variable(SERVER_ID_VARIABLE)? {
        Some(id) => server_id(&id).map_err(|why| wrong(SERVER_ID_VARIABLE, why))?,
        None => 0,
    };
    Ok(Some((source, id)))
}

/// The name of the switch that is to be started.
fn name_of(args: &Switch) -> String {
    match &args.name.name {
        None if args.system => rendezvous::SYSTEM.to_owned(),
        _ => args.name.get(),
    }
}

/// Which users may have what.
fn rule(path: Option<&PathBuf>) -> Result<Rule, Failure> {
    let Some(path) = path else { return Ok(Rule::default()) };
    let cannot = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(MAX_RULE as u64 + 1).read_to_string(&mut text).map_err(cannot)?;
    Rule::parse(&text)
        .map_err(|error| Failure::new(Kind::Usage, format!("{}: {error}", path.display())))
}

/// Switches until nobody is there, or it is told to stop.
fn switch(args: &Switch) -> Result<(), Failure> {
    let name = name_of(args);
    let rule = args.system.then(|| rule(args.users.as_ref())).transpose()?;
    crate::serve::raise_limit();
    let (listener, stored) = listener(&name, args.system)?;
    let tools = Tools {
        crypto: std::sync::Arc::new(AwsLcProvider),
        aes_128: quicket::steering::aes_128,
        random: Box::new(SystemRandom::new()),
    };
    let cannot = |error| Failure::environment("the switch cannot go on", error);
    let daemon = Daemon::new(listener, tools, (!args.stay && !args.system).then_some(IDLE));
    let daemon = daemon.map_err(cannot)?;
    let daemon = if args.forward { daemon.forwarding() } else { daemon };
    let mut files = Files::default();
    let daemon = match site(args)? {
        Some((source, id)) => {
            let (daemon, rotations) = daemon.of_site(source.read()?, id).map_err(cannot)?;
            files.secrets = Some((source, rotations));
            daemon
        }
        None => daemon,
    };
    let daemon = match rule {
        Some(rule) => {
            let (daemon, rules) = daemon.for_system(rule).map_err(cannot)?;
            files.rule = args.users.clone().map(|path| (path, rules));
            daemon
        }
        None => daemon,
    };
    // That of a user ends with its programs.
    let store = args.system.then(|| Store::of_service(stored)).transpose();
    let daemon = match store.map(Option::flatten) {
        Ok(Some(store)) => daemon.with_store(store),
        Ok(None) => daemon,
        Err(error) => {
            log::warn!("the service manager keeps no sockets for the next switch: {error}");
            daemon
        }
    };
    crate::one_thread()?.block_on(async {
        let state = format!("switch {name}");
        let hangup = watch(SignalKind::hangup())?;
        let begun = || {
            tell!("{}", background::ready(&name));
            crate::notify::ready(&state);
        };
        let work = move |stopped: BorrowedFd<'_>| daemon.run(stopped);
        until_told(work, begun, files.watch(hangup, &state)).await?.map_err(cannot)
    })
}

/// The socket on which programs find the switch: the service manager's, or one of this name. And those of addresses
/// that the service manager has kept.
fn listener(name: &str, for_all: bool) -> Result<(Listener, Vec<UdpSocket>), Failure> {
    let cannot = |error| Failure::environment(format!("cannot be the switch {name}"), error);
    let (listener, stored) = Listener::activated().map_err(cannot)?;
    if let Some(listener) = listener {
        return Ok((listener, stored));
    }
    let bind = if for_all { Listener::bind_for_all } else { Listener::bind };
    let bound = bind(name).map(|listener| (listener, stored));
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(Kind::Environment, background::already(name)),
        io::ErrorKind::NotFound => Failure::new(
            Kind::Environment,
            format!("{}; make the folder, or choose another --name", cannot(error)),
        ),
        _ => cannot(error),
    })
}

fn cannot_ask(name: &str, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused if name == rendezvous::SYSTEM => Failure::new(
            Kind::Environment,
            "no switch for the system runs in this network namespace: who runs the machine starts it, quicket \
             switch --system",
        ),
        io::ErrorKind::ConnectionRefused => Failure::new(
            Kind::Environment,
            format!(
                "no switch {} runs in this network namespace; the first program that needs it starts it, as quicket \
                 serve DIR --switch does",
                if name.contains('/') {
                    format!("at {name}")
                } else {
                    format!("of the name {name}")
                },
            ),
        ),
        _ if is_foreign(&error) => Failure::new(
            Kind::Environment,
            format!(
                "what listens at {name} is something else, such as a switch for packets (quicket switch devices asks that): \
                 --name says which switch"
            ),
        ),
        _ => Failure::environment(format!("cannot ask the switch {name}"), error),
    }
}

/// Whether something else has answered than a switch, or has sockets of another type.
fn is_foreign(error: &io::Error) -> bool {
    let answered = error.get_ref().and_then(|error| error.downcast_ref::<ProtocolError>());
    matches!(answered, Some(ProtocolError::Malformed(_)))
        || error.raw_os_error() == Some(rustix::io::Errno::PROTOTYPE.raw_os_error())
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
