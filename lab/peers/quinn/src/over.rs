//! quinn's connections as peers see those made of futures.

use quicket_peer_common::tasks::{Connection, Received, Stream};
use quicket_workload::bench::Failure;
use quinn::{ReadError, RecvStream, SendStream};

/// Bytes that are read at once, at most.
const PIECE: usize = 16 << 10;

#[derive(Clone)]
pub struct Over(pub quinn::Connection);

impl Connection for Over {
    type Stream = Both;

    async fn open(&self) -> Result<Both, Failure> {
        let (send, recv) = self.0.open_bi().await?;
        Ok(Both { send, recv })
    }

    async fn send_datagram(&self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send_datagram(data.to_vec().into())?)
    }

    async fn receive_datagram(&self) -> Result<Vec<u8>, Failure> {
        Ok(self.0.read_datagram().await?.into())
    }
}

/// Both halves of a stream.
pub struct Both {
    pub send: SendStream,
    pub recv: RecvStream,
}

impl Stream for Both {
    async fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.send.write_all(data).await?)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.send.finish()?)
    }

    async fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Failure> {
        let start = into.len();
        into.resize(start + PIECE, 0);
        let read = self.recv.read(&mut into[start..]).await;
        into.truncate(start + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
        match read {
            Ok(Some(_)) => Ok(Received::Bytes),
            Ok(None) => Ok(Received::End),
            Err(ReadError::Reset(code)) => Ok(Received::Reset(code.into_inner())),
            Err(error) => Err(error.into()),
        }
    }

    fn reset(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.send.reset(code.try_into()?)?)
    }

    fn stop(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.recv.stop(code.try_into()?)?)
    }
}
