//! What wakes a side that sleeps.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType,
};

/// The most descriptors that the system lets come with a message (SCM_MAX_FD).
const MAX_DESCRIPTORS: usize = 253;

/// One end of a pair of bells: rings at the other end, and is readable when that one has rung or has gone.
///
/// It is a local socket and no eventfd: whether a call on an eventfd waits is a flag that both sides share, so
/// that a hostile one could have the other one's write to a full counter wait for ever. Here each call says for
/// itself that it does not wait.
#[derive(Debug)]
pub struct Bell(OwnedFd);

/// The other end of a bell is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl From<Gone> for io::Error {
    fn from(_: Gone) -> Self {
        Self::new(ErrorKind::ConnectionReset, "the other side of the port has gone")
    }
}

impl Bell {
    /// Both ends.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(one), Self(other)))
    }

    /// The end that has come as a descriptor.
    #[must_use]
    pub const fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Rings at the other end, without waiting. If that has not listened for long, it has enough to wake up for.
    ///
    /// # Errors
    ///
    /// When the other end is closed.
    pub fn ring(&self) -> Result<(), Gone> {
        loop {
            match rustix::net::send(&self.0, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// Takes rings that have come, without waiting: up to a thousand, so that who rings without end is not
    /// listened to without end.
    ///
    /// # Errors
    ///
    /// When the other end is closed, and all rings have been taken.
    pub fn hush(&self) -> Result<(), Gone> {
        let mut rings = [0; 1024];
        loop {
            match rustix::net::recv(&self.0, &mut rings[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Gone),
                Ok(_) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(Gone),
            }
        }
    }

    /// As [`Bell::hush`], of an end that a hostile program has: descriptors that it has sent along are returned. The kernel
    /// closes those that nobody takes, here and now, and that may wait as long as that program likes.
    ///
    /// # Errors
    ///
    /// When the other end is closed, and all rings have been taken.
    pub fn hush_stranger(&self) -> Result<Vec<OwnedFd>, Gone> {
        let mut rings = [0; 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = rustix::io::retry_on_intr(|| {
            let mut rings = [IoSliceMut::new(&mut rings)];
            rustix::net::recvmsg(&self.0, &mut rings, &mut control, flags)
        });
        let mut descriptors = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        match received {
            Ok(message) if message.bytes == 0 => Err(Gone),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(descriptors),
            Err(_) => Err(Gone),
        }
    }

    /// Waits until the other end rings, or has gone; without end if there is no time given. Returns false
    /// if the time is over.
    ///
    /// # Errors
    ///
    /// `Interrupted` by a signal, or what the system says.
    pub fn wait(&self, time: Option<Duration>) -> io::Result<bool> {
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        Ok(poll(&mut [PollFd::new(&self.0, PollFlags::IN)], time.as_ref())? > 0)
    }
}

impl Bell {
    /// Whether the other end is closed. Rings stay where they are.
    ///
    /// # Errors
    ///
    /// `Interrupted` by a signal, or what the system says.
    pub fn is_gone(&self) -> io::Result<bool> {
        let mut only = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut only, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(only[0].revents().contains(PollFlags::HUP))
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> Self {
        bell.0
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_at_the_other_end_until_that_hushes() {
        let (one, other) = Bell::pair().unwrap();
        assert!(!other.wait(Some(Duration::ZERO)).unwrap());
        other.hush().unwrap();
        one.ring().unwrap();
        assert!(other.wait(None).unwrap());
        assert!(!one.wait(Some(Duration::ZERO)).unwrap());
        other.hush().unwrap();
        assert!(!other.wait(Some(Duration::ZERO)).unwrap());
        one.ring().unwrap();
        assert!(!other.is_gone().unwrap());
        drop(one);
        assert!(other.is_gone().unwrap() && other.wait(None).unwrap(), "its end is not seen");
        other.hush().expect("it had rung before");
        assert_eq!((other.hush(), other.ring()), (Err(Gone), Err(Gone)));
    }

    /// What would have an eventfd wait: a full one, whose flag the other side has taken back.
    #[test]
    fn one_that_never_listens_has_nobody_wait() {
        let (ours, theirs) = Bell::pair().unwrap();
        for bell in [&ours, &theirs] {
            rustix::fs::fcntl_setfl(bell, rustix::fs::OFlags::empty()).unwrap();
        }
        for _ in 0..100_000 {
            ours.ring().unwrap();
        }
        // And one that rings without end is heard a while, and not for ever.
        let rings = [1; 4096];
        while rustix::net::send(&theirs, &rings, SendFlags::DONTWAIT).is_ok() {}
        ours.hush().unwrap();
        assert!(ours.wait(Some(Duration::ZERO)).unwrap());
    }
}
