//! `quicket gateway`: HTTP/3, 2 and 1.1 in front of what a site already runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quicket::{AcceptError, EndpointConfig};
use quicket_gateway::config::{self, Problem};
use quicket_gateway::snapshot::Snapshot;
use quicket_gateway::watch::Seen;
use quicket_gateway::{Bound, Gateway, Handed, StartError};
use tokio::signal::unix::{Signal, SignalKind, signal};

mod capture;
mod reload;

use self::reload::Reload;
use crate::args;
use crate::exit::{Failure, Kind};
use crate::generations::Heirs;
use crate::out::tell;
use crate::serve::{flush, keep, raise_limit, say};
use crate::{heap, heritage, notify};

/// The command that the next generation is started with.
const COMMAND: &str = "gateway";
/// How much longer the switch waits than the gateway: that is for one that does not end by itself.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &args::Gateway) -> Result<(), Failure> {
    match &args.command {
        Some(args::GatewayCommand::Try(args)) => return attempt(args),
        Some(args::GatewayCommand::Capture(args)) => return capture::run(args),
        None => {}
    }
    let path = args.file.as_ref();
    let path = path.ok_or_else(|| Failure::new(Kind::Usage, "the file is missing"))?;
    let (snapshot, seen) = read(path);
    let snapshot = snapshot?;
    warn(&snapshot);
    if args.check {
        return crate::print(&summary(path, &snapshot));
    }
    let mut sockets = EndpointConfig::default().workers(args.workers);
    sockets.protocol.reset_key = keep::reset_key()?;
    let handed = handed(args)?;
    let heirs = Heirs::new(COMMAND, Vec::new());
    if let Some(switch) = args.sharing.config("quicket-gateway") {
        check_switched(&snapshot)?;
        let limits = &snapshot.limits;
        let switch = switch.drain(Some(limits.handover + limits.drain + DRAIN_MARGIN));
        sockets = sockets.switch(heirs.heed(switch));
    }
    start(Start { snapshot, sockets, handed, heirs, file: Some((path.clone(), seen)), hint: None })
}

/// A gateway in front of one server.
fn attempt(args: &args::Try) -> Result<(), Failure> {
    let (identity, certificate) = keep::identity()?;
    let pin = identity.fingerprint();
    let snapshot = config::single(vec![args.listen], &args.server, identity);
    let snapshot = snapshot.map_err(|problems| wrong("the command line", &problems))?;
    let hint = move |address: SocketAddr| {
        let shown = match address.ip().is_unspecified() {
            true => format!("localhost:{}", address.port()),
            false => address.to_string(),
        };
        format!(
            "The certificate is self-signed ({}). To fetch from it:\n\n  quicket get --pin {pin} \
             https://{shown}/\n  curl -k https://{shown}/\n",
            certificate.display()
        )
    };
    let (sockets, handed) = (EndpointConfig::default(), Handed::default());
    start(Start {
        snapshot,
        sockets,
        handed,
        heirs: Heirs::new(COMMAND, Vec::new()),
        file: None,
        hint: Some(&hint),
    })
}

/// What a file says, and the files that were read for it.
fn read(path: &Path) -> (Result<Snapshot, Failure>, Seen) {
    let (snapshot, seen) = config::load_seen(path);
    (snapshot.map_err(|problems| wrong(path.display(), &problems)), seen)
}

