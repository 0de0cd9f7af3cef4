//! `quicket gateway`: HTTP/3, 2 and 1.1 in front of what a site already runs.

use std::path::{Path, PathBuf};

use quicket::EndpointConfig;
use quicket_gateway::config::{self, Problem};
use quicket_gateway::snapshot::Snapshot;
use quicket_gateway::{Bound, Gateway, StartError};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::args;
use crate::exit::{Failure, Kind};
use crate::serve::{keep, raise_limit};
use crate::{heap, notify};

pub(crate) fn run(args: &args::Gateway) -> Result<(), Failure> {
    if let Some(args::GatewayCommand::Try(args)) = &args.command {
        return attempt(args);
    }
    let path = args.file.as_ref();
    let path = path.ok_or_else(|| Failure::new(Kind::Usage, "the file is missing"))?;
    let snapshot = read(path)?;
    warn_of_expired(&snapshot);
    if args.check {
        return crate::print(&summary(path, &snapshot));
    }
    let sockets = EndpointConfig::default().workers(args.workers);
    start(snapshot, sockets, Some(path.clone()), "")
}

/// A gateway in front of one server.
fn attempt(args: &args::Try) -> Result<(), Failure> {
    let (identity, certificate) = keep::identity()?;
    let pin = identity.fingerprint();
    let snapshot = config::single(vec![args.listen], &args.server, identity);
    let snapshot = snapshot.map_err(|problems| wrong("the command line", &problems))?;
    let shown = match args.listen.port() {
        0 => "ADDRESS".to_owned(),
        port if args.listen.ip().is_unspecified() => format!("localhost:{port}"),
        _ => args.listen.to_string(),
    };
    let hint = format!(
        "The certificate is self-signed ({}). To fetch from it:\n\n  quicket get --pin {pin} \
         https://{shown}/\n  curl -k https://{shown}/\n",
        certificate.display()
    );
    start(snapshot, EndpointConfig::default(), None, &hint)
}

fn read(path: &Path) -> Result<Snapshot, Failure> {
    config::load(path).map_err(|problems| wrong(path.display(), &problems))
}

/// An expired certificate is no reason not to start: there may be others, and how a new one is had may lead through
/// the gateway.
fn warn_of_expired(snapshot: &Snapshot) {
    for what in snapshot.expired() {
        eprintln!("Warning: {what}");
    }
}

fn wrong(what: impl std::fmt::Display, problems: &[Problem]) -> Failure {
    let all: Vec<String> = problems.iter().map(|problem| format!("\n  {problem}")).collect();
    Failure::new(Kind::Usage, format!("{what} cannot be used:{}", all.concat()))
}

fn summary(path: &Path, snapshot: &Snapshot) -> String {
    let origins: Vec<String> = snapshot
        .origins()
        .map(|(name, servers)| format!("{name} ({})", count(servers, "server", "servers")))
        .collect();
    let mut summary = format!(
        "{} is right: {}, {}",
        path.display(),
        count(snapshot.listen.len(), "address", "addresses"),
        count(snapshot.certificates.len(), "certificate", "certificates")
    );
    if !origins.is_empty() {
        summary += &format!(", origins: {}", origins.join(", "));
    }
    if !snapshot.protocols().is_empty() {
        summary += &format!(", protocols: {}", snapshot.protocols().join(", "));
    }
    summary
}

fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn start(
    snapshot: Snapshot,
    sockets: EndpointConfig,
    file: Option<PathBuf>,
    hint: &str,
) -> Result<(), Failure> {
    raise_limit();
    heap::keep_little();
    let runtime = crate::threads()?;
    let (over, spoken) = match snapshot.has_sites() {
        true => ("UDP and TCP", "HTTP/3, HTTP/2 and HTTP/1.1".to_owned()),
        false => ("UDP", snapshot.protocols().join(", ")),
    };
    runtime.block_on(async {
        let reload = Reload::watch(file)?;
        let bound = Bound::bind(snapshot, sockets).await.map_err(|error| refused(&error))?;
        let addresses: Vec<String> = bound.addresses().iter().map(ToString::to_string).collect();
        let state = format!("Gateway on {} ({over})", addresses.join(", "));
        eprintln!("{state}: {spoken}\n{hint}");
        if let Some(place) = bound.metrics() {
            eprintln!("Counters: {place}");
        }
        tokio::spawn(reopen_log(bound.gateway(), user_signal()?));
        notify::ready(&state);
        tokio::spawn(reload.run(bound.gateway(), state));
        let stop = async {
            crate::serve::stop().await;
            notify::stopping("requests under way are answered");
            eprintln!("Stopping: requests under way are answered");
        };
        let ended = bound.run(stop).await;
        ended.map_err(|error| Failure::environment("the gateway has ended", error))
    })
}

/// From now on SIGUSR1 does not end the process.
fn user_signal() -> Result<Signal, Failure> {
    let signal = signal(SignalKind::user_defined1());
    signal.map_err(|error| Failure::environment("cannot watch for SIGUSR1", error))
}

/// Opens the access log anew at each SIGUSR1, as programs that rotate logs expect.
async fn reopen_log(gateway: Gateway, mut signal: Signal) {
    while signal.recv().await.is_some() {
        gateway.reopen_log();
    }
}

fn refused(error: &StartError) -> Failure {
    Failure::new(Kind::Environment, error.to_string())
}

/// The file, to be read again.
struct Reload {
    file: Option<PathBuf>,
    hangup: Signal,
}

impl Reload {
    /// From now on SIGHUP does not end the process.
    fn watch(file: Option<PathBuf>) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup());
        let hangup =
            hangup.map_err(|error| Failure::environment("cannot watch for SIGHUP", error))?;
        Ok(Self { file, hangup })
    }

    /// Reads the file again at each SIGHUP. Those that come while it is read are one more.
    async fn run(mut self, gateway: Gateway, state: String) {
        while self.hangup.recv().await.is_some() {
            let Some(file) = self.file.clone() else { continue };
            notify::reloading("reading the file again");
            let gateway = gateway.clone();
            let take = move || {
                let snapshot = read(&file).inspect_err(|_| gateway.refused())?;
                let (summary, expired) = (summary(&file, &snapshot), snapshot.expired());
                gateway.replace(snapshot).map_err(|error| refused(&error))?;
                expired.iter().for_each(|what| eprintln!("Warning: {what}"));
                Ok::<_, Failure>(summary)
            };
            let taken = tokio::task::spawn_blocking(take).await;
            match taken.map_err(|error| error.to_string()) {
                Ok(Ok(summary)) => {
                    notify::reloaded(&state);
                    eprintln!("Read again: {summary}");
                }
                Ok(Err(Failure { message: error, .. })) | Err(error) => {
                    notify::reloaded(&format!("{state}; nothing was read again: {error}"));
                    eprintln!("All stays as it was: {error}");
                }
            }
        }
    }
}
