//! `quicket switch generate` and `quicket switch sink`: frames at the switch for packets, to measure with.

mod generate;
mod sink;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quicket_packets::Layout;
use quicket_packets::client::{Port, inherited};
use tokio::signal::unix::{SignalKind, signal};

use super::packets::unanswered;
use crate::args::PacketsWay;
use crate::exit::{Failure, Kind};

pub(super) use generate::run as generate;
pub(super) use sink::run as sink;

/// Positions of each ring.
const ENTRIES: u32 = 1024;
/// The smallest ring, for what nobody uses.
const FEW: u32 = 16;
/// Octets of the shortest slot, of which others are multiples.
const SLOT: u32 = 64;
/// Waits are so long at most: then it is looked whether to go on.
const PAUSE: Duration = Duration::from_millis(20);

/// Rings for frames of so many octets.
fn layout(send: u32, receive: u32, longest: u16) -> Result<Layout, Failure> {
    let slot = u32::from(longest).next_multiple_of(SLOT).max(2 * SLOT);
    let layout = Layout::new(send, receive, slot);
    layout.ok_or_else(|| Failure::new(Kind::Usage, "there are no slots for frames of that length"))
}

fn open(name: &PacketsWay, layout: Layout) -> Result<Port, Failure> {
    if let Some(number) = super::packets::descriptor(&name.name)? {
        let port = inherited(number).and_then(|control| Port::open_on(control, layout));
        let what = || format!("cannot have a port by descriptor {number}");
        return port.map_err(|error| Failure::environment(what(), error));
    }
    let path = super::packets::path(&name.name)?;
    Port::open(&path, layout).map_err(|error| unanswered(&path, &error))
}

/// Registers an address and a port of UDP.
fn register(port: &mut Port, address: SocketAddr) -> Result<SocketAddr, Failure> {
    let what = || format!("cannot have {address}");
    if !port.reserved().is_empty() {
        let tuple = port.claim_one(17, address);
        let tuple = tuple.map_err(|error| Failure::environment(what(), error))?;
        return Ok((tuple.address, tuple.port).into());
    }
    let socket = UdpSocket::bind(address).map_err(|error| Failure::address(what(), &error))?;
    let tuple = port.register(socket).map_err(|error| Failure::environment(what(), error))?;
    Ok((tuple.address, tuple.port).into())
}

/// The address from which the system would send there.
fn source(to: SocketAddr) -> Result<IpAddr, Failure> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let found = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    });
    found.map_err(|error| {
        Failure::environment(format!("the system has no way to {to}: give --from"), error)
    })
}

/// Does something on a thread that may wait, until it has ended or this program is told to: then `stop` becomes true. `ready`
/// is called once signals are heard.
fn until_told<T: Send + 'static>(
    ready: impl FnOnce(),
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    crate::one_thread()?.block_on(async {
        let watch = |kind| {
            signal(kind).map_err(|error| Failure::environment("cannot watch for signals", error))
        };
        let (mut terminate, mut interrupt) =
            (watch(SignalKind::terminate())?, watch(SignalKind::interrupt())?);
        ready();
        let mut work = tokio::task::spawn_blocking(move || work(&stop));
        let ended = tokio::select! {
            ended = &mut work => ended,
            _ = terminate.recv() => { told.store(true, Ordering::Relaxed); work.await }
            _ = interrupt.recv() => { told.store(true, Ordering::Relaxed); work.await }
        };
        ended.map_err(|error| Failure::environment("a thread has ended", error))
    })
}

/// What a wait has come to: one that a signal has ended is over, and whoever waits looks again.
fn waited(result: io::Result<bool>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// A number of things.
pub(super) fn some(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

/// What has come to nothing, as the switch or the system says.
fn cannot(error: io::Error) -> Failure {
    Failure::environment("the switch for packets does not go on", error)
}
