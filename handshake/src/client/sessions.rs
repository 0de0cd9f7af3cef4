//! Sessions as rustls knows them, of this process: a ticket that came to it is resumed without
//! rebuilding its session from the stored bytes ([`super::restore`]).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use super::ticket::Checksum;

/// How many sessions a configuration remembers; the oldest make room. A session takes some
/// kilobytes, mostly the server's certificates.
const MAX_SESSIONS: usize = 256;

/// The sessions of one configuration, by the checksum of their encoded tickets.
///
/// They hold what rustls holds: only connections with the same verifier and the same client
/// certificate may resume them, so that whom they trust has been checked.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    sessions: HashMap<Checksum, Tls13ClientSessionValue>,
    /// Oldest first.
    order: VecDeque<Checksum>,
}

impl Sessions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, ticket: Checksum, session: Tls13ClientSessionValue) {
        let mut known = self.known();
        if known.order.len() >= MAX_SESSIONS
            && let Some(oldest) = known.order.pop_front()
        {
            known.sessions.remove(&oldest);
        }
        if known.sessions.insert(ticket, session).is_none() {
            known.order.push_back(ticket);
        }
    }

    /// Gives a session up to the connection that resumes it. A ticket that is used again, which a
    /// client better does not (RFC 8446, Section C.4), takes the longer way.
    pub(super) fn take(&self, ticket: Checksum) -> Option<Tls13ClientSessionValue> {
        let mut known = self.known();
        let session = known.sessions.remove(&ticket)?;
        known.order.retain(|other| *other != ticket);
        Some(session)
    }
}

/// What one connection has of sessions: the one to resume, and those that come.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSessions {
    offered: Mutex<Option<Tls13ClientSessionValue>>,
    /// The group that the server chose then. A ClientHello with a key for another one may be
    /// answered by a HelloRetryRequest, which refuses early data (RFC 8446, Section 4.2.10).
    group: Option<NamedGroup>,
    received: Mutex<VecDeque<Tls13ClientSessionValue>>,
}

impl ConnectionSessions {
    pub(super) fn offering(session: Tls13ClientSessionValue, group: NamedGroup) -> Arc<Self> {
        let offered = Mutex::new(Some(session));
        Arc::new(Self { offered, group: Some(group), received: Mutex::default() })
    }

    /// The session of the oldest ticket that came and was not asked for yet.
    pub(super) fn next(&self) -> Option<Tls13ClientSessionValue> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl ClientSessionStore for ConnectionSessions {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).push_back(session);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
