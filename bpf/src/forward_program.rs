//! The instructions that forward a datagram: see `forward`.
//!
//! A packet comes as Ethernet, IPv4 without options, UDP; it leaves as Ethernet, IPv4, UDP, GUE and
//! then as it came, with an IPv4 header as user space would write it. All offsets are from the header
//! of Ethernet on, and numbers are left in network byte order where that does no harm.

use std::os::fd::BorrowedFd;

use crate::cuckoo::{self, ENTRIES, ENTRY, FACTORS, SHIFTS};
use crate::extended::{Assembler, Condition, Helper, Instruction, Operation, Register, Size};
use crate::forward::{ID_KEY, MAX_EGRESS, Reading, Rules};
use crate::labels::Label;

use Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};

/// The maps that a program reads and counts in.
pub(crate) struct Maps<'a> {
    pub(crate) servers: BorrowedFd<'a>,
    /// How many the table of servers has: a power of two.
    pub(crate) buckets: usize,
    pub(crate) learned: BorrowedFd<'a>,
    pub(crate) counts: BorrowedFd<'a>,
    /// Slots of each processor there.
    pub(crate) stride: u32,
}

/// Fields of `struct xdp_md` (linux/bpf.h).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const INGRESS: i16 = 12;

/// Where the headers are in a packet that comes.
const IP: i16 = 14;
const UDP: i16 = IP + 20;
const PAYLOAD: i16 = UDP + 8;
/// What is put in front: IPv4, UDP and GUE.
const OUTER: i16 = 20 + 8 + 4;
/// The shortest packet with a short header: see `MIN_SHORT` of the balancer.
const MIN_SHORT: i16 = 21;
/// Where a connection ID is in a payload (RFC 8999, Section 5).
const SHORT_ID: i16 = 1;
const LONG_VERSION: i16 = 1;
const LONG_LEN: i16 = 5;
const LONG_ID: i16 = 6;
const LONG: i32 = 0x80;

/// The stack: `struct bpf_fib_lookup` of linux/bpf.h, a key, the length of the payload.
const FIB: i16 = -64;
const FIB_LEN: i32 = 64;
const FIB_LENGTH: i16 = FIB + 6;
const FIB_INTERFACE: i16 = FIB + 8;
const FIB_SOURCE: i16 = FIB + 16;
const FIB_DESTINATION: i16 = FIB + 32;
/// Both addresses of Ethernet, the source first.
const FIB_SOURCE_MAC: i16 = FIB + 52;
const FIB_DESTINATION_MAC: i16 = FIB + 58;
const KEY: i16 = FIB - 32;
const LEN: i16 = KEY - 8;
const SLOT: i16 = KEY - 16;
const HASH: i16 = KEY - 24;

/// Fields of a target: see `Target::octets`.
const TARGET_TO: i16 = 0;
const TARGET_FROM: i16 = 4;
const TARGET_PORT: i16 = 8;
const TARGET_MAX: i16 = 10;
const TARGET_SLOT: i16 = 12;

/// Answers of programs (`enum xdp_action`).
const DROP: u32 = 1;
const PASS: u32 = 2;
const TRANSMIT: u32 = 3;

const TTL: i32 = 64;
const PROTOCOL_UDP: i32 = 17;
const AF_INET: i32 = 2;

