//! What only clients have, and what only servers have.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quicket_wire::Side;

use super::unreachable::Hints;
use crate::config::ServerConfig;
use crate::time::Time;

/// A client or a server.
// A byte of its own says which, rather than a value that another field cannot have: it is looked at
// for each packet.
#[repr(u8)]
pub(super) enum Role {
    /// The side that began.
    Client {
        /// For Initial packets, from Retry or an earlier connection (RFC 9000, Section 8.1).
        token: Vec<u8>,
        /// Flights that have come to nothing.
        unreachable: Hints,
    },
    /// The side that listens.
    Server {
        /// Settled once TLS starts.
        config: Option<Arc<ServerConfig>>,
        /// A moment by both clocks, for tokens: the second in seconds since 1970.
        wall_clock: (Time, u64),
    },
}

impl Role {
    /// A client that has no token.
    pub(super) fn client() -> Self {
        Self::Client { token: Vec::new(), unreachable: Hints::default() }
    }

    /// A server to which a client's first packet came at `now`, which is `unix_secs` by the clock
    /// on the wall.
    pub(super) fn server(now: Time, unix_secs: u64) -> Self {
        Self::Server { config: None, wall_clock: (now, unix_secs) }
    }

    #[inline]
    pub(super) fn side(&self) -> Side {
        match self {
            Self::Client { .. } => Side::Client,
            Self::Server { .. } => Side::Server,
        }
    }

    /// The token that a client's Initial packets have; servers have none (RFC 9000, Section 17.2.2).
    pub(super) fn token(&self) -> &[u8] {
        match self {
            Self::Client { token, .. } => token,
            Self::Server { .. } => &[],
        }
    }

    /// Client: has the token in Initial packets from now on.
    pub(super) fn set_token(&mut self, new: Vec<u8>) {
        if let Self::Client { token, .. } = self {
            *token = new;
        }
    }

    /// Client: hears that a flight has come to nothing; returns of how many flights that is known.
    pub(super) fn on_unreachable(&mut self, flight: u32) -> u8 {
        match self {
            Self::Client { unreachable, .. } => unreachable.count(flight),
            Self::Server { .. } => 0,
        }
    }

    /// Server: what it was configured to be, once TLS has started.
    pub(super) fn server_config(&self) -> Option<&Arc<ServerConfig>> {
        match self {
            Self::Server { config, .. } => config.as_ref(),
            Self::Client { .. } => None,
        }
    }

    /// Server: settles the configuration.
    pub(super) fn set_server_config(&mut self, new: Arc<ServerConfig>) {
        if let Self::Server { config, .. } = self {
            *config = Some(new);
        }
    }

    /// Server: `now` in seconds since 1970.
    pub(super) fn unix_secs(&self, now: Time) -> Option<u64> {
        match self {
            Self::Server { wall_clock: (moment, secs), .. } => {
                Some(secs.saturating_add(now.since(*moment).as_secs()))
            }
            Self::Client { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_client_has_its_last_token_and_no_clock() {
        let mut client = Role::client();
        assert_eq!((client.side(), client.token()), (Side::Client, &[][..]));
        client.set_token([1, 2].into());
        client.set_token([3].into());
        assert_eq!(client.token(), [3]);
        assert_eq!([0, 0, 1].map(|flight| client.on_unreachable(flight)), [1, 1, 2]);
        assert_eq!(client.unix_secs(Time::ZERO), None);
        assert!(client.server_config().is_none());
    }

    #[test]
    fn a_server_has_a_clock_and_no_token() {
        let start = Time::ZERO + Duration::from_secs(5);
        let mut server = Role::server(start, 1000);
        assert_eq!(server.side(), Side::Server);
        assert_eq!(server.unix_secs(start + Duration::from_millis(2900)), Some(1002));
        server.set_token([1].into());
        assert_eq!(server.token(), [0; 0]);
        assert_eq!(server.on_unreachable(0), 0);
    }
}
