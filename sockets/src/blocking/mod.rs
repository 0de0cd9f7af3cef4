//! The blocking API, in the manner of `std::net`.

mod connection;
mod endpoint;
mod stream;

pub use connection::Connection;
pub use endpoint::{Endpoint, Incoming, Listener};
pub use stream::{RecvStream, SendStream, Stream};

use std::time::{Duration, Instant};

/// The moment at which a call that starts now gives up.
fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}
