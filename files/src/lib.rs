//! A directory's files as answers to requests, apart from how both travel.
//!
//! [`Tree`] leads from a path to a file and never out of the directory; [`answer()`] makes an answer of it
//! (RFC 9110: conditional requests, ranges, encodings); [`Chunks`] reads it as fast as it leaves. [`ask()`] and
//! [`Answer::into_response`] do both for servers that speak the crate `http`.
#![forbid(unsafe_code)]

mod answer;
mod chunks;
mod coding;
mod descriptors;
mod message;
mod range;
mod room;
mod tree;

pub use answer::{Answer, Body, Question, answer};
pub use chunks::Chunks;
pub use coding::Coding;
pub use descriptors::{Descriptors, is_shortage};
pub use message::{Asked, ask};
pub use room::Room;
pub use tree::{Entry, Found, Options, Tree};
