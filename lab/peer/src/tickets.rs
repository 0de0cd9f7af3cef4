//! Sessions for the next connection, and the news that there is one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quicket::{MemorySessionStore, SessionStore};
use quicket_workload::bench::Failure;
use tokio::sync::Notify;

/// Session tickets come after the handshake, when the server likes.
const PATIENCE: Duration = Duration::from_secs(5);

/// A store in memory that tells when a session has come.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    store: Mutex<MemorySessionStore>,
    came: Notify,
}

impl Tickets {
    /// Waits until a session has come since the last call.
    pub(crate) async fn arrival(&self) -> Result<(), Failure> {
        let came = tokio::time::timeout(PATIENCE, self.came.notified()).await;
        came.map_err(|_| format!("the server sent no session ticket in {PATIENCE:?}").into())
    }

    /// Forgets all sessions and tokens.
    pub(crate) fn forget(&self) {
        *self.store() = MemorySessionStore::new();
    }

    fn store(&self) -> MutexGuard<'_, MemorySessionStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for Tickets {
    fn save_session(&self, server: &str, session: &[u8]) {
        self.store().save_session(server, session);
        self.came.notify_one();
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.store().take_session(server)
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.store().save_token(server, token);
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.store().take_token(server)
    }
}
