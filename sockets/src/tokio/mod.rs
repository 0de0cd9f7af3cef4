//! The async API: the same names as the blocking one, for use within a tokio runtime.
//!
//! Everything is `Send`; every call can be dropped before it is done and has no effect then,
//! unless it says otherwise. An endpoint made here is driven by a task of the runtime in which it
//! is made; connections can be turned into blocking ones and back at will.

mod acceptor;
mod connection;
mod endpoint;
mod stream;

pub use acceptor::Acceptor;
pub use connection::Connection;
pub use endpoint::{Endpoint, Listener};
pub use stream::{RecvStream, SendStream, Stream};
