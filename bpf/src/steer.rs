//! The program that chooses among generations of workers, and the maps that it reads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quicket_steering::{Codec, HashKey, Owner, OwnerBits, OwnerError};

use crate::ProgramError;
use crate::extended::{Assembler, Condition, Helper, Instruction, Operation, Register, Size};
use crate::labels::Label;
use crate::sys;

use Register::{R0, R1, R2, R3, R4, R5, R6, R10};

/// Chooses a socket of a SO_REUSEPORT group by the owner in a connection ID, whatever sockets come
/// and go: an extended BPF program with a table of its own.
///
/// Datagrams of a generation's connections reach its workers as long as their sockets are open.
/// All others (clients' first ones, owners that are gone, other protocols) are spread by address
/// over the workers of the newest generation. The fixed bit decides nothing (RFC 9287, Section 3).
///
/// Loading it takes CAP_BPF and CAP_NET_ADMIN; [`OwnerProgram`](crate::OwnerProgram) takes none.
/// The key that masks owners is part of the program, which those who have CAP_SYS_ADMIN can read.
///
/// A socket is bound first, then placed here; the program is attached last.
#[derive(Debug)]
pub struct OwnerTable {
    bits: OwnerBits,
    sockets: OwnedFd,
    newest: OwnedFd,
    program: OwnedFd,
}

/// Why there is no table.
#[derive(Debug)]
pub enum LoadError {
    /// The configurations cannot be routed by.
    Program(ProgramError),
    /// The kernel refused: `EPERM` for want of a capability, `ENOSYS` without BPF.
    System(io::Error),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Program(error) => error.fmt(f),
            Self::System(error) => {
                write!(f, "the kernel did not take the BPF program: {error}")?;
                if error.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str("; it needs CAP_BPF and CAP_NET_ADMIN")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Program(error) => Some(error),
            Self::System(error) => Some(error),
        }
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl OwnerTable {
    /// A table without sockets for connection IDs of these configurations, which have one length
    /// and the same bits for owners. Nothing is attached yet.
    ///
    /// # Errors
    /// When the configurations differ or have no owner, or the kernel does not take the program.
    pub fn new<'a>(codecs: impl IntoIterator<Item = &'a Codec>) -> Result<Self, LoadError> {
        let codecs: Vec<_> = codecs.into_iter().collect();
        let (len, bits) = common_format(&codecs).map_err(LoadError::Program)?;
        let owners = bits.generations() * bits.workers();
        // At most 2^16.
        let sockets = sys::create_map(sys::Map::ReuseportSockets, owners as u32)?;
        let newest = sys::create_map(sys::Map::Array, 1)?;
        let too_long = || LoadError::Program(ProgramError::TooLong);
        let program =
            write(&codecs, len, bits, sockets.as_fd(), newest.as_fd()).ok_or_else(too_long)?;
        let program = sys::load_reuseport(&program)?;
        Ok(Self { bits, sockets, newest, program })
    }

    /// Datagrams to `owner` reach `socket` from now on, until it is closed. It takes the place of
    /// the one that was there.
    ///
    /// # Errors
    /// `EINVAL` when there is no such owner in the format or the socket is not bound with
    /// SO_REUSEPORT; `EBUSY` when it has a place in another table.
    pub fn place(&self, owner: Owner, socket: impl AsFd) -> io::Result<()> {
        let key = self.index(owner)?;
        let socket = socket.as_fd();
        sys::update_map(self.sockets.as_fd(), key, sys::socket_value(socket))
    }

    /// Datagrams to `owner` are spread over the newest generation from now on.
    ///
    /// # Errors
    /// `ENOENT` when it has no socket, or its socket was closed.
    pub fn remove(&self, owner: Owner) -> io::Result<()> {
        sys::delete_from_map(self.sockets.as_fd(), self.index(owner)?)
    }

    /// What belongs to nobody is spread over the first `workers` of `generation` from now on.
    ///
    /// # Errors
    /// `EINVAL` when the format has no such owner, or `workers` is 0.
    pub fn set_newest(&self, generation: u8, workers: u16) -> io::Result<()> {
        let last = workers.checked_sub(1).ok_or(io::ErrorKind::InvalidInput)?;
        self.index(Owner { generation, worker: last })?;
        let first = self.index(Owner { generation, worker: 0 })?;
        let value = u64::from(workers) << 32 | u64::from(first);
        sys::update_map(self.newest.as_fd(), 0, value)
    }

    /// Has the kernel choose by this table among the sockets of the SO_REUSEPORT group of
    /// `socket`, instead of the program that was there.
    ///
    /// # Errors
    /// `EINVAL` when the socket is not bound or SO_REUSEPORT was not set before.
    pub fn attach(&self, socket: impl AsFd) -> io::Result<()> {
        sys::attach_program(socket.as_fd(), self.program.as_fd())
    }

