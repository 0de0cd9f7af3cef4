//! The door of an address: where a client's first packets go that name nobody.

use quicket_steering::HashKey;

use crate::classic::{Assembler, Condition, Operation, Size};
use crate::labels::Label;
use crate::owner::{LONG, LONG_LEN, LONG_START, START, V, write_hash};

/// The least and the most octets of a connection ID that a client chooses (RFC 9000, Sections 7.2 and 17.2).
const MIN_ID: u32 = 8;
const MAX_ID: u32 = 20;
/// Where a long header has its version, and the versions whose packet types are known: 1 (RFC 9000) and 2 (RFC 9369).
const VERSION_AT: u32 = 1;
const V1: u32 = 1;
const V2: u32 = 0x6b33_43cf;
/// The packet's type in the first octet (RFC 9000, Section 17.2).
const TYPE: u32 = 0x30;
/// Initial is 0b00 and 0-RTT 0b01 in version 1; 0b01 and 0b10 in version 2 (RFC 9369, Section 3.2).
const BEHIND_V1: u32 = 0x20;
const BEFORE_V2: u32 = 0x10;
const BEHIND_V2: u32 = 0x30;

/// The sockets that get what begins a connection: Initial and 0-RTT packets with a connection ID of the client's choice.
/// Which of them does a keyed hash of the connection ID's first eight octets say, so that all packets of a
/// client come to one, and clients cannot choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// The index of the first one.
    pub first: u16,
    /// How many follow each other, itself included.
    pub workers: u16,
    /// The key of the hash.
    pub key: HashKey,
}

impl Door {
    /// The index of the socket that gets first packets to this connection ID; `None` if it is too short for one.
    #[must_use]
    pub fn socket(&self, id: &[u8]) -> Option<u16> {
        let worker = self.key.hash(id.get(..MIN_ID as usize)?) % u32::from(self.workers.max(1));
        Some(self.first.wrapping_add(worker as u16))
    }

    /// Answers the socket for what begins a connection; goes on behind it with everything else. A load beyond the
    /// packet ends the program with 0.
    pub(crate) fn write(&self, program: &mut Assembler) {
        let (begins, v2, not) = (program.label(), program.label(), program.label());
        program.load(Size::Octet, 0);
        program.jump_unless(Condition::AnyOf(LONG), not);
        program.load(Size::Word, VERSION_AT);
        program.jump_if(Condition::Equal(V2), v2);
        program.jump_unless(Condition::Equal(V1), not);
        write_type(program);
        program.jump_if(Condition::AtLeast(BEHIND_V1), not);
        program.jump(begins);
        program.place(v2);
        write_type(program);
        program.jump_unless(Condition::AtLeast(BEFORE_V2), not);
        program.jump_if(Condition::AtLeast(BEHIND_V2), not);
        program.place(begins);
        self.write_socket(program, not);
        program.place(not);
    }

    fn write_socket(&self, program: &mut Assembler, not: Label) {
        program.load(Size::Octet, LONG_LEN);
        program.jump_unless(Condition::AtLeast(MIN_ID), not);
        program.jump_if(Condition::AtLeast(MAX_ID + 1), not);
        if self.workers < 2 {
            return program.answer(self.first.into());
        }
        program.load_value(LONG_START);
        program.store(START);
        for (word, value) in V.into_iter().zip(self.key.initial_state()) {
            program.load_value(value);
            program.store(word);
        }
        write_hash(program, MIN_ID as usize);
        program.with(Operation::Modulo, self.workers.into());
        program.with(Operation::Add, self.first.into());
        program.answer_a();
    }
}

/// A = the bits of the packet's type.
fn write_type(program: &mut Assembler) {
    program.load(Size::Octet, 0);
    program.with(Operation::And, TYPE);
}
