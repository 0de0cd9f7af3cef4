//! Extended BPF: instructions, and an assembler that knows labels.
//!
//! It checks nothing but labels: the kernel looks at a program before it takes it.
//!
//! Source: RFC 9669 (instruction set). There are eleven registers of 64 bits; operations on their
//! lower halves clear the upper ones. Helpers take R1 to R5, answer in R0 and spoil R1 to R5.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::labels::Labels;

pub use crate::labels::Label;

/// One instruction: `struct bpf_insn` of linux/bpf.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    /// The destination in one half and the source in the other, after the machine's byte order.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// What helpers and the program answer.
    R0,
    /// What a program is told, and the first argument of helpers.
    R1,
    /// The second argument of helpers.
    R2,
    /// The third.
    R3,
    /// The fourth.
    R4,
    /// The fifth.
    R5,
    /// Kept over calls, as all that follow.
    R6,
    /// Kept.
    R7,
    /// Kept.
    R8,
    /// Kept.
    R9,
    /// The end of the stack.
    R10 = 10,
}

/// Sizes of loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 32 bits.
    Word = 0x00,
    /// 16 bits.
    Half = 0x08,
    /// 8 bits.
    Octet = 0x10,
    /// 64 bits.
    Double = 0x18,
}

/// Operations on two registers, or a register and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The sum, what is above left out.
    Add = 0x00,
    /// The difference, likewise.
    Subtract = 0x10,
    /// The product, what is above left out.
    Multiply = 0x20,
    /// Bits of either.
    Or = 0x40,
    /// Bits of both.
    And = 0x50,
    /// Towards the highest bit.
    ShiftLeft = 0x60,
    /// Towards the lowest bit, zeros behind.
    ShiftRight = 0x70,
    /// Bits of one alone.
    Xor = 0xa0,
    /// The second one.
    Move = 0xb0,
}

/// Comparisons of a register with a constant or another one, without signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The same.
    Equal = 0x10,
    /// Greater than the other one.
    Greater = 0x20,
    /// They have a bit in common.
    AnyOf = 0x40,
    /// Not the same.
    NotEqual = 0x50,
    /// Less than the other one.
    Less = 0xa0,
}

/// Functions of the kernel (`enum bpf_func_id` of linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// `bpf_map_lookup_elem`
    MapLookup = 1,
    /// `bpf_get_smp_processor_id`
    ProcessorId = 8,
    /// `bpf_redirect`
    Redirect = 23,
    /// `bpf_redirect_map`
    RedirectMap = 51,
    /// `bpf_xdp_adjust_head`
    XdpAdjustHead = 44,
    /// `bpf_fib_lookup`
    FibLookup = 69,
}

const LD_IMMEDIATE_DOUBLE: u8 = 0x18;
const LDX: u8 = 0x61;
const ST: u8 = 0x62;
const STX: u8 = 0x63;
const ALU_WORD: u8 = 0x04;
const ALU_DOUBLE: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_WORD: u8 = 0x06;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const OF_REGISTER: u8 = 0x08;
/// To big endian, of which the constant says the width.
const TO_BIG_ENDIAN: u8 = 0xdc;
/// The constant of [`LD_IMMEDIATE_DOUBLE`] is a map's descriptor.
const PSEUDO_MAP: u8 = 1;

/// Writes a program.
#[derive(Debug, Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    labels: Labels,
}

