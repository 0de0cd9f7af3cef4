//! How programs of this network namespace ask the one that carries a tunnel.
//!
//! Each has a socket whose name is abstract (unix(7)), and so belongs to the network namespace, as the devices
//! do: `quicket-tunnel/` and a number. A client sends a line, and gets a line of JSON. Whoever is neither root nor
//! the user that the program runs as is told what there is without being listened to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};

use quicket_tunnel::{Tunnels, parse_port, parse_port_choice};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::report;
use crate::exit::{Failure, Kind};

/// What names begin with.
const PREFIX: &str = "quicket-tunnel/";
/// Names that are tried. Processes of other PID namespaces may have the same number.
const ATTEMPTS: u32 = 16;
/// The longest request in bytes.
const MAX_REQUEST: u64 = 64 << 10;
/// The longest answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers those that ask, until the process ends.
pub(super) fn serve(tunnels: Arc<Tunnels>) -> io::Result<()> {
    let listener = listen()?;
    let answer = move || {
        for stream in listener.incoming() {
            // A client that went away is no loss.
            let _ = stream.and_then(|stream| meet(&tunnels, &stream));
        }
    };
    thread::Builder::new().name("tunnel-control".to_owned()).spawn(answer)?;
    Ok(())
}

fn listen() -> io::Result<UnixListener> {
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..ATTEMPTS {
        let name = format!("{PREFIX}{}-{attempt}", std::process::id());
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = error,
            other => return other,
        }
    }
    Err(refused)
}

fn meet(tunnels: &Tunnels, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    if may_command(stream) {
        BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut line)?;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let done = obey(tunnels, &words);
    let answer = match &done {
        Ok(Done::Told) => report::json(tunnels),
        Ok(_) => json!({ "done": true }),
        Err(error) => json!({
            "error": error.to_string(),
            "usage": matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotFound),
        }),
    };
    let mut stream = stream;
    writeln!(stream, "{answer}")?;
    let closed = stream.shutdown(Shutdown::Write);
    if matches!(done, Ok(Done::Stopped)) {
        // The process may end before this returns.
        tunnels.interrupt();
    }
    closed
}

/// Whether the other end of a socket is root, or who this program runs as.
fn may_command(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// What became of a request.
enum Done {
    Told,
    Changed,
    Stopped,
}

fn obey(tunnels: &Tunnels, words: &[&str]) -> io::Result<Done> {
    let invalid = |error: quicket_tunnel::ParseError| {
        io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
    };
    match *words {
        [] | ["show"] => return Ok(Done::Told),
        ["stop", name] => match &tunnels.setup().tunnels[..] {
            [only] if only.name == name => return Ok(Done::Stopped),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "process {} carries other tunnels besides: take {name} out of its file, and \
                     start it again",
                    std::process::id()
                ),
            )),
        },
        ["change", name, ref rest @ ..] => tunnels.change(name, rest),
        ["port", "add", ref rest @ ..] => tunnels.add_port(parse_port(rest).map_err(invalid)?),
        ["port", "del", ref rest @ ..] => {
            tunnels.remove_port(parse_port_choice(rest).map_err(invalid)?)
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the program that carries the tunnel does not know this request: is it an older one?",
        )),
    }?;
    Ok(Done::Changed)
}

/// A program that carries tunnels.
pub(super) struct Carrier {
    name: String,
    /// What it says of itself.
    pub(super) report: Value,
}

impl Carrier {
    /// The programs of this network namespace that answer and may be believed.
    pub(super) fn all() -> Result<Vec<Self>, Failure> {
        let sockets = fs::read_to_string("/proc/net/unix")
            .map_err(|error| Failure::environment("cannot read /proc/net/unix", error))?;
        // Num RefCount Protocol Flags Type St Inode Path; clients' ends have the path, too.
        let names =
            sockets.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
        let mut names: Vec<&str> = names.filter(|name| name.starts_with(PREFIX)).collect();
        names.sort_unstable();
        names.dedup();
        let ask = |name: &str| {
            let report = ask(name, "show").ok()?;
            Some(Self { name: name.to_owned(), report })
        };
        Ok(names.into_iter().filter_map(ask).collect())
    }

    /// The tunnels that it carries.
    pub(super) fn tunnels(&self) -> impl Iterator<Item = &Value> {
        self.report["tunnels"].as_array().into_iter().flatten()
    }

    /// Whether it carries this one.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tunnels().any(|tunnel| tunnel["ifname"] == name)
    }

    /// The one that carries a tunnel.
    pub(super) fn of(name: &str) -> Result<Self, Failure> {
        let mut all = Self::all()?;
        all.retain(|carrier| carrier.has(name));
        match (all.pop(), all.pop()) {
            (Some(carrier), None) => Ok(carrier),
            (Some(_), Some(_)) => Err(Failure::new(
                Kind::Environment,
                format!("several programs say that they carry {name}: ss -xlp shows them"),
            )),
            _ => Err(Failure::new(
                Kind::Environment,
                format!(
                    "no program carries {name} in this network namespace: quicket tunnel show \
                     lists those that there are, quicket tunnel add makes one"
                ),
            )),
        }
    }

    /// Has it do something.
    pub(super) fn command(&self, request: &str) -> Result<(), Failure> {
        let answer = ask(&self.name, request).map_err(|error| {
            Failure::environment("the program that carries the tunnel does not answer", error)
        })?;
        match answer["error"].as_str() {
            Some(error) => {
                let kind = match answer["usage"] {
                    Value::Bool(true) => Kind::Usage,
                    _ => Kind::Environment,
                };
                Err(Failure::new(kind, printable(error)))
            }
            None if answer["done"] == true => Ok(()),
            None => Err(Failure::new(
                Kind::Environment,
                "only root and the user whose program carries the tunnel may do that",
            )),
        }
    }
}

fn ask(name: &str, request: &str) -> io::Result<Value> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // Any user can take such a name. Root believes all, as services have users of their own.
    if !may_command(&stream) && !geteuid().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // To whoever is not listened to the system reports a reset, behind the answer.
    let _ = writeln!(&stream, "{request}");
    let mut answer = Vec::new();
    match (&stream).take(MAX_ANSWER).read_to_end(&mut answer) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(error),
        _ => {}
    }
    serde_json::from_slice(&answer).map_err(io::Error::from)
}

/// Text of another program for a terminal.
pub(super) fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    text.chars().map(shown).collect()
}
