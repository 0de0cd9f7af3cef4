//! Handing all frames of a device to AF_XDP sockets, without a look at them: for measurements of bare sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::extended::{Assembler, Helper, Operation, Register, Size};
use crate::sys::{Map, Table};
use crate::tuples::MAX_QUEUES;
use crate::xdp::{PASS, XdpProgram};
use crate::{LoadError, ProgramError};

/// Where `struct xdp_md` (linux/bpf.h) has the queue that a frame came by.
const QUEUE: i16 = 16;

/// A program that hands each frame to the socket of its queue, or to the system where that queue has none.
#[derive(Debug)]
pub struct RedirectProgram {
    sockets: Table<4, 4>,
    program: XdpProgram,
}

impl RedirectProgram {
    /// Nothing is attached, and no queue has a socket yet.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn new() -> Result<Self, LoadError> {
        let sockets = Table::new(Map::XdpSockets, MAX_QUEUES)?;
        let mut program = Assembler::default();
        program.load(Size::Word, Register::R2, Register::R1, QUEUE);
        program.load_map(Register::R1, sockets.as_fd());
        program.word(Operation::Move, Register::R3, PASS);
        program.call(Helper::RedirectMap);
        program.exit();
        let program = program.finish().ok_or(LoadError::Program(ProgramError::TooLong))?;
        let program = XdpProgram::load_as(*b"quicket_all\0\0\0\0\0", &program)?;
        Ok(Self { sockets, program })
    }

    /// Has the frames of a queue go to an AF_XDP socket, in place of the system. The kernel drops them unless the socket
    /// is bound to that queue of the device.
    ///
    /// # Errors
    /// `E2BIG` beyond [`MAX_QUEUES`]; `EOPNOTSUPP` when it is no such socket.
    pub fn set_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// The program, to attach it.
    #[must_use]
    pub const fn program(&self) -> &XdpProgram {
        &self.program
    }
}
