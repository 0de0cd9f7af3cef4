//! What a program and the switch for packets say to each other: short messages on a local socket (SOCK_SEQPACKET).
//!
//! Numbers are in the order of the machine, as both are on one. Answers come in the order of requests.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use quicket_ring::{Layout, Way};

use crate::counters::{Counters, REASONS};
use crate::device::{Attached, Loopback, Mode, Offloads, ServedVlan};
use crate::refused::Refused;
use crate::tuple::Tuple;

/// The version that both have to speak.
pub(crate) const VERSION: u8 = 3;
/// The longest message in octets.
pub(crate) const MAX_MESSAGE: usize = 512;

const OPEN: u8 = 1;
const REGISTER: u8 = 2;
const REMOVE: u8 = 3;
const COUNT: u8 = 4;
const WATCH: u8 = 5;
const ATTACH: u8 = 6;
const DETACH: u8 = 7;
const LIST: u8 = 8;
const QUEUE: u8 = 9;
const RESERVE: u8 = 10;
const CONFINE: u8 = 11;
const RESERVED: u8 = 12;
const CLAIM: u8 = 13;
const VLANS: u8 = 14;

const DONE: u8 = 0;
const REFUSED: u8 = 1;
/// 2 had fewer flags: who knows only that refuses this one as no answer, and the other way round.
const ATTACHED: u8 = 3;
const SERVED: u8 = 4;

const TUPLE_LEN: usize = 19;
const COUNTERS: usize = 2 + REASONS.len();

/// What a program wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A port.
    Open { version: u8, sizes: Sizes },
    /// Another queue for it.
    AddQueue(Sizes),
    /// The tuple of the socket that comes with it.
    Register,
    /// To own a tuple no more.
    Remove(Tuple),
    /// The port's counters.
    Count,
    /// To see the frames of the port that owns a tuple.
    Watch(Tuple),
    /// To be attached to a network device.
    Attach { name: Name, mode: Mode },
    /// ... or detached.
    Detach { name: Name },
    /// The network device of that place in the list.
    List { at: u32 },
    /// The VLANs that are served on the device of that number, from that number of a VLAN on.
    Vlans { device: u32, from: u16 },
    /// The tuple of the socket that comes with it, for the port that this connection is to have.
    Reserve,
    /// To do no more from now on than what concerns its own port: somebody else is given this connection.
    Confine,
    /// The tuple of that place among those that are reserved.
    Reserved { at: u32 },
    /// One of those for its port.
    Claim(Tuple),
}

/// Positions of the ring of sending, of that of receiving, octets of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes([u32; 3]);

impl Sizes {
    pub(crate) const fn of(layout: Layout) -> Self {
        Self([layout.entries(Way::Send), layout.entries(Way::Receive), layout.slot_len()])
    }

    /// None for what no rings have.
    pub(crate) const fn layout(self) -> Option<Layout> {
        let [send, receive, slot] = self.0;
        Layout::new(send, receive, slot)
    }

    fn encode(self) -> impl Iterator<Item = u8> {
        self.0.into_iter().flat_map(u32::to_ne_bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(numbers(bytes)?.map(u32::from_ne_bytes)))
    }
}

/// The name of a network device, and zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name([u8; Self::LEN]);

impl Name {
    /// IFNAMSIZ, with a zero at the end.
    const LEN: usize = 16;

    /// None for what can be no name.
    pub(crate) fn new(name: &str) -> Option<Self> {
        let mut octets = [0; Self::LEN];
        let is_name = !name.is_empty() && !name.bytes().any(|byte| byte == 0 || byte == b'/');
        octets
            .get_mut(..name.len())
            .filter(|rest| is_name && rest.len() < Self::LEN)?
            .copy_from_slice(name.as_bytes());
        Some(Self(octets))
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        let end = self.0.iter().position(|octet| *octet == 0)?;
        str::from_utf8(&self.0[..end]).ok().filter(|name| Self::new(name) == Some(*self))
    }
}

/// What it hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done. With a port come its memory and a bell.
    Done,
    /// It has that tuple now.
    Registered(Tuple),
    /// The port's counters.
    Counted(Box<Counters>),
    /// A network device, without its VLANs.
    Attached(Box<Attached>),
    /// VLANs of one, in the order of their numbers: as many as a message has room for. None are left if there is none.
    Vlans(Vec<ServedVlan>),
    /// It is not done: the system's number of the error, and why.
    Refused { code: i32, why: String },
}

