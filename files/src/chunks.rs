//! Reads a file in pieces, as fast as they leave.
//!
//! What lies in memory is read where it is sent from: handing a piece to another thread and back costs
//! as much as reading it. What must come from a disk, or may have to, is read by a thread that can wait.

use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::task::{JoinHandle, coop, spawn_blocking};

use crate::room::{Place, Room};

/// How much is read at once from a disk, in bytes.
const CHUNK: usize = 256 << 10;
/// ... from memory: it is still in the processor's cache when it is copied on.
const PIECE: usize = 64 << 10;
/// ... where pieces of other files wait for the client already.
const SMALL_CHUNK: usize = 16 << 10;

/// The pieces of a part of a file.
pub struct Chunks {
    /// The file, while nothing is read from it.
    file: Option<File>,
    /// The piece that is being read.
    ahead: Option<Ahead>,
    /// The place of the piece that was given out, if it is a large one.
    given: Option<Place>,
    /// How much lies behind what was read.
    remaining: u64,
    way: Way,
    room: Room,
    buffers: Buffers,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// What the system has in memory, at once; the rest by another thread.
    Cached,
    /// All at once: the file system has nothing but memory.
    InMemory,
    /// By another thread, a piece ahead of the network where the client keeps up: the file system
    /// does not say what it has in memory.
    Ahead,
}

/// A piece on its way.
struct Ahead {
    reading: JoinHandle<io::Result<(File, Bytes)>>,
    place: Option<Place>,
}

impl Chunks {
    /// The pieces of the next `len` bytes.
    pub fn new(file: File, len: u64, room: &Room) -> Self {
        Self {
            file: Some(file),
            ahead: None,
            given: None,
            remaining: len,
            way: Way::Cached,
            room: room.clone(),
            buffers: Buffers::default(),
        }
    }

