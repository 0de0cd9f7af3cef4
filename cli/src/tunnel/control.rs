//! What programs of this network namespace ask the one that carries a tunnel.
//!
//! Whoever is neither root nor the user that the program runs as is told what there is without being
//! listened to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use quicket_tunnel::{Tunnels, parse_port, parse_port_choice};
use serde_json::{Value, json};

use super::report;
use crate::control::{ask, be_patient, listen, may_command, names, printable};
use crate::exit::{Failure, Kind};

/// What names begin with.
const PREFIX: &str = "quicket-tunnel/";
/// The longest request in bytes.
const MAX_REQUEST: u64 = 64 << 10;

/// Answers those that ask, until the process ends.
pub(super) fn serve(tunnels: Arc<Tunnels>) -> io::Result<()> {
    let listener = listen(PREFIX)?;
    let answer = move || {
        for stream in listener.incoming() {
            // A client that went away is no loss.
            let _ = stream.and_then(|stream| meet(&tunnels, &stream));
        }
    };
    thread::Builder::new().name("tunnel-control".to_owned()).spawn(answer)?;
    Ok(())
}

fn meet(tunnels: &Tunnels, stream: &UnixStream) -> io::Result<()> {
    be_patient(stream)?;
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
        let ask = |name: String| {
            let report = ask(&name, "show").ok()?;
            Some(Self { name, report })
        };
        Ok(names(PREFIX)?.into_iter().filter_map(ask).collect())
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
