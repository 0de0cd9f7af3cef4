//! Requests through a gateway, and what its process takes for them.
//!
//! The gateway runs in one namespace, alone on its core, with the server behind it; who asks, in the
//! other, on the core that it has in common with that server. One program asks over all versions of
//! HTTP in the same way, so that they can be compared: it reads the gateway's processor time and memory
//! at the moments when its own clock starts and stops.

pub(super) mod load;
pub(super) mod origin;
mod programs;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use quicket_workload::bench::{Asked, Failure, Message, Scenario, pin, raise_open_files};
use serde::{Deserialize, Serialize};

use self::load::Assignment;
use super::Contender;
use super::driver::{CORES, Driver, START, Said, WORK};
use super::http::folder_in_memory;
use super::row::Point;
use crate::hidden::HIDDEN_BENCH;
use crate::netns::{DEVICE, End, Namespaces};
use crate::process::Process;

/// What the processes are called among the hidden ones.
pub(super) const ORIGIN: &str = "gateway-origin";
pub(super) const LOAD: &str = "gateway-load";

/// The gateway's port; nobody else is in its namespace.
const PORT: u16 = 8443;
/// The network of both ends.
const NETWORK: &str = "192.0.2.0/30";
/// Descriptors beside those of clients' connections.
const DESCRIPTORS: u64 = 1024;

/// What the server behind the gateway has: a byte of a body follows from its place.
const SMALL: (&str, usize) = ("/small", 1024);
const LARGE: (&str, usize) = ("/large", 10_000_000);

/// Whose program a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gateway {
    /// nginx, of Debian.
    Nginx,
    /// Caddy, from the Go module proxy.
    Caddy,
    /// `quicket gateway`.
    Quicket,
}

/// A version of HTTP, as clients speak it to a gateway; all over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Version {
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
    /// HTTP/3.
    Three,
}

impl Version {
    /// The name that TLS has for it (ALPN).
    fn alpn(self) -> &'static [u8] {
        match self {
            Self::One => b"http/1.1",
            Self::Two => b"h2",
            Self::Three => b"h3",
        }
    }
}

/// The body that the server has at this path.
fn body((_, length): (&str, usize)) -> Vec<u8> {
    (0..length).map(byte).collect()
}

/// The byte at a place of a body: blocks of the same content are far from each other.
fn byte(at: usize) -> u8 {
    (at % 251) as u8 ^ (at / 65_536) as u8
}

/// Makes one measurement. The calling thread stays pinned.
pub(super) fn measure(
    driver: &Driver<'_>,
    contender: Contender,
    point: &Point,
) -> Result<Said, Failure> {
    let Scenario::Gateway { asked, milliseconds } = point.scenario else {
        return Err("no load of gateways".into());
    };
    let (gateway, version) = contender.gateway().ok_or("it is no gateway")?;
    let namespaces = driver.network.namespaces().ok_or("a gateway needs namespaces")?;
    prepare(namespaces, asked)?;
    let hidden = |what: &str, end, assignment: &str| {
        let mut command = Command::new(driver.contenders.this_program());
        command.args([HIDDEN_BENCH, what, assignment]);
        Process::start(format!("{what} of {contender}"), &mut namespaces.inside(end, &command))
    };
    let mut origin = hidden(ORIGIN, End::Left, &CORES[1].to_string())?;
    let server = match origin.next(Instant::now() + START)? {
        Some(Message::Listening { address }) => address,
        other => return Err(origin.error(format!("does not listen: {other:?}")).into()),
    };
    let folder = folder_in_memory("quicket-gateway")?;
    let address = SocketAddr::new(Namespaces::address(End::Left), PORT);
    pin(CORES[0])?;
    let command = programs::command(driver, contender, gateway, folder.path(), address, server)?;
    let mut command = namespaces.inside(End::Left, &command);
    super::http::keep_in(folder.path(), &mut command);
    let mut proxy = Process::start(format!("the gateway of {contender}"), &mut command)?;
    let assignment = Assignment {
        core: CORES[1],
        conditions: point.conditions,
        version,
        to: address,
        roots: driver.certificates.authority(),
        gateway: proxy.id(),
        asked,
        milliseconds,
        settle: if driver.settings.quick { 500 } else { 3000 },
    };
    let mut load = hidden(LOAD, End::Right, &serde_json::to_string(&assignment)?)?;
    let deadline = Instant::now() + Duration::from_millis(milliseconds) + WORK;
    let said = match load.next(deadline)? {
        Some(Message::Measured(measurement)) => Said::Measured(measurement),
        Some(Message::Failed { reason }) => {
            // What the gateway says may be why.
            return Err(proxy.error(load.error(reason).to_string()).into());
        }
        other => return Err(load.error(format!("has no figures: {other:?}")).into()),
    };
    // Not all gateways end with their standard input.
    proxy.kill();
    Ok(said)
}

/// Has the namespaces as the load wants them.
fn prepare(namespaces: &Namespaces, asked: Asked) -> Result<(), Failure> {
    // What QUIC has here, whatever the system's default: by the route, as namespaces have no other
    // than the default and those that everybody may choose.
    let own = Namespaces::address(End::Left).to_string();
    let route = ["route", "replace", NETWORK, "dev", DEVICE, "proto", "kernel", "scope", "link"];
    namespaces.ip(End::Left, &[&route[..], &["src", &own, "congctl", "cubic"]].concat())?;
    let segmentation = match asked {
        Asked::Large { segmentation } => segmentation,
        _ => true,
    };
    if let Asked::Idle { connections } = asked {
        // Programs of others have the limits of whoever starts them.
        raise_open_files(connections as u64 + DESCRIPTORS)?;
    }
    let mut ethtool = Command::new("ethtool");
    let state = if segmentation { "on" } else { "off" };
    ethtool.args(["-K", DEVICE, "tso", state]);
    let output = namespaces.inside(End::Left, &ethtool).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        return Err(format!("ethtool: {said}; install ethtool of Debian").into());
    }
    Ok(())
}

/// Where the server behind the gateway listens: with it, where nobody else comes.
fn origin_address() -> SocketAddr {
    (IpAddr::from(Ipv4Addr::LOCALHOST), 0).into()
}
