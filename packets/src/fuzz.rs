//! Bytes of strangers, for fuzzing: errors of ICMP, what programs and the switch say to each other, and frames for a sink. Each
//! function panics if what it finds is not as it should be. Frames and rings are tried from outside (`packets/tests/fuzz`).

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use quicket_gue::{Packet, Sum, pseudo_header};

use crate::forwarder::fuzz::Copies;
use crate::frame;
use crate::icmp::{self, Report};
use crate::protocol::{Answer, MAX_MESSAGE, Request};
use crate::traffic::{Account, Generator, MAX_FLOWS, WINDOW};
use crate::tuple::Tuple;

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The addresses of the ports that quotes may be about.
pub(crate) const HERE: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
const ROUTER: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9)),
];
/// So many numbers may be missing: a sink's own bound.
const MAX_GAP: u64 = 1 << 40;

/// Errors of ICMP are read alike by who copies them and by who gets them, and come to whom they quote, once.
///
/// The first byte chooses whether the rest is a frame, or a message of ICMP or ICMPv6 from its type on, and the VLAN that it has come by.
pub fn errors(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let frame = match choice % 3 {
        0 => bytes.to_vec(),
        version => wrap(usize::from(version) - 1, bytes),
    };
    tags(&frame, u16::from(choice / 3));
    let found = icmp::check(&frame);
    let report = Report::read(&frame);
    if let Ok(ends) = found {
        let report = report.expect("what is copied is understood");
        assert_eq!(
            (report.source, report.destination),
            (ends.destination.into(), ends.source.into())
        );
        assert!(report.quoted.len() < frame.len());
        let outer = frame::check(&frame).expect("it is in order");
        assert_eq!(Tuple::from(outer.destination).address, report.source.address);
        quotes(&frame, &report);
    }
    thread_local! {
        static COPIES: RefCell<Copies> = RefCell::new(Copies::new());
    }
    let ends = found.ok().map(|ends| (ends.destination.into(), ends.source.into()));
    COPIES.with_borrow_mut(|copies| copies.check(&frame, ends));
}

/// A frame is the same with the tag of a VLAN as without, but for that.
fn tags(frame: &[u8], number: u16) {
    if let Ok((Some(_), ..)) = frame::tuples_of_device(frame) {
        assert!(frame::tuples(frame).is_err(), "a port has no VLAN");
    }
    let Some(tag) = frame::tag(frame, number).filter(|_| number != 0) else { return };
    let mut tagged = frame.to_vec();
    tagged.splice(12..12, tag);
    assert_eq!(frame::vlan(&tagged), Some(number));
    let ends = frame::tuples(frame).map(|(from, to)| (Some(number), from, to));
    assert_eq!(frame::tuples_of_device(&tagged), ends);
    assert_eq!(frame::take_out_tag(&mut tagged).as_deref(), Ok(frame));
}

