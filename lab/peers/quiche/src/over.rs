//! quiche's connections as peers see those whose streams are polled.

use quiche::{Connection, Error, Shutdown};
use quicket_peer_common::streams::{Downloads, Echo, Received, Sent, Streams};
use quicket_workload::bench::Failure;

use crate::client::Work;

pub struct Over<'a>(pub &'a mut Connection);

impl Streams for Over<'_> {
    fn open(&mut self, _: u64) -> Result<bool, Failure> {
        // A stream begins with what is sent on it.
        Ok(self.0.peer_streams_left_bidi() > 0)
    }

    fn readable(&mut self) -> Vec<u64> {
        self.0.readable().filter(|id| id % 4 == 0).collect()
    }

    fn send(&mut self, id: u64, data: &[u8], ends: bool) -> Result<Sent, Failure> {
        match self.0.stream_send(id, data, ends) {
            Ok(len) => Ok(Sent::Bytes(len)),
            Err(Error::Done) => Ok(Sent::Blocked),
            Err(Error::StreamStopped(_)) => Ok(Sent::Stopped),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Result<Received, Failure> {
        match self.0.stream_recv(id, buffer) {
            Ok((len, end)) => Ok(Received::Bytes(len, end)),
            Err(Error::Done | Error::InvalidStreamState(_)) => Ok(Received::Nothing),
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
        self.0.stream_closed(id)
    }

    fn send_datagram(&mut self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.0.dgram_send(data)?)
    }

    fn receive_datagram(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        match self.0.dgram_recv(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(Error::Done) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Work for Downloads {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        Self::go_on(self, &mut Over(conn))
    }
}

impl Work for Echo {
    fn go_on(&mut self, conn: &mut Connection) -> Result<bool, Failure> {
        Self::go_on(self, &mut Over(conn))
    }
}
