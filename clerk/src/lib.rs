//! The threads that close what other users have handed over.
//!
//! Closing a descriptor of somebody else may wait for as long as he likes: a connection of TCP that lingers (SO_LINGER), a
//! file of his own file system. The same is so of a local socket that he has sent something to: descriptors may be in
//! there, which the kernel closes with it. So a switch gives such descriptors to a thread ([`Clerk`]): it keeps waiting those
//! whose descriptors it has, and nobody else.
#![forbid(unsafe_code)]

mod message;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use rustix::net::{Shutdown, shutdown, sockopt};

pub use message::{MAX_DESCRIPTORS, Reading, Room, brings_descriptors, receive_message};

enum Job<T> {
    Close(OwnedFd),
    /// A local socket, the other end of which somebody else has or had.
    End(OwnedFd),
    /// What is handed over.
    Check(T),
    /// What this process has made.
    Free(T),
}

impl<T> Job<T> {
    const fn is_handed(&self) -> bool {
        !matches!(self, Self::Free(_))
    }
}

/// Descriptors that are not closed yet.
#[derive(Debug, Default)]
struct Count {
    held: AtomicUsize,
    /// Those that somebody else decides how many there are of.
    waiting: AtomicUsize,
}

/// One such thread, which ends when nobody has this any more and its work is done. `T` is what else it does, each with one
/// descriptor.
#[derive(Debug)]
pub struct Clerk<T = Infallible> {
    jobs: Sender<Job<T>>,
    count: Arc<Count>,
}

impl<T> Clone for Clerk<T> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), count: Arc::clone(&self.count) }
    }
}

impl Clerk {
    /// Starts a thread that only closes.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Room::default(), |never| match never {}, || {})
    }
}

impl<T: Send + 'static> Clerk<T> {
    /// Starts a thread that also does what `work` is given, and calls `done` after each descriptor, whatever was done with it.
    /// Clerks with the same `room` take on the descriptors of one message at a time.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub fn start_with(
        room: Room,
        work: impl FnMut(T) + Send + 'static,
        done: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, received) = channel();
        let count = Arc::new(Count::default());
        let counted = Arc::clone(&count);
        let run = move || run(received, &counted, &room, work, done);
        thread::Builder::new().name("clerk".into()).spawn(run)?;
        Ok(Self { jobs, count })
    }
}

impl<T> Clerk<T> {
    /// Closes descriptors that were handed over.
    pub fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        descriptors.into_iter().for_each(|descriptor| self.give(Job::Close(descriptor)));
    }

    /// Ends a local socket that somebody else has the other end of, who sees it at once. What is left in there is closed one by one.
    pub fn end(&self, socket: OwnedFd) {
        // From now on nothing comes in.
        let _ = shutdown(&socket, Shutdown::Both);
        self.give(Job::End(socket));
    }

    /// Does something with a descriptor that was handed over.
    pub fn check(&self, work: T) {
        self.give(Job::Check(work));
    }

    /// Does something with a descriptor that this process has made.
    pub fn free(&self, work: T) {
        self.give(Job::Free(work));
    }

    /// How many descriptors that were handed over wait for it: somebody else decides how many there are.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.count.waiting.load(Ordering::Relaxed)
    }

    /// How many descriptors wait for it, be they handed over or made here. The message that it takes apart is not among them, which [`Room`] counts.
    #[must_use]
    pub fn held(&self) -> usize {
        self.count.held.load(Ordering::Relaxed)
    }

    fn give(&self, job: Job<T>) {
        self.count.held.fetch_add(1, Ordering::Relaxed);
        if job.is_handed() {
            self.count.waiting.fetch_add(1, Ordering::Relaxed);
        }
        // It goes on until this is dropped.
        let _ = self.jobs.send(job);
    }
}

fn run<T>(
    jobs: Receiver<Job<T>>,
    count: &Count,
    room: &Room,
    mut work: impl FnMut(T),
    mut done: impl FnMut(),
) {
    for job in jobs {
        let is_handed = job.is_handed();
        match job {
            Job::Close(descriptor) => put_down(descriptor),
            Job::End(socket) => {
                message::empty(socket.as_fd(), room);
                drop(socket);
            }
            Job::Check(what) | Job::Free(what) => work(what),
        }
        count.held.fetch_sub(1, Ordering::Relaxed);
        if is_handed {
            count.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        done();
    }
}

/// Closes what somebody has handed over. A connection of TCP that lingers (SO_LINGER) is not waited for.
pub fn put_down(descriptor: OwnedFd) {
    // It is a socket, or it does not linger.
    let _ = sockopt::set_socket_linger(&descriptor, None);
    drop(descriptor);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::message::tests::{pair, send};
    use crate::testing::lingering;

    /// Far below the time for which what is handed over lingers.
    const LONG: Duration = Duration::from_secs(20);

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn what_lingers_is_closed_at_once_also_in_a_connection_that_nobody_reads() {
        let clerk = Clerk::start().unwrap();
        let (one, _other) = lingering();
        clerk.close([one]);
        for kind in [rustix::net::SocketType::SEQPACKET, rustix::net::SocketType::STREAM] {
            let (ours, theirs) = pair(kind);
            let (one, _another) = lingering();
            (0..3).for_each(|_| send(&theirs, b"one", &[]));
            send(&theirs, b"two", &[&one]);
            drop(one);
            clerk.end(ours);
            assert!(rustix::net::send(&theirs, b"more", rustix::net::SendFlags::NOSIGNAL).is_err());
            until("it is closed", || clerk.held() == 0);
        }
        assert_eq!(clerk.waiting(), 0);
    }

    #[test]
    fn what_is_handed_over_is_told_from_what_was_made_here() {
        let (done, is_done) = channel();
        let work = |wait: Receiver<()>| {
            let _ = wait.recv();
        };
        let finish = move || done.send(()).unwrap();
        let clerk = Clerk::start_with(Room::default(), work, finish).unwrap();
        let ((check, checks), (free, frees)) = (channel(), channel());
        clerk.check(checks);
        clerk.free(frees);
        let (ours, _theirs) = pair(rustix::net::SocketType::SEQPACKET);
        clerk.end(ours);
        assert_eq!((clerk.held(), clerk.waiting()), (3, 2));
        drop(check);
        is_done.recv_timeout(LONG).unwrap();
        assert_eq!((clerk.held(), clerk.waiting()), (2, 1));
        drop(free);
        (0..2).for_each(|_| is_done.recv_timeout(LONG).unwrap());
        assert_eq!((clerk.held(), clerk.waiting()), (0, 0));
    }
}