impl Request {
    pub(crate) fn encode(self) -> Vec<u8> {
        match self {
            Self::Open { version, sizes } => {
                [OPEN, version].into_iter().chain(sizes.encode()).collect()
            }
            Self::AddQueue(sizes) => [QUEUE].into_iter().chain(sizes.encode()).collect(),
            Self::Register => vec![REGISTER],
            Self::Remove(tuple) => [&[REMOVE][..], &encode_tuple(tuple)].concat(),
            Self::Count => vec![COUNT],
            Self::Watch(tuple) => [&[WATCH][..], &encode_tuple(tuple)].concat(),
            Self::Attach { name, mode } => [&[ATTACH, mode as u8][..], &name.0].concat(),
            Self::Detach { name } => [&[DETACH][..], &name.0].concat(),
            Self::List { at } => [&[LIST][..], &at.to_ne_bytes()].concat(),
            Self::Vlans { device, from } => {
                [&[VLANS][..], &device.to_ne_bytes(), &from.to_ne_bytes()].concat()
            }
            Self::Reserve => vec![RESERVE],
            Self::Confine => vec![CONFINE],
            Self::Reserved { at } => [&[RESERVED][..], &at.to_ne_bytes()].concat(),
            Self::Claim(tuple) => [&[CLAIM][..], &encode_tuple(tuple)].concat(),
        }
    }

    /// None for what is no request.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&OPEN, rest) => {
                let (&version, rest) = rest.split_first()?;
                Some(Self::Open { version, sizes: Sizes::decode(rest)? })
            }
            (&QUEUE, rest) => Some(Self::AddQueue(Sizes::decode(rest)?)),
            (&REGISTER, []) => Some(Self::Register),
            (&REMOVE, rest) => Some(Self::Remove(decode_tuple(rest)?)),
            (&COUNT, []) => Some(Self::Count),
            (&WATCH, rest) => Some(Self::Watch(decode_tuple(rest)?)),
            (&ATTACH, [mode, name @ ..]) => {
                let modes = [Mode::Best, Mode::Native, Mode::Generic];
                let mode = modes.into_iter().find(|known| *known as u8 == *mode)?;
                Some(Self::Attach { name: Name(name.try_into().ok()?), mode })
            }
            (&DETACH, name) => Some(Self::Detach { name: Name(name.try_into().ok()?) }),
            (&LIST, at) => Some(Self::List { at: u32::from_ne_bytes(at.try_into().ok()?) }),
            (&VLANS, rest) => {
                let (device, from) = rest.split_first_chunk()?;
                let from = u16::from_ne_bytes(from.try_into().ok()?);
                Some(Self::Vlans { device: u32::from_ne_bytes(*device), from })
            }
            (&RESERVE, []) => Some(Self::Reserve),
            (&CONFINE, []) => Some(Self::Confine),
            (&RESERVED, at) => Some(Self::Reserved { at: u32::from_ne_bytes(at.try_into().ok()?) }),
            (&CLAIM, rest) => Some(Self::Claim(decode_tuple(rest)?)),
            _ => None,
        }
    }
}

impl Answer {
    pub(crate) fn refuse(code: rustix::io::Errno, why: impl Into<String>) -> Self {
        Self::Refused { code: code.raw_os_error(), why: why.into() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Done => vec![DONE],
            Self::Registered(tuple) => [&[DONE][..], &encode_tuple(*tuple)].concat(),
            Self::Counted(counters) => {
                let numbers = counters.to_numbers();
                let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
                std::iter::once(DONE).chain(numbers).collect()
            }
            Self::Attached(attached) => encode_attached(attached),
            Self::Vlans(vlans) => encode_vlans(vlans),
            Self::Refused { code, why } => {
                // Cut off between two characters.
                let mut most = (0..=why.len().min(MAX_MESSAGE - 5)).rev();
                let end = most.find(|at| why.is_char_boundary(*at)).unwrap_or(0);
                let why = &why[..end];
                [&[REFUSED][..], &code.to_ne_bytes(), why.as_bytes()].concat()
            }
        }
    }

