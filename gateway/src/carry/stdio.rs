//! Standard input and output as an end.

use std::fs::OpenOptions;
use std::future::pending;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Stdin, Stdout};

use super::{Broken, Sink, Source, code};

/// Standard input, which a thread of its own waits for.
pub(crate) struct StandardInput {
    input: Stdin,
    piece: usize,
    buffer: BytesMut,
}

impl StandardInput {
    pub(crate) fn new(piece: usize) -> Self {
        Self { input: tokio::io::stdin(), piece, buffer: BytesMut::new() }
    }
}

impl Source for StandardInput {
    type Data = Bytes;

    async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        self.buffer.reserve(self.piece);
        match self.input.read_buf(&mut self.buffer).await {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(self.buffer.split().freeze())),
            Err(_) => Err(Broken::Reset(code::RESET)),
        }
    }

    fn stop(&mut self, _code: u64) {}
}

/// Standard output.
pub(crate) struct StandardOutput(Stdout);

impl StandardOutput {
    pub(crate) fn new() -> Self {
        Self(tokio::io::stdout())
    }
}

impl Sink for StandardOutput {
    async fn write(&mut self, data: &[u8]) -> Result<usize, Broken> {
        let written = async {
            let written = self.0.write(data).await?;
            self.0.flush().await?;
            std::io::Result::Ok(written)
        };
        written.await.map_err(|_| Broken::Stopped(code::CLOSED))
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
