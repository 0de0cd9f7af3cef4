//! The thread that touches what a user has handed over (`quicket-clerk`).
//!
//! A descriptor of somebody else can have any call on it wait: a file of his own file system when it is closed, a socket
//! that he keeps locked when it is asked for its address. So each user has a thread for that, which keeps that user waiting, and
//! nobody else.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use quicket_clerk::{Room, put_down};
use quicket_ring::Bell;

use crate::protocol::Answer;
use crate::tuple::Tuple;
use crate::{evidence, hold};

/// What a socket has been found to prove, for the connection that handed it over.
pub(super) struct Finding {
    pub(super) connection: usize,
    pub(super) serial: u64,
    pub(super) user: u32,
    pub(super) result: Result<(Tuple, OwnedFd), Answer>,
}

enum Work {
    Check {
        connection: usize,
        serial: u64,
        user: u32,
        socket: OwnedFd,
    },
    /// What the switch has made.
    Free(OwnedFd),
}

/// The switch's side of it. The thread ends when this is dropped and its work is done.
pub(super) struct Clerk(quicket_clerk::Clerk<Work>);

/// Where it says what it has found.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) findings: Sender<Finding>,
    pub(super) bell: Arc<Bell>,
    pub(super) namespace: u64,
    /// The switch wants to be told of each descriptor that is closed.
    pub(super) is_awaited: Arc<AtomicBool>,
    /// What clerks take on out of connections that have ended.
    pub(super) room: Room,
}

impl Clerk {
    /// Starts the thread.
    pub(super) fn start(desk: Desk) -> io::Result<Self> {
        let (bell, is_awaited) = (Arc::clone(&desk.bell), Arc::clone(&desk.is_awaited));
        let done = move || {
            if is_awaited.load(Ordering::Acquire) {
                let _ = bell.ring();
            }
        };
        let room = desk.room.clone();
        quicket_clerk::Clerk::start_with(room, move |work| desk.perform(work), done).map(Self)
    }

    /// One that never gets anything done.
    #[cfg(test)]
    pub(super) fn stuck() -> Self {
        Self(quicket_clerk::Clerk::stuck(0))
    }

    /// Finds out what a socket proves.
    pub(super) fn check(&self, connection: usize, serial: u64, user: u32, socket: OwnedFd) {
        self.0.check(Work::Check { connection, serial, user, socket });
    }

    /// Closes descriptors that he has handed over.
    pub(super) fn close(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        self.0.close(descriptors);
    }

    /// Ends local sockets that he has the other ends of, which see it at once.
    pub(super) fn end(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        sockets.into_iter().for_each(|socket| self.0.end(socket));
    }

    /// Closes what the switch has made: there may be much of it.
    pub(super) fn free(&self, sockets: impl IntoIterator<Item = OwnedFd>) {
        sockets.into_iter().for_each(|socket| self.0.free(Work::Free(socket)));
    }

    /// How many descriptors wait for it.
    pub(super) fn held(&self) -> usize {
        self.0.held()
    }

    /// ... of which he decides how many there are.
    pub(super) fn handed(&self) -> usize {
        self.0.waiting()
    }
}

impl Desk {
    fn perform(&self, work: Work) {
        match work {
            Work::Check { connection, serial, user, socket } => {
                let result = check(socket, self.namespace);
                // The switch has ended, if there is nobody.
                let _ = self.findings.send(Finding { connection, serial, user, result });
                let _ = self.bell.ring();
            }
            Work::Free(socket) => hold::release(socket),
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
