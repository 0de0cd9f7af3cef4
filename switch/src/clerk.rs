//! The threads that close what other users have handed over.
//!
//! Closing a descriptor of somebody else may wait for as long as he likes: a connection of TCP that lingers (SO_LINGER), a
//! file of his own file system. The same is so of a local socket that he has sent something to: descriptors may be in
//! there, which the kernel closes with it. So each user has a thread for that, and those who are not let in have one
//! together: it keeps them waiting, and nobody else.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use nix::libc;
use nix::sys::socket::{Shutdown, SockType, getsockopt, setsockopt, shutdown, sockopt};

use crate::protocol::MAX_MESSAGE;
use crate::sys;

enum Job {
    Close(OwnedFd),
    /// A connection, the other end of which he has or had.
    End(OwnedFd),
}

/// One such thread, which ends when nobody has this any more and its work is done.
#[derive(Clone, Debug)]
pub(crate) struct Clerk {
    jobs: Sender<Job>,
    /// Descriptors that are not closed yet.
    waiting: Arc<AtomicUsize>,
}

impl Clerk {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, work) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&waiting);
        thread::Builder::new().name("clerk".into()).spawn(move || run(&work, &counted))?;
        Ok(Self { jobs, waiting })
    }

    /// One that does not get on with what it has.
    #[cfg(test)]
    pub(crate) fn stuck(waiting: usize) -> Self {
        Self { jobs: channel().0, waiting: Arc::new(AtomicUsize::new(waiting)) }
    }

    /// Closes descriptors.
    pub(crate) fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        descriptors.into_iter().for_each(|descriptor| self.give(Job::Close(descriptor)));
    }

    /// Ends a connection. The other end sees that at once.
    pub(crate) fn end(&self, connection: OwnedFd) {
        // From now on nothing comes in.
        let _ = shutdown(connection.as_raw_fd(), Shutdown::Both);
        self.give(Job::End(connection));
    }

    /// How many descriptors wait for it.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn give(&self, job: Job) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // It goes on until this is dropped.
        let _ = self.jobs.send(job);
    }
}

fn run(work: &Receiver<Job>, waiting: &AtomicUsize) {
    let mut buffer = vec![0; MAX_MESSAGE];
    for job in work {
        match job {
            Job::Close(descriptor) => put_down(descriptor),
            Job::End(connection) => {
                // What is left in there. With who has sent it, an empty message is not taken for the end; a stream has none.
                let is_stream = getsockopt(&connection, sockopt::SockType) == Ok(SockType::Stream);
                let _ = setsockopt(&connection, sockopt::PassCred, &!is_stream);
                while let Ok(received) = sys::receive_all(connection.as_fd(), &mut buffer) {
                    if received.len == 0 && !received.has_control {
                        break;
                    }
                    received.rights.descriptors.into_iter().for_each(put_down);
                }
                drop(connection);
            }
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closes what somebody has handed over. A connection of TCP that lingers is not waited for.
fn put_down(descriptor: OwnedFd) {
    // It is a socket, or it does not linger.
    let _ = setsockopt(&descriptor, sockopt::Linger, &libc::linger { l_onoff: 0, l_linger: 0 });
    drop(descriptor);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use nix::sys::socket::{AddressFamily, SockFlag, socketpair};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A connection of TCP that waits for a minute when it is closed, as long as the other end is there.
    pub(crate) fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        one.set_nonblocking(true).unwrap();
        while one.write(&[7; 65536]).is_ok() {}
        let linger = libc::linger { l_onoff: 1, l_linger: 60 };
        setsockopt(&one, sockopt::Linger, &linger).unwrap();
        (one.into(), other)
    }

    #[test]
    fn what_lingers_is_closed_at_once_also_in_a_connection_that_nobody_reads() {
        let clerk = Clerk::start().unwrap();
        let begun = Instant::now();
        let (one, _other) = lingering();
        clerk.close([one]);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).unwrap();
        let (one, _another) = lingering();
        (0..3).for_each(|_| sys::send_with(theirs.as_fd(), b"", &[]).unwrap());
        sys::send_with(theirs.as_fd(), b"", &[one.as_fd()]).unwrap();
        drop(one);
        clerk.end(ours);
        while clerk.waiting() > 0 {
            assert!(begun.elapsed() < LONG);
            thread::yield_now();
        }
        assert!(sys::send_with(theirs.as_fd(), b"more", &[]).is_err(), "it has ended");
    }
}
