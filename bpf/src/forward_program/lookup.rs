//! Which server a connection ID names.

use std::os::fd::BorrowedFd;

use super::{Family, HASH, KEY, Maps, SLOT, write_map_lookup, write_room};
use crate::cuckoo::{self, ENTRIES, ENTRY, FACTORS, SHIFTS};
use crate::extended::{Assembler, Condition, Operation, Register, Size};
use crate::forward::{ID_KEY, Reading, Rules};
use crate::labels::Label;

use Register::{R0, R1, R2, R3, R4, R7, R9, R10};

/// Where a connection ID is in a payload (RFC 8999, Section 5).
const SHORT_ID: i16 = 1;
const LONG_VERSION: i16 = 1;
const LONG_LEN: i16 = 5;
const LONG_ID: i16 = 6;
const LONG: i32 = 0x80;

/// Leaves in R9 where the connection ID is, of which `len` octets may be read.
pub(super) fn write_id(program: &mut Assembler, family: Family, len: i16, pass: Label) {
    let (long, found) = (program.label(), program.label());
    let payload = family.payload();
    program.load(Size::Octet, R1, R7, payload);
    program.jump_if(R1, Condition::AnyOf, LONG, long);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (payload + SHORT_ID).into());
    write_room(program, R9, len, pass);
    program.jump(found);
    program.place(long);
    // Version Negotiation.
    program.load(Size::Word, R1, R7, payload + LONG_VERSION);
    program.jump_if(R1, Condition::Equal, 0, pass);
    program.load(Size::Octet, R1, R7, payload + LONG_LEN);
    program.jump_if(R1, Condition::NotEqual, len.into(), pass);
    program.double_with(Operation::Move, R9, R7);
    program.double(Operation::Add, R9, (payload + LONG_ID).into());
    write_room(program, R9, len + 1, pass);
    // The other connection ID is there as a whole.
    program.load(Size::Octet, R1, R9, len);
    program.double_with(Operation::Move, R3, R9);
    program.double_with(Operation::Add, R3, R1);
    write_room(program, R3, len + 1, pass);
    program.place(found);
}

/// Leaves in R9 the target of the connection ID at R9.
pub(super) fn write(
    program: &mut Assembler,
    rules: &Rules,
    id_len: i16,
    maps: &Maps<'_>,
    pass: Label,
) {
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
            None => write_learned(program, maps.learned, found, pass),
        }
        program.place(next);
    }
    program.jump(pass);
    program.place(found);
    program.double_with(Operation::Move, R9, R0);
}

/// Goes on at `found` with the target of the connection ID on the stack in R0.
fn write_learned(program: &mut Assembler, learned: BorrowedFd<'_>, found: Label, pass: Label) {
    write_map_lookup(program, learned, KEY);
    program.jump_if(R0, Condition::Equal, 0, pass);
    program.jump(found);
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
