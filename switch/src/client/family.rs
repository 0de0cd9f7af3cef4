//! What processes have in common that have a listener from one another over fork(2).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::protocol::{Attention, Hex, Kin};

/// A listener's family: names the processes to the switch, which share what the listener serves.
#[derive(Clone, Debug)]
pub struct Family {
    name: Hex<16>,
    /// Hangs up when the last process has let go of its [`Hold`].
    pub(super) lifeline: Arc<OwnedFd>,
}

/// A process has the listener, until it drops this, or ends, or calls exec.
#[derive(Debug)]
pub struct Hold(OwnedFd);

impl Family {
    /// A new one, whose name nobody can guess.
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn new(name: [u8; 16]) -> io::Result<(Self, Hold)> {
        let (lifeline, hold) = UnixStream::pair()?;
        let lifeline = Arc::new(OwnedFd::from(lifeline));
        Ok((Self { name: Hex(name), lifeline }, Hold(hold.into())))
    }

    /// Its name and its descriptors, to be put together again in a child.
    #[must_use]
    pub fn parts(&self) -> ([u8; 16], &OwnedFd) {
        (self.name.0, &self.lifeline)
    }

    /// The same family in a child that has inherited both descriptors.
    #[must_use]
    pub fn inherited(name: [u8; 16], lifeline: OwnedFd, hold: OwnedFd) -> (Self, Hold) {
        (Self { name: Hex(name), lifeline: Arc::new(lifeline) }, Hold(hold))
    }

    pub(super) const fn kin(&self, attention: Attention) -> Kin {
        Kin { family: self.name, attention }
    }
}

impl std::os::fd::AsFd for Hold {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
