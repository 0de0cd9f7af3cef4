//! What a client remembers of servers: TLS sessions to resume and address validation tokens.

mod file;
mod keeper;
mod memory;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;

pub use file::FileSessionStore;
use keeper::{Errand, Item};
pub(crate) use keeper::{flush, settle};
pub use memory::MemorySessionStore;

/// Keeps what servers give to clients for their next connection.
///
/// Sessions and tokens are secrets of the client, and each should be used only once, as reuse
/// lets observers link connections (RFC 8446, Appendix C.4; RFC 9000, Section 8.1.3); therefore
/// they are taken, not read. `server` names the server and the port, such as `example.com:443`.
/// What is to be kept is given to a store by a thread that does nothing else: it may take its time,
/// though when more than 256 items wait for slow stores, the oldest are lost. (A [`MemorySessionStore`]
/// has what came at once.) What is to be taken is taken by the thread that connects. Who lets go of an endpoint waits for the stores, for a
/// second at most: so a program that connects once and ends has what the server gave.
pub trait SessionStore: Any + Send + Sync {
    /// Keeps a session. Best last: the newest one will be taken first.
    fn save_session(&self, server: &str, session: &[u8]);

    /// Takes a session, the newest first.
    fn take_session(&self, server: &str) -> Option<Vec<u8>>;

    /// Keeps an address validation token.
    fn save_token(&self, server: &str, token: &[u8]);

    /// Takes a token, the newest first.
    fn take_token(&self, server: &str) -> Option<Vec<u8>>;
}

/// Where the tickets and tokens of one connection go.
#[derive(Clone)]
pub(crate) struct SessionSink {
    store: Arc<dyn SessionStore>,
    server: Arc<str>,
}

impl SessionSink {
    pub(crate) fn new(store: Arc<dyn SessionStore>, server: &str) -> Self {
        Self { store, server: server.into() }
    }

    /// Has a session kept.
    pub(crate) fn session(&self, session: Vec<u8>) {
        self.keep(Item::Session(session));
    }

    /// Has a token kept.
    pub(crate) fn token(&self, token: Vec<u8>) {
        self.keep(Item::Token(token));
    }

    fn keep(&self, item: Item) {
        let (store, server) = (Arc::clone(&self.store), Arc::clone(&self.server));
        let errand = Errand { store, server, item };
        // Ours, and it waits for nothing: another thread would cost more than the store does.
        let is_in_memory = (&*self.store as &dyn Any).is::<MemorySessionStore>();
        if is_in_memory {
            errand.run();
        } else {
            keeper::keep(errand);
        }
    }
}