    /// None for what is no answer.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (&DONE, []) => Some(Self::Done),
            (&DONE, rest) if rest.len() == TUPLE_LEN => Some(Self::Registered(decode_tuple(rest)?)),
            (&DONE, rest) => {
                let numbers = numbers::<COUNTERS, 8>(rest)?.map(u64::from_ne_bytes);
                Some(Self::Counted(Counters::from_numbers(numbers).into()))
            }
            (&ATTACHED, rest) => {
                decode_attached(rest).map(|attached| Self::Attached(attached.into()))
            }
            (&SERVED, rest) => Some(Self::Vlans(decode_vlans(rest)?)),
            (&REFUSED, rest) => {
                let (code, why) = rest.split_first_chunk()?;
                let why = String::from_utf8_lossy(why).into_owned();
                Some(Self::Refused { code: i32::from_ne_bytes(*code), why })
            }
            _ => None,
        }
    }

    /// The error that it is for a program, which can be told by its number.
    pub(crate) fn into_error(self) -> io::Error {
        match self {
            Self::Refused { code, why } => Refused::new(code, why).into(),
            _ => io::Error::new(
                io::ErrorKind::InvalidData,
                "the switch for packets has answered something else than it was asked",
            ),
        }
    }
}

fn encode_tuple(tuple: Tuple) -> [u8; TUPLE_LEN] {
    let address = match tuple.address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = [0; TUPLE_LEN];
    bytes[..16].copy_from_slice(&address.octets());
    bytes[16] = tuple.protocol;
    bytes[17..].copy_from_slice(&tuple.port.to_ne_bytes());
    bytes
}

fn decode_tuple(bytes: &[u8]) -> Option<Tuple> {
    let [address @ .., protocol, p0, p1] = bytes else { return None };
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical();
    Some(Tuple { address, protocol: *protocol, port: u16::from_ne_bytes([*p0, *p1]) })
}

/// Index, queues, MTU; flags; counters; the name.
fn encode_attached(attached: &Attached) -> Vec<u8> {
    let Attached { name, index, queues, mtu, changed, loopback, counters, .. } = attached;
    let mut bytes = vec![ATTACHED];
    [index, queues, mtu].iter().for_each(|n| bytes.extend(n.to_ne_bytes()));
    let Loopback { segments, accept_local, route_localnet } = *loopback;
    let [is_native, is_zero_copy] = [attached.is_native, attached.is_zero_copy];
    let [vlan, large_receive] = [changed.vlan, changed.large_receive];
    let flags =
        [is_native, is_zero_copy, vlan, large_receive, segments, accept_local, route_localnet];
    bytes.extend(flags.map(u8::from));
    counters.to_numbers().iter().for_each(|n| bytes.extend(n.to_ne_bytes()));
    bytes.extend(name.as_bytes());
    bytes
}

fn decode_attached(bytes: &[u8]) -> Option<Attached> {
    let (fields, rest) = bytes.split_first_chunk::<12>()?;
    let [index, queues, mtu] = numbers(fields)?.map(u32::from_ne_bytes);
    let (flags, rest) = rest.split_first_chunk::<7>()?;
    let [is_native, is_zero_copy, vlan, large_receive, segments, accept_local, route_localnet] =
        flags.map(|flag| flag != 0);
    let (counted, name) = rest.split_at_checked(COUNTERS * 8)?;
    Some(Attached {
        name: String::from_utf8_lossy(name).into_owned(),
        index,
        is_native,
        is_zero_copy,
        queues,
        mtu,
        changed: Offloads { vlan, large_receive },
        loopback: Loopback { segments, accept_local, route_localnet },
        vlans: Vec::new(),
        counters: Counters::from_numbers(numbers(counted)?.map(u64::from_ne_bytes)),
    })
}

/// Of each the number, and the length of its device's name and that. What there is no room for is asked for again.
fn encode_vlans(vlans: &[ServedVlan]) -> Vec<u8> {
    let mut bytes = vec![SERVED];
    for ServedVlan { number, device } in vlans {
        let Ok(len) = u8::try_from(device.len()) else { break };
        if bytes.len() + 3 + device.len() > MAX_MESSAGE {
            break;
        }
        bytes.extend(number.to_ne_bytes());
        bytes.push(len);
        bytes.extend(device.as_bytes());
    }
    bytes
}

fn decode_vlans(mut bytes: &[u8]) -> Option<Vec<ServedVlan>> {
    let mut vlans = Vec::new();
    while !bytes.is_empty() {
        let ([n0, n1, len], rest) = bytes.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let device = str::from_utf8(name).ok()?.to_owned();
        vlans.push(ServedVlan { number: u16::from_ne_bytes([*n0, *n1]), device });
        bytes = rest;
    }
    Some(vlans)
}

