//! What a user has at the switch for packets.

use std::collections::HashMap;
use std::io;

use quicket_clerk::{MAX_DESCRIPTORS, Reading};

use super::clerk::{Clerk, Desk};
use crate::told::Told;

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

/// Descriptors of the switch itself where it has few.
const OWN_DESCRIPTORS: usize = 96;

/// Descriptors that a user has handed over, or that are behind connections and bells of his that have ended, until his clerk has seen
/// to them. Who has more loses each connection by which he sends something.
pub const MAX_HANDED_PER_USER: usize = 512;
/// Clerks of a user's connections that were handed on and have ended, until they have seen to all. Beyond that, those that are handed on
/// share one.
const MAX_GONE: usize = 64;
/// ... of who cannot be let in, as there is no room for another user: beyond that nobody is let in.
pub const MAX_HANDED_OF_OTHERS: usize = 512;
/// Descriptors of the process that no user has: those of the switch itself and of devices, and those that clerks take on at a time.
pub const RESERVED_DESCRIPTORS: usize = 256;

/// The account of a user, told by the number that the system has for him (SO_PEERCRED).
pub(super) struct User {
    pub(super) connections: usize,
    /// Queues of his ports beside their first ones.
    pub(super) queues: usize,
    pub(super) memory: usize,
    pub(super) tuples: usize,
    /// What was said of him.
    pub(super) told: Told,
    clerk: Clerk,
    /// Clerks of connections that were handed on, by their serial numbers: what comes by one of those keeps nobody else of the account
    /// waiting. None for those that share one.
    apart: HashMap<u64, Option<Clerk>>,
    /// The one that they share.
    shared: Option<Clerk>,
    /// Those whose connections have ended, and that have not done their work yet.
    gone: Vec<Clerk>,
}

impl User {
    pub(super) fn new(clerk: Clerk) -> Self {
        Self {
            connections: 0,
            queues: 0,
            memory: 0,
            tuples: 0,
            told: Told::default(),
            clerk,
            apart: HashMap::new(),
            shared: None,
            gone: Vec::new(),
        }
    }

    /// Who touches what comes by the connection of that serial number.
    pub(super) fn clerk(&self, serial: u64) -> &Clerk {
        let apart = self.apart.get(&serial);
        apart.and_then(|own| own.as_ref().or(self.shared.as_ref())).unwrap_or(&self.clerk)
    }

    /// Gives a connection that is handed on a clerk of its own.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(super) fn set_apart(&mut self, serial: u64, desk: &Desk) -> io::Result<()> {
        self.put_apart(serial, || Clerk::start(desk.clone()))
    }

    fn put_apart(
        &mut self,
        serial: u64,
        start: impl FnOnce() -> io::Result<Clerk>,
    ) -> io::Result<()> {
        self.gone.retain(|clerk| clerk.held() > 0);
        let own = match self.gone.len() {
            0..MAX_GONE => Some(start()?),
            // Who is handed connections again and again, and has their clerks wait, gets no more threads, and refuses none to others.
            _ => {
                if self.shared.is_none() {
                    self.shared = Some(start()?);
                }
                None
            }
        };
        self.apart.insert(serial, own);
        Ok(())
    }

    /// A connection has ended, and its clerk has got all that is to be closed.
    pub(super) fn retire(&mut self, serial: u64) {
        self.gone.retain(|clerk| clerk.held() > 0);
        self.gone.extend(self.apart.remove(&serial).flatten());
    }

    /// Those of connections that were handed on.
    fn others(&self) -> impl Iterator<Item = &Clerk> {
        self.apart.values().flatten().chain(&self.shared).chain(&self.gone)
    }

    /// Descriptors that wait for a clerk.
    pub(super) fn held(&self) -> usize {
        self.clerk.held() + self.others().map(Clerk::held).sum::<usize>()
    }

    /// Nothing is left of him, not even a descriptor that is being closed, nor a line about him that another one would follow at once.
    pub(super) fn is_idle(&self) -> bool {
        self.connections == 0 && self.held() == 0 && !self.told.is_recent()
    }

    pub(super) fn may_register(&self) -> bool {
        self.tuples + self.held() < MAX_TUPLES_PER_USER
    }

    /// Descriptors of this process that he has.
    pub(super) fn descriptors(&self) -> usize {
        2 * self.connections + self.queues + self.tuples + self.held()
    }

    /// More was handed over than the clerk of that connection gets closed. All that were handed on have together as much as the others: each
    /// as much of it as is left then, at most, so that one of them does not have those thrown out that come later. Beyond that, who has nothing
    /// there may hand something over as long as the user may have descriptors. Those that share a clerk have as much once more. With more than
    /// one descriptor for each connection, the user has to have room for another one in any case.
    pub(super) fn is_flooding(&self, serial: u64, has_descriptors: impl FnOnce() -> bool) -> bool {
        let own = self.clerk(serial).handed();
        let shares = match self.apart.get(&serial) {
            // One for each connection waits where nobody means harm.
            None => {
                return own > MAX_HANDED_PER_USER
                    || own > MAX_CONNECTIONS_PER_USER && !has_descriptors();
            }
            Some(clerk) => clerk.is_none(),
        };
        let alone = self.apart.values().flatten().chain(&self.gone);
        let all = alone.map(Clerk::handed).sum();
        match own {
            _ if shares => own > MAX_HANDED_PER_USER,
            0 => all > MAX_HANDED_PER_USER && !has_descriptors(),
            _ => !has_share(MAX_HANDED_PER_USER, all, own, 0),
        }
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
    let used = used(users);
    let his = users.get(&user).map_or(0, User::descriptors);
    his < limit.saturating_sub(RESERVED_DESCRIPTORS + used)
}

