//! What wakes a side that sleeps.

use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketFlags, SocketType,
    sockopt,
};

/// How many rings fill a socket whose buffer is as small as can be: less than ten, on any system.
const MOST_RINGS: u32 = 64;

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
        // Otherwise the kernel frees an octet that comes out of band (MSG_OOB) within a call that reads what comes after it, and
        // closes descriptors that came along, there and then.
        sockopt::set_socket_oobinline(&one, true)?;
        sockopt::set_socket_oobinline(&other, true)?;
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

    /// How many rings have come, up to a thousand, without taking them ([`Bell::take`]).
    ///
    /// # Errors
    ///
    /// When the other end is closed, and all rings have been taken.
    pub fn rung(&self) -> Result<usize, Gone> {
        let mut rings = [0; 1024];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match rustix::io::retry_on_intr(|| rustix::net::recv(&self.0, &mut rings[..], flags)) {
            Ok((0, _)) => Err(Gone),
            Ok((rung, _)) => Ok(rung),
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    /// Takes no more than so many rings, without waiting.
    ///
    /// # Errors
    ///
    /// When the other end is closed.
    pub fn take(&self, rung: usize) -> Result<(), Gone> {
        let mut rings = [0; 1024];
        let Some(rings) = rings.get_mut(..rung).filter(|rings| !rings.is_empty()) else {
            return Ok(());
        };
        match rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.0, &mut *rings, RecvFlags::DONTWAIT)
        }) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    /// Rings until this end is not writable. It is again when the other end has heard that.
    ///
    /// # Errors
    ///
    /// When the other end is closed, or what the system says.
    pub fn fill(&self) -> io::Result<()> {
        // The least that the system allows, which is room for a few rings; a socket is writable while a quarter of it is in use.
        sockopt::set_socket_send_buffer_size(&self.0, 0)?;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        for _ in 0..MOST_RINGS {
            let mut only = [PollFd::new(&self.0, PollFlags::OUT)];
            rustix::io::retry_on_intr(|| poll(&mut only, Some(&at_once)))?;
            if only[0].revents().is_empty() {
                break;
            }
            self.ring()?;
        }
        Ok(())
    }

    /// As [`Bell::hush`], of an end that a hostile program has. Descriptors that it has sent along stay where they are: the kernel
    /// closes those that nobody takes when it is read, here and now, and that may wait as long as that program likes; and those that
    /// are taken would be more than this process may have.
    ///
    /// # Errors
    ///
    /// When the other end is closed, and all rings have been taken; or when descriptors have come. Then it is not to be read here any more.
    pub fn hush_stranger(&self) -> Result<(), Gone> {
        let mut rings = [0; 1024];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let seen = rustix::io::retry_on_intr(|| {
            let mut rings = [IoSliceMut::new(&mut rings)];
            rustix::net::recvmsg(&self.0, &mut rings, &mut RecvAncillaryBuffer::default(), flags)
        });
        let rung = match seen {
            Ok(seen) if seen.bytes == 0 || seen.flags.contains(ReturnFlags::CTRUNC) => {
                return Err(Gone);
            }
            Ok(seen) => seen.bytes,
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(_) => return Err(Gone),
        };
        // No more than was seen: behind that, some may have come meanwhile.
        let Some(seen) = rings.get_mut(..rung) else { return Err(Gone) };
        match rustix::io::retry_on_intr(|| {
            rustix::net::recv(&self.0, &mut *seen, RecvFlags::DONTWAIT)
        }) {
            Ok(_) => Ok(()),
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

    /// Whether the other end is closed. Rings stay where they are.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn is_gone(&self) -> io::Result<bool> {
        let mut only = [PollFd::new(&self.0, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::io::retry_on_intr(|| poll(&mut only, Some(&at_once)))?;
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
    use std::fs::File;
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    use rustix::net::{RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage};

    use super::*;

    /// Rings, with so many descriptors.
    fn send(bell: &Bell, descriptors: usize, flags: SendFlags) {
        let file = File::open("/dev/null").unwrap();
        let many = vec![file.as_fd(); descriptors];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        assert!(many.is_empty() || rights.push(SendAncillaryMessage::ScmRights(&many)));
        let flags = flags | SendFlags::DONTWAIT;
        rustix::net::sendmsg(bell, &[IoSlice::new(&[1])], &mut rights, flags).unwrap();
    }

    /// Reads it: how many octets and descriptors have come.
    fn read(bell: &Bell) -> (usize, usize) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let (mut octets, mut count) = ([0; 1024], 0);
        let mut octets = [IoSliceMut::new(&mut octets)];
        let read = rustix::net::recvmsg(bell, &mut octets, &mut rights, RecvFlags::DONTWAIT);
        for part in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                count += rights.count();
            }
        }
        (read.map_or(0, |read| read.bytes), count)
    }

    #[test]
    fn descriptors_that_come_by_a_bell_are_neither_taken_nor_closed() {
        for out_of_band in [SendFlags::empty(), SendFlags::OOB] {
            for before in [0, 3] {
                let (ours, theirs) = Bell::pair().unwrap();
                (0..before).for_each(|_| theirs.ring().unwrap());
                for descriptors in [253, 1] {
                    send(&theirs, descriptors, out_of_band);
                }
                assert_eq!(ours.hush_stranger(), Err(Gone), "{out_of_band:?} {before}");
                assert_eq!(read(&ours), (before + 1, 253), "{out_of_band:?} {before}");
                assert_eq!((ours.hush_stranger(), read(&ours)), (Err(Gone), (1, 1)));
                assert_eq!(ours.hush_stranger(), Ok(()));
            }
        }
    }

    #[test]
    fn a_stranger_is_heard_as_others_are() {
        let (ours, theirs) = Bell::pair().unwrap();
        assert_eq!(ours.hush_stranger(), Ok(()));
        (0..100).for_each(|_| theirs.ring().unwrap());
        send(&theirs, 0, SendFlags::OOB);
        for _ in 0..2 {
            assert!(ours.wait(Some(Duration::ZERO)).unwrap());
            assert_eq!(ours.hush_stranger(), Ok(()));
        }
        assert!(!ours.wait(Some(Duration::ZERO)).unwrap());
        theirs.ring().unwrap();
        drop(theirs);
        assert_eq!((ours.hush_stranger(), ours.hush_stranger()), (Ok(()), Err(Gone)));
    }

    /// As programs see that wait by poll, be it for reading or for writing.
    #[test]
    fn rings_are_counted_and_taken_and_a_full_bell_is_not_writable() {
        let (ours, theirs) = Bell::pair().unwrap();
        let is = |flags| {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&ours, flags)], Some(&at_once)).unwrap() > 0
        };
        assert_eq!((ours.rung(), ours.take(3)), (Ok(0), Ok(())));
        (0..3).for_each(|_| theirs.ring().unwrap());
        assert_eq!((ours.rung(), ours.take(2), ours.rung()), (Ok(3), Ok(()), Ok(1)));
        assert!(is(PollFlags::IN));
        ours.take(1).unwrap();
        assert!(!is(PollFlags::IN) && is(PollFlags::OUT));
        for _ in 0..2 {
            (0..2).for_each(|_| ours.fill().unwrap());
            assert!(!is(PollFlags::OUT));
            ours.ring().expect("it has enough to wake up for");
            theirs.hush_stranger().unwrap();
            assert!(is(PollFlags::OUT));
        }
        drop(theirs);
        assert_eq!((ours.rung(), ours.take(1)), (Err(Gone), Ok(())));
        assert!(ours.fill().is_err());
    }

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
