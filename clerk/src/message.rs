//! Messages with descriptors that nobody reads any more.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SocketType, sockopt,
};

use crate::put_down;

/// The most descriptors that the system lets come with a message (SCM_MAX_FD).
pub const MAX_DESCRIPTORS: usize = 253;

/// Room in this process for the descriptors of one message, which the clerks have in common that were given it: they are taken on
/// while nobody else there has taken on any. Else the kernel closes them within the call that reads the message. That keeps nobody waiting
/// but whom the clerk keeps waiting anyway; only connections that linger are waited for then.
///
/// One thread beside the clerks may read messages, too, and count before ([`Room::read`]).
#[derive(Clone, Debug, Default)]
pub struct Room(Arc<Places>);

#[derive(Debug, Default)]
struct Places {
    /// Descriptors that a clerk has taken on and not closed yet; before it has read the message, as many as may come.
    taken: AtomicUsize,
    is_read: AtomicBool,
}

/// As long as this is there, no clerk takes on descriptors that it does not count.
#[derive(Debug)]
pub struct Reading<'a> {
    room: &'a Room,
    taken: usize,
}

impl Room {
    /// Before a message is read that may bring descriptors. Waits for nobody; clerks wait for the end of it.
    #[must_use]
    pub fn read(&self) -> Reading<'_> {
        // Either the clerk sees this, or this sees what the clerk has counted: all four are in one order.
        let was_read = self.0.is_read.swap(true, Ordering::SeqCst);
        debug_assert!(!was_read, "one thread reads, one message at a time");
        Reading { room: self, taken: self.0.taken.load(Ordering::SeqCst) }
    }

    /// Room for a message; none while somebody has it.
    fn take(&self) -> Option<Taken<'_>> {
        let Places { taken, is_read } = &*self.0;
        let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
        taken.compare_exchange(0, MAX_DESCRIPTORS, success, failure).ok()?;
        while is_read.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Some(Taken { room: self, left: MAX_DESCRIPTORS })
    }
}

impl Reading<'_> {
    /// How many descriptors clerks have out of messages, or are about to have.
    #[must_use]
    pub const fn taken(&self) -> usize {
        self.taken
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.room.0.is_read.store(false, Ordering::SeqCst);
    }
}

/// A clerk's part of it.
struct Taken<'a> {
    room: &'a Room,
    left: usize,
}

impl Taken<'_> {
    /// So many are there still.
    fn leave(&mut self, left: usize) {
        let closed = self.left.saturating_sub(left);
        self.left -= closed;
        self.room.0.taken.fetch_sub(closed, Ordering::Release);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.leave(0);
    }
}

/// Whether descriptors come with the next message, which stays where it is, and so do they.
///
/// # Errors
///
/// `WouldBlock` when there is no message, or what the system says.
pub fn brings_descriptors(from: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(is_cut_off(from)?)
}

/// Closes what is left in a local socket that nothing comes into any more.
pub(crate) fn empty(socket: BorrowedFd<'_>, room: &Room) {
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    let mut was_reset = false;
    loop {
        match take_message(socket, is_stream, room) {
            Ok(true) => {}
            // The other end has gone with something unread: that is said once, before what is left here.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Ok(false) | Err(_) => break,
        }
    }
}

/// Takes a message, and closes the descriptors that come with it. Returns false at the end.
fn take_message(from: BorrowedFd<'_>, is_stream: bool, room: &Room) -> Result<bool, Errno> {
    // Of a stream, nothing is the end.
    if !is_stream && !has_message(from)? {
        return Ok(false);
    }
    let mut taken = if is_cut_off(from)? { room.take() } else { None };
    let (len, mut descriptors) = receive(from, taken.is_some())?;
    loop {
        if let Some(taken) = &mut taken {
            taken.leave(descriptors.len());
        }
        let Some(descriptor) = descriptors.pop() else { return Ok(!is_stream || len > 0) };
        put_down(descriptor);
    }
}

/// Whether there is another message, were it an empty one, which reads like the end: a message says who has sent it (SO_PASSCRED).
/// That is not read, as who sent it may be in another PID namespace, and then has the number 0, which `rustix` takes for none.
fn has_message(from: BorrowedFd<'_>) -> Result<bool, Errno> {
    sockopt::set_socket_passcred(from, true)?;
    let has_message = is_cut_off(from);
    sockopt::set_socket_passcred(from, false)?;
    has_message
}

/// Whether something comes with the next message: it is looked at, without room for that.
fn is_cut_off(from: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (mut buffer, mut none) = ([0; LOOK], RecvAncillaryBuffer::default());
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let seen = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut buffer)], &mut none, flags)
    })?;
    Ok(seen.flags.contains(ReturnFlags::CTRUNC))
}

/// Octets that are read at a time. The rest of a message is dropped; a stream is read as far as it was looked at.
const LOOK: usize = 1024;

fn receive(from: BorrowedFd<'_>, has_room: bool) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut buffer = [0; LOOK];
    if has_room {
        return receive_message(from, &mut buffer);
    }
    receive_by(from, &mut buffer, RecvAncillaryBuffer::default())
}

