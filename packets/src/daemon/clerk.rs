//! The thread that touches what a user has handed over.
//!
//! A descriptor of somebody else can have any call on it wait: a file of his own file system when it is closed, a socket
//! that he keeps locked when it is asked for its address, a connection that lingers. The same is so of a local socket that he
//! has sent something to, as descriptors may be in there, which the kernel closes with it. So each user has a thread for
//! that, which keeps that user waiting, and nobody else.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use quicket_ring::Bell;
use rustix::net::{Shutdown, SocketType, shutdown, sockopt};

use crate::protocol::{Answer, MAX_MESSAGE};
use crate::tuple::Tuple;
use crate::{evidence, hold, local};

/// What a socket has been found to prove, for the connection that handed it over.
pub(super) struct Finding {
    pub(super) connection: usize,
    pub(super) serial: u64,
    pub(super) user: u32,
    pub(super) result: Result<(Tuple, OwnedFd), Answer>,
}

enum Job {
    Check {
        connection: usize,
        serial: u64,
        user: u32,
        socket: OwnedFd,
    },
    /// What he has handed over.
    Close(OwnedFd),
    /// A local socket, the other end of which he has or had.
    End(OwnedFd),
    /// What the switch has made.
    Free(OwnedFd),
}

/// Descriptors that are not closed yet.
#[derive(Default)]
struct Count {
    all: AtomicUsize,
    /// Those that somebody else decides how many there are of.
    handed: AtomicUsize,
}

/// The switch's side of it.
pub(super) struct Clerk {
    jobs: Sender<Job>,
    count: Arc<Count>,
}

/// Where it says what it has found.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) findings: Sender<Finding>,
    pub(super) bell: Arc<Bell>,
    pub(super) namespace: u64,
    /// The switch wants to be told of each descriptor that is closed.
    pub(super) is_awaited: Arc<AtomicBool>,
}

impl Clerk {
    /// Starts the thread, which ends when this is dropped and its work is done.
    pub(super) fn start(desk: Desk) -> io::Result<Self> {
        let (jobs, work) = channel();
        let count = Arc::new(Count::default());
        let counted = Arc::clone(&count);
        thread::Builder::new().name("clerk".into()).spawn(move || run(work, &desk, &counted))?;
        Ok(Self { jobs, count })
    }

    /// One that never gets anything done.
    #[cfg(test)]
    pub(super) fn stuck() -> Self {
        Self { jobs: channel().0, count: Arc::default() }
    }

    /// Finds out what a socket proves.
    pub(super) fn check(&self, connection: usize, serial: u64, user: u32, socket: OwnedFd) {
        self.give(Job::Check { connection, serial, user, socket });
    }

    /// Closes descriptors that he has handed over.
    pub(super) fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        descriptors.into_iter().for_each(|descriptor| self.give(Job::Close(descriptor)));
    }

    /// Ends local sockets that he has the other ends of, which see it at once.
    pub(super) fn end(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        for socket in sockets {
            // From now on nothing comes in.
            let _ = shutdown(&socket, Shutdown::Both);
            self.give(Job::End(socket));
        }
    }

    /// Closes what the switch has made: there may be much of it.
    pub(super) fn free(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        sockets.into_iter().for_each(|socket| self.give(Job::Free(socket)));
    }

    /// How many descriptors wait for it.
    pub(super) fn held(&self) -> usize {
        self.count.all.load(Ordering::Relaxed)
    }

    /// ... of which he decides how many there are.
    pub(super) fn handed(&self) -> usize {
        self.count.handed.load(Ordering::Relaxed)
    }

    fn give(&self, job: Job) {
        self.count.all.fetch_add(1, Ordering::Relaxed);
        if !matches!(job, Job::Free(_)) {
            self.count.handed.fetch_add(1, Ordering::Relaxed);
        }
        // It goes on until this is dropped; a panic there, of which there is none, would be that of the process.
        let _ = self.jobs.send(job);
    }
}

fn run(work: Receiver<Job>, desk: &Desk, count: &Count) {
    for job in work {
        let is_handed = !matches!(job, Job::Free(_));
        match job {
            Job::Check { connection, serial, user, socket } => {
                let result = check(socket, desk.namespace);
                // The switch has ended, if there is nobody.
                let _ = desk.findings.send(Finding { connection, serial, user, result });
                let _ = desk.bell.ring();
            }
            Job::Close(descriptor) => put_down(descriptor),
            Job::End(socket) => empty(&socket, count),
            Job::Free(socket) => hold::release(socket),
        }
        count.all.fetch_sub(1, Ordering::Relaxed);
        if is_handed {
            count.handed.fetch_sub(1, Ordering::Relaxed);
        }
        if desk.is_awaited.load(Ordering::Acquire) {
            let _ = desk.bell.ring();
        }
    }
}

/// Closes what is left in a local socket.
fn empty(socket: &OwnedFd, count: &Count) {
    let mut buffer = [0; MAX_MESSAGE];
    // A bell, which is a stream, has no empty messages.
    let is_stream = sockopt::socket_type(socket) == Ok(SocketType::STREAM);
    while is_stream || local::has_more(socket.as_fd()) {
        let Ok((len, descriptors)) = local::receive(socket.as_fd(), &mut buffer) else { break };
        if is_stream && len == 0 && descriptors.is_empty() {
            break;
        }
        // The process has so many fewer while one of them waits.
        count.all.fetch_add(descriptors.len(), Ordering::Relaxed);
        for descriptor in descriptors {
            put_down(descriptor);
            count.all.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The tuple that a socket proves, and what keeps it for the switch.
fn check(socket: OwnedFd, namespace: u64) -> Result<(Tuple, OwnedFd), Answer> {
    let checked = evidence::tuple_of(socket.as_fd(), namespace);
    let held = checked.and_then(|tuple| Ok((tuple, hold::hold(socket.as_fd(), tuple)?)));
    match held {
        Ok((tuple, Some(ours))) => {
            put_down(socket);
            Ok((tuple, ours))
        }
        // Of a protocol without ports: the system keeps no two apart.
        Ok((tuple, None)) => Ok((tuple, socket)),
        Err(answer) => {
            put_down(socket);
            Err(answer)
        }
    }
}

/// Closes what somebody has handed over. A connection of TCP that lingers (SO_LINGER) is not waited for.
fn put_down(descriptor: OwnedFd) {
    // It is a socket, or it does not linger.
    let _ = sockopt::set_socket_linger(&descriptor, None);
    drop(descriptor);
}
