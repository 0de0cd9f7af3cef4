//! Programs that meet packets before the system makes sockets' packets of them (XDP).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::extended::Instruction;
use crate::sys;

/// Answers of programs (`enum xdp_action` of linux/bpf.h).
pub(crate) const DROP: u32 = 1;
pub(crate) const PASS: u32 = 2;
pub(crate) const TRANSMIT: u32 = 3;
const REDIRECT: u32 = 4;

/// A number of 16 bits as a program loads it from a packet.
pub(crate) fn network(number: u16) -> i32 {
    u16::from_ne_bytes(number.to_be_bytes()).into()
}

/// What a program makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes up to user space, as it came.
    Pass,
    /// It leaves by the device that it came by.
    Transmit,
    /// It leaves by another device.
    Redirect,
    /// It is lost.
    Drop,
}

/// What came of a run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// The packet, with all headers in front.
    pub packet: Vec<u8>,
    /// How long it took, the mean of all repetitions.
    pub nanoseconds: u32,
}

/// A program in the kernel.
#[derive(Debug)]
pub struct XdpProgram(OwnedFd);

impl XdpProgram {
    /// Has the kernel check the balancer's program. Nothing is attached.
    ///
    /// # Errors
    /// Why the kernel does not take it; or a capability is missing.
    pub fn load(instructions: &[Instruction]) -> io::Result<Self> {
        Self::load_as(*b"quicket_balance\0", instructions)
    }

    /// The same under a name, of up to 15 letters and zeros, that others see.
    pub(crate) fn load_as(name: [u8; 16], instructions: &[Instruction]) -> io::Result<Self> {
        sys::load_xdp(name, instructions).map(Self)
    }

    /// Has the program look at a packet, from the header of Ethernet on, as if it came by the
    /// loopback device. Each repetition finds the packet as the one before has left it.
    ///
    /// # Errors
    /// `EINVAL` when the packet is shorter than a header of Ethernet.
    pub fn run(&self, packet: &[u8], repeat: u32) -> io::Result<Run> {
        let (answer, packet, nanoseconds) = sys::run(self.0.as_fd(), packet, repeat)?;
        let verdict = match answer {
            PASS => Verdict::Pass,
            TRANSMIT => Verdict::Transmit,
            REDIRECT => Verdict::Redirect,
            _ => Verdict::Drop,
        };
        Ok(Run { verdict, packet, nanoseconds })
    }

    /// Has a device hand its packets to the program first.
    ///
    /// # Errors
    /// `EBUSY` when it has another program; `EOPNOTSUPP` when its driver cannot.
    pub fn attach(&self, interface: u32, mode: Mode) -> io::Result<Link> {
        sys::link_xdp(self.0.as_fd(), interface, mode as u32).map(Link)
    }
}

/// Where a program meets packets (XDP_FLAGS of linux/if_link.h). Natively attached, it can send by
/// the device that frames come by; whether others can send its frames depends on their drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Behind the driver: slower, and of any device.
    #[default]
    Generic = 2,
    /// In the driver.
    Native = 4,
}

/// That a program is attached. It is detached on drop, and when the process ends in any way.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Puts another program in the place of the one that is attached; each packet meets one of them.
    ///
    /// # Errors
    /// `ENOLINK` when the device is gone.
    pub fn update(&self, program: &XdpProgram) -> io::Result<()> {
        sys::update_link(self.0.as_fd(), program.0.as_fd())
    }

    /// The number of the device; none once that has gone. One that is in another network namespace by now has its number there.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn interface(&self) -> io::Result<Option<u32>> {
        let interface = sys::link_interface(self.0.as_fd())?;
        Ok(Some(interface).filter(|interface| *interface > 0))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Closing it would leave the program there for as long as a child of this process that has not called
        // exec yet has a descriptor too. A device that is gone has none.
        let _ = sys::detach_link(self.0.as_fd());
    }
}
