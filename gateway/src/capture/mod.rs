//! Captures of what clients do over QUIC, while the gateway runs.
//!
//! The sockets tell a `tap` of datagrams, secrets and events; it puts them into a bounded `queue`, so that no
//! connection ever waits. The thread of whoever has asked takes them out, and writes `frame`s: pieces of a
//! `file`, whose packets get headers of IP and UDP (`quicket-trace`), and of qlogs. So the gateway writes no file, and a full disk
//! is the affair of whoever has asked.

mod file;
pub mod frame;
mod gateway;
mod queue;
mod request;
mod session;
mod tap;
mod under_way;

pub use request::{Allowed, MAX_CLIENTS, Refused, Request};
pub use session::{EndedBy, Report};
pub(crate) use under_way::UnderWay;
