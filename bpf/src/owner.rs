//! The program that chooses a worker's socket by the owner in a connection ID.

use std::fmt;

use quicket_steering::{Codec, ConfigId, HashKey, OwnerBits};

use crate::classic::{Assembler, Condition, Instruction, Operation, Size, Word};
use crate::labels::Label;

/// Chooses a socket of a SO_REUSEPORT group: the one at the index that is the worker's number, in
/// the order in which the sockets were bound.
///
/// The kernel chooses by address, as without a program, for what follows none of the
/// configurations: clients' first connection IDs of another length, unroutable ones, other
/// generations, workers that there are not, other protocols. The fixed bit decides nothing
/// (RFC 9287, Section 3).
///
/// Indices shift when a socket of the group closes: the last one takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerProgram {
    instructions: Vec<Instruction>,
}

/// Why there is no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramError {
    /// There is no configuration.
    Empty,
    /// This configuration's connection IDs name no owner.
    NoOwner(ConfigId),
    /// Connection IDs of two configurations have different lengths, in octets.
    Length(usize, usize),
    /// Owners have other bits in this configuration than in those before.
    Bits(ConfigId),
    /// The program would have more instructions than the kernel takes.
    TooLong,
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no configuration of connection IDs to route by"),
            Self::NoOwner(id) => write!(
                f,
                "connection IDs of configuration {} name no worker: choose a format with an owner",
                id.number()
            ),
            Self::Length(one, other) => write!(
                f,
                "connection IDs have {one} octets in one configuration and {other} in another: \
                 choose lengths of the same sum"
            ),
            Self::Bits(id) => write!(
                f,
                "owners have other bits in configuration {} than in those before: choose the same",
                id.number()
            ),
            Self::TooLong => f.write_str("the BPF program would be too long for the kernel"),
        }
    }
}

impl std::error::Error for ProgramError {}

/// The answer that is no socket's index: the kernel chooses by address.
const BY_ADDRESS: u32 = u32::MAX;

/// The hash's state.
const V: [Word; 4] = [Word(0), Word(1), Word(2), Word(3)];
/// What is worked on.
const PART: Word = Word(4);
/// Where the connection ID begins.
const START: Word = Word(5);
/// How many bits of an owner are the worker's, and which.
const WORKER_BITS: Word = Word(6);
const WORKER_MASK: Word = Word(7);

/// Where the Destination Connection ID begins behind a short header's first octet and behind a
/// long header's first octet, version and length (RFC 8999, Section 5).
const SHORT_START: u32 = 1;
const LONG_START: u32 = 6;
/// Where a long header has the length of its Destination Connection ID.
const LONG_LEN: u32 = 5;
/// The first octet's bit of long headers (RFC 8999, Section 5.1).
const LONG: u32 = 0x80;

impl OwnerProgram {
    /// The program for the workers of one `generation`, of which there are `workers`. All `codecs`
    /// are looked at; their connection IDs have one length, since short headers do not say it.
    ///
    /// # Errors
    /// When a configuration has no owner, or lengths differ.
    pub fn new<'a>(
        codecs: impl IntoIterator<Item = &'a Codec>,
        generation: u8,
        workers: u16,
    ) -> Result<Self, ProgramError> {
        let codecs: Vec<_> = codecs.into_iter().collect();
        let len = codecs.first().ok_or(ProgramError::Empty)?.format().id_len();
        let mut program = Assembler::default();
        let by_address = program.label();
        write_start(&mut program, len, by_address);
        let mut chosen = Vec::new();
        for codec in &codecs {
            let other = codec.format().id_len();
            if other != len {
                return Err(ProgramError::Length(len, other));
            }
            let bits = codec.format().owner().ok_or(ProgramError::NoOwner(codec.id()))?;
            let found = program.label();
            program.jump_if(Condition::Equal(codec.id().number().into()), found);
            chosen.push((found, bits, codec.mask()));
        }
        program.jump(by_address);
        // Seven times the hash would be too long: configurations with owners of one length share it.
        for octets in [1, 2] {
            let hash = program.label();
            let mut same = chosen.iter().filter(|(_, bits, _)| bits.octets() == octets).peekable();
            if same.peek().is_none() {
                continue;
            }
            for (found, bits, mask) in same {
                program.place(*found);
                write_configuration(&mut program, *bits, mask);
                program.jump(hash);
            }
            program.place(hash);
            write_hash(&mut program, len.saturating_sub(octets));
            write_choice(&mut program, octets, len, (generation, workers), by_address);
        }
        program.place(by_address);
        program.answer(BY_ADDRESS);
        let instructions = program.finish().ok_or(ProgramError::TooLong)?;
        Ok(Self { instructions })
    }

    /// The instructions, for `SO_ATTACH_REUSEPORT_CBPF`.
    #[must_use]
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }
}

