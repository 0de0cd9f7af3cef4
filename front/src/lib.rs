//! HTTP/2 and HTTP/1.1 over TLS and TCP, beside HTTP/3 at the same port number: what the gateway and `quicket serve`
//! have in common.
//!
//! 1. [`listen`]: a socket at the port of the endpoint, bound or [handed over](Handed);
//! 2. [`accept_all`]: connections, until there are to be no more;
//! 3. [`Tls`]: the handshake, with the certificates of the endpoint;
//! 4. [`hold`]: the connection as a stream of requests, until it ends or is drained.
//!
//! Who may connect, what requests are answered with, and what is counted is the caller's business.
//! [`redirect`] is for plain HTTP, which leads to HTTPS.
#![forbid(unsafe_code)]

mod accept;
pub mod authority;
mod connection;
mod gathered;
mod handed;
mod linger;
mod listen;
pub mod redirect;
mod resets;
mod signed;
mod stall;
mod tls;
mod under_way;
mod watched;

pub use accept::accept_all;
pub use connection::{Fault, Limits, hold};
pub use handed::Handed;
pub use linger::Malformed;
pub use listen::listen;
pub use signed::Beginning;
pub use tls::{Tls, protocol};
pub use under_way::{Counted, UnderWay};
pub use watched::{Polled, Watch, Watched};

use http::header::HeaderValue;

/// Bodies of requests and answers, wherever they come from.
pub type Body = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BodyError>;

/// Why a body did not come to its end.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// How long clients may be unaware that there is HTTP/3 no more, in seconds.
const ALT_SVC_AGE: u32 = 86_400;

/// The value of `Alt-Svc` that tells clients of HTTP/3 at the same port (RFC 7838, Section 3).
#[must_use]
pub fn alt_svc(port: u16) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("h3=\":{port}\"; ma={ALT_SVC_AGE}")).ok()
}