impl Assembler {
    fn push(&mut self, code: u8, registers: (Register, u8), offset: i16, immediate: i32) {
        let (destination, source) = (registers.0 as u8, registers.1);
        let registers = if cfg!(target_endian = "little") {
            source << 4 | destination
        } else {
            destination << 4 | source
        };
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// `to` = `to` `operation` `constant`, on all 64 bits.
    pub fn double(&mut self, operation: Operation, to: Register, constant: i32) {
        self.push(ALU_DOUBLE | operation as u8, (to, 0), 0, constant);
    }

    /// `to` = `to` `operation` `from`, on all 64 bits.
    pub fn double_with(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(ALU_DOUBLE | OF_REGISTER | operation as u8, (to, from as u8), 0, 0);
    }

    /// `to` = `to` `operation` `constant`, on 32 bits.
    pub fn word(&mut self, operation: Operation, to: Register, constant: u32) {
        self.push(ALU_WORD | operation as u8, (to, 0), 0, constant.cast_signed());
    }

    /// `to` = `to` `operation` `from`, on 32 bits.
    pub fn word_with(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(ALU_WORD | OF_REGISTER | operation as u8, (to, from as u8), 0, 0);
    }

    /// Makes a number of 16 bits that was loaded in network byte order one of the machine, or the
    /// other way round.
    pub fn half_from_big_endian(&mut self, of: Register) {
        self.push(TO_BIG_ENDIAN, (of, 0), 0, 16);
    }

    /// The same for a number of 32 bits.
    pub fn word_from_big_endian(&mut self, of: Register) {
        self.push(TO_BIG_ENDIAN, (of, 0), 0, 32);
    }

    /// `to` = what is at `base` + `offset`.
    pub fn load(&mut self, size: Size, to: Register, base: Register, offset: i16) {
        self.push(LDX | size as u8, (to, base as u8), offset, 0);
    }

    /// What is at `base` + `offset` = `from`.
    pub fn store(&mut self, size: Size, base: Register, offset: i16, from: Register) {
        self.push(STX | size as u8, (base, from as u8), offset, 0);
    }

    /// What is at `base` + `offset` = `constant`.
    pub fn store_value(&mut self, size: Size, base: Register, offset: i16, constant: i32) {
        self.push(ST | size as u8, (base, 0), offset, constant);
    }

    /// `to` = the map, for a helper.
    pub fn load_map(&mut self, to: Register, map: BorrowedFd<'_>) {
        self.push(LD_IMMEDIATE_DOUBLE, (to, PSEUDO_MAP), 0, map.as_raw_fd());
        self.push(0, (Register::R0, 0), 0, 0);
    }

    /// R0 = the helper's answer.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, (Register::R0, 0), 0, helper as i32);
    }

    /// The program answers what R0 says.
    pub fn exit(&mut self) {
        self.push(EXIT, (Register::R0, 0), 0, 0);
    }

    /// A place that [`Self::place`] decides.
    pub fn label(&mut self) -> Label {
        self.labels.label()
    }

    /// `label` is here.
    pub fn place(&mut self, label: Label) {
        self.labels.place(label, self.instructions.len());
    }

    /// Goes on at `label`.
    pub fn jump(&mut self, label: Label) {
        self.labels.jump(self.instructions.len(), label);
        self.push(JUMP, (Register::R0, 0), 0, 0);
    }

    /// Goes on at `label` if the register compares so with the constant.
    pub fn jump_if(&mut self, of: Register, is: Condition, constant: i32, label: Label) {
        self.labels.jump(self.instructions.len(), label);
        self.push(JUMP | is as u8, (of, 0), 0, constant);
    }

    /// The same for the register's lower half.
    pub fn jump_if_word(&mut self, of: Register, is: Condition, word: u32, label: Label) {
        self.labels.jump(self.instructions.len(), label);
        self.push(JUMP_WORD | is as u8, (of, 0), 0, word.cast_signed());
    }

    /// Goes on at `label` if the register compares so with another one.
    pub fn jump_if_with(&mut self, of: Register, is: Condition, with: Register, label: Label) {
        self.labels.jump(self.instructions.len(), label);
        self.push(JUMP | OF_REGISTER | is as u8, (of, with as u8), 0, 0);
    }

    /// The program; `None` when a label was not placed or is too far away.
    pub fn finish(mut self) -> Option<Vec<Instruction>> {
        for jump in self.labels.distances() {
            let (from, distance) = jump?;
            self.instructions.get_mut(from)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.instructions)
    }
}
