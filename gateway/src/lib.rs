//! The gateway: HTTP/3, HTTP/2 and HTTP/1.1 at the edge, plain HTTP behind.
//!
//! A request takes this way; each step has one module, and none knows the ones before it:
//!
//! 1. `front`: a connection over QUIC or TCP, as a stream of requests;
//! 2. `request`: is this a request that may be passed on at all?
//! 3. `route`: which site, which route, which origin?
//! 4. `headers`: what the origin is told, and what the client is not;
//! 5. `origin`: which server, whose connection, and what if it fails?
//! 6. the answer, back through the same steps.
//!
//! Connections with another ALPN take another way: `protocol` has the client, `carry` moves bytes between its
//! streams and sockets of the origin. `connect` is the client's half of that.
//!
//! `acme` gets certificates, and `presented` are those that clients get.
//!
//! What a file says is checked once (`config`) into a `snapshot`. A request keeps the snapshot that it
//! began with; a reload exchanges it for the requests to come.
#![forbid(unsafe_code)]
// They panic where nothing can be written.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod acme;
mod action;
mod bind;
mod boxed;
mod bucket;
pub mod capture;
mod carry;
pub mod clients;
mod compress;
pub mod config;
mod congestion;
pub mod connect;
mod credentials;
mod directory;
mod early;
mod edits;
mod elsewhere;
pub mod front;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod headers;
mod log_line;
mod look;
pub mod metrics;
mod names;
pub mod origin;
mod pace;
mod pages;
mod pass;
mod path;
mod presented;
mod protocol;
mod proxy;
mod quota;
mod request;
mod resolve;
mod route;
mod server;
pub mod snapshot;
mod spans;
mod stage;
mod start_error;
mod trailers;
mod tunnel;
mod upgrade;
pub mod watch;

pub use quicket_front::Handed;
pub use server::{Bound, Ended, Gateway};
pub use start_error::StartError;

use quicket_front::{Body, BodyError};
