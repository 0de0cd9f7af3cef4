//! What a user has at the switch for packets.

use super::clerk::Clerk;

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

/// The account of a user, told by the number that the system has for him (SO_PEERCRED).
pub(super) struct User {
    pub(super) connections: usize,
    /// Queues of his ports beside their first ones.
    pub(super) queues: usize,
    pub(super) memory: usize,
    pub(super) tuples: usize,
    pub(super) clerk: Clerk,
}

impl User {
    pub(super) const fn new(clerk: Clerk) -> Self {
        Self { connections: 0, queues: 0, memory: 0, tuples: 0, clerk }
    }

    /// Nothing is left of him, not even a descriptor that is being closed.
    pub(super) fn is_idle(&self) -> bool {
        self.connections == 0 && self.clerk.held() == 0
    }

    pub(super) fn may_register(&self) -> bool {
        self.tuples + self.clerk.held() < MAX_TUPLES_PER_USER
    }
}
