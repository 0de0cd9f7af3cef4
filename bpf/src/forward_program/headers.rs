//! Which packets are looked at: whole datagrams to one of our addresses.

use std::net::IpAddr;

use super::{Family, IP, LEN, PROTOCOL_UDP, write_room, write_sum};
use crate::extended::{Assembler, Condition, Operation, Register, Size};
use crate::forward::Rules;
use crate::labels::Label;
use crate::xdp::network;

use Register::{R1, R2, R7, R8, R10};

/// The shortest packet with a short header: see `MIN_SHORT` of the balancer.
const MIN_SHORT: i16 = 21;

/// Leaves alone what is not for this machine, as switches flood it.
pub(super) fn write_ethernet(program: &mut Assembler, rules: &Rules, pass: Label) {
    write_room(program, R7, IP, pass);
    let [a, b, c, d, e, f] = rules.mac;
    program.load(Size::Word, R1, R7, 0);
    program.jump_if_word(R1, Condition::NotEqual, u32::from_ne_bytes([a, b, c, d]), pass);
    program.load(Size::Half, R1, R7, 4);
    program.jump_if(R1, Condition::NotEqual, u16::from_ne_bytes([e, f]).into(), pass);
}

/// Leaves alone what is no datagram to one of our addresses, or not one that can be carried.
pub(super) fn write(program: &mut Assembler, rules: &Rules, family: Family, pass: Label) {
    write_room(program, R7, family.payload() + MIN_SHORT, pass);
    match family {
        Family::V4 => write_v4(program, pass),
        Family::V6 => write_v6(program, pass),
    }
    write_destination(program, rules, family, pass);
    write_source(program, rules, family, pass);
    let udp = family.udp();
    // Nobody could answer; user space counts those.
    program.load(Size::Half, R1, R7, udp);
    program.jump_if(R1, Condition::Equal, 0, pass);
    // Without a checksum: over IPv4 user space computes one, over IPv6 the system discards it.
    program.load(Size::Half, R1, R7, udp + 6);
    program.jump_if(R1, Condition::Equal, 0, pass);
    write_lengths(program, family, pass);
}

fn must(program: &mut Assembler, size: Size, at: i16, value: i32, pass: Label) {
    program.load(size, R1, R7, at);
    program.jump_if(R1, Condition::NotEqual, value, pass);
}

/// What would go in circles goes up.
fn write_hops(program: &mut Assembler, at: i16, pass: Label) {
    program.load(Size::Octet, R1, R7, at);
    program.jump_if(R1, Condition::Less, 2, pass);
}

fn write_v4(program: &mut Assembler, pass: Label) {
    must(program, Size::Octet, IP, 0x45, pass);
    must(program, Size::Octet, IP + 9, PROTOCOL_UDP.into(), pass);
    // No fragment: neither more to come nor an offset.
    program.load(Size::Half, R1, R7, IP + 6);
    program.jump_if(R1, Condition::AnyOf, network(0x3fff), pass);
    // The header is as it was sent: its sum with the checksum is all ones.
    write_sum(program, IP);
    program.jump_if(R1, Condition::NotEqual, 0xffff, pass);
    write_hops(program, IP + 8, pass);
}

fn write_v6(program: &mut Assembler, pass: Label) {
    program.load(Size::Octet, R1, R7, IP);
    program.double(Operation::And, R1, 0xf0);
    program.jump_if(R1, Condition::NotEqual, 0x60, pass);
    // No extension headers, and so no fragments.
    must(program, Size::Octet, IP + 6, PROTOCOL_UDP.into(), pass);
    write_hops(program, IP + 7, pass);
}

/// An address as it is loaded from a packet.
fn words(address: IpAddr) -> Vec<u32> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Goes on at `other` if the address at `at` is another one.
fn write_is(program: &mut Assembler, at: i16, address: IpAddr, other: Label) {
    for (word, at) in words(address).into_iter().zip((at..).step_by(4)) {
        program.load(Size::Word, R1, R7, at);
        program.jump_if_word(R1, Condition::NotEqual, word, other);
    }
}

fn write_destination(program: &mut Assembler, rules: &Rules, family: Family, pass: Label) {
    let ours = program.label();
    let (_, destination, _) = family.addresses();
    for address in rules.listen.iter().filter(|address| Family::of(address.ip()) == family) {
        let next = program.label();
        write_is(program, IP + destination, address.ip(), next);
        program.load(Size::Half, R1, R7, family.udp() + 2);
        program.jump_if(R1, Condition::Equal, network(address.port()), ours);
        program.place(next);
    }
    program.jump(pass);
    program.place(ours);
}

/// Leaves alone what comes from an address that no other machine has, or none beyond the link; the
/// system discards most of those.
fn write_source(program: &mut Assembler, rules: &Rules, family: Family, pass: Label) {
    let (source, ..) = family.addresses();
    program.load(Size::Octet, R1, R7, IP + source);
    program.jump_if(R1, Condition::Equal, 0, pass);
    let last = match family {
        Family::V4 => {
            program.jump_if(R1, Condition::Equal, 127, pass);
            // Groups, reserved addresses and broadcast.
            223
        }
        // Addresses of a link and groups.
        Family::V6 => 0xfd,
    };
    program.jump_if(R1, Condition::Greater, last, pass);
    for address in rules.listen.iter().filter(|address| Family::of(address.ip()) == family) {
        let next = program.label();
        write_is(program, IP + source, address.ip(), next);
        program.jump(pass);
        program.place(next);
    }
}

/// Leaves alone what has lengths that differ; keeps that of the payload.
fn write_lengths(program: &mut Assembler, family: Family, pass: Label) {
    // IPv4 counts its own header.
    let (at, own) = match family {
        Family::V4 => (2, 20),
        Family::V6 => (4, 0),
    };
    program.load(Size::Half, R1, R7, IP + at);
    program.half_from_big_endian(R1);
    program.load(Size::Half, R2, R7, family.udp() + 4);
    program.half_from_big_endian(R2);
    program.double(Operation::Add, R2, own);
    program.jump_if_with(R1, Condition::NotEqual, R2, pass);
    program.double_with(Operation::Move, R2, R7);
    program.double(Operation::Add, R2, i32::from(family.udp()) - own);
    program.double_with(Operation::Add, R2, R1);
    program.jump_if_with(R2, Condition::Greater, R8, pass);
    program.jump_if_with(R2, Condition::Less, R8, pass);
    program.double(Operation::Add, R1, -8 - own);
    program.store(Size::Double, R10, LEN, R1);
}
