//! Classic BPF: instructions, and an assembler that knows labels.
//!
//! Source: McCanne and Jacobson, "The BSD Packet Filter" (USENIX Winter 1993), and
//! linux/bpf_common.h for the numbers. The machine has an accumulator A, an index register X, 16
//! words of memory, and jumps forward only. A load beyond the packet ends the program with 0.

use crate::labels::{Label, Labels};

/// The most instructions that the kernel takes (BPF_MAXINSNS).
pub(crate) const MAX_INSTRUCTIONS: usize = 4096;

/// One instruction: `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    k: u32,
}

/// A word of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u8);

/// Sizes of loads from the packet; what is longer than an octet is in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Octet,
    Half,
    Word,
}

/// Conditions on A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal(u32),
    AtLeast(u32),
    /// One of these bits is set.
    AnyOf(u32),
}

/// Operations on A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Modulo = 0x90,
    Xor = 0xa0,
}

// Classes, modes and sources: linux/bpf_common.h.
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const OF_X: u16 = 0x08;
const OF_A: u16 = 0x10;
const TAX: u16 = 0x00;
const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;

/// Writes a program.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
    labels: Labels,
}

impl Assembler {
    fn push(&mut self, code: u16, k: u32) {
        self.instructions.push(Instruction { code, if_true: 0, if_false: 0, k });
    }

    /// A = the packet's octets at `offset`.
    pub(crate) fn load(&mut self, size: Size, offset: u32) {
        self.push(LD | ABS | size.code(), offset);
    }

    /// A = the packet's octets at X + `offset`.
    pub(crate) fn load_at_x(&mut self, size: Size, offset: u32) {
        self.push(LD | IND | size.code(), offset);
    }

    /// A = `value`.
    pub(crate) fn load_value(&mut self, value: u32) {
        self.push(LD | IMM, value);
    }

    /// A = the length of the packet.
    pub(crate) fn load_len(&mut self) {
        self.push(LD | LEN, 0);
    }

    /// A = a word of memory.
    pub(crate) fn recall(&mut self, word: Word) {
        self.push(LD | MEM, word.0.into());
    }

    /// X = a word of memory.
    pub(crate) fn recall_x(&mut self, word: Word) {
        self.push(LDX | MEM, word.0.into());
    }

    /// A word of memory = A.
    pub(crate) fn store(&mut self, word: Word) {
        self.push(ST, word.0.into());
    }

    /// X = A.
    pub(crate) fn copy_to_x(&mut self) {
        self.push(MISC | TAX, 0);
    }

    /// A = A `operation` `k`.
    pub(crate) fn with(&mut self, operation: Operation, k: u32) {
        self.push(ALU | operation as u16, k);
    }

    /// A = A `operation` X.
    pub(crate) fn with_x(&mut self, operation: Operation) {
        self.push(ALU | OF_X | operation as u16, 0);
    }

    /// A place that [`Self::place`] decides.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.label()
    }

    /// `label` is here.
    pub(crate) fn place(&mut self, label: Label) {
        self.labels.place(label, self.instructions.len());
    }

    /// Goes on at `label`, which must be placed further down.
    pub(crate) fn jump(&mut self, label: Label) {
        self.labels.jump(self.instructions.len(), label);
        self.push(JMP | JA, 0);
    }

    /// Goes on at `label` if A does as `condition` says. Conditional jumps reach 255 instructions,
    /// unconditional ones reach all: hence the pair.
    pub(crate) fn jump_if(&mut self, condition: Condition, label: Label) {
        self.compare(condition, 0, 1);
        self.jump(label);
    }

    /// Goes on at `label` unless A does as `condition` says.
    pub(crate) fn jump_unless(&mut self, condition: Condition, label: Label) {
        self.compare(condition, 1, 0);
        self.jump(label);
    }

    fn compare(&mut self, condition: Condition, if_true: u8, if_false: u8) {
        let (code, k) = match condition {
            Condition::Equal(k) => (JEQ, k),
            Condition::AtLeast(k) => (JGE, k),
            Condition::AnyOf(k) => (JSET, k),
        };
        self.instructions.push(Instruction { code: JMP | code, if_true, if_false, k });
    }

    /// The program answers `value`.
    pub(crate) fn answer(&mut self, value: u32) {
        self.push(RET, value);
    }

    /// The program answers A.
    pub(crate) fn answer_a(&mut self) {
        self.push(RET | OF_A, 0);
    }

    /// The program; `None` when the kernel would not take it: a label that was not placed, or one
    /// above its jump, or too many instructions.
    pub(crate) fn finish(mut self) -> Option<Vec<Instruction>> {
        for jump in self.labels.distances() {
            let (from, distance) = jump?;
            self.instructions.get_mut(from)?.k = u32::try_from(distance).ok()?;
        }
        (self.instructions.len() <= MAX_INSTRUCTIONS).then_some(self.instructions)
    }
}

impl Size {
    const fn code(self) -> u16 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Octet => 0x10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_their_labels_and_only_forward() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.jump_unless(Condition::Equal(1), end);
        for _ in 0..300 {
            assembler.load_value(0);
        }
        assembler.place(end);
        assembler.answer(7);
        let program = assembler.finish().unwrap();
        assert_eq!(program.len(), 303);
        assert_eq!((program[0].if_true, program[0].if_false, program[1].k), (1, 0, 300));

        let mut back = Assembler::default();
        let start = back.label();
        back.place(start);
        back.answer(0);
        back.jump(start);
        assert_eq!(back.finish(), None);
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let mut nowhere = Assembler::default();
        let label = nowhere.label();
        nowhere.jump(label);
        assert_eq!(nowhere.finish(), None);
        let mut long = Assembler::default();
        for _ in 0..=MAX_INSTRUCTIONS {
            long.load_value(0);
        }
        assert_eq!(long.finish(), None);
    }
}
