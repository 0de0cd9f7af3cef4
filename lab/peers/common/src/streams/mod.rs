//! What a peer does over an implementation that is asked again and again what it can do now.

mod answers;
pub mod client;
mod downloads;
mod echo;
mod exchange;
mod http3;

pub use answers::Answers;
pub use http3::Event;

use quicket_workload::bench::Failure;

/// The most that a datagram holds.
pub const DATAGRAM: usize = 65_535;

/// What came of sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes were taken.
    Bytes(usize),
    /// Nothing can be sent now.
    Blocked,
    /// The other end wants no more of it, and has been answered with RESET_STREAM (RFC 9000,
    /// Section 3.5).
    Stopped,
}

/// What came of receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, and whether they were the last.
    Bytes(usize, bool),
    /// Nothing has come.
    Nothing,
    /// The other end has given the stream up with this code.
    Reset(u64),
}

/// A connection whose streams are polled.
///
/// # Errors
///
/// Everything fails when the connection is over, or the stream for a reason that its result has no
/// name for.
pub trait Streams {
    /// Opens the bidirectional stream of this number, from 0, as a client; false if the server does
    /// not permit it yet.
    fn open(&mut self, number: u64) -> Result<bool, Failure>;

    /// Bidirectional streams of the client on which something has come.
    fn readable(&mut self) -> Vec<u64>;

    /// Sends what can be sent now; `ends` says that nothing comes after `data`.
    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure>;

    /// Receives what has come.
    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure>;

    /// Sends RESET_STREAM.
    fn reset(&mut self, id: u64, code: u64) -> Result<(), Failure>;

    /// Sends STOP_SENDING.
    fn stop(&mut self, id: u64, code: u64) -> Result<(), Failure>;

    /// Whether nothing more will come of a stream.
    fn is_closed(&self, id: u64) -> bool;

    /// Sends a datagram.
    fn send_datagram(&mut self, data: &[u8]) -> Result<(), Failure>;

    /// A datagram that has come, if one has.
    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure>;
}

/// A connection with all that a peer does over it: HTTP/3 is the implementation's own, and begins
/// when it is first asked for.
pub trait Connection: Streams {
    /// The application protocol that was negotiated.
    fn protocol(&self) -> &[u8];

    /// Sends a request without a body; the stream that it is on, or `None` if the server does not
    /// permit it yet.
    fn request(&mut self, headers: &[(&str, &str)]) -> Result<Option<u64>, Failure>;

    /// What has come next, and on which stream.
    fn poll(&mut self) -> Result<Option<(u64, Event)>, Failure>;

    /// A part of a body; `None` if there is none now.
    fn receive_body(&mut self, id: u64, buffer: &mut [u8]) -> Option<usize>;

    /// Sends the headers of an answer; false if that cannot be done now.
    fn respond(&mut self, id: u64, status: &str, ends: bool) -> Result<bool, Failure>;

    /// Sends what can be sent now of the last of a body; `None` if that is nothing.
    fn send_body(&mut self, id: u64, data: &[u8]) -> Result<Option<usize>, Failure>;
}