/// Receives a message and all descriptors that came with it: closing one may wait, for as long as who sent it
/// likes, so that it is the caller's business. The length is 0 at the end. A message that is longer than `buffer` is
/// cut off.
///
/// # Errors
///
/// `EAGAIN` when there is no message, or what the system says.
pub fn receive_message(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    receive_by(from, buffer, RecvAncillaryBuffer::new(&mut space))
}

fn receive_by(
    from: BorrowedFd<'_>,
    buffer: &mut [u8],
    mut control: RecvAncillaryBuffer<'_>,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(buffer)], &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok((message.bytes, descriptors))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{IoSlice, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags,
        shutdown, socketpair,
    };

    use super::*;

    pub(crate) fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    pub(crate) fn send(to: &OwnedFd, bytes: &[u8], with: &[&OwnedFd]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let with: Vec<_> = with.iter().map(AsFd::as_fd).collect();
        assert!(with.is_empty() || control.push(SendAncillaryMessage::ScmRights(&with)));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut control, flags).unwrap();
    }

    /// A descriptor to hand over, and what reads the end when that is closed.
    fn handed() -> (OwnedFd, UnixStream) {
        let (with, other) = UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        (with.into(), other)
    }

    fn assert_closed(mut others: Vec<UnixStream>) {
        for other in &mut others {
            assert_eq!(other.read(&mut [0]).unwrap(), 0, "it is closed");
        }
    }

    #[test]
    fn an_empty_message_is_not_the_end() {
        let (ours, theirs) = pair(SocketType::SEQPACKET);
        let (file, other) = handed();
        for (bytes, with) in [
            (&b""[..], &[][..]),
            (b"", &[&file]),
            (b"said", &[]),
            (b"", &[]),
            (&[7; 5000], &[&file]),
        ] {
            send(&theirs, bytes, with);
        }
        drop(file);
        shutdown(&ours, Shutdown::Both).unwrap();
        let mut taken = 0;
        while take_message(ours.as_fd(), false, &Room::default()).unwrap() {
            taken += 1;
        }
        assert_eq!(taken, 5);
        assert_closed(vec![other]);
    }

    #[test]
    fn all_is_closed_also_when_the_other_end_has_gone_with_something_unread() {
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            let (ours, theirs) = pair(kind);
            let mut others = Vec::new();
            for len in [1, 2000, 3, 4] {
                let ((one, end), (two, other)) = (handed(), handed());
                send(&theirs, &vec![7; len], &[&one, &two]);
                send(&theirs, b"none", &[]);
                others.extend([end, other]);
            }
            send(&ours, b"unread", &[]);
            drop(theirs);
            shutdown(&ours, Shutdown::Both).unwrap();
            empty(ours.as_fd(), &Room::default());
            assert_closed(others);
        }
    }

    #[test]
    fn what_has_no_room_is_closed_and_not_taken_on() {
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            let (ours, theirs) = pair(kind);
            let (file, other) = handed();
            (0..3).for_each(|_| send(&theirs, b"one", &[&file]));
            drop(file);
            shutdown(&ours, Shutdown::Both).unwrap();
            let room = Room::default();
            let taken = room.take().unwrap();
            assert!(room.take().is_none(), "one message at a time");
            assert_eq!(receive(ours.as_fd(), room.take().is_some()).unwrap().1.len(), 0);
            empty(ours.as_fd(), &room);
            assert_closed(vec![other]);
            drop(taken);
            assert!(room.take().is_some());
        }
    }

    #[test]
    fn a_message_is_counted_before_it_is_taken_on() {
        let (ours, theirs) = pair(SocketType::SEQPACKET);
        let (file, other) = handed();
        send(&theirs, b"four", &[&file; 4]);
        drop(file);
        shutdown(&ours, Shutdown::Both).unwrap();
        let room = Room::default();
        let reading = room.read();
        assert_eq!(reading.taken(), 0, "nobody looks at it");
        std::thread::scope(|scope| {
            let clerk = scope.spawn(|| empty(ours.as_fd(), &room));
            while room.0.taken.load(Ordering::SeqCst) == 0 {
                assert!(!clerk.is_finished(), "it has not waited");
                std::thread::yield_now();
            }
            // It is counted, and waits for who reads.
            for _ in 0..1000 {
                assert!(brings_descriptors(ours.as_fd()).unwrap(), "it was read");
                assert_eq!(room.0.taken.load(Ordering::SeqCst), MAX_DESCRIPTORS);
                std::thread::yield_now();
            }
            drop(reading);
        });
        assert_closed(vec![other]);
        let mut taken = room.take().unwrap();
        taken.leave(3);
        assert_eq!(room.read().taken(), 3);
        taken.leave(4);
        taken.leave(0);
        assert_eq!(room.read().taken(), 0);
        assert!(room.take().is_some());
        drop(taken);
        assert_eq!(room.read().taken(), 0);
    }
}