/// A number of 16 bits as it is loaded from a packet.
fn network(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// Writes the program; none if the rules are beyond it.
pub(crate) fn write(rules: &Rules, maps: &Maps<'_>) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let pass = program.label();
    let id_len = i16::try_from(rules.id_len).ok().filter(|len| (1..=20).contains(len))?;
    write_headers(&mut program, rules, pass);
    write_id(&mut program, id_len, pass);
    write_lookup(&mut program, rules, id_len, maps, pass);
    write_route(&mut program, rules, pass);
    write_encapsulation(&mut program, maps, pass);
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

/// Leaves alone what is no datagram to one of our addresses, or not one that can be carried.
fn write_headers(program: &mut Assembler, rules: &Rules, pass: Label) {
    program.double_with(Operation::Move, R6, R1);
    write_ends(program);
    write_room(program, R7, PAYLOAD + MIN_SHORT, pass);
    // For this machine, and not flooded by a switch.
    let [a, b, c, d, e, f] = rules.mac;
    program.load(Size::Word, R1, R7, 0);
    program.jump_if_word(R1, Condition::NotEqual, u32::from_ne_bytes([a, b, c, d]), pass);
    program.load(Size::Half, R1, R7, 4);
    program.jump_if(R1, Condition::NotEqual, u16::from_ne_bytes([e, f]).into(), pass);
    let mut must = |size, at, value| {
        program.load(size, R1, R7, at);
        program.jump_if(R1, Condition::NotEqual, value, pass);
    };
    must(Size::Half, 12, network(0x0800));
    must(Size::Octet, IP, 0x45);
    must(Size::Octet, IP + 9, PROTOCOL_UDP);
    // No fragment: neither more to come nor an offset.
    program.load(Size::Half, R1, R7, IP + 6);
    program.jump_if(R1, Condition::AnyOf, network(0x3fff), pass);
    let ours = program.label();
    program.load(Size::Word, R3, R7, IP + 16);
    program.load(Size::Half, R4, R7, UDP + 2);
    for address in &rules.listen {
        let next = program.label();
        let ip = u32::from_ne_bytes(address.ip().octets());
        program.jump_if_word(R3, Condition::NotEqual, ip, next);
        program.jump_if(R4, Condition::Equal, network(address.port()), ours);
        program.place(next);
    }
    program.jump(pass);
    program.place(ours);
    write_source(program, rules, pass);
    // The header is as it was sent: its sum with the checksum is all ones.
    write_sum(program, IP);
    program.jump_if(R1, Condition::NotEqual, 0xffff, pass);
    // It would go in circles, or nobody could answer; user space counts those.
    program.load(Size::Octet, R1, R7, IP + 8);
    program.jump_if(R1, Condition::Less, 2, pass);
    program.load(Size::Half, R1, R7, UDP);
    program.jump_if(R1, Condition::Equal, 0, pass);
    // Without a checksum: user space computes one.
    program.load(Size::Half, R1, R7, UDP + 6);
    program.jump_if(R1, Condition::Equal, 0, pass);
    // All lengths say the same.
    program.load(Size::Half, R1, R7, IP + 2);
    program.half_from_big_endian(R1);
    program.load(Size::Half, R2, R7, UDP + 4);
    program.half_from_big_endian(R2);
    program.double(Operation::Add, R2, 20);
    program.jump_if_with(R1, Condition::NotEqual, R2, pass);
    program.double_with(Operation::Move, R2, R7);
    program.double(Operation::Add, R2, IP.into());
    program.double_with(Operation::Add, R2, R1);
    program.jump_if_with(R2, Condition::Greater, R8, pass);
    program.jump_if_with(R2, Condition::Less, R8, pass);
    program.double(Operation::Add, R1, -28);
    program.store(Size::Double, R10, LEN, R1);
}

/// Leaves alone what comes from an address that no other machine has; the system discards those.
fn write_source(program: &mut Assembler, rules: &Rules, pass: Label) {
    program.load(Size::Octet, R1, R7, IP + 12);
    program.jump_if(R1, Condition::Equal, 0, pass);
    program.jump_if(R1, Condition::Equal, 127, pass);
    // Groups, reserved addresses and broadcast.
    program.jump_if(R1, Condition::Greater, 223, pass);
    program.load(Size::Word, R1, R7, IP + 12);
    for address in &rules.listen {
        let ip = u32::from_ne_bytes(address.ip().octets());
        program.jump_if_word(R1, Condition::Equal, ip, pass);
    }
}

/// Leaves in R9 where the connection ID is, of which `len` octets may be read.
fn write_id(program: &mut Assembler, len: i16, pass: Label) {
    let (long, found) = (program.label(), program.label());
    program.load(Size::Octet, R1, R7, PAYLOAD);
    program.jump_if(R1, Condition::AnyOf, LONG, long);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (PAYLOAD + SHORT_ID).into());
    write_room(program, R9, len, pass);
    program.jump(found);
    program.place(long);
    // Version Negotiation.
    program.load(Size::Word, R1, R7, PAYLOAD + LONG_VERSION);
    program.jump_if(R1, Condition::Equal, 0, pass);
    program.load(Size::Octet, R1, R7, PAYLOAD + LONG_LEN);
    program.jump_if(R1, Condition::NotEqual, len.into(), pass);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (PAYLOAD + LONG_ID).into());
    write_room(program, R9, len + 1, pass);
    // The other connection ID is there as a whole.
    program.load(Size::Octet, R1, R9, len);
    program.double_with(Operation::Move, R3, R9);
    program.double_with(Operation::Add, R3, R1);
    write_room(program, R3, len + 1, pass);
    program.place(found);
}