    fn index(&self, owner: Owner) -> io::Result<u32> {
        let invalid = |error: OwnerError| io::Error::new(io::ErrorKind::InvalidInput, error);
        self.bits.pack(owner).map(u32::from).map_err(invalid)
    }
}

/// The length of connection IDs and the bits of owners that all configurations have.
fn common_format(codecs: &[&Codec]) -> Result<(usize, OwnerBits), ProgramError> {
    let mut common = None;
    for codec in codecs {
        let len = codec.format().id_len();
        let bits = codec.format().owner().ok_or(ProgramError::NoOwner(codec.id()))?;
        let (first_len, first_bits) = *common.get_or_insert((len, bits));
        if first_len != len {
            return Err(ProgramError::Length(first_len, len));
        }
        if first_bits != bits {
            return Err(ProgramError::Bits(codec.id()));
        }
    }
    common.ok_or(ProgramError::Empty)
}

/// Where the UDP payload begins: `ctx` shows the datagram from its UDP header on.
const PAYLOAD: i32 = 8;
/// Where a connection ID begins behind a short header's first octet and behind a long header's
/// first octet, version and length; and where that length is (RFC 8999, Section 5).
const SHORT_START: i32 = PAYLOAD + 1;
const LONG_LEN: i32 = PAYLOAD + 5;
const LONG_START: i32 = PAYLOAD + 6;
/// The first octet's bit of long headers (RFC 8999, Section 5.1).
const LONG: i32 = 0x80;
/// `hash` in `struct sk_reuseport_md`: of the four-tuple.
const CONTEXT_HASH: i16 = 32;
/// The connection ID on the stack, and the key of a map below it.
const ID: i16 = -24;
const KEY: i16 = -32;
/// SK_PASS: to the socket that was chosen, or else by address.
const PASS: u32 = 1;
/// The hash's state, and what is at hand while it is computed.
const V: [Register; 4] = [R1, R2, R3, R4];

fn write(
    codecs: &[&Codec],
    len: usize,
    bits: OwnerBits,
    sockets: BorrowedFd<'_>,
    newest: BorrowedFd<'_>,
) -> Option<Vec<Instruction>> {
    let mut program = Assembler::default();
    let by_newest = program.label();
    let hash = program.label();
    let pass = program.label();
    // At most 20 (RFC 9000, Section 17.2).
    write_start(&mut program, i32::try_from(len).ok()?, by_newest);
    let configurations: Vec<_> =
        codecs.iter().map(|codec| (program.label(), codec.mask(), codec.id())).collect();
    for (label, _, id) in &configurations {
        program.jump_if(R1, Condition::Equal, id.number().into(), *label);
    }
    program.jump(by_newest);
    for (label, mask, _) in configurations {
        program.place(label);
        for (register, value) in V.into_iter().zip(mask.initial_state()) {
            program.word(Operation::Move, register, value);
        }
        program.jump(hash);
    }
    program.place(hash);
    let masked = i16::try_from(len.checked_sub(bits.octets())?).ok()?;
    write_hash(&mut program, masked);
    write_owner(&mut program, masked, bits);
    write_selection(&mut program, sockets);
    program.jump_if(R0, Condition::Equal, 0, pass);
    program.place(by_newest);
    write_newest(&mut program, newest, pass);
    write_selection(&mut program, sockets);
    program.place(pass);
    program.word(Operation::Move, R0, PASS);
    program.exit();
    program.finish()
}

/// Copies the connection ID to the stack; leaves the number of its configuration in R1.
fn write_start(program: &mut Assembler, len: i32, by_newest: Label) {
    let long = program.label();
    let found = program.label();
    program.double_with(Operation::Move, R6, R1);
    program.double(Operation::Move, R2, PAYLOAD);
    write_copy(program, 1, by_newest);
    program.jump_if(R1, Condition::AnyOf, LONG, long);
    program.double(Operation::Move, R2, SHORT_START);
    program.jump(found);
    program.place(long);
    program.double(Operation::Move, R2, LONG_LEN);
    write_copy(program, 1, by_newest);
    program.jump_if(R1, Condition::NotEqual, len, by_newest);
    program.double(Operation::Move, R2, LONG_START);
    program.place(found);
    write_copy(program, len, by_newest);
    program.word(Operation::ShiftRight, R1, 5);
}

/// Copies `len` octets of the datagram from offset R2 on; leaves the first in R1.
fn write_copy(program: &mut Assembler, len: i32, missing: Label) {
    program.double_with(Operation::Move, R1, R6);
    program.double_with(Operation::Move, R3, R10);
    program.double(Operation::Add, R3, ID.into());
    program.double(Operation::Move, R4, len);
    program.call(Helper::LoadBytes);
    program.jump_if(R0, Condition::NotEqual, 0, missing);
    program.load(Size::Octet, R1, R10, ID);
}

