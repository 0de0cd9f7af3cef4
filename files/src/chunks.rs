//! Reads a file in pieces, as fast as they leave.
//!
//! What lies in memory is read where it is sent from: handing a piece to another thread and back costs
//! as much as reading it. What must come from a disk, or may have to, is read by a thread that can wait.

use std::fs::File;
use std::io::{self, IoSliceMut, Read as _};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
}

impl Chunks {
    /// The pieces of the next `len` bytes.
    pub fn new(file: File, len: u64, room: &Room) -> Self {
        Self {
            file: Some(file),
            ahead: None,
            remaining: len,
            way: Way::Cached,
            room: room.clone(),
            buffers: Buffers::default(),
        }
    }

    /// The next piece; `None` at the end. A large one has its place in the room until nobody has it any more: whoever
    /// sends it may keep it until it is acknowledged. Each fills at least half of its memory.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or became shorter.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        // Where neither the disk nor the client makes this wait, others get their turn all the same.
        coop::consume_budget().await;
        if self.ahead.is_none() {
            let buffer = self.buffer();
            match self.read_at_once(buffer)? {
                Read::Piece(piece) => return Ok(Some(piece)),
                Read::Nothing(buffer) => self.read(buffer),
            }
        }
        let Some(Ahead { reading }) = self.ahead.take() else { return Ok(None) };
        let (file, chunk) = reading.await.map_err(io::Error::other)??;
        self.file = Some(file);
        if self.way == Way::Ahead {
            let buffer = self.buffer();
            if buffer.is_large() {
                self.read(buffer);
            }
        }
        Ok(Some(chunk))
    }

    /// A buffer for the next piece: for a large one where there is a place and as much to read, else for a small one.
    fn buffer(&self) -> Buffer {
        let is_large = self.remaining > SMALL_CHUNK as u64;
        self.buffers.take(&self.room, is_large)
    }

    /// Reads what is in memory; nothing if the next byte is not, or nobody knows.
    fn read_at_once(&mut self, mut buffer: Buffer) -> io::Result<Read> {
        let Some(file) = self.file.as_mut().filter(|_| self.remaining > 0) else {
            return Ok(Read::Nothing(buffer));
        };
        let wanted = at_most(self.remaining, if buffer.is_large() { PIECE } else { SMALL_CHUNK });
        let space = buffer.of(wanted);
        let read = match self.way {
            Way::Ahead => return Ok(Read::Nothing(buffer)),
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
                    Err(Errno::AGAIN | Errno::INTR) => return Ok(Read::Nothing(buffer)),
                    // Kernels and file systems that cannot tell.
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                        self.way = if is_in_memory(file) { Way::InMemory } else { Way::Ahead };
                        return self.read_at_once(buffer);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        if read == 0 {
            return Err(became_shorter());
        }
        self.remaining -= read as u64;
        Ok(Read::Piece(buffer.filled(read)))
    }

    /// Begins to read as much as there may be in the buffer.
    fn read(&mut self, mut buffer: Buffer) {
        let wanted = at_most(self.remaining, if buffer.is_large() { CHUNK } else { SMALL_CHUNK });
        if wanted == 0 {
            return;
        }
        let Some(mut file) = self.file.take() else { return };
        self.remaining -= wanted as u64;
        let reading = spawn_blocking(move || match file.read_exact(buffer.of(wanted)) {
            Ok(()) => Ok((file, buffer.filled(wanted))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(became_shorter()),
            Err(error) => Err(error),
        });
        self.ahead = Some(Ahead { reading });
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

/// What was read at once.
enum Read {
    Piece(Bytes),
    /// The buffer is for another way to read.
    Nothing(Buffer),
}

/// Memory of a piece that has left, for the next one: new memory costs more than what is copied into it. There is one of
/// each size, and a large one keeps its place.
#[derive(Debug, Default)]
struct Buffers(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    small: Vec<u8>,
    large: Option<(Vec<u8>, Place)>,
    /// Nobody will want a large one any more.
    is_at_end: bool,
}

impl Buffers {
    /// A buffer, a large one if it is wanted and there is a place for it.
    fn take(&self, room: &Room, is_large: bool) -> Buffer {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.is_at_end = !is_large;
        let large = kept.large.take().filter(|_| is_large);
        let new = || is_large.then(|| room.place()).flatten().map(|place| (Vec::new(), place));
        let (bytes, place) = match large.or_else(new) {
            Some((bytes, place)) => (bytes, Some(place)),
            None => (std::mem::take(&mut kept.small), None),
        };
        drop(kept);
        Buffer { bytes, len: 0, place, kept: Arc::downgrade(&self.0) }
    }
}

/// A buffer that goes back to the others when nobody has it any more.
struct Buffer {
    bytes: Vec<u8>,
    /// How many of them belong to the piece.
    len: usize,
    /// Its place in the room, if it is a large one.
    place: Option<Place>,
    /// Where it goes back to, as long as there is more to read.
    kept: Weak<Mutex<Kept>>,
}

impl Buffer {
    const fn is_large(&self) -> bool {
        self.place.is_some()
    }

    /// So many bytes, to be written to.
    fn of(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }

    /// The first bytes as a piece. Few of many are copied out: who keeps the piece counts its length.
    fn filled(mut self, len: usize) -> Bytes {
        self.len = len.min(self.bytes.len());
        if self.len < self.bytes.capacity() / 2 {
            self.bytes = self.bytes[..self.len].to_vec();
            self.place = self.place.take().filter(|_| self.len > SMALL_CHUNK);
        }
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
        let Some(kept) = self.kept.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        match self.place.take() {
            Some(place) if kept.large.is_none() && !kept.is_at_end => {
                kept.large = Some((bytes, place))
            }
            // With its place.
            Some(_) => {}
            None if bytes.len() > kept.small.len() => kept.small = bytes,
            None => {}
        }
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

    /// A client that gives no credit for the last bytes of many files.
    #[tokio::test]
    async fn a_piece_that_is_kept_has_its_place_and_a_short_one_has_no_more_memory_than_it_needs() {
        let len = CHUNK + (9 << 10);
        for way in WAYS {
            let room = Room::new(8);
            let (path, file) = file(len);
            let mut chunks = by(way, file, len as u64);
            chunks.room = room.clone();
            let mut pieces = Vec::new();
            while let Some(piece) = chunks.next().await.unwrap() {
                pieces.push(piece);
            }
            let large = pieces.iter().filter(|piece| piece.len() > SMALL_CHUNK).count();
            assert_eq!(room.free(), 8 - large, "{way:?}: all are kept");
            // All but the last have left, and only now the last one is read: into what is there.
            let tail = pieces.pop().unwrap();
            assert_eq!(tail.len(), 9 << 10, "{way:?}");
            drop((pieces, chunks));
            assert_eq!((room.free(), tail.len()), (8, 9 << 10), "{way:?}: the tail has no place");

            let (mut chunks, mut kept) = (by(way, File::open(&path).unwrap(), len as u64), None);
            chunks.room = room.clone();
            while let Some(piece) = chunks.next().await.unwrap() {
                kept = Some(piece);
            }
            let kept = kept.unwrap();
            assert_eq!(kept.len(), 9 << 10, "{way:?}");
            drop(chunks);
            assert_eq!(room.free(), 8, "{way:?}: what the others were in is not kept by the tail");
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn few_bytes_of_much_memory_are_copied_out() {
        let (buffers, room) = (Buffers::default(), Room::new(1));
        let mut buffer = buffers.take(&room, true);
        buffer.of(CHUNK);
        drop(buffer.filled(CHUNK));
        assert_eq!(room.free(), 0, "what is kept for the next piece counts, too");
        let mut buffer = buffers.take(&room, true);
        let place = buffer.of(PIECE).as_ptr();
        assert_eq!(buffer.bytes.len(), CHUNK, "it is the one that was there");
        let piece = buffer.filled(PIECE);
        assert!(piece.len() == PIECE && piece.as_ptr() != place);
        assert_eq!(room.free(), 0, "it is a large one");
        drop(piece);
        let mut buffer = buffers.take(&room, true);
        buffer.of(PIECE);
        let _piece = buffer.filled(SMALL_CHUNK);
        assert_eq!(room.free(), 1, "it is a small one");
    }
}