/// Leaves in R9 the target of the connection ID at R9.
fn write_lookup(program: &mut Assembler, rules: &Rules, id_len: i16, maps: &Maps<'_>, pass: Label) {
    let found = program.label();
    program.load(Size::Octet, R1, R9, 0);
    program.word(Operation::ShiftRight, R1, 5);
    for &Reading { id, plain } in &rules.readings {
        let next = program.label();
        program.jump_if(R1, Condition::NotEqual, id.into(), next);
        // Configurations have fields that fit in their connection IDs.
        let (key_len, from, len, first) = match plain {
            Some(len) => (cuckoo::KEY, 1, len as i16, Some(len)),
            None => (ID_KEY, 0, id_len, None),
        };
        for at in (0..key_len as i16).step_by(8) {
            program.store_value(Size::Double, R10, KEY + at, 0);
        }
        let to = KEY + i16::from(first.is_some());
        if let Some(len) = first {
            program.store_value(Size::Octet, R10, KEY, len as i32);
        }
        for at in 0..len.min(id_len - from) {
            program.load(Size::Octet, R1, R9, from + at);
            program.store(Size::Octet, R10, to + at, R1);
        }
        match plain {
            Some(_) => write_server(program, maps, found, pass),
            None => {
                write_map_lookup(program, maps.learned, KEY);
                program.jump_if(R0, Condition::Equal, 0, pass);
                program.jump(found);
            }
        }
        program.place(next);
    }
    program.jump(pass);
    program.place(found);
    program.double_with(Operation::Move, R9, R0);
}

/// Leaves in R0 where the value of the key on the stack is, or zero.
fn write_map_lookup(program: &mut Assembler, map: BorrowedFd<'_>, key: i16) {
    program.load_map(R1, map);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, key.into());
    program.call(Helper::MapLookup);
}

/// Goes on at `found` with the target of the server whose key is on the stack in R0: see `cuckoo`.
fn write_server(program: &mut Assembler, maps: &Maps<'_>, found: Label, pass: Label) {
    write_hash(program);
    program.store(Size::Double, R10, HASH, R1);
    for place in 0..2 {
        if place == 1 {
            program.load(Size::Double, R1, R10, HASH);
            program.double(Operation::ShiftRight, R1, 32);
        }
        program.word(Operation::And, R1, maps.buckets as u32 - 1);
        program.store(Size::Word, R10, SLOT, R1);
        write_map_lookup(program, maps.servers, SLOT);
        program.jump_if(R0, Condition::Equal, 0, pass);
        program.load(Size::Double, R3, R10, KEY);
        program.load(Size::Double, R4, R10, KEY + 8);
        for entry in 0..ENTRIES as i16 {
            let next = program.label();
            let at = entry * ENTRY as i16;
            program.load(Size::Double, R1, R0, at);
            program.jump_if_with(R1, Condition::NotEqual, R3, next);
            program.load(Size::Double, R1, R0, at + 8);
            program.jump_if_with(R1, Condition::NotEqual, R4, next);
            program.double(Operation::Add, R0, i32::from(at) + cuckoo::KEY as i32);
            program.jump(found);
            program.place(next);
        }
    }
    program.jump(pass);
}

/// Leaves in R1 what chooses the buckets of the key on the stack: see `cuckoo::places`.
fn write_hash(program: &mut Assembler) {
    // Constants have a sign, and these are positive.
    let [f, g] = FACTORS.map(u32::cast_signed);
    let shift = |program: &mut Assembler, by: u32| {
        program.double_with(Operation::Move, R2, R1);
        program.double(Operation::ShiftRight, R2, by.cast_signed());
        program.double_with(Operation::Xor, R1, R2);
    };
    program.load(Size::Double, R1, R10, KEY);
    program.load(Size::Double, R2, R10, KEY + 8);
    program.double(Operation::Multiply, R2, f);
    program.double_with(Operation::Xor, R1, R2);
    shift(program, SHIFTS[0]);
    program.double(Operation::Multiply, R1, g);
    shift(program, SHIFTS[1]);
    program.double(Operation::Multiply, R1, f);
    shift(program, SHIFTS[2]);
}

