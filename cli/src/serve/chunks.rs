//! Reads a file in pieces, one piece ahead of the network.

use std::fs::File;
use std::io::{self, Read};

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

/// How much is read at once, in bytes. A download holds two pieces at most.
const CHUNK: u64 = 256 << 10;

/// The pieces of a part of a file.
pub(crate) struct Chunks {
    /// The piece that is being read.
    ahead: Option<JoinHandle<io::Result<(File, Bytes)>>>,
    /// How much lies behind it.
    remaining: u64,
}

impl Chunks {
    /// The pieces of the next `len` bytes.
    pub(crate) fn new(file: File, len: u64) -> Self {
        let mut chunks = Self { ahead: None, remaining: len };
        chunks.read_ahead(file);
        chunks
    }

    fn read_ahead(&mut self, mut file: File) {
        let wanted = self.remaining.min(CHUNK);
        if wanted == 0 {
            return;
        }
        self.remaining -= wanted;
        self.ahead = Some(spawn_blocking(move || {
            let mut chunk = Vec::with_capacity(wanted as usize);
            (&mut file).take(wanted).read_to_end(&mut chunk)?;
            if (chunk.len() as u64) < wanted {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter while it was sent",
                ));
            }
            Ok((file, chunk.into()))
        }));
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(ahead) = self.ahead.take() else { return Ok(None) };
        let (file, chunk) = ahead.await.map_err(io::Error::other)??;
        self.read_ahead(file);
        Ok(Some(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};

    fn file(len: usize) -> (std::path::PathBuf, File) {
        let path =
            std::env::temp_dir().join(format!("quicket-chunks-{len}-{}", std::process::id()));
        let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        File::create(&path).unwrap().write_all(&content).unwrap();
        let file = File::open(&path).unwrap();
        (path, file)
    }

    async fn all(mut chunks: Chunks) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn the_pieces_make_up_the_part() {
        let len = 600_000;
        let (path, mut file) = file(len);
        file.seek(SeekFrom::Start(10)).unwrap();
        let part = all(Chunks::new(file, 590_000)).await.unwrap();
        let expected: Vec<u8> = (10..590_010).map(|at: usize| (at % 251) as u8).collect();
        assert!(part == expected);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let (path, file) = file(1000);
        let error = all(Chunks::new(file, 1001)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(path).unwrap();
    }
}