/// Finds the connection ID; leaves the number of its configuration in A.
fn write_start(program: &mut Assembler, len: usize, by_address: Label) {
    // At most 20 (RFC 9000, Section 17.2).
    let len = len as u32;
    let long = program.label();
    let found = program.label();
    program.load_len();
    program.jump_unless(Condition::AtLeast(SHORT_START + len), by_address);
    program.load(Size::Octet, 0);
    program.jump_if(Condition::AnyOf(LONG), long);
    program.load_value(SHORT_START);
    program.jump(found);
    program.place(long);
    program.load_len();
    program.jump_unless(Condition::AtLeast(LONG_START + len), by_address);
    program.load(Size::Octet, LONG_LEN);
    program.jump_unless(Condition::Equal(len), by_address);
    program.load_value(LONG_START);
    program.place(found);
    program.store(START);
    program.copy_to_x();
    program.load_at_x(Size::Octet, 0);
    program.with(Operation::ShiftRight, 5);
}

/// Remembers what the configuration says: the key of the hash, and the bits of owners.
fn write_configuration(program: &mut Assembler, bits: OwnerBits, mask: &HashKey) {
    let workers = bits.workers() as u32;
    let words = V.into_iter().zip(mask.initial_state()).chain([
        (WORKER_BITS, bits.worker_bits().into()),
        (WORKER_MASK, workers.saturating_sub(1)),
    ]);
    for (word, value) in words {
        program.load_value(value);
        program.store(word);
    }
}

/// Leaves the keyed hash ([`HashKey::hash`]) of the connection ID's first `len` octets in A.
fn write_hash(program: &mut Assembler, len: usize) {
    let len = len as u32;
    let whole = len / 4;
    for at in 0..whole {
        write_little_endian_word(program, at * 4);
        write_absorption(program);
    }
    write_last_word(program, whole * 4, len);
    write_absorption(program);
    program.recall(V[2]);
    program.with(Operation::Xor, HashKey::FINAL);
    program.store(V[2]);
    for _ in 0..HashKey::FINAL_ROUNDS {
        write_round(program);
    }
    program.recall(V[1]);
    program.recall_x(V[3]);
    program.with_x(Operation::Xor);
}

/// `PART` = the four octets at `offset` of the connection ID, the first of them lowest.
fn write_little_endian_word(program: &mut Assembler, offset: u32) {
    program.recall_x(START);
    program.load_at_x(Size::Word, offset);
    program.store(PART);
    program.with(Operation::ShiftLeft, 24);
    program.copy_to_x();
    program.recall(PART);
    program.with(Operation::And, 0xff00);
    program.with(Operation::ShiftLeft, 8);
    program.with_x(Operation::Or);
    program.copy_to_x();
    program.recall(PART);
    program.with(Operation::ShiftRight, 8);
    program.with(Operation::And, 0xff00);
    program.with_x(Operation::Or);
    program.copy_to_x();
    program.recall(PART);
    program.with(Operation::ShiftRight, 24);
    program.with_x(Operation::Or);
    program.store(PART);
}

/// `PART` = the octets from `offset` to `len`, fewer than four, and the length on top.
fn write_last_word(program: &mut Assembler, offset: u32, len: u32) {
    program.load_value(len << 24);
    program.store(PART);
    for (at, shift) in (offset..len).zip([0, 8, 16]) {
        program.recall_x(START);
        program.load_at_x(Size::Octet, at);
        program.with(Operation::ShiftLeft, shift);
        program.recall_x(PART);
        program.with_x(Operation::Or);
        program.store(PART);
    }
}

