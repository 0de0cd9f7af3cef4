//! A case: what is sent, and what must come of it.

use std::fmt;

use h3i::actions::h3::{Action, ExpectedStreamSendResult, StreamEvent, StreamEventType, WaitType};
use h3i::actions::h3::{send_headers_frame, send_headers_frame_literal};
use h3i::quiche::h3::Header;
use h3i::quiche::h3::frame::Frame;

/// The stream of the request that a case is about, and that of the one behind it.
pub const REQUEST: u64 = 0;
pub const NEXT_REQUEST: u64 = 4;
/// The client's unidirectional streams; the first is the control stream.
pub const CONTROL: u64 = 2;
pub const SECOND: u64 = 6;
pub const THIRD: u64 = 10;

/// Types of unidirectional streams (RFC 9114, Section 6.2; RFC 9204, Section 4.2).
pub const CONTROL_TYPE: u64 = 0;
pub const PUSH_TYPE: u64 = 1;
pub const ENCODER_TYPE: u64 = 2;
pub const DECODER_TYPE: u64 = 3;

/// Codes of RFC 9114, Section 8.1, and of RFC 9204, Section 6.
pub const NO_ERROR: u64 = 0x100;
pub const STREAM_CREATION_ERROR: u64 = 0x103;
pub const CLOSED_CRITICAL_STREAM: u64 = 0x104;
pub const FRAME_UNEXPECTED: u64 = 0x105;
pub const FRAME_ERROR: u64 = 0x106;
pub const EXCESSIVE_LOAD: u64 = 0x107;
pub const ID_ERROR: u64 = 0x108;
pub const SETTINGS_ERROR: u64 = 0x109;
pub const MISSING_SETTINGS: u64 = 0x10a;
pub const REQUEST_CANCELLED: u64 = 0x10c;
pub const MESSAGE_ERROR: u64 = 0x10e;
pub const DECOMPRESSION_FAILED: u64 = 0x200;
pub const ENCODER_STREAM_ERROR: u64 = 0x201;
pub const DECODER_STREAM_ERROR: u64 = 0x202;

/// The statuses of a gateway that refuses a request which is well-formed HTTP/3: Bad Request and Not Implemented.
pub const REFUSED: [u64; 2] = [400, 501];

/// The server that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Gateway,
    Serve,
}

impl Server {
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "gateway" => Some(Self::Gateway),
            "serve" => Some(Self::Serve),
            _ => None,
        }
    }

    /// The status of an answer to GET.
    pub fn status(self) -> u64 {
        if self == Self::Gateway { 204 } else { 200 }
    }

    /// The status of an answer to POST.
    pub fn posted(self) -> u64 {
        if self == Self::Gateway { 204 } else { 405 }
    }

    /// True if the server looks at all of a request. `quicket serve` refuses methods that have a body, and answers before
    /// it has read one.
    pub fn reads_bodies(self) -> bool {
        self == Self::Gateway
    }
}

/// What came of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request was answered with this status.
    Answered(u64),
    /// The request's stream was reset.
    Reset(u64),
    /// The connection was closed with a code of HTTP/3.
    Closed(u64),
    /// The connection was closed with a code of QUIC.
    ClosedByQuic(u64),
    /// Something else, described.
    Other(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(status) => write!(f, "answered {status}"),
            Self::Reset(code) => write!(f, "reset {code:#x}"),
            Self::Closed(code) => write!(f, "closed {code:#x}"),
            Self::ClosedByQuic(code) => write!(f, "closed by QUIC {code:#x}"),
            Self::Other(what) => f.write_str(what),
        }
    }
}

/// What is sent, and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    /// The section that demands the outcome.
    pub section: &'static str,
    pub actions: Vec<Action>,
    pub expected: Outcome,
}

impl Case {
    /// True if the case breaks no rule.
    pub fn is_good(&self) -> bool {
        matches!(self.expected, Outcome::Answered(status) if !REFUSED.contains(&status))
    }
}

/// A case on a connection that begins as it should.
pub fn case(
    name: impl Into<String>,
    section: &'static str,
    expected: Outcome,
    actions: Vec<Action>,
) -> Case {
    let begun = [open(CONTROL, CONTROL_TYPE), send(CONTROL, settings(&[(0x21, 1)]))];
    let actions = begun.into_iter().chain(actions).collect();
    bare(name, section, expected, actions)
}

