//! Who asks for something: each request has a connection of its own.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use quicket_tcp_protocol::{Answer, Names, Request};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};

use crate::listening::send_with;

/// Connections at once that have not asked yet. Beyond that, the oldest makes room.
pub const MAX_VISITORS: usize = 1024;

/// The visitors, in the order in which they have come.
#[derive(Debug)]
pub(crate) struct Visitors {
    most: usize,
    /// Those that have not asked.
    visitors: BTreeMap<u64, OwnedFd>,
    /// Those that have proven to be programs, and wait for a connection. Each socket has one at most.
    waiting: BTreeMap<u64, OwnedFd>,
}

/// What a visitor has done.
#[derive(Debug)]
pub(crate) enum Did {
    /// Nothing yet.
    Nothing,
    Ask(Request),
    /// It has gone, or asked for what makes no sense.
    Leave,
}

impl Visitors {
    /// So many at once.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, visitors: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// Lets the next one in, under a number.
    pub(crate) fn accept(&mut self, door: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
        let visitor = accept_with(door, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        if self.visitors.len() >= self.most {
            self.visitors.pop_first();
        }
        self.visitors.insert(id, visitor);
        Ok(())
    }

    /// The end of one of them.
    pub(crate) fn end(&self, id: u64) -> Option<BorrowedFd<'_>> {
        self.visitors.get(&id).or_else(|| self.waiting.get(&id)).map(AsFd::as_fd)
    }

    /// One that has asked is answered later: it makes room for nobody.
    pub(crate) fn keep(&mut self, id: u64) {
        if let Some(visitor) = self.visitors.remove(&id) {
            self.waiting.insert(id, visitor);
        }
    }

    /// Hears what one of them wants.
    pub(crate) fn hear(&self, id: u64, names: &Names) -> Did {
        let Some(visitor) = self.end(id) else { return Did::Leave };
        let mut octets = [0; Request::LEN + 1];
        match recv(visitor, &mut octets[..], RecvFlags::DONTWAIT) {
            Ok((_, len @ 1..)) => {
                let request = octets.get(..len).and_then(Request::read);
                let known = request.filter(|request| request.token == *names.token());
                known.map_or(Did::Leave, Did::Ask)
            }
            Err(Errno::AGAIN | Errno::INTR) => Did::Nothing,
            _ => Did::Leave,
        }
    }

    /// Answers one of them, who goes.
    pub(crate) fn answer(&mut self, id: u64, answer: &Answer, with: Option<BorrowedFd<'_>>) {
        if let Some(visitor) = self.take(id)
            && let Err(error) = send_with(&visitor, &answer.write(), with)
        {
            log::debug!("a program is not answered: {error}");
        }
    }

    pub(crate) fn leave(&mut self, id: u64) {
        drop(self.take(id));
    }

    fn take(&mut self, id: u64) -> Option<OwnedFd> {
        self.visitors.remove(&id).or_else(|| self.waiting.remove(&id))
    }
}