    /// The next piece; `None` at the end. The piece before must have left: it counts no more.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or became shorter.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.given = None;
        // Where neither the disk nor the client makes this wait, others get their turn all the same.
        coop::consume_budget().await;
        if self.ahead.is_none() {
            let place = self.room.place();
            if let Some(piece) = self.read_at_once(place.is_some())? {
                self.given = place;
                return Ok(Some(piece));
            }
            self.read(place);
        }
        let Some(Ahead { reading, place }) = self.ahead.take() else { return Ok(None) };
        let (file, chunk) = reading.await.map_err(io::Error::other)??;
        (self.file, self.given) = (Some(file), place);
        if self.way == Way::Ahead
            && let Some(place) = self.room.place()
        {
            self.read(Some(place));
        }
        Ok(Some(chunk))
    }

    /// Reads what is in memory; `None` if the next byte is not, or nobody knows.
    fn read_at_once(&mut self, is_large: bool) -> io::Result<Option<Bytes>> {
        let Some(file) = self.file.as_mut().filter(|_| self.remaining > 0) else { return Ok(None) };
        let wanted = at_most(self.remaining, if is_large { PIECE } else { SMALL_CHUNK });
        let mut buffer = self.buffers.take(if is_large { CHUNK } else { SMALL_CHUNK });
        let space = buffer.of(wanted);
        let read = match self.way {
            Way::Ahead => return Ok(None),
            Way::InMemory => file.read(space)?,
            Way::Cached => {
                // From where the file stands.
                let read = preadv2(
                    &*file,
                    &mut [IoSliceMut::new(space)],
                    u64::MAX,
                    ReadWriteFlags::NOWAIT,
                );
                match read {
                    Ok(read) => read,
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                    // Kernels and file systems that cannot tell.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                        self.way = if is_in_memory(file) { Way::InMemory } else { Way::Ahead };
                        return self.read_at_once(is_large);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if read == 0 {
            return Err(became_shorter());
        }
        self.remaining -= read as u64;
        Ok(Some(buffer.filled(read)))
    }

    /// Begins to read: a large piece where there is a place, else a small one.
    fn read(&mut self, place: Option<Place>) {
        let most = if place.is_some() { CHUNK } else { SMALL_CHUNK };
        let wanted = at_most(self.remaining, most);
        if wanted == 0 {
            return;
        }
        let Some(mut file) = self.file.take() else { return };
        self.remaining -= wanted as u64;
        let mut buffer = self.buffers.take(most);
        let reading = spawn_blocking(move || match file.read_exact(buffer.of(wanted)) {
            Ok(()) => Ok((file, buffer.filled(wanted))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(became_shorter()),
            Err(error) => Err(error),
        });
        self.ahead = Some(Ahead { reading, place });
    }
}

fn at_most(remaining: u64, most: usize) -> usize {
    usize::try_from(remaining).unwrap_or(most).min(most)
}

fn became_shorter() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent")
}

/// Whether a file lies on a file system that has nothing but memory.
fn is_in_memory(file: &File) -> bool {
    /// As statfs(2) names them.
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = rustix::fs::fstatfs(file).map(|system| i128::from(system.f_type));
    kind.is_ok_and(|kind| [TMPFS_MAGIC, RAMFS_MAGIC].map(i128::from).contains(&kind))
}

/// Buffers of pieces that have left, for the next ones: new memory costs more than what is copied
/// into it.
#[derive(Clone, Debug, Default)]
struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A buffer of no more than `most` bytes: what is larger is given back to the system.
    fn take(&self, most: usize) -> Buffer {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = bytes.filter(|bytes| bytes.len() <= most).unwrap_or_default();
        Buffer { bytes, len: 0, buffers: self.clone() }
    }
}

/// A buffer that goes back to the others when nobody has it any more.
struct Buffer {
    bytes: Vec<u8>,
    /// How many of them belong to the piece.
    len: usize,
    buffers: Buffers,
}

impl Buffer {
    /// So many bytes, to be written to.
    fn of(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }

    /// The first bytes as a piece.
    fn filled(mut self, len: usize) -> Bytes {
        self.len = len.min(self.bytes.len());
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.buffers.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
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

    /// Chunks that are read in a certain way.
    fn by(way: Way, file: File, len: u64) -> Chunks {
        Chunks { way, ..Chunks::new(file, len, &Room::new(8)) }
    }

    const WAYS: [Way; 3] = [Way::Cached, Way::InMemory, Way::Ahead];

    async fn all(mut chunks: Chunks) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(chunk) = chunks.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn the_pieces_make_up_the_part_whichever_way_they_are_read() {
        let len = 600_000;
        let (path, _) = file(len);
        for way in WAYS {
            let mut file = File::open(&path).unwrap();
            file.seek(SeekFrom::Start(10)).unwrap();
            let part = all(by(way, file, 590_000)).await.unwrap();
            let expected: Vec<u8> = (10..590_010).map(|at: usize| (at % 251) as u8).collect();
            assert!(part == expected, "{way:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error() {
        let (path, _) = file(1000);
        for way in WAYS {
            let file = File::open(&path).unwrap();
            let error = all(by(way, file, 1001)).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{way:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    /// Where the file system of temporary files can tell what it has in memory, what was just
    /// written is there, and no thread is asked for it.
    #[tokio::test]
    async fn what_is_in_memory_is_read_at_once_into_the_same_buffer() {
        let (path, file) = file(400_000);
        let mut chunks = Chunks::new(file, 400_000, &Room::new(8));
        let first = chunks.next().await.unwrap().unwrap();
        if chunks.way != Way::Ahead {
            assert_eq!((first.len(), chunks.ahead.is_none()), (PIECE, true));
            let place = first.as_ptr();
            drop(first);
            let second = chunks.next().await.unwrap().unwrap();
            assert_eq!(second.as_ptr(), place, "the buffer is used again");
            assert_eq!(second[..3], [(PIECE % 251) as u8, 26, 27], "it is the next piece");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn many_downloads_of_all_connections_hold_little_and_none_waits_for_another() {
        let all = Room::new(12);
        let rooms = [all.of_connection(), all.of_connection()];
        let mut held = Vec::new();
        for number in 0..50 {
            let room = &rooms[number / 25];
            let (path, file) = file(600_001);
            let mut chunks = Chunks { way: Way::Ahead, ..Chunks::new(file, 600_001, room) };
            let first = chunks.next().await.unwrap().unwrap();
            held.push((first, chunks));
            std::fs::remove_file(path).unwrap();
        }
        let of = |(chunk, chunks): &(Bytes, Chunks)| {
            chunk.len() + if chunks.ahead.is_some() { CHUNK } else { 0 }
        };
        let sum: usize = held.iter().map(of).sum();
        assert!(sum <= 12 * CHUNK + 50 * SMALL_CHUNK, "{sum} bytes");
        assert_eq!(all.free(), 0);
        // Each connection has some of it.
        assert_eq!((held[0].0.len(), held[25].0.len()), (CHUNK, CHUNK));
        assert_eq!(held[49].0.len(), SMALL_CHUNK);
        let (_, last) = held.pop().unwrap();
        drop(held);
        assert_eq!(self::all(last).await.unwrap().len(), 600_001 - SMALL_CHUNK);
        assert_eq!(all.free(), 12);
    }
}