/// A case on a connection that has no control stream yet.
pub fn bare(
    name: impl Into<String>,
    section: &'static str,
    expected: Outcome,
    actions: Vec<Action>,
) -> Case {
    Case { name: name.into(), section, actions, expected }
}

/// Opens a unidirectional stream.
pub fn open(stream_id: u64, stream_type: u64) -> Action {
    let expected_result = ExpectedStreamSendResult::Ok;
    Action::OpenUniStream { stream_id, fin_stream: false, stream_type, expected_result }
}

/// Sends a frame.
pub fn send(stream_id: u64, frame: Frame) -> Action {
    frame_of(stream_id, frame, false)
}

/// Sends a frame, and the end of its stream.
pub fn last(stream_id: u64, frame: Frame) -> Action {
    frame_of(stream_id, frame, true)
}

fn frame_of(stream_id: u64, frame: Frame, fin_stream: bool) -> Action {
    let expected_result = ExpectedStreamSendResult::Ok;
    Action::SendFrame { stream_id, fin_stream, frame, expected_result }
}

/// Sends bytes as they are.
pub fn raw(stream_id: u64, bytes: &[u8]) -> Action {
    bytes_of(stream_id, bytes, false)
}

/// Sends bytes as they are, and the end of their stream.
pub fn raw_last(stream_id: u64, bytes: &[u8]) -> Action {
    bytes_of(stream_id, bytes, true)
}

fn bytes_of(stream_id: u64, bytes: &[u8], fin_stream: bool) -> Action {
    let expected_result = ExpectedStreamSendResult::Ok;
    Action::StreamBytes { stream_id, fin_stream, bytes: bytes.to_vec(), expected_result }
}

/// Waits until a request is answered or reset.
pub fn answered(stream_id: u64) -> Action {
    let event_type = StreamEventType::Finished;
    Action::Wait { wait_type: WaitType::StreamEvent(StreamEvent { stream_id, event_type }) }
}

/// The fields of a request.
pub type Fields = Vec<(&'static str, String)>;

/// A request's fields: the method, what belongs to it, and more behind.
pub fn fields(method: &str, more: &[(&'static str, &str)]) -> Fields {
    let head =
        [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", "/ok")];
    head.iter().chain(more).map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn section(fields: &Fields) -> Vec<Header> {
    fields.iter().map(|(name, value)| Header::new(name.as_bytes(), value.as_bytes())).collect()
}

/// Sends HEADERS.
pub fn headers(fields: &Fields, is_last: bool) -> Action {
    send_headers_frame(REQUEST, is_last, section(fields))
}

/// Sends HEADERS with names as they are, where quiche's encoder would make them lower case, and the stream's end.
pub fn literal(fields: &Fields) -> Action {
    send_headers_frame_literal(REQUEST, true, section(fields))
}

/// A GET that is all of its stream.
pub fn get() -> Action {
    headers(&fields("GET", &[]), true)
}

/// The GET behind it, on a stream of its own.
pub fn get_next() -> Action {
    send_headers_frame(NEXT_REQUEST, true, section(&fields("GET", &[])))
}

/// A POST whose body follows.
pub fn post() -> Action {
    headers(&fields("POST", &[]), false)
}

/// Trailers, and the stream's end.
pub fn trailers(name: &'static str, value: &str) -> Action {
    headers(&vec![(name, value.to_owned())], true)
}

pub fn data(content: &[u8]) -> Frame {
    Frame::Data { payload: content.to_vec() }
}

/// A frame of a type that quiche has no name for.
pub fn other(raw_type: u64, payload: &[u8]) -> Frame {
    Frame::Unknown { raw_type, payload: payload.to_vec() }
}

/// SETTINGS with these pairs, in their order.
pub fn settings(pairs: &[(u64, u64)]) -> Frame {
    Frame::Settings {
        max_field_section_size: None,
        qpack_max_table_capacity: None,
        qpack_blocked_streams: None,
        connect_protocol_enabled: None,
        h3_datagram: None,
        grease: None,
        additional_settings: Some(pairs.to_vec()),
        raw: None,
    }
}
