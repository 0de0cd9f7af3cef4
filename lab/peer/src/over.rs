//! Quicket's connections as peers see those made of futures.

use quicket::ReadError;
use quicket_peer_common::tasks::{Connection, Received, Stream};
use quicket_workload::bench::Failure;

#[derive(Clone)]
pub(crate) struct Over(pub(crate) quicket::tokio::Connection);

impl Connection for Over {
    type Stream = Both;

    async fn open(&self) -> Result<Both, Failure> {
        Ok(Both(self.0.open_bi().await?))
    }

    async fn send_datagram(&self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send_datagram(data).await?)
    }

    async fn receive_datagram(&self) -> Result<Vec<u8>, Failure> {
        Ok(self.0.recv_datagram().await?)
    }
}

/// Both halves of a stream.
pub(crate) struct Both(pub(crate) quicket::tokio::Stream);

impl Stream for Both {
    async fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send().write_all(data).await?)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.0.finish()?)
    }

    async fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Failure> {
        let take = |bytes: &[u8], _: bool| {
            into.extend_from_slice(bytes);
            bytes.len()
        };
        match self.0.recv().read_chunk(take).await {
            Ok(Some(_)) => Ok(Received::Bytes),
            Ok(None) => Ok(Received::End),
            Err(ReadError::Reset(code)) => Ok(Received::Reset(code)),
            Err(error) => Err(error.into()),
        }
    }

    fn reset(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.0.send().reset(code)?)
    }

    fn stop(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.0.recv().stop(code)?)
    }
}
