//! One bidirectional stream: what is to be sent on it, and what came.

use quicket_workload::bench::Failure;

use super::{DATAGRAM, Received, Sent, Streams};

/// A stream of either end.
#[derive(Default)]
pub(super) struct Exchange {
    pub(super) out: Vec<u8>,
    /// Whether nothing comes after `out`.
    pub(super) ends: bool,
    sent: usize,
    end_sent: bool,
    pub(super) input: Vec<u8>,
    /// All has come.
    pub(super) complete: bool,
    /// The other end, or this one, has given the stream up.
    pub(super) given_up: bool,
}

impl Exchange {
    /// One that sends all of this and then no more.
    pub(super) fn request(out: Vec<u8>) -> Self {
        Self { out, ends: true, ..Self::default() }
    }

    /// Sends what can be sent now.
    pub(super) fn push(&mut self, streams: &mut dyn Streams, id: u64) -> Result<(), Failure> {
        while !self.given_up && (self.sent < self.out.len() || (self.ends && !self.end_sent)) {
            match streams.send(id, &self.out[self.sent..], self.ends)? {
                Sent::Bytes(len) => {
                    self.sent += len;
                    self.end_sent = self.ends && self.sent == self.out.len();
                    if len == 0 {
                        break;
                    }
                }
                Sent::Blocked => break,
                Sent::Stopped => self.given_up = true,
            }
        }
        Ok(())
    }

    /// Receives what has come.
    pub(super) fn pull(&mut self, streams: &mut dyn Streams, id: u64) -> Result<(), Failure> {
        let mut buffer = [0; DATAGRAM];
        while !self.given_up && !self.complete {
            match streams.receive(id, &mut buffer)? {
                Received::Bytes(len, end) => {
                    self.input.extend_from_slice(&buffer[..len]);
                    self.complete = end;
                }
                Received::Nothing => break,
                Received::Reset(code) => {
                    self.given_up = true;
                    // Fails if it has been stopped too, and answered.
                    let _ = streams.reset(id, code);
                }
            }
        }
        Ok(())
    }
}
