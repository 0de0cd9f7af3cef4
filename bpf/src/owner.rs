//! The program that chooses a worker's socket by the owner in a connection ID.

use std::fmt;

use quicket_steering::{Codec, ConfigId, HashKey, Owner, OwnerBits};

use crate::classic::{Assembler, Condition, Instruction, Operation, Size, Word};
use crate::door::Door;
use crate::labels::Label;

/// Chooses a socket of a SO_REUSEPORT group: the one at the index that is the worker's number, in
/// the order in which the sockets were bound.
///
/// The kernel chooses by address, as without a program, for what follows none of the
/// configurations: clients' first connection IDs of another length, unroutable ones, other
/// generations, workers that there are not, other protocols. The fixed bit decides nothing
/// (RFC 9287, Section 3).
///
/// [`Self::among`] is for sockets of several programs.
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
    /// There is no such owner in the format of connection IDs.
    Owner(Owner),
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
            Self::Owner(owner) => {
                write!(f, "connection IDs have no room for {owner}: choose a format with more bits")
            }
            Self::TooLong => f.write_str("the BPF program would be too long for the kernel"),
        }
    }
}

impl std::error::Error for ProgramError {}

/// The answer that is no socket's index: the kernel chooses by address.
const BY_ADDRESS: u32 = u32::MAX;

/// The hash's state.
pub(crate) const V: [Word; 4] = [Word(0), Word(1), Word(2), Word(3)];
/// What is worked on.
pub(crate) const PART: Word = Word(4);
/// Where the connection ID begins.
pub(crate) const START: Word = Word(5);
/// How many bits of an owner are the worker's, and which.
const WORKER_BITS: Word = Word(6);
const WORKER_MASK: Word = Word(7);

/// Where the Destination Connection ID begins behind a short header's first octet and behind a
/// long header's first octet, version and length (RFC 8999, Section 5).
const SHORT_START: u32 = 1;
pub(crate) const LONG_START: u32 = 6;
/// Where a long header has the length of its Destination Connection ID.
pub(crate) const LONG_LEN: u32 = 5;
/// The first octet's bit of long headers (RFC 8999, Section 5.1).
pub(crate) const LONG: u32 = 0x80;

/// What the program does with an owner, once the mask is off.
#[derive(Clone, Copy)]
enum Choice<'a> {
    /// The worker's number is the index, in one generation with so many workers.
    Workers { generation: u8, workers: u16 },
    /// A list says which index it is.
    Listed(&'a [Run]),
}

/// Owners that follow each other, and whose sockets do so, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u16,
    last: u16,
    /// The socket of the first.
    index: u16,
}

