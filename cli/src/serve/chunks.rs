//! Reads a file in pieces, one piece ahead of the network where the client keeps up.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

/// How much is read at once, in bytes.
const CHUNK: u64 = 256 << 10;
/// ... where pieces of other files wait for the client already.
const SMALL_CHUNK: u64 = 16 << 10;
/// How many large pieces the downloads of a connection hold together. Each download holds a small
/// one beside, so that none waits for another.
const LARGE_CHUNKS: usize = 8;

/// Room for the large pieces of a connection.
pub(crate) type Room = Arc<Semaphore>;

/// Room for another connection.
pub(crate) fn room() -> Room {
    Arc::new(Semaphore::new(LARGE_CHUNKS))
}

/// The pieces of a part of a file.
pub(crate) struct Chunks {
    /// The file, while nothing is read from it.
    file: Option<File>,
    /// The piece that is being read.
    ahead: Option<Ahead>,
    /// What the piece that was given out takes, if it is a large one.
    given: Option<OwnedSemaphorePermit>,
    /// How much lies behind what was read.
    remaining: u64,
    room: Room,
}

/// A piece on its way.
struct Ahead {
    reading: JoinHandle<io::Result<(File, Bytes)>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Chunks {
    /// The pieces of the next `len` bytes.
    pub(crate) fn new(file: File, len: u64, room: &Room) -> Self {
        let room = Arc::clone(room);
        Self { file: Some(file), ahead: None, given: None, remaining: len, room }
    }

    /// The next piece; `None` at the end. The piece before must have left: it counts no more.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.given = None;
        if self.ahead.is_none() {
            let permit = Arc::clone(&self.room).try_acquire_owned().ok();
            self.read(permit);
        }
        let Some(Ahead { reading, permit }) = self.ahead.take() else { return Ok(None) };
        let (file, chunk) = reading.await.map_err(io::Error::other)??;
        (self.file, self.given) = (Some(file), permit);
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
            self.read(Some(permit));
        }
        Ok(Some(chunk))
    }

    /// Begins to read: a large piece with a permit, else a small one.
    fn read(&mut self, permit: Option<OwnedSemaphorePermit>) {
        let most = if permit.is_some() { CHUNK } else { SMALL_CHUNK };
        let wanted = self.remaining.min(most);
        if wanted == 0 {
            return;
        }
        let Some(mut file) = self.file.take() else { return };
        self.remaining -= wanted;
        let reading = spawn_blocking(move || {
            let mut chunk = Vec::with_capacity(wanted as usize);
            (&mut file).take(wanted).read_to_end(&mut chunk)?;
            if (chunk.len() as u64) < wanted {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the file became shorter while it was sent",
                ));
            }
            Ok((file, chunk.into()))
        });
        self.ahead = Some(Ahead { reading, permit });
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
        let part = all(Chunks::new(file, 590_000, &room())).await.unwrap();
        let expected: Vec<u8> = (10..590_010).map(|at: usize| (at % 251) as u8).collect();
        assert!(part == expected);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let (path, file) = file(1000);
        let error = all(Chunks::new(file, 1001, &room())).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn many_downloads_of_a_connection_hold_little_and_none_waits_for_another() {
        let room = room();
        let mut held = Vec::new();
        for _ in 0..50 {
            let (path, file) = file(600_001);
            let mut chunks = Chunks::new(file, 600_001, &room);
            let first = chunks.next().await.unwrap().unwrap();
            held.push((first, chunks));
            std::fs::remove_file(path).unwrap();
        }
        let of = |(chunk, chunks): &(Bytes, Chunks)| {
            chunk.len() as u64 + if chunks.ahead.is_some() { CHUNK } else { 0 }
        };
        let sum: u64 = held.iter().map(of).sum();
        assert!(sum <= LARGE_CHUNKS as u64 * CHUNK + 50 * SMALL_CHUNK, "{sum} bytes");
        assert_eq!(held[0].0.len() as u64, CHUNK);
        assert_eq!(held[49].0.len() as u64, SMALL_CHUNK);
        let (_, last) = held.pop().unwrap();
        drop(held);
        assert_eq!(all(last).await.unwrap().len(), 600_001 - SMALL_CHUNK as usize);
        assert_eq!(room.available_permits(), LARGE_CHUNKS);
    }
}