/// Leaves the keyed hash ([`HashKey::hash`]) of the connection ID's first `len` octets in R0.
fn write_hash(program: &mut Assembler, len: i16) {
    let whole = len - len % 4;
    for at in (0..whole).step_by(4) {
        program.load(Size::Word, R0, R10, ID + at);
        program.word_from_little_endian(R0);
        write_absorption(program);
    }
    program.word(Operation::Move, R0, u32::from(len.cast_unsigned()) << 24);
    for (at, shift) in (whole..len).zip([0, 8, 16]) {
        program.load(Size::Octet, R5, R10, ID + at);
        program.word(Operation::ShiftLeft, R5, shift);
        program.word_with(Operation::Or, R0, R5);
    }
    write_absorption(program);
    program.word(Operation::Xor, V[2], HashKey::FINAL);
    for _ in 0..HashKey::FINAL_ROUNDS {
        write_round(program);
    }
    program.word_with(Operation::Move, R0, V[1]);
    program.word_with(Operation::Xor, R0, V[3]);
}

fn write_absorption(program: &mut Assembler) {
    program.word_with(Operation::Xor, V[3], R0);
    write_round(program);
    program.word_with(Operation::Xor, V[0], R0);
}

/// One round of SipHash's half-width variant; [`HashKey::hash`] has the same.
fn write_round(program: &mut Assembler) {
    let [v0, v1, v2, v3] = V;
    for (sum, addend, by) in [(v0, v1, 5), (v2, v3, 8)] {
        write_half_round(program, sum, addend, by);
    }
    write_rotation(program, v0, 16);
    for (sum, addend, by) in [(v0, v3, 7), (v2, v1, 13)] {
        write_half_round(program, sum, addend, by);
    }
    write_rotation(program, v2, 16);
}

fn write_half_round(program: &mut Assembler, sum: Register, addend: Register, by: u32) {
    program.word_with(Operation::Add, sum, addend);
    write_rotation(program, addend, by);
    program.word_with(Operation::Xor, addend, sum);
}

fn write_rotation(program: &mut Assembler, word: Register, left: u32) {
    program.word_with(Operation::Move, R5, word);
    program.word(Operation::ShiftRight, R5, 32 - left);
    program.word(Operation::ShiftLeft, word, left);
    program.word_with(Operation::Or, word, R5);
}

/// With the hash in R0: leaves the owner there, without its mask.
fn write_owner(program: &mut Assembler, at: i16, bits: OwnerBits) {
    program.load(Size::Octet, R1, R10, ID + at);
    if bits.octets() == 2 {
        program.word(Operation::ShiftLeft, R1, 8);
        program.load(Size::Octet, R2, R10, ID + at + 1);
        program.word_with(Operation::Or, R1, R2);
    }
    program.word_with(Operation::Xor, R0, R1);
    program.word(Operation::And, R0, if bits.octets() == 1 { 0xff } else { 0xffff });
}

/// Chooses the socket at the index in R0; R0 is 0 then.
fn write_selection(program: &mut Assembler, sockets: BorrowedFd<'_>) {
    program.store(Size::Word, R10, KEY, R0);
    program.double_with(Operation::Move, R1, R6);
    program.load_map(R2, sockets);
    program.double_with(Operation::Move, R3, R10);
    program.double(Operation::Add, R3, KEY.into());
    program.double(Operation::Move, R4, 0);
    program.call(Helper::SelectReuseport);
}

/// Leaves the index of a worker of the newest generation in R0, chosen by address.
fn write_newest(program: &mut Assembler, newest: BorrowedFd<'_>, none: Label) {
    program.word(Operation::Move, R0, 0);
    program.store(Size::Word, R10, KEY, R0);
    program.load_map(R1, newest);
    program.double_with(Operation::Move, R2, R10);
    program.double(Operation::Add, R2, KEY.into());
    program.call(Helper::MapLookup);
    program.jump_if(R0, Condition::Equal, 0, none);
    // Both in one load: who changes them changes both.
    program.load(Size::Double, R1, R0, 0);
    program.double_with(Operation::Move, R2, R1);
    program.double(Operation::ShiftRight, R2, 32);
    program.jump_if(R2, Condition::Equal, 0, none);
    program.load(Size::Word, R0, R6, CONTEXT_HASH);
    program.double_with(Operation::Multiply, R0, R2);
    program.double(Operation::ShiftRight, R0, 32);
    program.word_with(Operation::Add, R0, R1);
}
