//! What a peer does over streams, for implementations that are asked again and again what they can
//! do now.

mod answers;
mod downloads;
mod echo;
mod exchange;

pub use answers::{Answers, read};
pub use downloads::Downloads;
pub use echo::Echo;
pub use exchange::Exchange;

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
pub trait Streams {
    /// Opens the bidirectional stream of this number, from 0, as a client; false if the server does
    /// not permit it yet.
    fn open(&mut self, number: u64) -> Result<bool, Failure>;

    /// Bidirectional streams of the client on which something has come.
    fn readable(&mut self) -> Vec<u64>;

    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure>;

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure>;

    /// Sends RESET_STREAM.
    fn reset(&mut self, id: u64, code: u64) -> Result<(), Failure>;

    /// Sends STOP_SENDING.
    fn stop(&mut self, id: u64, code: u64) -> Result<(), Failure>;

    /// Whether nothing more will come of a stream.
    fn is_closed(&self, id: u64) -> bool;

    fn send_datagram(&mut self, data: &[u8]) -> Result<(), Failure>;

    /// A datagram that has come, if one has.
    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure>;
}
