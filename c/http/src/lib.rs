//! Requests over HTTP/3 for C: `include/quicket/http.h` says what each function does.
//!
//! Behind a client is one of [`quicket_client`], and a runtime with one thread that drives its connections. Calls wait on
//! the threads of the program, as long as they are told to. What a future has taken is kept when their time is over: each
//! call waits for what is cancel safe, or for a task.
//!
//! No panic leaves a function: it is EIO. Errors are numbers of the system; the sentence is kept for each thread.
#![deny(unsafe_code)]

mod client;
mod error;
mod exchange;
#[allow(unsafe_code, reason = "functions for C, and what C gives them")]
mod exports;
mod fields;
mod options;

pub use exports::*;
pub use options::quicket_http_options;
/// The sockets, whose functions this library exports, too.
pub use quicket_c as sockets;
