//! What a client remembers of servers: TLS sessions to resume and address validation tokens.

mod file;
mod memory;

use std::sync::Arc;

pub use file::FileSessionStore;
pub use memory::MemorySessionStore;

/// Keeps what servers give to clients for their next connection.
///
/// Sessions and tokens are secrets of the client, and each should be used only once, as reuse
/// lets observers link connections (RFC 8446, Appendix C.4; RFC 9000, Section 8.1.3); therefore
/// they are taken, not read. `server` names the server and the port, such as `example.com:443`.
/// The functions are called on the thread that drives the endpoint: be quick, and wait for nothing
/// that the endpoint must bring.
pub trait SessionStore: Send + Sync {
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

    /// Keeps a session, when called.
    pub(crate) fn session(&self, session: Vec<u8>) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.store.save_session(&this.server, &session)
    }

    /// Keeps a token, when called.
    pub(crate) fn token(&self, token: Vec<u8>) -> impl FnOnce() + Send + 'static {
        let this = self.clone();
        move || this.store.save_token(&this.server, &token)
    }
}