/// Numbers that fill all of the bytes.
fn numbers<const COUNT: usize, const LEN: usize>(bytes: &[u8]) -> Option<[[u8; LEN]; COUNT]> {
    let (numbers, rest) = bytes.as_chunks::<LEN>();
    rest.is_empty().then_some(())?;
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let address = "2001:db8::1".parse().unwrap();
        let tuple = Tuple { address, protocol: 6, port: 443 };
        let v4 = Tuple { address: "192.0.2.1".parse().unwrap(), ..tuple };
        let open = Request::Open { version: 1, sizes: Sizes([2, 3, 4]) };
        let name = Name::new("eth0").unwrap();
        assert_eq!(name.as_str(), Some("eth0"));
        for wrong in ["", "a/b", "a\0", "0123456789abcdef"] {
            assert_eq!(Name::new(wrong), None, "{wrong}");
        }
        assert_eq!((Name([b'a'; 16]).as_str(), Name([0; 16]).as_str()), (None, None));
        let attach = Request::Attach { name, mode: Mode::Generic };
        let queue = Request::AddQueue(Sizes([5, 6, 7]));
        let vlans = Request::Vlans { device: 70_000, from: 300 };
        let others = [attach, Request::Detach { name }, Request::List { at: 3 }, vlans, queue];
        let ports = [open, Request::Register, Request::Remove(tuple), Request::Count];
        let handed =
            [Request::Reserve, Request::Confine, Request::Reserved { at: 4 }, Request::Claim(v4)];
        let watch = [Request::Watch(tuple)];
        for request in ports.into_iter().chain(watch).chain(others).chain(handed) {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request));
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None);
        }
        let mut counters = Counters::from_numbers([1; COUNTERS]);
        counters.drop_one(REASONS[3]);
        let refused = Answer::refuse(rustix::io::Errno::BUSY, "no");
        let attached = Attached {
            name: "eth0".to_owned(),
            index: 1,
            is_native: true,
            is_zero_copy: false,
            queues: 2,
            mtu: 1500,
            changed: Offloads { vlan: true, large_receive: false },
            loopback: Loopback { segments: true, accept_local: false, route_localnet: true },
            vlans: Vec::new(),
            counters,
        };
        let answers =
            [Answer::Done, Answer::Registered(v4), Answer::Counted(counters.into()), refused];
        for answer in answers.into_iter().chain([Answer::Attached(attached.into())]) {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        let long = Answer::refuse(rustix::io::Errno::BUSY, "ü".repeat(1000)).encode();
        assert!(long.len() <= MAX_MESSAGE && long.len() > MAX_MESSAGE - 4);
    }

    #[test]
    fn vlans_are_heard_as_far_as_there_is_room_for_them() {
        let vlan = |number, device: &str| ServedVlan { number, device: device.to_owned() };
        // Names of the system have 15 octets at most, and three times as many where they are no UTF-8.
        let all: Vec<_> =
            (1..=256).map(|n| vlan(n, if n % 2 == 0 { "0123456789abcde" } else { "ü" })).collect();
        let bytes = Answer::Vlans(all.clone()).encode();
        assert!(bytes.len() <= MAX_MESSAGE && bytes.len() > MAX_MESSAGE - 18, "{}", bytes.len());
        let Some(Answer::Vlans(some)) = Answer::decode(&bytes) else { panic!("no answer") };
        assert!(some.len() > 28 && some == all[..some.len()]);
        let longest = Answer::Vlans(vec![vlan(4094, &"\u{fffd}".repeat(15))]);
        assert_eq!(Answer::decode(&longest.encode()), Some(longest));
        let none = Answer::Vlans(Vec::new());
        assert_eq!(Answer::decode(&none.encode()), Some(none));
        // What is cut off within one is no answer.
        let two = Answer::Vlans(vec![vlan(1, "a"), vlan(2, "bc")]).encode();
        let whole = |len| Answer::decode(&two[..len]).is_some();
        assert_eq!((0..=two.len()).filter(|len| whole(*len)).collect::<Vec<_>>(), [1, 5, 10]);
        assert_eq!(Answer::decode(&[SERVED, 1, 0, 1, 0xff]), None, "no UTF-8");
    }
}
