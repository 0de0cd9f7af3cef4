//! How programs of this network namespace ask one that runs: a tunnel, a balancer, a gateway.
//!
//! Each has a socket whose name is abstract (unix(7)), and so belongs to the network namespace, as
//! devices and ports do: a prefix and a number. A client sends a line, and gets a line of JSON.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use rustix::net::UCred;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::Value;

use crate::exit::Failure;

/// Names that are tried. Processes of other PID namespaces may have the same number.
const ATTEMPTS: u32 = 16;
/// The longest request, in bytes, to a program that tells the same whatever it is asked.
const MAX_REQUEST: u64 = 1024;
/// The longest answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// A socket to be asked by.
pub(crate) fn listen(prefix: &str) -> io::Result<UnixListener> {
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for attempt in 0..ATTEMPTS {
        let name = format!("{prefix}{}-{attempt}", std::process::id());
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => refused = error,
            other => return other,
        }
    }
    Err(refused)
}

/// Has a thread tell whoever asks how a program is, until the process ends. All may look, and nobody can change anything;
/// who could make others wait is not listened to.
pub(crate) fn report(
    prefix: &str,
    thread: &str,
    json: impl Fn() -> Value + Send + 'static,
) -> io::Result<()> {
    let listener = listen(prefix)?;
    let meet = move |stream: &UnixStream| -> io::Result<()> {
        be_patient(stream)?;
        if may_command(stream) {
            BufReader::new(stream.take(MAX_REQUEST)).read_line(&mut String::new())?;
        }
        let mut stream = stream;
        writeln!(stream, "{}", json())?;
        stream.shutdown(Shutdown::Write)
    };
    let work = move || {
        for stream in listener.incoming() {
            // A client that went away is no loss.
            let _ = stream.and_then(|stream| meet(&stream));
        }
    };
    thread::Builder::new().name(thread.to_owned()).spawn(work)?;
    Ok(())
}

/// Neither side waits for ever.
pub(crate) fn be_patient(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Whether the other end of a socket is root, or who this program runs as.
pub(crate) fn may_command(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}

/// The names of sockets of this network namespace that begin so.
pub(crate) fn names(prefix: &str) -> Result<Vec<String>, Failure> {
    let sockets = fs::read_to_string("/proc/net/unix")
        .map_err(|error| Failure::environment("cannot read /proc/net/unix", error))?;
    // Num RefCount Protocol Flags Type St Inode Path; clients' ends have the path, too.
    let names =
        sockets.lines().filter_map(|line| line.split_whitespace().nth(7)?.strip_prefix('@'));
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A connection to a program that may be believed, and who that is, as the system tells.
pub(crate) fn connect(name: &str) -> io::Result<(UnixStream, UCred)> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let peer = socket_peercred(&stream)?;
    // Any user can take such a name. Root believes all, as services have users of their own.
    if !may_command(&stream) && !geteuid().is_root() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok((stream, peer))
}

/// Asks a program, if it may be believed.
pub(crate) fn ask(name: &str, request: &str) -> io::Result<Value> {
    let (stream, _) = connect(name)?;
    be_patient(&stream)?;
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
pub(crate) fn printable(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    text.chars().map(shown).collect()
}
