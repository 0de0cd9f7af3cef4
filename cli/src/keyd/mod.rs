//! `quicket keyd`: private keys apart from who ends TLS.

mod keys;
mod report;

use std::ffi::CString;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use quicket_keyd::{Address, Allowed, Server, ServerOptions};
use tokio::signal::unix::{SignalKind, signal};

use self::keys::{Read, Source};
use crate::args::{Keyd, KeydCommand};
use crate::control;
use crate::exit::{Failure, Kind};
use crate::notify;
use crate::serve::say;

/// What names of sockets to be asked by begin with.
const PREFIX: &str = "quicket-keyd/";
/// The stack of threads where a token's library runs, in bytes.
const TOKEN_STACK: usize = 1 << 20;

pub(crate) fn run(args: &Keyd) -> Result<(), Failure> {
    if let Some(KeydCommand::Status(arguments)) = &args.command {
        return report::show(arguments);
    }
    // Before there is anything to hide.
    harden();
    let source = Source::of(args)?;
    let Read { keys, tls } = source.read()?;
    let summary = keys::summary(&keys);
    if args.check {
        return crate::print(&keys::list(&keys));
    }
    let allowed = allowed(args)?;
    crate::serve::raise_limit();
    let mut options = ServerOptions {
        connections: args.connections.into(),
        rate: args.rate,
        ..ServerOptions::default()
    };
    if let Some(threads) = args.threads {
        options.threads = threads.into();
    }
    if source.has_token() {
        options.stack = TOKEN_STACK;
    }
    let cannot = |error| Failure::environment("cannot answer", error);
    let mut server = Server::new(keys, &options).map_err(cannot)?;
    let mut places = Places::default();
    for place in &args.listen {
        match place {
            Address::Unix(path) => {
                let listener = places.bind(path, mode(args))?;
                server.listen_unix(listener, allowed.clone()).map_err(cannot)?;
            }
            Address::Tcp { host, port } => {
                let Some(tls) = tls.clone() else { continue };
                let listener = bind_tcp(host, *port)?;
                server.listen_tcp(listener, tls).map_err(cannot)?;
            }
        }
    }
    let runtime = crate::one_thread()?;
    let ended = runtime.block_on(serve(args, Arc::new(server), &source, &summary));
    runtime.shutdown_background();
    crate::serve::flush();
    ended
}

/// Answers until it is told to stop.
async fn serve(
    args: &Keyd,
    server: Arc<Server>,
    source: &Source,
    summary: &str,
) -> Result<(), Failure> {
    let watch = |kind| {
        signal(kind).map_err(|error| Failure::environment("cannot watch for signals", error))
    };
    let mut hangup = watch(SignalKind::hangup())?;
    let mut terminate = watch(SignalKind::terminate())?;
    let mut interrupt = watch(SignalKind::interrupt())?;
    let places: Vec<String> = args.listen.iter().map(ToString::to_string).collect();
    let refused = Arc::new(Mutex::new(None));
    let (asked, told, why) = (Arc::clone(&server), places.clone(), Arc::clone(&refused));
    let json = move || {
        let why = why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        report::json(&asked, &told, why)
    };
    control::report(PREFIX, "keyd-control", json)
        .map_err(|error| Failure::environment("no socket to be asked by", error))?;
    let state = |summary: &str| format!("Keys at {}: {summary}", places.join(", "));
    say(format_args!("{}", state(summary)));
    notify::ready(&state(summary));
    let (mut reading, mut once_more) = (None, false);
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                notify::reloading("reading the keys again");
                match reading {
                    // What has been read already may have changed since.
                    Some(_) => once_more = true,
                    None => reading = Some(read(source)),
                }
            }
            read_again = finished(&mut reading), if reading.is_some() => {
                let said = apply(&server, read_again, &refused);
                let was = said.map_or_else(|why| why, |summary| state(&summary));
                reading = std::mem::take(&mut once_more).then(|| read(source));
                if reading.is_none() {
                    notify::reloaded(&was);
                }
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    notify::stopping("no more handshakes are signed");
    Ok(())
}

type Reading = tokio::task::JoinHandle<Result<Read, Failure>>;

/// Reads all again. A token may take its time; answers go on, and so do signals.
fn read(source: &Source) -> Reading {
    let source = source.clone();
    tokio::task::spawn_blocking(move || source.read())
}

