//! Connection IDs that do not show who made them. The usual ones are dropped by other processes,
//! which then send no stateless reset.

use std::time::Duration;

use aws_lc_rs::rand;
use quinn::{ConnectionId, ConnectionIdGenerator};

const LENGTH: usize = 8;

/// Draws them at random.
pub struct Drawn;

impl ConnectionIdGenerator for Drawn {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut cid = [0; LENGTH];
        // All zero if there is no randomness, which is still a connection ID.
        let _ = rand::fill(&mut cid);
        ConnectionId::new(&cid)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
