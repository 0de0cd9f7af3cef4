//! Requests for ports and queues: memory and a bell for each.

use std::os::fd::AsFd;

use quicket_ring::{Bell, Layout, Memory};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::connection::too_few_descriptors;
use super::user::{
    MAX_CONNECTIONS_PER_USER, MAX_MEMORY, MAX_MEMORY_PER_USER, has_descriptors, has_share,
};
use super::{Daemon, MAX_CONNECTIONS, PORT, token};
use crate::local;
use crate::protocol::{Answer, Sizes, VERSION};
use crate::queues::MAX_QUEUES;
use crate::registry::Owner;

impl Daemon {
    /// Makes a port, whose memory and bell go to the program. None if that has been said.
    pub(super) fn open(&mut self, at: usize, version: u8, sizes: Sizes) -> Option<Answer> {
        let connection = self.connections.get(at)?.as_ref()?;
        if version != VERSION {
            let why = format!(
                "this switch for packets speaks version {VERSION} and the program {version}: use one release of both"
            );
            return Some(Answer::refuse(Errno::PROTO, why));
        }
        if connection.port.is_some() {
            return Some(Answer::refuse(
                Errno::ISCONN,
                "this connection has a port: each takes a connection of its own (quicket switch open)",
            ));
        }
        self.make(at, sizes, None)
    }

    /// Makes another queue for a port. None if that has been said.
    pub(super) fn add_queue(&mut self, at: usize, sizes: Sizes) -> Option<Answer> {
        let connection = self.connections.get(at)?.as_ref()?;
        let refuse = |code, why: &str| Some(Answer::refuse(code, why));
        let Some(port) = connection.port else {
            return refuse(Errno::NOTCONN, "open a port first");
        };
        if connection.watches {
            return refuse(Errno::INVAL, "a port that watches another one has one queue");
        }
        if connection.queues.len() + 1 >= MAX_QUEUES {
            let why = format!("a port has {MAX_QUEUES} queues at most");
            return refuse(Errno::DQUOT, &why);
        }
        // Each has descriptors of this process, as a connection has.
        let user = self.users.get(&connection.user)?;
        let (most, used) = (MAX_CONNECTIONS_PER_USER, user.connections + user.queues);
        let may = match connection.is_confined {
            true => has_share(most, used, 1 + connection.queues.len(), 1),
            false => used < most,
        };
        if !may || self.queues >= MAX_CONNECTIONS {
            return refuse(
                Errno::DQUOT,
                "there are as many ports and queues of this user, or of all, as may be",
            );
        }
        self.make(at, sizes, Some(port))
    }

    /// Makes the memory of a port, or of another queue of one. None if the program has been told.
    fn make(&mut self, at: usize, sizes: Sizes, of: Option<Owner>) -> Option<Answer> {
        let Some(layout) = sizes.layout() else {
            let why = "rings have 16 to 4096 positions, a power of two, and slots 128 to 16384 octets, a multiple of 64";
            return Some(Answer::refuse(Errno::INVAL, why));
        };
        let connection = self.connections.get_mut(at)?.as_mut()?;
        if !has_descriptors(&self.users, self.limit, connection.user) {
            return Some(too_few_descriptors());
        }
        let user = self.users.get_mut(&connection.user)?;
        let len = layout.memory();
        let may = match connection.is_confined {
            true => has_share(MAX_MEMORY_PER_USER, user.memory, connection.memory, len),
            false => user.memory + len <= MAX_MEMORY_PER_USER,
        };
        if !may || self.memory + len > MAX_MEMORY {
            let why = "ports of this user, or of all, would have more memory than they may: close some, or make them smaller";
            return Some(Answer::refuse(Errno::NOMEM, why));
        }
        let (memory, ours, theirs) = match create(layout) {
            Ok(made) => made,
            Err(answer) => return Some(answer),
        };
        // Sent first: who has not read it has the port all the same once he does.
        let sent = local::send(
            connection.socket.as_fd(),
            &Answer::Done.encode(),
            &[memory.as_fd(), theirs.as_fd()],
        );
        if sent.is_err() {
            self.close(at);
            return None;
        }
        user.memory += len;
        self.memory += len;
        connection.memory += len;
        let number = match of {
            None => {
                let port = self.forwarder.add(memory, ours);
                connection.port = Some(port);
                Some(port)
            }
            Some(port) => {
                let queue = self.forwarder.add_queue(port, memory, ours);
                if let Some(queue) = queue {
                    user.queues += 1;
                    self.queues += 1;
                    connection.queues.push(queue);
                }
                queue
            }
        };
        let is_watched = number.and_then(|number| Some((number, self.forwarder.bell(number)?)));
        let is_watched = is_watched.is_some_and(|(number, bell)| {
            epoll::add(&self.events, bell, token(PORT, number as usize), EventFlags::IN).is_ok()
        });
        if !is_watched {
            self.close(at);
        }
        None
    }
}

/// Memory, and both ends of a bell.
fn create(layout: Layout) -> Result<(Memory, Bell, Bell), Answer> {
    let made = Memory::create(layout).and_then(|memory| Ok((memory, Bell::pair()?)));
    made.map(|(memory, (ours, theirs))| (memory, ours, theirs)).map_err(|error| {
        let code = error.raw_os_error().map_or(Errno::NOMEM, Errno::from_raw_os_error);
        Answer::refuse(code, format!("cannot make memory for a port or queue: {error}"))
    })
}