async fn finished(reading: &mut Option<Reading>) -> Result<Read, Failure> {
    let Some(handle) = reading else { return std::future::pending().await };
    let read = handle.await.map_err(|error| Failure::environment("no keys were read", error));
    *reading = None;
    read.and_then(|read| read)
}

/// Takes what was read, if it is all right: what it is, or why all stays as it was.
fn apply(
    server: &Server,
    read: Result<Read, Failure>,
    refused: &Mutex<Option<String>>,
) -> Result<String, String> {
    let mut why = refused.lock().unwrap_or_else(PoisonError::into_inner);
    match read {
        Ok(Read { keys, tls }) => {
            let summary = keys::summary(&keys);
            server.replace(keys);
            if let Some(tls) = tls {
                server.replace_tls(tls);
            }
            *why = None;
            say(format_args!("Read again: {summary}"));
            Ok(summary)
        }
        Err(Failure { message, .. }) => {
            say(format_args!("All stays as it was: {message}"));
            *why = Some(message.clone());
            Err(format!("nothing was read again: {message}"))
        }
    }
}

/// Neither a core dump nor another process of the user gets at the memory of this one.
fn harden() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        log::warn!("the memory with the keys may be dumped: {error}");
    }
}

fn mode(args: &Keyd) -> u32 {
    let others = !args.user.is_empty() || !args.group.is_empty();
    // The peer's user is looked at in any case.
    args.mode.unwrap_or(if others { 0o666 } else { 0o660 })
}

fn allowed(args: &Keyd) -> Result<Allowed, Failure> {
    let users = args.user.iter().map(|name| number(name, "passwd", "user"));
    let groups = args.group.iter().map(|name| number(name, "group", "group"));
    Ok(Allowed {
        users: users.collect::<Result<_, _>>()?,
        groups: groups.collect::<Result<_, _>>()?,
    })
}

/// The number of a user or a group, which the system knows by name.
fn number(name: &str, database: &str, what: &str) -> Result<u32, Failure> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let unknown = || Failure::new(Kind::Usage, format!("there is no {what} {name:?}"));
    CString::new(name).map_err(|_| unknown())?;
    // By the name service switch, as the system itself looks.
    let output = std::process::Command::new("getent").args([database, "--", name]).output();
    let output = output.map_err(|error| Failure::environment("cannot run getent", error))?;
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = line.split(':').nth(2).and_then(|number| number.trim().parse().ok());
    number.filter(|_| output.status.success()).ok_or_else(unknown)
}

fn bind_tcp(host: &str, port: u16) -> Result<TcpListener, Failure> {
    let at = || format!("cannot listen at tcp:{host}:{port}");
    let cannot = |error: io::Error| Failure::environment(at(), error);
    let address = (host, port).to_socket_addrs().map_err(cannot)?.next();
    let address = address.ok_or_else(|| cannot(io::ErrorKind::NotFound.into()))?;
    TcpListener::bind(address).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => format!("; ss -ltnp 'sport = :{port}' says who has it"),
            io::ErrorKind::AddrNotAvailable => {
                "; it is no address of this host: ip addr shows them".to_owned()
            }
            _ => String::new(),
        };
        Failure::environment(at(), format!("{error}{advice}"))
    })
}

/// Sockets in the file system, which end with the process.
#[derive(Default)]
struct Places(Vec<PathBuf>);

impl Places {
    fn bind(&mut self, path: &Path, mode: u32) -> Result<UnixListener, Failure> {
        let cannot = |error: io::Error| {
            Failure::file(format!("cannot listen at {}", path.display()), &error)
        };
        let there = std::fs::symlink_metadata(path).ok();
        let is_socket = there.as_ref().is_some_and(|it| it.file_type().is_socket());
        if there.is_some() && !is_socket {
            let message = format!(
                "cannot listen at {}: there is something that is no socket; remove it, or name another place",
                path.display()
            );
            return Err(Failure::new(Kind::Environment, message));
        }
        if is_socket {
            if UnixStream::connect(path).is_ok() {
                let message = format!(
                    "cannot listen at {}: a process does already; quicket keyd status shows key processes",
                    path.display()
                );
                return Err(Failure::new(Kind::Environment, message));
            }
            // One that nobody listens at any more.
            std::fs::remove_file(path).map_err(cannot)?;
        }
        let listener = UnixListener::bind(path).map_err(cannot)?;
        self.0.push(path.to_owned());
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(cannot)?;
        Ok(listener)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for path in &self.0 {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}
