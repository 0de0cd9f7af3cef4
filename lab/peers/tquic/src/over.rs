//! TQUIC's connections as peers see those whose streams are polled.

use quicket_peer_common::streams::{Received, Sent, Streams};
use quicket_workload::bench::Failure;
use tquic::{Connection, Error, Shutdown};

pub struct Over<'a>(pub &'a mut Connection);

/// The urgency of all streams, which take turns.
const URGENCY: u8 = 0;

impl Streams for Over<'_> {
    fn open(&mut self, number: u64) -> Result<bool, Failure> {
        match self.0.stream_bidi_new(URGENCY, true) {
            Ok(id) if id == number * 4 => Ok(true),
            Ok(id) => Err(format!("stream {number} has the ID {id}").into()),
            Err(Error::StreamLimitError) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn readable(&mut self) -> Vec<u64> {
        self.0.stream_readable_iter().filter(|id| id % 4 == 0).collect()
    }

    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure> {
        match self.0.stream_write(id, data.to_vec().into(), ends) {
            Ok(len) => Ok(Sent::Bytes(len)),
            Err(Error::Done) => Ok(Sent::Blocked),
            Err(Error::StreamStopped(_)) => Ok(Sent::Stopped),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure> {
        match self.0.stream_read(id, buffer) {
            Ok((len, end)) => Ok(Received::Bytes(len, end)),
            Err(Error::Done | Error::StreamStateError) => Ok(Received::Nothing),
            Err(Error::StreamReset(code)) => Ok(Received::Reset(code)),
            Err(error) => Err(error.into()),
        }
    }

    fn reset(&mut self, id: u64, code: u64) -> Result<(), Failure> {
        Ok(self.0.stream_shutdown(id, Shutdown::Write, code)?)
    }

    fn stop(&mut self, id: u64, code: u64) -> Result<(), Failure> {
        Ok(self.0.stream_shutdown(id, Shutdown::Read, code)?)
    }

    fn is_closed(&self, id: u64) -> bool {
        !self.0.stream_iter().any(|open| open == id)
    }

    fn send_datagram(&mut self, _: &[u8]) -> Result<(), Failure> {
        Err("TQUIC has no datagrams".into())
    }

    fn receive_datagram(&mut self, _: &mut [u8]) -> Result<Option<usize>, Failure> {
        Ok(None)
    }
}