/// Another reader finds the same in the packet that is quoted, where it is whole enough for that one.
fn quotes(frame: &[u8], report: &Report<'_>) {
    let (_, packet) = frame::packet(frame).expect("it has been accepted");
    let outer = Packet::parse(packet).expect("it has been accepted");
    assert_eq!(
        (outer.source, outer.protocol),
        (report.reporter, if report.reporter.is_ipv4() { ICMP } else { ICMPV6 })
    );
    let at = frame.len() - report.quoted.len();
    if matches!(report.source.protocol, 6 | UDP) {
        // What pads the frame may be behind it: the ports stand at the beginning of what is quoted.
        let ports = report.quoted.first_chunk::<4>().expect("ports are quoted");
        let [source, destination] =
            [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
        assert_eq!((report.source.port, report.destination.port), (source, destination));
    } else {
        assert_eq!((report.source.port, report.destination.port), (0, 0));
    }
    assert!(at >= 14 + 20 + 8 + 20, "headers are before it");
}

/// A frame with a message of ICMP to one of the ports' addresses, with right lengths and checksums.
fn wrap(version: usize, message: &[u8]) -> Vec<u8> {
    let mut icmp = message.to_vec();
    let (here, router) = (HERE[version], ROUTER[version]);
    let protocol = if version == 0 { ICMP } else { ICMPV6 };
    if let Some(sum) = icmp.get_mut(2..4) {
        sum.fill(0);
    }
    let sum = if version == 0 {
        Sum::new()
    } else {
        pseudo_header(router, here, protocol, icmp.len() as u32)
    };
    let sum = sum.bytes(&icmp).checksum();
    if let Some(place) = icmp.get_mut(2..4) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
    let mut frame = vec![0; 12];
    match (router, here) {
        (IpAddr::V4(router), IpAddr::V4(here)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + icmp.len() as u16).to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            frame.extend(router.octets().into_iter().chain(here.octets()));
            let sum = Sum::new().bytes(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(router), IpAddr::V6(here)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((icmp.len() as u16).to_be_bytes());
            frame.extend([protocol, 64]);
            frame.extend(router.octets().into_iter().chain(here.octets()));
        }
        _ => unreachable!("of one version"),
    }
    frame.extend(icmp);
    frame
}

/// What programs and the switch say to each other is understood in one way, whatever it is; and a switch goes on.
///
/// The first byte chooses whether it is a request, an answer, or what several programs say.
pub fn control(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 3 {
        0 => request(bytes),
        1 => answer(bytes),
        _ => crate::daemon::fuzz::control(bytes),
    }
}

fn request(bytes: &[u8]) {
    let Some(request) = Request::decode(bytes) else { return };
    assert_eq!(request.encode(), bytes, "there is one way to write it");
    assert!(bytes.len() <= MAX_MESSAGE);
    if let Request::Open { sizes, .. } | Request::AddQueue(sizes) = request
        && let Some(layout) = sizes.layout()
    {
        // As docs/packets.md says: 4,096 positions each way, and slots of 16 KiB.
        assert!(layout.memory() <= (2 << 12) * (16 << 10) + (1 << 20), "{layout:?}");
    }
    if let Request::Attach { name, .. } | Request::Detach { name } = request
        && let Some(name) = name.as_str()
    {
        assert!((1..16).contains(&name.len()) && !name.contains(['/', '\0']));
    }
}

fn answer(bytes: &[u8]) {
    let bytes = bytes.get(..MAX_MESSAGE).unwrap_or(bytes);
    let Some(answer) = Answer::decode(bytes) else { return };
    let written = answer.encode();
    // Text that is none is longer than it came.
    if String::from_utf8(bytes.to_vec()).is_ok() || written.len() <= bytes.len() {
        assert_eq!(Answer::decode(&written).as_ref(), Some(&answer));
    }
    assert!(!answer.into_error().to_string().is_empty() || bytes.len() <= 5);
}

/// A sink counts each frame once, and finds out of each flow what was lost, late and doubled, as one does that remembers all.
///
/// Eight bytes are a frame: what is done to it, its flow, and how far its number is from the one before it.
pub fn account(input: &[u8]) {
    let (from, here): (SocketAddr, SocketAddr) = ((HERE[0], 7).into(), (HERE[0], 9).into());
    let mut account = Account::new(here);
    let (mut model, mut octets, mut number) = (Model::default(), 0, 0_u64);
    for step in input.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..step.len()].copy_from_slice(step);
        let [what, flow, far, rest @ ..] = bytes;
        let flow = u32::from(flow) << (what >> 6);
        let by = u64::from_le_bytes([rest[0], rest[1], rest[2], rest[3], rest[4], 0, 0, 0]);
        let by = by >> (far & 31);
        number = if far & 32 == 0 { number.wrapping_add(by) } else { number.wrapping_sub(by) };
        if far == 0xff {
            number = u64::MAX - by % 3;
        }
        let to = if what & 7 == 1 { SocketAddr::new(here.ip(), 10) } else { here };
        let mut frame = [0; 100];
        Generator::at(flow, number, from, to, 100)
            .and_then(|mut it| it.write(&mut frame))
            .expect("room");
        let len = match what & 7 {
            2 => usize::from(rest[0]) % 100,
            3 => {
                frame[42 + usize::from(rest[0]) % 20] ^= 1 << (rest[1] & 7);
                100
            }
            _ => 100,
        };
        let is_foreign = matches!(what & 7, 2 | 3);
        account.read(&frame[..len]);
        if to != here {
            model.misdelivered += 1;
        } else if is_foreign {
            model.foreign += 1;
        } else if model.take(flow, number) {
            octets += 100;
        }
    }
    let is = [account.received, account.lost, account.late, account.doubled, account.untold];
    assert_eq!(is, [model.received, model.lost, model.late, model.doubled, model.untold]);
    assert_eq!((account.misdelivered, account.octets), (model.misdelivered, octets));
    assert_eq!((account.foreign, account.errors), (model.foreign, 0));
    assert!(account.flows() <= MAX_FLOWS);
    assert_eq!(counted(&account), input.len().div_ceil(8) as u64, "each frame is counted once");
    // As it is, whatever it is.
    let mut other = Account::new(here);
    other.read(input);
    assert_eq!(counted(&other), 1);
}

/// How many frames have come in all.
fn counted(account: &Account) -> u64 {
    let Account { received, doubled, misdelivered, foreign, untold, errors, .. } = *account;
    received + doubled + misdelivered + foreign + untold + errors
}

/// A sink that remembers all.
#[derive(Default)]
struct Model {
    flows: HashMap<u32, (u64, u64, HashSet<u64>)>,
    received: u64,
    lost: u64,
    late: u64,
    doubled: u64,
    foreign: u64,
    untold: u64,
    misdelivered: u64,
}

impl Model {
    /// Returns whether the frame counts as one that has come.
    fn take(&mut self, flow: u32, number: u64) -> bool {
        if number == u64::MAX {
            self.foreign += 1;
            return false;
        }
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&flow) {
            self.untold += 1;
            return false;
        }
        let new = || (number, number, HashSet::new());
        let (first, next, came) = self.flows.entry(flow).or_insert_with(new);
        if number >= *next {
            if number - *next > MAX_GAP {
                self.foreign += 1;
                return false;
            }
            self.lost += number - *next;
            *next = number + 1;
        } else if *next - number > WINDOW || came.contains(&number) {
            self.doubled += 1;
            return false;
        } else {
            self.late += 1;
            self.lost -= u64::from(number >= *first);
        }
        came.insert(number);
        self.received += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_strangers_reach_whom_they_quote_and_nobody_else() {
        replay::replay("icmp_errors", errors);
    }

    #[test]
    fn whatever_programs_say_the_switch_goes_on_and_gets_all_back() {
        replay::replay("packets_control", control);
    }

    #[test]
    fn a_sink_counts_whatever_comes() {
        replay::replay("sink", account);
    }
}
