//! The words of `ip fou`: ports.

use std::fmt;
use std::net::IpAddr;

use crate::config::{Port, PortKind};

use super::values::{address, port_number};
use super::words::set;
use super::{ParseError, fail};

/// What is known of a port from words.
#[derive(Default)]
struct Draft {
    number: Option<u16>,
    gue: bool,
    direct: Option<PortKind>,
    v6: bool,
    local: Option<IpAddr>,
    peer: Option<IpAddr>,
}

/// Which port is meant; where the words are silent, any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortChoice {
    /// Its number.
    pub port: Option<u16>,
    /// Whether it is a port of IPv6.
    pub v6: bool,
    /// The address of this host.
    pub local: Option<IpAddr>,
    /// The only sender.
    pub peer: Option<IpAddr>,
}

impl PortChoice {
    /// Whether a port is meant.
    #[must_use]
    pub fn matches(&self, port: &Port) -> bool {
        self.port.is_none_or(|number| number == port.port)
            && self.v6 == port.v6
            && (self.local.is_none() || self.local == port.local)
            && (self.peer.is_none() || self.peer == port.peer)
    }
}

/// Reads the words of a port: `PORT {ipproto N|gue} [-6] [local A] [peer A]`.
///
/// # Errors
///
/// When a word is unknown or wrong, or the number or what comes to the port is missing.
pub fn parse_port(words: &[&str]) -> Result<Port, ParseError> {
    let draft = draft(words)?;
    let Some(port) = draft.number else { return fail("the number of the port is missing") };
    let kind = match (draft.gue, draft.direct) {
        (true, None) => PortKind::Gue,
        (false, Some(kind)) => kind,
        (true, Some(_)) => return fail("ipproto and gue exclude each other: give one of them"),
        (false, None) => {
            return fail("what comes to the port is missing: ipproto N, or gue");
        }
    };
    Ok(Port { port, kind, v6: draft.v6, local: draft.local, peer: draft.peer })
}

/// Reads the words that choose a port: `[PORT] [-6] [local A] [peer A]`.
///
/// # Errors
///
/// When a word is unknown or wrong.
pub fn parse_port_choice(words: &[&str]) -> Result<PortChoice, ParseError> {
    let Draft { number, v6, local, peer, .. } = draft(words)?;
    Ok(PortChoice { port: number, v6, local, peer })
}

fn draft(words: &[&str]) -> Result<Draft, ParseError> {
    let mut rest = words.iter().copied();
    let mut draft = Draft::default();
    while let Some(word) = rest.next() {
        let mut value =
            |what: &str| rest.next().ok_or(format!("\"{word}\" needs a value: {word} {what}"));
        let done = match word {
            "gue" => set(&mut draft.gue, true),
            "-6" => set(&mut draft.v6, true),
            "ipproto" => value("N").and_then(ip_protocol).map(|kind| draft.direct = Some(kind)),
            "local" => value("ADDRESS").and_then(address).map(|address| draft.local = address),
            "peer" => value("ADDRESS").and_then(address).map(|address| draft.peer = address),
            "port" => value("PORT").and_then(port_number).map(|port| draft.number = Some(port)),
            "peer_port" | "dev" => Err("not supported for ports".to_owned()),
            _ if draft.number.is_none() => port_number(word).map(|port| draft.number = Some(port)),
            _ => Err("unknown; the words are {ipproto N|gue} [-6] [local A] [peer A]".to_owned()),
        };
        done.map_err(|why| ParseError(format!("\"{word}\": {why}")))?;
    }
    for (word, address) in [("local", draft.local), ("peer", draft.peer)] {
        if address.is_some_and(|address: IpAddr| address.is_ipv6() != draft.v6) {
            return fail(format!("\"{word}\" has an address of the other family; -6 is for IPv6"));
        }
    }
    Ok(draft)
}

impl fmt::Display for Port {
    /// The words that would make it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.port)?;
        match self.kind {
            PortKind::Gue => f.write_str(" gue")?,
            PortKind::Direct(protocol) => write!(f, " ipproto {protocol}")?,
        }
        if self.v6 {
            f.write_str(" -6")?;
        }
        for (word, address) in [("local", self.local), ("peer", self.peer)] {
            if let Some(address) = address {
                write!(f, " {word} {address}")?;
            }
        }
        Ok(())
    }
}

fn ip_protocol(value: &str) -> Result<PortKind, String> {
    match value {
        "ipip" | "ipencap" | "4" => Ok(PortKind::Direct(4)),
        "ipv6" | "41" => Ok(PortKind::Direct(41)),
        "gre" | "47" => Ok(PortKind::Direct(47)),
        _ => Err("the protocols are 4 (ipip), 41 (ipv6) and 47 (gre)".into()),
    }
}