/// Finds the way to the target in R9: its device and addresses of Ethernet are on the stack then.
fn write_route(program: &mut Assembler, rules: &Rules, pass: Label) {
    program.load(Size::Double, R1, R10, LEN);
    program.load(Size::Half, R2, R9, TARGET_MAX);
    program.jump_if_with(R1, Condition::Greater, R2, pass);
    for at in (0..FIB_LEN as i16).step_by(8) {
        program.store_value(Size::Double, R10, FIB + at, 0);
    }
    program.store_value(Size::Octet, R10, FIB, AF_INET);
    program.store_value(Size::Octet, R10, FIB + 1, PROTOCOL_UDP);
    program.double(Operation::Add, R1, (28 + OUTER).into());
    program.store(Size::Half, R10, FIB_LENGTH, R1);
    program.load(Size::Word, R1, R6, INGRESS);
    program.store(Size::Word, R10, FIB_INTERFACE, R1);
    program.load(Size::Word, R1, R9, TARGET_FROM);
    program.store(Size::Word, R10, FIB_SOURCE, R1);
    program.load(Size::Word, R1, R9, TARGET_TO);
    program.store(Size::Word, R10, FIB_DESTINATION, R1);
    program.double_with(Operation::Move, R1, R6);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, FIB.into());
    program.double(Operation::Move, R3, FIB_LEN);
    program.double(Operation::Move, R4, 0);
    program.call(Helper::FibLookup);
    // No neighbour yet, no forwarding, a narrower path: user space has words for it.
    program.jump_if(R0, Condition::NotEqual, 0, pass);
    let can_send = program.label();
    program.load(Size::Word, R1, R10, FIB_INTERFACE);
    for &device in rules.egress.iter().take(MAX_EGRESS) {
        program.jump_if_word(R1, Condition::Equal, device, can_send);
    }
    program.jump(pass);
    program.place(can_send);
}

/// Counts the packet in the target's slot of this processor.
fn write_count(program: &mut Assembler, maps: &Maps<'_>) {
    let none = program.label();
    program.call(Helper::ProcessorId);
    program.word(Operation::Multiply, R0, maps.stride);
    program.load(Size::Word, R1, R9, TARGET_SLOT);
    program.word_with(Operation::Add, R1, R0);
    program.store(Size::Word, R10, SLOT, R1);
    write_map_lookup(program, maps.counts, SLOT);
    program.jump_if(R0, Condition::Equal, 0, none);
    program.load(Size::Double, R1, R0, 0);
    program.double(Operation::Add, R1, 1);
    program.store(Size::Double, R0, 0, R1);
    program.load(Size::Double, R1, R0, 8);
    program.load(Size::Double, R2, R10, LEN);
    program.double_with(Operation::Add, R1, R2);
    program.store(Size::Double, R0, 8, R1);
    program.place(none);
}

/// Writes all headers and sends the packet on its way.
fn write_encapsulation(program: &mut Assembler, maps: &Maps<'_>, pass: Label) {
    let lost = program.label();
    program.double_with(Operation::Move, R1, R6);
    program.double(Operation::Move, R2, (-OUTER).into());
    program.call(Helper::XdpAdjustHead);
    program.jump_if(R0, Condition::NotEqual, 0, pass);
    write_ends(program);
    write_room(program, R7, OUTER + PAYLOAD, lost);
    write_inner(program);
    write_outer(program);
    // What went up before is counted there.
    write_count(program, maps);
    let redirect = program.label();
    program.load(Size::Word, R1, R10, FIB_INTERFACE);
    program.load(Size::Word, R2, R6, INGRESS);
    program.jump_if_with(R1, Condition::NotEqual, R2, redirect);
    program.word(Operation::Move, R0, TRANSMIT);
    program.exit();
    program.place(redirect);
    program.double(Operation::Move, R2, 0);
    program.call(Helper::Redirect);
    program.exit();
    // The kernel has just made room; the verifier wants to see it.
    program.place(lost);
    program.word(Operation::Move, R0, DROP);
    program.exit();
}

