//! The instructions that forward a datagram: see `forward`.
//!
//! A packet comes as Ethernet, IPv4 without options or IPv6 without extension headers, UDP; it leaves
//! as Ethernet, IPv4 or IPv6, UDP, GUE and then as it came, with an IP header as user space would
//! write it. There is a part of the program for each family that packets come by, and in it one for
//! each that they leave by. All offsets are from the header of Ethernet on, and numbers are left in
//! network byte order where that does no harm.

mod encapsulation;
mod headers;
mod lookup;
mod route;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use crate::extended::{Assembler, Condition, Helper, Instruction, Operation, Register, Size};
use crate::forward::Rules;
use crate::labels::Label;
use crate::xdp::{PASS, network};

use Register::{R0, R1, R2, R6, R7, R8, R10};

/// The maps that a program reads and counts in.
pub(crate) struct Maps<'a> {
    pub(crate) servers: BorrowedFd<'a>,
    /// How many the table of servers has: a power of two.
    pub(crate) buckets: usize,
    pub(crate) learned: BorrowedFd<'a>,
    /// Both ends of the ways over IPv6: see `Way`.
    pub(crate) ways: BorrowedFd<'a>,
    pub(crate) counts: BorrowedFd<'a>,
    /// Slots of each processor there.
    pub(crate) stride: u32,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const BOTH: [Self; 2] = [Self::V4, Self::V6];

    const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// What Ethernet calls it.
    const fn ethernet(self) -> u16 {
        match self {
            Self::V4 => 0x0800,
            Self::V6 => 0x86dd,
        }
    }

    /// What IP calls it.
    const fn protocol(self) -> u16 {
        match self {
            Self::V4 => 4,
            Self::V6 => 41,
        }
    }

    /// Octets of a header.
    const fn header(self) -> i16 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Where UDP begins in a packet with this header behind that of Ethernet.
    const fn udp(self) -> i16 {
        IP + self.header()
    }

    const fn payload(self) -> i16 {
        self.udp() + 8
    }

    /// What is put in front: IP, UDP and GUE.
    const fn outer(self) -> i16 {
        self.header() + 8 + 4
    }

    /// Where the addresses are in a header, and the octets of one.
    const fn addresses(self) -> (i16, i16, i16) {
        match self {
            Self::V4 => (12, 16, 4),
            Self::V6 => (8, 24, 16),
        }
    }
}

/// Fields of `struct xdp_md` (linux/bpf.h).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const INGRESS: i16 = 12;

/// Where the header of IP is in a packet.
const IP: i16 = 14;

/// The stack: `struct bpf_fib_lookup` of linux/bpf.h, a key, and what is kept for later.
const FIB: i16 = -64;
const FIB_LEN: i32 = 64;
const KEY: i16 = FIB - 32;
/// The length of the payload.
const LEN: i16 = KEY - 8;
const SLOT: i16 = KEY - 16;
const HASH: i16 = KEY - 24;
/// Where the ends of a way over IPv6 are.
const WAY: i16 = KEY - 32;

/// Fields of a target: see `Target::octets`.
const TARGET_TO: i16 = 0;
const TARGET_FROM: i16 = 4;
const TARGET_PORT: i16 = 8;
const TARGET_MAX: i16 = 10;
const TARGET_SLOT: i16 = 12;

const PROTOCOL_UDP: u16 = 17;

/// Writes the program; none if the rules are beyond it.
pub(crate) fn write(rules: &Rules, maps: &Maps<'_>) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let pass = program.label();
    let id_len = i16::try_from(rules.id_len).ok().filter(|len| (1..=20).contains(len))?;
    program.double_with(Operation::Move, R6, R1);
    write_ends(&mut program);
    headers::write_ethernet(&mut program, rules, pass);
    for inner in Family::BOTH {
        if !rules.listen.iter().any(|address| Family::of(address.ip()) == inner) {
            continue;
        }
        let other = program.label();
        program.load(Size::Half, R1, R7, 12);
        program.jump_if(R1, Condition::NotEqual, network(inner.ethernet()), other);
        headers::write(&mut program, rules, inner, pass);
        lookup::write_id(&mut program, inner, id_len, pass);
        lookup::write(&mut program, rules, id_len, maps, pass);
        route::write_length(&mut program, inner, pass);
        let over_v6 = program.label();
        program.load(Size::Word, R1, Register::R9, TARGET_TO);
        program.jump_if_word(R1, Condition::Equal, 0, over_v6);
        for outer in Family::BOTH {
            if outer == Family::V6 {
                program.place(over_v6);
            }
            route::write(&mut program, rules, [inner, outer], maps, pass);
            encapsulation::write(&mut program, [inner, outer], maps, pass);
        }
        program.place(other);
    }
    program.place(pass);
    program.word(Operation::Move, R0, PASS);
    program.exit();
    program.finish()
}

/// Loads the ends of the packet: R7 and R8.
fn write_ends(program: &mut Assembler) {
    program.load(Size::Word, R7, R6, DATA);
    program.load(Size::Word, R8, R6, DATA_END);
}

/// Goes on at `label` unless the packet has `len` octets from `from` on.
fn write_room(program: &mut Assembler, from: Register, len: i16, label: Label) {
    program.double_with(Operation::Move, R2, from);
    program.double(Operation::Add, R2, len.into());
    program.jump_if_with(R2, Condition::Greater, R8, label);
}

/// Leaves in R0 where the value of the key on the stack is, or zero.
fn write_map_lookup(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.load_map(R1, map);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, key.into());
    program.call(Helper::MapLookup);
}

/// Leaves in R1 the one's complement sum of the header of IPv4 at `at`, in any byte order (RFC 1071).
fn write_sum(program: &mut Assembler, at: i16) {
    program.double(Operation::Move, R1, 0);
    for word in (0..20).step_by(2) {
        program.load(Size::Half, R2, R7, at + word);
        program.double_with(Operation::Add, R1, R2);
    }
    write_folds(program, 2);
}

/// Adds what is above 16 bits of R1 to these, so many times.
fn write_folds(program: &mut Assembler, times: usize) {
    for _ in 0..times {
        program.double_with(Operation::Move, R2, R1);
        program.double(Operation::ShiftRight, R2, 16);
        program.double(Operation::And, R1, 0xffff);
        program.double_with(Operation::Add, R1, R2);
    }
}
