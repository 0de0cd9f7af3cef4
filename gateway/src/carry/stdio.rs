//! Standard input and output as an end.

use std::fs::OpenOptions;
use std::future::pending;
use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Stdin, Stdout};

use super::{Broken, Sink, Source, code};

/// Standard input, which a thread of its own waits for.
pub(crate) struct StandardInput {
    input: Stdin,
    piece: usize,
    buffer: BytesMut,
    /// Why it could not be read.
    pub(crate) error: Option<io::Error>,
}

impl StandardInput {
    pub(crate) fn new(piece: usize) -> Self {
        Self { input: tokio::io::stdin(), piece, buffer: BytesMut::new(), error: None }
    }
}

impl Source for StandardInput {
    type Data = Bytes;

    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        self.buffer.reserve(self.piece);
        match self.input.read_buf(&mut self.buffer).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(self.buffer.split().freeze())),
            Err(error) => {
                self.error = Some(error);
                Err(Broken::Reset(code::RESET))
            }
        }
    }

    fn stop(&mut self, _code: u64) {}
}

/// Standard output.
pub(crate) struct StandardOutput {
    output: Stdout,
    /// Why it could not be written.
    pub(crate) error: Option<io::Error>,
}

impl StandardOutput {
    pub(crate) fn new() -> Self {
        Self { output: tokio::io::stdout(), error: None }
    }
}

impl Sink for StandardOutput {
    async fn write(&mut self, data: &[u8]) -> Result<usize, Broken> {
        let written = async {
            let written = self.output.write(data).await?;
            self.output.flush().await?;
            io::Result::Ok(written)
        };
        written.await.map_err(|error| {
            // Who reads it may have had enough, and the other direction goes on. Otherwise what came is lost.
            let broken = match error.kind() {
                io::ErrorKind::BrokenPipe => Broken::Stopped(code::CLOSED),
                _ => Broken::Reset(code::CLOSED),
            };
            self.error = Some(error);
            broken
        })
    }

    async fn stopped(&mut self) -> Broken {
        pending().await
    }

    /// Whoever reads it finds its end, although the process goes on: standard output leads nowhere from now on.
    fn finish(&mut self) {
        if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(nowhere);
        }
    }

    fn reset(&mut self, _code: u64) {
        self.finish();
    }
}