impl OwnerProgram {
    /// The program for sockets of several programs: datagrams to an owner in `sockets` go to the socket at
    /// its index, what begins a connection through the `door`, if there is one, and everything else to the first
    /// one (index 0), which knows what to do.
    ///
    /// # Errors
    /// When a configuration has no owner, or another one than the first has, or one of `sockets` does not fit
    /// into the format; when there are more than the kernel takes: leave some out, which the first socket gets then.
    pub fn among<'a>(
        codecs: impl IntoIterator<Item = &'a Codec>,
        sockets: &[(Owner, u16)],
        door: Option<&Door>,
    ) -> Result<Self, ProgramError> {
        let codecs: Vec<_> = codecs.into_iter().collect();
        let first = codecs.first().ok_or(ProgramError::Empty)?;
        let bits = first.format().owner().ok_or(ProgramError::NoOwner(first.id()))?;
        // An owner is looked up by its bits as they are packed, whatever the configuration.
        if let Some(other) = codecs.iter().find(|other| other.format().owner() != Some(bits)) {
            return Err(ProgramError::Bits(other.id()));
        }
        let pack = |&(owner, index): &(Owner, u16)| match bits.pack(owner) {
            Ok(packed) => Ok((packed, index)),
            Err(_) => Err(ProgramError::Owner(owner)),
        };
        let runs = runs(sockets.iter().map(pack).collect::<Result<_, _>>()?);
        Self::write(&codecs, Choice::Listed(&runs), door, 0)
    }

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
        Self::write(&codecs, Choice::Workers { generation, workers }, None, BY_ADDRESS)
    }

    /// `otherwise` is the answer to all that names nobody.
    fn write(
        codecs: &[&Codec],
        choice: Choice<'_>,
        door: Option<&Door>,
        otherwise: u32,
    ) -> Result<Self, ProgramError> {
        let len = codecs.first().ok_or(ProgramError::Empty)?.format().id_len();
        let mut program = Assembler::default();
        let nobody = program.label();
        write_start(&mut program, len, nobody);
        let mut chosen = Vec::new();
        for codec in codecs {
            let other = codec.format().id_len();
            if other != len {
                return Err(ProgramError::Length(len, other));
            }
            let bits = codec.format().owner().ok_or(ProgramError::NoOwner(codec.id()))?;
            let found = program.label();
            program.jump_if(Condition::Equal(codec.id().number().into()), found);
            chosen.push((found, bits, codec.mask()));
        }
        program.jump(nobody);
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
            write_owner(&mut program, octets, len);
            match choice {
                Choice::Workers { generation, workers } => {
                    write_worker(&mut program, (generation, workers), nobody);
                }
                Choice::Listed(runs) => write_list(&mut program, runs, nobody),
            }
        }
        program.place(nobody);
        if let Some(door) = door {
            door.write(&mut program);
        }
        program.answer(otherwise);
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
fn write_start(program: &mut Assembler, len: usize, nobody: Label) {
    // At most 20 (RFC 9000, Section 17.2).
    let len = len as u32;
    let long = program.label();
    let found = program.label();
    program.load_len();
    program.jump_unless(Condition::AtLeast(SHORT_START + len), nobody);
    program.load(Size::Octet, 0);
    program.jump_if(Condition::AnyOf(LONG), long);
    program.load_value(SHORT_START);
    program.jump(found);
    program.place(long);
    program.load_len();
    program.jump_unless(Condition::AtLeast(LONG_START + len), nobody);
    program.load(Size::Octet, LONG_LEN);
    program.jump_unless(Condition::Equal(len), nobody);
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
pub(crate) fn write_hash(program: &mut Assembler, len: usize) {
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

/// With the hash in A: leaves the owner, without its mask, in A and in `PART`.
fn write_owner(program: &mut Assembler, octets: usize, len: usize) {
    let (size, all) = if octets == 1 { (Size::Octet, 0xff) } else { (Size::Half, 0xffff) };
    program.store(PART);
    program.recall_x(START);
    program.load_at_x(size, len.saturating_sub(octets) as u32);
    program.recall_x(PART);
    program.with_x(Operation::Xor);
    program.with(Operation::And, all);
    program.store(PART);
}

/// With the owner in A and in `PART`: answers the worker's number, if it is one of the generation's.
fn write_worker(program: &mut Assembler, (generation, workers): (u8, u16), nobody: Label) {
    program.recall_x(WORKER_BITS);
    program.with_x(Operation::ShiftRight);
    program.jump_unless(Condition::Equal(generation.into()), nobody);
    program.recall(PART);
    program.recall_x(WORKER_MASK);
    program.with_x(Operation::And);
    program.jump_if(Condition::AtLeast(workers.into()), nobody);
    program.answer_a();
}

/// With the owner in A: answers the index of its socket. A search by halves.
fn write_list(program: &mut Assembler, runs: &[Run], nobody: Label) {
    let (left, right) = runs.split_at(runs.len() / 2);
    match (left, right) {
        (_, []) => program.jump(nobody),
        ([], [run, ..]) => {
            program.jump_unless(Condition::AtLeast(run.first.into()), nobody);
            program.jump_if(Condition::AtLeast(u32::from(run.last) + 1), nobody);
            if run.first == run.last {
                program.answer(run.index.into());
            } else {
                // Modulo 2^32, as the machine adds.
                let distance = u32::from(run.index).wrapping_sub(run.first.into());
                program.with(Operation::Add, distance);
                program.answer_a();
            }
        }
        (_, [middle, ..]) => {
            let above = program.label();
            program.jump_if(Condition::AtLeast(middle.first.into()), above);
            write_list(program, left, nobody);
            program.place(above);
            write_list(program, right, nobody);
        }
    }
}

/// Owners with the indices of their sockets, in order, as few runs as they make. Of two with one number
/// the one with the lower index counts.
fn runs(mut sockets: Vec<(u16, u16)>) -> Vec<Run> {
    sockets.sort_unstable();
    sockets.dedup_by_key(|(owner, _)| *owner);
    let mut runs: Vec<Run> = Vec::new();
    for (owner, index) in sockets {
        match runs.last_mut() {
            Some(run)
                if run.last.checked_add(1) == Some(owner)
                    && u32::from(run.index) + u32::from(owner - run.first) == index.into() =>
            {
                run.last = owner;
            }
            _ => runs.push(Run { first: owner, last: owner, index }),
        }
    }
    runs
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
    fn owners_that_follow_each_other_like_their_sockets_take_one_comparison() {
        let run = |first, last, index| Run { first, last, index };
        let of = |sockets: &[(u16, u16)]| runs(sockets.to_vec());
        assert_eq!(of(&[(0x300, 4), (0x301, 5), (0x302, 6)]), [run(0x300, 0x302, 4)]);
        assert_eq!(of(&[(9, 1), (7, 3), (8, 2)]), [run(7, 7, 3), run(8, 8, 2), run(9, 9, 1)]);
        assert_eq!(of(&[(5, 2), (5, 1), (6, 2)]), [run(5, 6, 1)]);
        assert_eq!(of(&[(u16::MAX, 1)]), [run(u16::MAX, u16::MAX, 1)]);
    }

    /// Each owner on its own takes the most room.
    #[test]
    fn two_hundred_owners_fit_and_what_does_not_says_so() {
        let codec = codec(0, 1, 10, Some(OwnerBits::TWO_OCTETS));
        let sockets = |count: u16| {
            let owner = |at: u16| Owner { generation: (at / 16) as u8, worker: at % 16 };
            (0..count).map(|at| (owner(at), 2 * (count - at))).collect::<Vec<_>>()
        };
        let program = OwnerProgram::among([&codec], &sockets(200), None).unwrap();
        assert!(program.instructions().len() < 2_500, "{}", program.instructions().len());
        assert_eq!(OwnerProgram::among([&codec], &sockets(900), None), Err(ProgramError::TooLong));
        let beyond = Owner { generation: 0, worker: 1024 };
        let error = OwnerProgram::among([&codec], &[(beyond, 1)], None).unwrap_err();
        assert_eq!(error, ProgramError::Owner(beyond));
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