fn write_absorption(program: &mut Assembler) {
    write_pair(program, Operation::Xor, V[3], PART);
    write_round(program);
    write_pair(program, Operation::Xor, V[0], PART);
}

/// One round of SipHash's half-width variant; [`HashKey::hash`] has the same.
fn write_round(program: &mut Assembler) {
    let [v0, v1, v2, v3] = V;
    for (sum, addend, by) in [(v0, v1, 5), (v2, v3, 8)] {
        write_pair(program, Operation::Add, sum, addend);
        write_rotation(program, addend, by);
        write_pair(program, Operation::Xor, addend, sum);
    }
    write_rotation(program, v0, 16);
    for (sum, addend, by) in [(v0, v3, 7), (v2, v1, 13)] {
        write_pair(program, Operation::Add, sum, addend);
        write_rotation(program, addend, by);
        write_pair(program, Operation::Xor, addend, sum);
    }
    write_rotation(program, v2, 16);
}

/// `to` = `to` `operation` `from`.
fn write_pair(program: &mut Assembler, operation: Operation, to: Word, from: Word) {
    program.recall(to);
    program.recall_x(from);
    program.with_x(operation);
    program.store(to);
}

fn write_rotation(program: &mut Assembler, word: Word, left: u32) {
    program.recall(word);
    program.with(Operation::ShiftRight, 32 - left);
    program.copy_to_x();
    program.recall(word);
    program.with(Operation::ShiftLeft, left);
    program.with_x(Operation::Or);
    program.store(word);
}

/// With the hash in A: takes the mask off the owner, and answers.
fn write_choice(
    program: &mut Assembler,
    octets: usize,
    len: usize,
    (generation, workers): (u8, u16),
    by_address: Label,
) {
    let (size, all) = if octets == 1 { (Size::Octet, 0xff) } else { (Size::Half, 0xffff) };
    program.store(PART);
    program.recall_x(START);
    program.load_at_x(size, len.saturating_sub(octets) as u32);
    program.recall_x(PART);
    program.with_x(Operation::Xor);
    program.with(Operation::And, all);
    program.store(PART);
    program.recall_x(WORKER_BITS);
    program.with_x(Operation::ShiftRight);
    program.jump_unless(Condition::Equal(generation.into()), by_address);
    program.recall(PART);
    program.recall_x(WORKER_MASK);
    program.with_x(Operation::And);
    program.jump_if(Condition::AtLeast(workers.into()), by_address);
    program.answer_a();
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_steering::Format;

    fn codec(number: u8, server_id: usize, nonce: usize, bits: Option<OwnerBits>) -> Codec {
        let format = Format::new(server_id, nonce).unwrap();
        let format = bits.map_or(format, |bits| format.with_owner(bits).unwrap());
        Codec::new(ConfigId::new(number).unwrap(), format, None, HashKey::new(*b"12345678"))
    }

    #[test]
    fn seven_configurations_of_the_longest_connection_ids_fit() {
        let codecs: Vec<_> =
            (0..7).map(|number| codec(number, 3, 15, Some(OwnerBits::ONE_OCTET))).collect();
        assert_eq!(codecs[0].format().id_len(), 20);
        let program = OwnerProgram::new(&codecs, 0, 16).unwrap();
        assert!(program.instructions().len() < 2_000, "{}", program.instructions().len());
    }

    #[test]
    fn what_cannot_be_routed_says_why() {
        let none: [&Codec; 0] = [];
        assert_eq!(OwnerProgram::new(none, 0, 1), Err(ProgramError::Empty));
        let plain = codec(2, 1, 8, None);
        let error = OwnerProgram::new([&plain], 0, 1).unwrap_err();
        assert_eq!(error, ProgramError::NoOwner(plain.id()));
        assert!(error.to_string().contains("configuration 2"), "{error}");
        let one = codec(0, 1, 8, Some(OwnerBits::ONE_OCTET));
        let other = codec(1, 1, 9, Some(OwnerBits::ONE_OCTET));
        assert_eq!(OwnerProgram::new([&one, &other], 0, 1), Err(ProgramError::Length(11, 12)));
    }
}
