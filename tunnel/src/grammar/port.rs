//! The words of `ip fou`: ports.

use std::net::IpAddr;

use crate::config::{Port, PortKind};

use super::values::{address, port_number};
use super::words::set;
use super::{ParseError, fail};

pub(super) fn port(words: &[&str]) -> Result<Port, ParseError> {
    let mut rest = words.iter().copied();
    let (mut number, mut kind, mut v6) = (None, None, false);
    let (mut local, mut peer) = (None, None);
    while let Some(word) = rest.next() {
        let mut value =
            |what: &str| rest.next().ok_or(format!("\"{word}\" needs a value: {word} {what}"));
        let done = match word {
            "gue" => set(&mut kind, Some(PortKind::Gue)),
            "-6" => set(&mut v6, true),
            "ipproto" => value("N").and_then(ip_protocol).map(|protocol| kind = Some(protocol)),
            "local" => value("ADDRESS").and_then(address).map(|address| local = address),
            "peer" => value("ADDRESS").and_then(address).map(|address| peer = address),
            "port" => value("PORT").and_then(port_number).map(|port| number = Some(port)),
            "peer_port" | "dev" => Err("not supported for ports".to_owned()),
            _ if number.is_none() => port_number(word).map(|port| number = Some(port)),
            _ => Err("unknown; port add PORT {ipproto N|gue} [-6] [local A] [peer A]".to_owned()),
        };
        done.map_err(|why| ParseError(format!("\"{word}\": {why}")))?;
    }
    let Some(port) = number else { return fail("the number of the port is missing") };
    let Some(kind) = kind else {
        return fail("what comes to the port is missing: ipproto N, or gue");
    };
    for (word, address) in [("local", local), ("peer", peer)] {
        if address.is_some_and(|address: IpAddr| address.is_ipv6() != v6) {
            return fail(format!("\"{word}\" has an address of the other family; -6 is for IPv6"));
        }
    }
    Ok(Port { port, kind, v6, local, peer })
}

fn ip_protocol(value: &str) -> Result<PortKind, String> {
    match value {
        "ipip" | "ipencap" | "4" => Ok(PortKind::Direct(4)),
        "ipv6" | "41" => Ok(PortKind::Direct(41)),
        "gre" | "47" => Ok(PortKind::Direct(47)),
        _ => Err("the protocols are 4 (ipip), 41 (ipv6) and 47 (gre)".into()),
    }
}
