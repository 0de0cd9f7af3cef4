//! Streams of QUIC as ends.

use quicket::tokio::{RecvStream, SendStream, Stream};
use quicket::{Chunk, ReadError, WriteError};

use super::{Broken, Ends, Sink, Source, code};

impl Ends<RecvStream, SendStream> {
    pub(crate) fn of_stream(stream: Stream) -> Self {
        let (writer, reader) = stream.split();
        Self { reader, writer }
    }
}

impl Source for RecvStream {
    type Data = Chunk;

    async fn next(&mut self) -> Result<Option<Chunk>, Broken> {
        self.take_chunk().await.map_err(|error| match error {
            ReadError::Reset(code) => Broken::Reset(code),
            _ => Broken::Reset(code::LOST),
        })
    }

    fn stop(&mut self, code: u64) {
        // Fails where there is nothing to stop.
        let _ = Self::stop(self, code);
    }
}

impl Sink for SendStream {
    async fn write(&mut self, data: &[u8]) -> Result<usize, Broken> {
        self.write_some(data).await.map_err(broken)
    }

    async fn stopped(&mut self) -> Broken {
        match Self::stopped(self).await {
            Ok(Some(code)) => Broken::Stopped(code),
            // It comes once all is delivered, and nobody asks then.
            Ok(None) => Broken::Stopped(code::CLOSED),
            Err(error) => broken(error),
        }
    }

    fn finish(&mut self) {
        // Fails if the peer wants no more: it hears nothing of the end.
        let _ = Self::finish(self);
    }

    fn reset(&mut self, code: u64) {
        // Fails if all is delivered, or the connection has ended.
        let _ = Self::reset(self, code);
    }
}

fn broken(error: WriteError) -> Broken {
    match error {
        WriteError::Stopped(code) => Broken::Stopped(code),
        _ => Broken::Reset(code::LOST),
    }
}
