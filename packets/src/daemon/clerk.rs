//! The thread that touches what a user has handed over.
//!
//! A descriptor of somebody else can have any call on it wait: a file of his own file system when it is closed, a socket
//! that he keeps locked when it is asked for its address, a connection that lingers. So each user has a thread for
//! that, which keeps that user waiting, and nobody else.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use quicket_ring::Bell;
use rustix::net::sockopt;

use crate::evidence;
use crate::protocol::Answer;
use crate::tuple::Tuple;

/// What a socket has been found to prove, for the connection that handed it over.
pub(super) struct Finding {
    pub(super) connection: usize,
    pub(super) serial: u64,
    pub(super) user: u32,
    pub(super) result: Result<(Tuple, OwnedFd), Answer>,
}

enum Job {
    Check { connection: usize, serial: u64, user: u32, socket: OwnedFd },
    Close(OwnedFd),
}

/// The switch's side of it.
pub(super) struct Clerk {
    jobs: Sender<Job>,
    /// Descriptors that it has not closed yet.
    held: Arc<AtomicUsize>,
}

/// Where it says what it has found.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) findings: Sender<Finding>,
    pub(super) bell: Arc<Bell>,
    pub(super) namespace: u64,
}

impl Clerk {
    /// Starts the thread, which ends when this is dropped and its work is done.
    pub(super) fn start(desk: Desk) -> io::Result<Self> {
        let (jobs, work) = channel();
        let held = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&held);
        thread::Builder::new().name("clerk".into()).spawn(move || run(work, &desk, &counted))?;
        Ok(Self { jobs, held })
    }

    /// Finds out what a socket proves.
    pub(super) fn check(&self, connection: usize, serial: u64, user: u32, socket: OwnedFd) {
        self.give(Job::Check { connection, serial, user, socket });
    }

    /// Closes descriptors.
    pub(super) fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        descriptors.into_iter().for_each(|descriptor| self.give(Job::Close(descriptor)));
    }

    /// How many descriptors wait for it.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn give(&self, job: Job) {
        self.held.fetch_add(1, Ordering::Relaxed);
        // It goes on until this is dropped; a panic there, of which there is none, would be that of the process.
        let _ = self.jobs.send(job);
    }
}

fn run(work: Receiver<Job>, desk: &Desk, held: &AtomicUsize) {
    for job in work {
        match job {
            Job::Check { connection, serial, user, socket } => {
                let found = evidence::tuple_of(socket.as_fd(), desk.namespace);
                let (result, socket) = match found {
                    Ok(tuple) => {
                        // What the system still delivers there is not read: it is not to take memory.
                        let _ = sockopt::set_socket_recv_buffer_size(&socket, 0);
                        (Ok((tuple, socket)), None)
                    }
                    Err(answer) => (Err(answer), Some(socket)),
                };
                // The switch has ended, if there is nobody.
                let _ = desk.findings.send(Finding { connection, serial, user, result });
                let _ = desk.bell.ring();
                drop(socket);
            }
            Job::Close(descriptor) => drop(descriptor),
        }
        held.fetch_sub(1, Ordering::Relaxed);
    }
}
