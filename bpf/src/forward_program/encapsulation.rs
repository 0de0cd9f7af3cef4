//! Headers in front of a packet, and its way out.

use super::route::{FIB_DESTINATION_MAC, FIB_INTERFACE, FIB_SOURCE_MAC};
use super::{
    Family, HASH, INGRESS, IP, LEN, Maps, PROTOCOL_UDP, SLOT, TARGET_FROM, TARGET_PORT,
    TARGET_SLOT, TARGET_TO, WAY, write_ends, write_folds, write_map_lookup, write_room, write_sum,
};
use crate::extended::{Assembler, Condition, Helper, Operation, Register, Size};
use crate::labels::Label;
use crate::xdp::{DROP, TRANSMIT, network};

use Register::{R0, R1, R2, R3, R6, R7, R9, R10};

const TTL: i32 = 64;

/// Writes all headers and sends the packet on its way to the target in R9.
pub(super) fn write(
    program: &mut Assembler,
    [inner, outer]: [Family; 2],
    maps: &Maps<'_>,
    pass: Label,
) {
    let lost = program.label();
    program.double_with(Operation::Move, R1, R6);
    program.double(Operation::Move, R2, (-outer.outer()).into());
    program.call(Helper::XdpAdjustHead);
    program.jump_if(R0, Condition::NotEqual, 0, pass);
    write_ends(program);
    write_room(program, R7, outer.outer() + inner.payload(), lost);
    // Where the header inside begins now.
    let at = outer.outer() + IP;
    write_inner(program, inner, at);
    write_ethernet(program, outer);
    write_flow(program, inner, at);
    match outer {
        Family::V4 => write_v4(program, inner, at),
        Family::V6 => write_v6(program, inner, at),
    }
    write_shim(program, [inner, outer]);
    if outer == Family::V6 {
        write_outer_checksum(program, inner, at);
    }
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

/// The header inside, one hop further: of IPv4 without identification and not to be fragmented, of
/// IPv6 without a flow label.
fn write_inner(program: &mut Assembler, inner: Family, at: i16) {
    let hops = match inner {
        Family::V4 => {
            program.store_value(Size::Half, R7, at + 4, 0);
            program.store_value(Size::Half, R7, at + 6, network(0x4000));
            8
        }
        Family::V6 => {
            program.load(Size::Octet, R1, R7, at + 1);
            program.double(Operation::And, R1, 0xf0);
            program.store(Size::Octet, R7, at + 1, R1);
            program.store_value(Size::Half, R7, at + 2, 0);
            7
        }
    };
    program.load(Size::Octet, R1, R7, at + hops);
    program.double(Operation::Add, R1, -1);
    program.store(Size::Octet, R7, at + hops, R1);
    if inner == Family::V4 {
        write_checksum(program, at);
    }
}

/// The checksum of the header of IPv4 at `at`.
fn write_checksum(program: &mut Assembler, at: i16) {
    program.store_value(Size::Half, R7, at + 10, 0);
    write_sum(program, at);
    program.double(Operation::Xor, R1, 0xffff);
    program.store(Size::Half, R7, at + 10, R1);
}

fn write_ethernet(program: &mut Assembler, outer: Family) {
    for (to, from) in [(0, FIB_DESTINATION_MAC), (6, FIB_SOURCE_MAC)] {
        for at in (0..6).step_by(2) {
            program.load(Size::Half, R1, R10, from + at);
            program.store(Size::Half, R7, to + at, R1);
        }
    }
    program.store_value(Size::Half, R7, 12, network(outer.ethernet()));
}

/// Keeps a number that is the same for all packets of a client's port.
fn write_flow(program: &mut Assembler, inner: Family, at: i16) {
    let (source, _, len) = inner.addresses();
    program.load(Size::Half, R1, R7, at + inner.header());
    program.word(Operation::ShiftLeft, R1, 16);
    for word in (0..len).step_by(4) {
        program.load(Size::Word, R2, R7, at + source + word);
        program.word_with(Operation::Xor, R1, R2);
        program.word(Operation::Multiply, R1, 0x9e37_79b1);
    }
    program.store(Size::Double, R10, HASH, R1);
}

/// Leaves in R1 the ECN field inside. RFC 6040, Section 4.1, normal mode: the outer one is a copy.
fn write_ecn(program: &mut Assembler, inner: Family, at: i16) {
    program.load(Size::Octet, R1, R7, at + 1);
    if inner == Family::V6 {
        program.double(Operation::ShiftRight, R1, 4);
    }
    program.double(Operation::And, R1, 3);
}

/// Writes the length of the payload and so many octets more.
fn write_len(program: &mut Assembler, at: i16, more: i16) {
    program.load(Size::Double, R1, R10, LEN);
    program.double(Operation::Add, R1, more.into());
    program.half_from_big_endian(R1);
    program.store(Size::Half, R7, at, R1);
}

/// The outer header of IPv4.
fn write_v4(program: &mut Assembler, inner: Family, at: i16) {
    program.store_value(Size::Octet, R7, IP, 0x45);
    write_ecn(program, inner, at);
    program.store(Size::Octet, R7, IP + 1, R1);
    write_len(program, IP + 2, Family::V4.outer() + inner.header() + 8);
    program.store_value(Size::Half, R7, IP + 4, 0);
    program.store_value(Size::Half, R7, IP + 6, network(0x4000));
    program.store_value(Size::Octet, R7, IP + 8, TTL);
    program.store_value(Size::Octet, R7, IP + 9, PROTOCOL_UDP.into());
    program.load(Size::Word, R1, R9, TARGET_FROM);
    program.store(Size::Word, R7, IP + 12, R1);
    program.load(Size::Word, R1, R9, TARGET_TO);
    program.store(Size::Word, R7, IP + 16, R1);
    write_checksum(program, IP);
}

/// The outer header of IPv6, with a flow label by flow (RFC 6438).
fn write_v6(program: &mut Assembler, inner: Family, at: i16) {
    write_ecn(program, inner, at);
    program.double(Operation::ShiftLeft, R1, 20);
    program.load(Size::Double, R2, R10, HASH);
    program.word(Operation::ShiftRight, R2, 12);
    program.word_with(Operation::Or, R1, R2);
    program.word(Operation::Or, R1, 6 << 28);
    program.word_from_big_endian(R1);
    program.store(Size::Word, R7, IP, R1);
    write_len(program, IP + 4, 8 + 4 + inner.header() + 8);
    program.store_value(Size::Octet, R7, IP + 6, PROTOCOL_UDP.into());
    program.store_value(Size::Octet, R7, IP + 7, TTL);
    program.load(Size::Double, R3, R10, WAY);
    for word in (0..16).step_by(4) {
        program.load(Size::Word, R1, R3, 16 + word);
        program.store(Size::Word, R7, IP + 8 + word, R1);
        program.load(Size::Word, R1, R3, word);
        program.store(Size::Word, R7, IP + 24 + word, R1);
    }
}

/// UDP and GUE.
fn write_shim(program: &mut Assembler, [inner, outer]: [Family; 2]) {
    let udp = outer.udp();
    // A source port by flow, of those that are for that (RFC 6335: 49152 to 65535).
    program.load(Size::Double, R1, R10, HASH);
    program.word(Operation::ShiftRight, R1, 18);
    program.word(Operation::Or, R1, 0xc000);
    program.half_from_big_endian(R1);
    program.store(Size::Half, R7, udp, R1);
    program.load(Size::Half, R1, R9, TARGET_PORT);
    program.store(Size::Half, R7, udp + 2, R1);
    write_len(program, udp + 4, 8 + 4 + inner.header() + 8);
    // No checksum: GUE over IPv4 needs none, and the inner packet has its own.
    program.store_value(Size::Half, R7, udp + 6, 0);
    // GUE, version 0: data, no fields.
    program.store_value(Size::Half, R7, udp + 8, network(inner.protocol()));
    program.store_value(Size::Half, R7, udp + 10, 0);
}

/// The checksum of the outer UDP header, which IPv6 demands (RFC 8200, Section 8.1). The payload need
/// not be read: with its own checksum, what is behind the inner header of IP sums up to the
/// complement of the inner pseudo-header, and a whole header of IPv4 to nothing. So a checksum that
/// was wrong inside is wrong outside. The protocol is UDP in both pseudo-headers.
fn write_outer_checksum(program: &mut Assembler, inner: Family, at: i16) {
    let udp = Family::V6.udp();
    program.double(Operation::Move, R1, 0);
    for word in (8..40).step_by(4) {
        write_add(program, Size::Word, IP + word);
    }
    // The length is in the pseudo-header as well.
    for half in [0, 2, 4, 4, 8] {
        write_add(program, Size::Half, udp + half);
    }
    match inner {
        Family::V4 => {
            for word in [12, 16] {
                program.load(Size::Word, R2, R7, at + word);
                program.word(Operation::Xor, R2, u32::MAX);
                program.double_with(Operation::Add, R1, R2);
            }
            program.load(Size::Half, R2, R7, at + 20 + 4);
            program.double(Operation::Xor, R2, 0xffff);
            program.double_with(Operation::Add, R1, R2);
        }
        // Addresses and length are in the header and in the pseudo-header.
        Family::V6 => {
            write_add(program, Size::Word, at);
            write_add(program, Size::Half, at + 6);
        }
    }
    write_folds(program, 3);
    let not_zero = program.label();
    program.double(Operation::Xor, R1, 0xffff);
    program.jump_if(R1, Condition::NotEqual, 0, not_zero);
    program.double(Operation::Move, R1, 0xffff);
    program.place(not_zero);
    program.store(Size::Half, R7, udp + 6, R1);
}

/// Adds what is in the packet to R1.
fn write_add(program: &mut Assembler, size: Size, at: i16) {
    program.load(size, R2, R7, at);
    program.double_with(Operation::Add, R1, R2);
}
