//! A stack of its own on one host: answers every datagram of UDP that comes to an address, and knows of IPv4, IPv6
//! and UDP what it takes for that.
//!
//! ```text
//! quicket switch packets --name ./ports &
//! cargo run -p quicket-packets --example echo -- ./ports 127.0.0.1:7000 &
//! cargo run -p quicket-packets --example echo -- ./ports 127.0.0.1:7001 127.0.0.1:7000
//! ```
//!
//! With a second address it is the other side: it asks there a thousand times and says how long an answer took.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use quicket_packets::client::Port;
use quicket_packets::{Layout, compose};

/// Frames that are answered at once.
const BATCH: u32 = 64;
const QUESTIONS: u32 = 1000;

/// A datagram in a frame.
struct Datagram<'a> {
    from: SocketAddr,
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a frame. The switch has checked lengths and checksums; it delivers what it was sent, with tags and
    /// extension headers, which this stack does not know.
    fn read(frame: &'a [u8]) -> Option<Self> {
        let (kind, packet) = frame.get(12..)?.split_first_chunk::<2>()?;
        let (address, protocol, udp) = match u16::from_be_bytes(*kind) {
            0x800 => {
                let address: [u8; 4] = *packet.get(12..)?.first_chunk()?;
                let header = usize::from(packet.first()? & 0xf) * 4;
                (address.into(), *packet.get(9)?, packet.get(header..)?)
            }
            0x86dd => {
                let address: [u8; 16] = *packet.get(8..)?.first_chunk()?;
                (std::net::IpAddr::from(address), *packet.get(6)?, packet.get(40..)?)
            }
            _ => return None,
        };
        let [p0, p1, _, _, l0, l1, ..] = *udp else { return None };
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let payload = udp.get(8..len).filter(|_| protocol == 17)?;
        Some(Self { from: (address, u16::from_be_bytes([p0, p1])).into(), payload })
    }
}

/// Answers until the switch goes.
fn answer(port: &mut Port, address: SocketAddr) -> std::io::Result<()> {
    let mut waiting: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
    loop {
        port.wait(None)?;
        port.receive(BATCH, |frame| {
            if let Some(Datagram { from, payload }) = Datagram::read(frame) {
                waiting.push((from, payload.to_vec()));
            }
        })?;
        while !waiting.is_empty() {
            port.wait_for_room(None)?;
            port.send(|slot| {
                let (to, payload) = waiting.pop()?;
                // What does not fit has been cut off by nobody: slots of all ports here are as long.
                compose::udp(slot, address, to, &payload)
            })?;
        }
    }
}

/// Asks, and says how long that took.
fn ask(port: &mut Port, address: SocketAddr, to: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut slowest = Duration::ZERO;
    let begun = Instant::now();
    for number in 0..QUESTIONS {
        let asked = Instant::now();
        let question = number.to_be_bytes();
        let mut frame = Some(question);
        port.send(|slot| compose::udp(slot, address, to, &frame.take()?))?;
        let mut is_answered = false;
        while !is_answered {
            if !port.wait(Some(Duration::from_secs(1)))? {
                let counters = port.counters()?;
                return Err(format!("no answer from {to} in a second; {counters:?}").into());
            }
            port.receive(BATCH, |frame| {
                let datagram = Datagram::read(frame);
                is_answered |= datagram.is_some_and(|d| d.from == to && d.payload == question);
            })?;
        }
        slowest = slowest.max(asked.elapsed());
    }
    let mean = begun.elapsed() / QUESTIONS;
    println!("{QUESTIONS} answers from {to}: {mean:?} each, {slowest:?} at most");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (path, address, to) = match &words[..] {
        [path, address] => (path, address, None),
        [path, address, to] => (path, address, Some(to.parse::<SocketAddr>()?)),
        _ => return Err("usage: echo SOCKET ADDRESS [OTHER]".into()),
    };
    let layout = Layout::new(256, 256, 2048).ok_or("no layout")?;
    let mut port = Port::open(Path::new(path), layout)?;
    // The system says whether this program may have the address; the switch keeps it for the port.
    let tuple = port.register(UdpSocket::bind(address)?)?;
    println!("{tuple}");
    let address = (tuple.address, tuple.port).into();
    match to {
        Some(to) => ask(&mut port, address, to),
        None => Ok(answer(&mut port, address)?),
    }
}