/// An expired certificate is no reason not to start: there may be others, and how a new one is had may lead through
/// the gateway. Neither is a key process that is away: it may come later.
fn warn(snapshot: &Snapshot) {
    for what in snapshot.expired().iter().chain(&snapshot.keys_away) {
        tell!("Warning: {what}");
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
    let addresses = count(snapshot.listen.len(), "address", "addresses");
    let mut summary = format!("{} is right: {addresses}", path.display());
    // Where nothing is ended here there is one all the same, of no use to anybody.
    if snapshot.has_sites() || !snapshot.protocols().is_empty() {
        let certificates = count(snapshot.certificates.len(), "certificate", "certificates");
        summary += &format!(", {certificates}");
    }
    if snapshot.ordered() > 0 {
        summary += &format!(", {} by ACME", snapshot.ordered());
    }
    if let Some(number) = snapshot.secrets() {
        summary += &format!(", secrets of number {number}");
    }
    if let Some(place) = snapshot.register() {
        summary += &format!(", early data by the register {place}");
    }
    if !origins.is_empty() {
        summary += &format!(", origins: {}", origins.join(", "));
    }
    if !snapshot.protocols().is_empty() {
        summary += &format!(", protocols: {}", snapshot.protocols().join(", "));
    }
    if snapshot.passes() > 0 {
        summary += &format!(", passed on to {}", count(snapshot.passes(), "origin", "origins"));
    }
    summary
}

/// What clients can speak.
fn spoken(snapshot: &Snapshot) -> String {
    let http = snapshot.has_sites().then(|| "HTTP/3, HTTP/2 and HTTP/1.1".to_owned());
    let private = (!snapshot.has_sites()).then(|| snapshot.protocols().join(", "));
    let passed = (snapshot.passes() > 0).then(|| "what is passed on by server name".to_owned());
    let all = http.into_iter().chain(private.filter(|all| !all.is_empty())).chain(passed);
    all.collect::<Vec<_>>().join("; ")
}

fn count(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Sockets of the generation before, or of a service manager.
fn handed(args: &args::Gateway) -> Result<Handed, Failure> {
    let is_successor = std::env::var_os(notify::SUCCESSOR).is_some();
    let handed = match is_successor {
        true => heritage::take().and_then(Handed::inherited),
        false => quicket_switch::activation::sockets().and_then(Handed::new),
    };
    let handed = handed.map_err(|error| {
        Failure::environment("the sockets that were handed over cannot be used", error)
    })?;
    if args.sharing.replace && !is_successor {
        // It would find the TCP port in use, or take connections from one that does not know.
        let message = "a gateway hands its TCP sockets to the generation that it starts itself: run quicket switch \
                       upgrade instead of a gateway with --replace";
        return Err(Failure::new(Kind::Usage, message));
    }
    Ok(handed)
}

/// What the switch does not have, or does otherwise, or the next generation could not know.
fn check_switched(snapshot: &Snapshot) -> Result<(), Failure> {
    let message = match () {
        () if snapshot.listen.iter().any(|address| address.port() == 0) => {
            "with --switch the port is one that the next generation knows, and not 0"
        }
        () if snapshot.has_balancer() => {
            "with --switch there is no [balancer]: the switch gives connection IDs of its own, which no balancer knows"
        }
        () => return Ok(()),
    };
    Err(Failure::new(Kind::Usage, message))
}

/// What a gateway starts with.
struct Start<'a> {
    snapshot: Snapshot,
    sockets: EndpointConfig,
    handed: Handed,
    heirs: Heirs,
    file: Option<(PathBuf, Seen)>,
    /// What is said of the first address.
    hint: Option<&'a dyn Fn(SocketAddr) -> String>,
}

fn start(start: Start<'_>) -> Result<(), Failure> {
    let Start { snapshot, sockets, handed, heirs, file, hint } = start;
    raise_limit();
    heap::keep_little();
    let runtime = match std::thread::available_parallelism() {
        // What threads need that take each other's work costs a fifth of a request, even if there is but one of them.
        Ok(processors) if processors.get() == 1 => crate::one_thread()?,
        _ => crate::threads()?,
    };
    let over = if snapshot.has_tcp() { "UDP and TCP" } else { "UDP" };
    let spoken = spoken(&snapshot);
    let has_file = file.is_some();
    let path = file.as_ref().map(|(path, _)| path.clone());
    let ended = runtime.block_on(async {
        let reload = Reload::watch(file)?;
        let bound = Bound::bind_with(snapshot, sockets, handed).await;
        let bound = bound.map_err(|error| match !has_file && error.is_address_in_use() {
            true => elsewhere(&error),
            false => refused(&error),
        })?;
        let heritage = bound.heritage();
        let heritage = heritage.map_err(|error| {
            Failure::environment("the sockets cannot be kept for the next generation", error)
        })?;
        heirs.leave(heritage);
        let hint = hint.zip(bound.addresses().first().copied());
        let hint = hint.map(|(hint, address)| hint(address)).unwrap_or_default();
        let addresses: Vec<String> = bound.addresses().iter().map(ToString::to_string).collect();
        let state = format!("Gateway on {} ({over})", addresses.join(", "));
        say(format_args!("{state}: {spoken}\n{hint}"));
        if let Some(place) = bound.metrics() {
            say(format_args!("Counters: {place}"));
        }
        bound.gateway().hear(|what| say(format_args!("{what}")));
        tokio::spawn(reopen_log(bound.gateway(), user_signal()?));
        tokio::spawn(give_back());
        if let Some(Err(error)) = path.map(|path| capture::listen(&path, bound.gateway())) {
            say(format_args!("Nobody can ask for captures: {error}"));
        }
        notify::ready(&state);
        tokio::spawn(reload.run(bound.gateway(), state));
        let stop = async {
            crate::serve::stop().await;
            heirs.leave_nothing();
            notify::stopping("requests under way are answered");
            say(format_args!("Stopping: requests under way are answered"));
        };
        let serves = || {
            heirs.successor.check().map_err(End)?;
            heirs.leave_nothing();
            say(format_args!(
                "The next generation has taken over: requests under way are answered"
            ));
            Ok(())
        };
        bound.run_with(stop, serves).await.map(|_| ()).map_err(|End(failure)| failure)
    });
    flush();
    ended
}

/// How often free memory is given back, while nobody allocates, too. With a load, the heap does it each second.
const LOOK: Duration = Duration::from_secs(5);

/// Gives free memory back to the system for ever.
async fn give_back() {
    loop {
        tokio::time::sleep(LOOK).await;
        heap::collect();
    }
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

/// Why a gateway has ended by itself.
struct End(Failure);

impl From<AcceptError> for End {
    fn from(error: AcceptError) -> Self {
        Self(Failure::environment("the gateway has ended", error))
    }
}

fn refused(error: &StartError) -> Failure {
    Failure::new(Kind::Environment, error.to_string())
}

/// What to do without a file that says where to listen.
fn elsewhere(error: &StartError) -> Failure {
    let message = format!("{error}; or take another port: --listen 127.0.0.1:9443");
    Failure::new(Kind::Environment, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_switch_and_a_balancer_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let identity = quicket::Identity::self_signed(["localhost"]).unwrap();
        write("cert.pem", &identity.chain_pem());
        write("cert.key", &identity.key_pem());
        write("ids", "config 0 server-id 1 nonce 7 plain\n");
        let switched = |rest: &str| {
            let text = format!(
                "listen = [\"127.0.0.1:443\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
                 [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{}}\n{rest}"
            );
            check_switched(&config::parse(&text, dir.path()).unwrap())
        };
        assert_eq!(switched(""), Ok(()));
        let told = switched("[balancer]\nconnection_ids = \"ids\"\nserver_id = \"01\"\n");
        assert!(told.unwrap_err().message.contains("with --switch there is no [balancer]"));
        let listening = |listen: &str| {
            let text = format!(
                "listen = [{listen}]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
                 [[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{}}\n"
            );
            check_switched(&config::parse(&text, dir.path()).unwrap())
        };
        assert_eq!(listening("\"127.0.0.1:443\", \"[::1]:443\""), Ok(()));
        let told = listening("\"127.0.0.1:443\", \"[::1]:0\"");
        assert!(told.unwrap_err().message.contains("not 0"));
    }
}
