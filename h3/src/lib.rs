//! HTTP/3 by the [`h3`] crate on Quicket's sockets.
//!
//! [`Connection`] takes a [`quicket::tokio::Connection`] and can be given to
//! `h3::client::builder().build(..)` and `h3::server::builder().build(..)`.
//!
//! How QUIC's ends of streams and connections look to h3:
//!
//! | QUIC | h3 |
//! |---|---|
//! | RESET_STREAM with a code, while reading | `StreamTerminated` with that code |
//! | STOP_SENDING with a code, while writing | `StreamTerminated` with that code |
//! | CONNECTION_CLOSE by the peer's application | `ApplicationClose` with its code |
//! | idle or handshake timeout | `Timeout` |
//! | every other end of the connection | `Undefined`, with [`quicket::ConnectionError`] inside |
//! | use of a stream that this side has ended | `Unknown`, with Quicket's own error inside |
//!
//! A request stream that is dropped before it was finished is reset with `H3_REQUEST_CANCELLED`,
//! so that the peer does not take a part for the whole.
//!
//! h3 does not tell requests that came as 0-RTT data from others; [`Requests`] does. It does not take those
//! that ask for WebSocket; [`resolve`] does. Nor does it send them; [`ask_for_websocket`] has it do so.
//!
//! h3 encodes and decodes each section anew. A [`Connection::with_kept_sections`] uses again what it made of those that are alike, if
//! requests are read by [`resolve`] and answers begun by [`respond`].
//!
//! h3 trusts its peer in more than a server can, or a client of servers that it does not know. [`Connection::server`]
//! and [`Connection::client`] stand between: frames are bounded before they are kept, and what is malformed ends its
//! stream or the connection as RFC 9114 demands. h3 then returns an error in which there is a [`Violation`].
//!
//! h3 does not tell which requests a GOAWAY leaves out, nor that a request waits for a stream, nor whether SETTINGS
//! are here that allow extended CONNECT; [`Acceptance`] does. A server that leaves takes what comes after its GOAWAY;
//! [`drain`] rejects that.
#![forbid(unsafe_code)]

mod accept;
mod acceptance;
mod connection;
mod critical;
mod drain;
mod error;
mod frames;
mod kept;
mod lines;
mod message;
mod qpack;
mod requests;
mod sections;
mod seldom;
mod stream;
mod unidirectional;
mod violation;
mod websocket;

pub use accept::poll_accept;
pub use acceptance::Acceptance;
pub use connection::{Connection, OpenStreams};
pub use critical::CriticalStream;
pub use drain::drain;
pub use frames::{Piece, RequestFrames};
pub use message::{resolve, respond};
pub use qpack::section;
pub use requests::{Requests, Transfer};
pub use stream::{BidiStream, RecvStream, SendStream};
pub use violation::{Scope, Violation};
pub use websocket::{WebSocket, ask_for_websocket};

pub use h3;
pub use quicket;