/// The header of IPv4 inside: without identification, not to be fragmented, one hop further.
fn write_inner(program: &mut Assembler) {
    const INNER: i16 = OUTER + IP;
    program.store_value(Size::Half, R7, INNER + 4, 0);
    program.store_value(Size::Half, R7, INNER + 6, network(0x4000));
    program.load(Size::Octet, R1, R7, INNER + 8);
    program.double(Operation::Add, R1, -1);
    program.store(Size::Octet, R7, INNER + 8, R1);
    write_checksum(program, INNER);
}

/// The checksum of the header of IPv4 at `at`, in any byte order (RFC 1071).
fn write_checksum(program: &mut Assembler, at: i16) {
    program.store_value(Size::Half, R7, at + 10, 0);
    write_sum(program, at);
    program.double(Operation::Xor, R1, 0xffff);
    program.store(Size::Half, R7, at + 10, R1);
}

/// Leaves in R1 the one's complement sum of the header of IPv4 at `at`.
fn write_sum(program: &mut Assembler, at: i16) {
    program.double(Operation::Move, R1, 0);
    for word in (0..20).step_by(2) {
        program.load(Size::Half, R2, R7, at + word);
        program.double_with(Operation::Add, R1, R2);
    }
    for _ in 0..2 {
        program.double_with(Operation::Move, R2, R1);
        program.double(Operation::ShiftRight, R2, 16);
        program.double(Operation::And, R1, 0xffff);
        program.double_with(Operation::Add, R1, R2);
    }
}

/// Ethernet, IPv4, UDP and GUE in front.
fn write_outer(program: &mut Assembler) {
    const INNER: i16 = OUTER + IP;
    for (to, from) in [(0, FIB_DESTINATION_MAC), (6, FIB_SOURCE_MAC)] {
        for at in (0..6).step_by(2) {
            program.load(Size::Half, R1, R10, from + at);
            program.store(Size::Half, R7, to + at, R1);
        }
    }
    program.store_value(Size::Half, R7, 12, network(0x0800));
    program.store_value(Size::Octet, R7, IP, 0x45);
    // RFC 6040, Section 4.1, normal mode: the outer ECN field is a copy of the inner one.
    program.load(Size::Octet, R1, R7, INNER + 1);
    program.double(Operation::And, R1, 3);
    program.store(Size::Octet, R7, IP + 1, R1);
    program.load(Size::Double, R3, R10, LEN);
    let mut length = |at, more: i16| {
        program.double_with(Operation::Move, R1, R3);
        program.double(Operation::Add, R1, more.into());
        program.half_from_big_endian(R1);
        program.store(Size::Half, R7, at, R1);
    };
    length(IP + 2, 28 + OUTER);
    length(UDP + 4, 28 + OUTER - 20);
    program.store_value(Size::Half, R7, IP + 4, 0);
    program.store_value(Size::Half, R7, IP + 6, network(0x4000));
    program.store_value(Size::Octet, R7, IP + 8, TTL);
    program.store_value(Size::Octet, R7, IP + 9, PROTOCOL_UDP);
    program.load(Size::Word, R1, R9, TARGET_FROM);
    program.store(Size::Word, R7, IP + 12, R1);
    program.load(Size::Word, R1, R9, TARGET_TO);
    program.store(Size::Word, R7, IP + 16, R1);
    write_checksum(program, IP);
    // A source port by flow, of those that are for that (RFC 6335: 49152 to 65535).
    program.load(Size::Half, R1, R7, INNER + 20);
    program.word(Operation::ShiftLeft, R1, 16);
    program.load(Size::Word, R2, R7, INNER + 12);
    program.word_with(Operation::Xor, R1, R2);
    program.word(Operation::Multiply, R1, 0x9e37_79b1);
    program.word(Operation::ShiftRight, R1, 18);
    program.word(Operation::Or, R1, 0xc000);
    program.half_from_big_endian(R1);
    program.store(Size::Half, R7, UDP, R1);
    program.load(Size::Half, R1, R9, TARGET_PORT);
    program.store(Size::Half, R7, UDP + 2, R1);
    // No checksum: GUE over IPv4 needs none, and the inner packet has its own.
    program.store_value(Size::Half, R7, UDP + 6, 0);
    // GUE, version 0: data, no fields, IPv4 (protocol 4).
    program.store_value(Size::Half, R7, UDP + 8, network(4));
    program.store_value(Size::Half, R7, UDP + 10, 0);
}
