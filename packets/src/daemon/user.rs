//! What a user has at the switch for packets.

use std::collections::HashMap;
use std::io;

use super::clerk::{Clerk, Desk};

/// Users who have something there.
pub const MAX_USERS: usize = 64;
/// Programs of a user, and queues of their ports beside the first ones.
pub const MAX_CONNECTIONS_PER_USER: usize = 128;
/// Memory of a user's ports, in octets.
pub const MAX_MEMORY_PER_USER: usize = 256 << 20;
/// ... of all.
pub const MAX_MEMORY: usize = 2048 << 20;
/// Tuples of a user, those included whose sockets are still being looked into or closed.
pub const MAX_TUPLES_PER_USER: usize = 65_536;

/// Descriptors that a user has handed over, or that are behind connections and bells of his that have ended, until his clerk has seen
/// to them. Who has more loses each connection by which he sends something.
pub const MAX_HANDED_PER_USER: usize = 512;
/// ... of who cannot be let in, as there is no room for another user: beyond that nobody is let in.
pub const MAX_HANDED_OF_OTHERS: usize = 512;
/// Descriptors of the process that no user has: those of the switch itself and of devices, and those that a clerk takes in at a time.
pub const RESERVED_DESCRIPTORS: usize = 256;

/// The account of a user, told by the number that the system has for him (SO_PEERCRED).
pub(super) struct User {
    pub(super) connections: usize,
    /// Queues of his ports beside their first ones.
    pub(super) queues: usize,
    pub(super) memory: usize,
    pub(super) tuples: usize,
    clerk: Clerk,
    /// Clerks of connections that were handed on, by their serial numbers: what comes by one of those keeps nobody else of the account
    /// waiting.
    apart: HashMap<u64, Clerk>,
    /// Those whose connections have ended, and that have not done their work yet.
    gone: Vec<Clerk>,
}

impl User {
    pub(super) fn new(clerk: Clerk) -> Self {
        let (apart, gone) = (HashMap::new(), Vec::new());
        Self { connections: 0, queues: 0, memory: 0, tuples: 0, clerk, apart, gone }
    }

    /// Who touches what comes by the connection of that serial number.
    pub(super) fn clerk(&self, serial: u64) -> &Clerk {
        self.apart.get(&serial).unwrap_or(&self.clerk)
    }

    /// Gives a connection that is handed on a clerk of its own.
    ///
    /// # Errors
    ///
    /// What the system says; `ResourceBusy` if too many wait for what others do.
    pub(super) fn set_apart(&mut self, serial: u64, desk: &Desk) -> io::Result<()> {
        self.gone.retain(|clerk| clerk.held() > 0);
        if self.apart.len() + self.gone.len() >= MAX_CONNECTIONS_PER_USER {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.apart.insert(serial, Clerk::start(desk.clone())?);
        Ok(())
    }

    /// A connection has ended, and its clerk has got all that is to be closed.
    pub(super) fn retire(&mut self, serial: u64) {
        self.gone.retain(|clerk| clerk.held() > 0);
        self.gone.extend(self.apart.remove(&serial));
    }

    /// Descriptors that wait for a clerk.
    pub(super) fn held(&self) -> usize {
        let others = self.apart.values().chain(&self.gone);
        self.clerk.held() + others.map(Clerk::held).sum::<usize>()
    }

    /// Nothing is left of him, not even a descriptor that is being closed.
    pub(super) fn is_idle(&self) -> bool {
        self.connections == 0 && self.held() == 0
    }

    pub(super) fn may_register(&self) -> bool {
        self.tuples + self.held() < MAX_TUPLES_PER_USER
    }

    /// Descriptors of this process that he has.
    pub(super) fn descriptors(&self) -> usize {
        2 * self.connections + self.queues + self.tuples + self.held()
    }

    /// More was handed over than the clerk of that connection gets closed.
    pub(super) fn is_flooding(&self, serial: u64) -> bool {
        self.clerk(serial).handed() > MAX_HANDED_PER_USER
    }
}

/// Whether who has `his` of what a user may have may have `more` of it by a connection that was handed on: as much as is left then, at
/// most. So of *n* programs in containers of one user that take all that they get, those that come later find something, too.
pub(super) const fn has_share(most: usize, used: usize, his: usize, more: usize) -> bool {
    his.saturating_add(more) <= most.saturating_sub(used.saturating_add(more))
}

/// Whether a user may have another descriptor of the `limit` of this process: as many as are left, at most. So of *n* users who take
/// all that they get, each has a part in *n* + 1 of them, and that much is left for others.
pub(super) fn has_descriptors(users: &HashMap<u32, User>, limit: usize, user: u32) -> bool {
    let used: usize = users.values().map(User::descriptors).sum();
    let his = users.get(&user).map_or(0, User::descriptors);
    his < limit.saturating_sub(RESERVED_DESCRIPTORS + used)
}

#[cfg(test)]
mod tests {
    use super::has_share;

    #[test]
    fn who_takes_all_that_he_gets_leaves_something_to_the_next_one() {
        let (mut used, mut shares) = (0, Vec::new());
        for _ in 0..4 {
            let mut his = 0;
            while has_share(128, used, his, 1) {
                (his, used) = (his + 1, used + 1);
            }
            shares.push(his);
        }
        assert_eq!(shares, [64, 32, 16, 8]);
        assert!(!has_share(usize::MAX, usize::MAX, usize::MAX, 1) && !has_share(0, 0, 0, 1));
    }
}