/// Whether the descriptors of a message that is read now have room in this process. The kernel closes those that
/// have none within the call that reads it, and that may wait as long as who sent them likes.
pub(super) fn has_room(
    users: &HashMap<u32, User>,
    limit: usize,
    porter: Option<&Clerk>,
    reading: &Reading<'_>,
) -> bool {
    let used = used(users) + porter.map_or(0, Clerk::held) + reading.taken();
    used + MAX_DESCRIPTORS + OWN_DESCRIPTORS <= limit
}

fn used(users: &HashMap<u32, User>) -> usize {
    users.values().map(User::descriptors).sum()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A connection hands over descriptors until it is closed: how many those are.
    fn park(user: &User, serial: u64) -> usize {
        let mut parked = 0;
        while !user.is_flooding(serial, || true) && parked < 10_000 {
            user.clerk(serial).close([OwnedFd::from(File::open("/dev/null").unwrap())]);
            parked += 1;
        }
        parked
    }

    #[test]
    fn what_is_handed_over_by_connections_that_were_handed_on_is_bounded_for_all_of_a_user() {
        let mut user = User::new(Clerk::stuck());
        let mut parked = Vec::new();
        for serial in 1..=200 {
            user.put_apart(serial, || Ok(Clerk::stuck())).unwrap();
            assert!(
                serial > 65 || !user.is_flooding(serial, || true),
                "who has nothing there stays"
            );
            parked.push(park(&user, serial));
            user.retire(serial);
        }
        assert_eq!(parked[..3], [257, 128, 64]);
        let alone: usize = parked[..MAX_GONE].iter().sum();
        assert!(alone <= MAX_HANDED_PER_USER + MAX_GONE, "{alone}: {parked:?}");
        let shared: usize = parked[MAX_GONE..].iter().sum();
        assert_eq!((shared, user.held()), (MAX_HANDED_PER_USER + 1, alone + shared));
        // Those that were not handed on have as much as before.
        assert_eq!(park(&user, 0), MAX_HANDED_PER_USER + 1);
        let mut other = User::new(Clerk::stuck());
        other.put_apart(1, || Ok(Clerk::stuck())).unwrap();
        assert!(!other.is_flooding(1, || false), "an account that is full otherwise");
    }

    #[test]
    fn who_is_handed_connections_again_and_again_keeps_others_from_none() {
        let mut user = User::new(Clerk::stuck());
        let mut threads = 0;
        for serial in 1..=1000 {
            let start = || {
                threads += 1;
                Ok(Clerk::stuck())
            };
            user.put_apart(serial, start).unwrap();
            user.clerk(serial).close([OwnedFd::from(File::open("/dev/null").unwrap())]);
            user.retire(serial);
        }
        assert_eq!((threads, user.gone.len()), (MAX_GONE + 1, MAX_GONE));
        assert_eq!((user.held(), user.clerk.held()), (1000, 0), "root's own clerk has none");
    }

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
