//! s2n-quic's connections as peers see those made of futures.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use quicket_peer_common::tasks::{Connection, Received, Stream};
use quicket_workload::bench::Failure;
use s2n_quic::application;
use s2n_quic::connection::Handle;
use s2n_quic::provider::datagram::default::{Receiver, Sender};
use s2n_quic::stream::{BidirectionalStream, Error};

#[derive(Clone)]
pub struct Over(pub Handle);

impl Connection for Over {
    type Stream = Both;

    async fn open(&self) -> Result<Both, Failure> {
        Ok(Both(self.0.clone().open_bidirectional_stream().await?))
    }

    async fn send_datagram(&self, data: &[u8]) -> Result<(), Failure> {
        let data = Bytes::copy_from_slice(data);
        let sent = self.0.datagram_mut(|sender: &mut Sender| sender.send_datagram(data))?;
        sent.map_err(|error| format!("a datagram could not be sent: {error:?}").into())
    }

    async fn receive_datagram(&self) -> Result<Vec<u8>, Failure> {
        let received = poll_fn(|context| {
            let poll = |receiver: &mut Receiver| receiver.poll_recv_datagram(context);
            match self.0.datagram_mut(poll) {
                Ok(polled) => polled.map_err(|error| format!("no datagrams: {error:?}").into()),
                Err(error) => Poll::Ready(Err(Failure::from(error))),
            }
        });
        Ok(received.await?.into())
    }
}

/// Both halves of a stream.
pub struct Both(pub BidirectionalStream);

impl Stream for Both {
    async fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        Ok(self.0.send(Bytes::copy_from_slice(data)).await?)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.0.finish()?)
    }

    async fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Failure> {
        match self.0.receive().await {
            Ok(Some(data)) => {
                into.extend_from_slice(&data);
                Ok(Received::Bytes)
            }
            Ok(None) => Ok(Received::End),
            Err(Error::StreamReset { error, .. }) => Ok(Received::Reset(*error)),
            Err(error) => Err(error.into()),
        }
    }

    fn reset(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.0.reset(application::Error::new(code)?)?)
    }

    fn stop(&mut self, code: u64) -> Result<(), Failure> {
        Ok(self.0.stop_sending(application::Error::new(code)?)?)
    }
}
