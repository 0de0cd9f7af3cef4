//! The frames that a peer sends, before h3 sees them (RFC 9114, Sections 4.1, 6.2.1 and 7).
//!
//! h3 keeps frames until they are whole, however long they say they are, and takes an empty DATA frame and one that
//! is cut off for the end of a body. So it gets no frame but those that it may: DATA with content, one frame in a
//! piece, and sections of bounded length that are well-formed. Nothing here reads or waits.

mod control;
mod header;
mod request;

use bytes::Bytes;

pub(crate) use control::{Control, Settings};
pub use request::RequestFrames;

pub(crate) use header::integer;
use header::{Header, kind};
pub(crate) const HEADERS: u64 = kind::HEADERS;

use crate::Violation;
use h3::error::Code;

/// Whose frames they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// A client.
    Client,
    /// A server.
    Server,
}

/// Some of a stream that h3 may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Of a body: h3 should ask for no more before it has given this out.
    Data(Bytes),
    /// A whole frame of another type.
    Frame(Bytes),
}

/// RFC 9114, Section 7.1: a stream that ends within a frame.
const CUT_OFF: Violation = Violation::connection(Code::H3_FRAME_ERROR, "a frame that is cut off");
/// RFC 9114, Sections 4.6, 7.2.3 and 7.2.5.
pub(crate) const PUSHED: Violation =
    Violation::connection(Code::H3_ID_ERROR, "a push that there is none of");
/// RFC 9114, Sections 4.1 and 7.2.8.
const UNEXPECTED: Violation =
    Violation::connection(Code::H3_FRAME_UNEXPECTED, "a frame where it must not be");
