//! The way to a target: by which device, and to which neighbour.

use super::{
    FIB, FIB_LEN, Family, INGRESS, LEN, Maps, PROTOCOL_UDP, SLOT, TARGET_FROM, TARGET_MAX,
    TARGET_TO, WAY, write_map_lookup,
};
use crate::extended::{Assembler, Condition, Helper, Operation, Register, Size};
use crate::forward::{MAX_EGRESS, Rules};
use crate::labels::Label;

use Register::{R0, R1, R2, R3, R4, R6, R9, R10};

/// `struct bpf_fib_lookup` of linux/bpf.h.
const FIB_PROTOCOL: i16 = FIB + 1;
const FIB_LENGTH: i16 = FIB + 6;
pub(super) const FIB_INTERFACE: i16 = FIB + 8;
const FIB_SOURCE: i16 = FIB + 16;
const FIB_DESTINATION: i16 = FIB + 32;
/// Both addresses of Ethernet, the source first.
pub(super) const FIB_SOURCE_MAC: i16 = FIB + 52;
pub(super) const FIB_DESTINATION_MAC: i16 = FIB + 58;

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;

/// Leaves alone what is too long for the target in R9: the limit is that of clients over IPv4.
pub(super) fn write_length(program: &mut Assembler, inner: Family, pass: Label) {
    program.load(Size::Double, R1, R10, LEN);
    program.double(Operation::Add, R1, (inner.header() - Family::V4.header()).into());
    program.load(Size::Half, R2, R9, TARGET_MAX);
    program.jump_if_with(R1, Condition::Greater, R2, pass);
}

/// Finds the way to the target in R9: its device and addresses of Ethernet are on the stack then.
pub(super) fn write(
    program: &mut Assembler,
    rules: &Rules,
    [inner, outer]: [Family; 2],
    maps: &Maps<'_>,
    pass: Label,
) {
    for at in (0..FIB_LEN as i16).step_by(8) {
        program.store_value(Size::Double, R10, FIB + at, 0);
    }
    match outer {
        Family::V4 => {
            program.store_value(Size::Octet, R10, FIB, AF_INET);
            program.load(Size::Word, R1, R9, TARGET_FROM);
            program.store(Size::Word, R10, FIB_SOURCE, R1);
            program.load(Size::Word, R1, R9, TARGET_TO);
            program.store(Size::Word, R10, FIB_DESTINATION, R1);
        }
        Family::V6 => {
            program.store_value(Size::Octet, R10, FIB, AF_INET6);
            program.load(Size::Word, R1, R9, TARGET_FROM);
            program.store(Size::Word, R10, SLOT, R1);
            write_map_lookup(program, maps.ways, SLOT);
            program.jump_if(R0, Condition::Equal, 0, pass);
            program.store(Size::Double, R10, WAY, R0);
            for at in [0, 8] {
                program.load(Size::Double, R1, R0, at);
                program.store(Size::Double, R10, FIB_DESTINATION + at, R1);
                program.load(Size::Double, R1, R0, at + 16);
                program.store(Size::Double, R10, FIB_SOURCE + at, R1);
            }
        }
    }
    program.store_value(Size::Octet, R10, FIB_PROTOCOL, PROTOCOL_UDP.into());
    program.load(Size::Double, R1, R10, LEN);
    program.double(Operation::Add, R1, (inner.header() + 8 + outer.outer()).into());
    program.store(Size::Half, R10, FIB_LENGTH, R1);
    program.load(Size::Word, R1, R6, INGRESS);
    program.store(Size::Word, R10, FIB_INTERFACE, R1);
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
