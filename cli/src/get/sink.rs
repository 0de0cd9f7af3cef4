//! Writes a download, and hashes it if anybody wants that, on a thread of its own, so that the
//! network does not wait for the disk more than a little.
//!
//! Handing something to another thread costs as much as writing 30 KB does. So pieces are handed over in
//! batches. Whoever reads a pipe gets what has come within [`PIPE_LAG`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::place::Place;
use crate::digest::{Hasher, Sha256};
use crate::exit::{Failure, Kind};

/// How many batches wait for the disk at most.
const QUEUE: usize = 2;
/// How much is handed over at once, in bytes: less than a processor's cache holds.
const BATCH: usize = 256 << 10;
/// Less goes to a file when what came before was handed over so long ago: what has come is soon on the disk.
const FILE_LAG: Duration = Duration::from_millis(100);
/// The same for pipes and devices, where somebody may wait.
const PIPE_LAG: Duration = Duration::from_millis(1);
/// The longest validator that is kept, in bytes.
const MAX_VALIDATOR: u64 = 1024;

/// What an interrupted run has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// How much is there, in bytes.
    pub(crate) len: u64,
    /// The strong validator of the file that it is a part of.
    pub(crate) etag: String,
}

/// What an interrupted run has left of the file at `path`. Without a validator it cannot be told
/// whether the server still has the same file, and so there is nothing to go on with.
pub(crate) fn partial(path: &Path) -> Option<Partial> {
    let len = fs::metadata(Place::partial(path)).ok()?.len();
    let validator = Place::validator(path);
    if fs::metadata(&validator).ok()?.len() > MAX_VALIDATOR {
        return None;
    }
    let etag = fs::read_to_string(validator).ok()?;
    (len > 0).then_some(Partial { len, etag })
}

/// A download that is being written.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Takes batches, until the sink is finished.
    batches: Option<mpsc::Sender<Vec<Bytes>>>,
    batch: Batch,
    /// There is one until the sink is finished.
    thread: Option<JoinHandle<Result<Option<Sha256>, Failure>>>,
    place: Place,
}

/// Pieces that are handed over together.
#[derive(Debug)]
struct Batch {
    pieces: Vec<Bytes>,
    /// Their length, in bytes.
    len: usize,
    /// When the one before was handed over.
    last: Instant,
    /// How long somebody may have to wait for it.
    lag: Duration,
}

impl Batch {
    fn of(place: &Place) -> Self {
        let lag = if matches!(place, Place::File(_)) { FILE_LAG } else { PIPE_LAG };
        Self { pieces: Vec::new(), len: 0, last: Instant::now(), lag }
    }

    /// Takes a piece. Says whether the batch is to be handed over.
    fn take(&mut self, piece: Bytes) -> bool {
        self.len += piece.len();
        self.pieces.push(piece);
        self.len >= BATCH || self.is_due()
    }

    /// When it is to be handed over even if nothing follows.
    fn due(&self) -> Option<Instant> {
        (!self.pieces.is_empty()).then(|| self.last + self.lag)
    }

    fn is_due(&self) -> bool {
        self.due().is_some_and(|due| Instant::now() >= due)
    }

    /// What is handed over; nothing is left.
    fn hand_over(&mut self) -> Vec<Bytes> {
        (self.len, self.last) = (0, Instant::now());
        std::mem::take(&mut self.pieces)
    }
}

impl Sink {
    /// Begins to write, behind the `kept` bytes of an earlier run. `etag` is what a later run will
    /// go on by. The hash costs as much time as all the rest: it is made only if it is wanted.
    pub(crate) fn open(place: Place, kept: u64, etag: Option<String>, hashed: bool) -> Self {
        let (to, batch) = (place.clone(), Batch::of(&place));
        let (batches, queue) = mpsc::channel(QUEUE);
        let thread = spawn_blocking(move || {
            let mut hasher = hashed.then(Hasher::new);
            write_all(&to, kept, etag.as_deref(), queue, &mut hasher)?;
            Ok(hasher.map(Hasher::finish))
        });
        Self { batches: Some(batches), batch, thread: Some(thread), place }
    }

    /// Writes a piece, soon. When it cannot be written, [`Sink::finish`] will say why.
    pub(crate) async fn write(&mut self, piece: Bytes) -> Result<(), Stuck> {
        if self.batch.take(piece) { self.hand_over().await } else { Ok(()) }
    }

    /// When [`Sink::catch_up`] is to be called if no piece follows before.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.batch.due()
    }

    /// Nothing follows at once: writes what is due.
    pub(crate) async fn catch_up(&mut self) -> Result<(), Stuck> {
        if self.batch.is_due() { self.hand_over().await } else { Ok(()) }
    }

    /// Writes all that came.
    pub(crate) async fn flush(&mut self) -> Result<(), Stuck> {
        if self.batch.due().is_some() { self.hand_over().await } else { Ok(()) }
    }

    /// How many pieces are not handed over yet.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.batch.pieces.len()
    }

    async fn hand_over(&mut self) -> Result<(), Stuck> {
        let Some(batches) = &self.batches else { return Err(Stuck) };
        // Where this is given up, the pieces stay for `drop`.
        let room = batches.reserve().await.map_err(|_| Stuck)?;
        room.send(self.batch.hand_over());
        Ok(())
    }

    /// Waits for the disk; says the hash of the whole file if it was wanted.
    pub(crate) async fn finish(mut self) -> Result<Written, Failure> {
        if let Some(batches) = self.batches.take() {
            // A thread that takes nothing more says below why.
            let _ = batches.send(self.batch.hand_over()).await;
        }
        let place = self.place.clone();
        let Some(thread) = self.thread.take() else { return Ok(Written { sha256: None, place }) };
        let ended = thread.await.map_err(|error| Failure::environment("cannot write", error));
        Ok(Written { sha256: ended??, place })
    }
}

impl Drop for Sink {
    /// A download that is given up leaves what has come, for `--continue`.
    fn drop(&mut self) {
        if let Some(batches) = &self.batches {
            // Without room, and without waiting, the last pieces come again the next time.
            let _ = batches.try_send(self.batch.hand_over());
        }
    }
}

/// The writing thread has ended.
#[derive(Debug)]
pub(crate) struct Stuck;

/// A download that is complete on the disk, but not under its name yet.
#[derive(Debug)]
pub(crate) struct Written {
    /// The hash of the whole file, if it was wanted.
    pub(crate) sha256: Option<Sha256>,
    place: Place,
}

impl Written {
    /// Gives the file its name.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        let Place::File(path) = &self.place else { return Ok(()) };
        fs::rename(Place::partial(path), path).map_err(cannot_write(path))?;
        forget_validator(path)
    }

    /// Removes what was written: it is not what was wanted. Says what has become of it.
    pub(crate) fn discard(self) -> Result<&'static str, Failure> {
        let Place::File(path) = &self.place else {
            return Ok("what was written cannot be taken back: do not use it");
        };
        let partial = Place::partial(path);
        fs::remove_file(&partial).map_err(cannot_write(&partial))?;
        forget_validator(path)?;
        Ok("nothing was kept")
    }
}

fn forget_validator(path: &Path) -> Result<(), Failure> {
    let validator = Place::validator(path);
    match fs::remove_file(&validator) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(cannot_write(&validator)(error))
        }
        _ => Ok(()),
    }
}

fn cannot_write(path: &Path) -> impl Fn(io::Error) -> Failure {
    let path: PathBuf = path.to_owned();
    move |error| {
        let mut failure = Failure::file(format!("cannot write {}", path.display()), &error);
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            failure.message.push_str(", with --continue");
        }
        failure
    }
}

/// The writing thread.
fn write_all(
    place: &Place,
    kept: u64,
    etag: Option<&str>,
    mut queue: mpsc::Receiver<Vec<Bytes>>,
    hasher: &mut Option<Hasher>,
) -> Result<(), Failure> {
    let (mut out, shown): (Box<dyn Write>, PathBuf) = match place {
        Place::Stdout => (Box::new(io::stdout().lock()), "standard output".into()),
        Place::Device(path) => {
            let device = OpenOptions::new().write(true).open(path).map_err(cannot_write(path))?;
            (Box::new(device), path.clone())
        }
        Place::File(path) => {
            let file = open(path, kept, etag, hasher)?;
            (Box::new(file), Place::partial(path))
        }
    };
    let failed = |error: io::Error| match place {
        Place::File(_) => cannot_write(&shown)(error),
        Place::Stdout | Place::Device(_) => {
            Failure::file(format!("cannot write {}", shown.display()), &error)
        }
    };
    while let Some(batch) = queue.blocking_recv() {
        for piece in batch {
            out.write_all(&piece).map_err(&failed)?;
            if let Some(hasher) = hasher {
                hasher.update(&piece);
            }
        }
        // Standard output would keep what has no end of line.
        out.flush().map_err(&failed)?;
    }
    Ok(())
}

/// Opens the unfinished file, its end behind the `kept` bytes, which are hashed if anything is.
fn open(
    path: &Path,
    kept: u64,
    etag: Option<&str>,
    hasher: &mut Option<Hasher>,
) -> Result<File, Failure> {
    let partial = Place::partial(path);
    let failed = cannot_write(&partial);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(cannot_write(parent))?;
    }
    if kept > 0 {
        let mut file = OpenOptions::new().read(true).write(true).open(&partial).map_err(&failed)?;
        file.set_len(kept).map_err(&failed)?;
        let read = match hasher {
            Some(hasher) => hasher.update_from(&mut file),
            None => file.seek(SeekFrom::End(0)),
        };
        let read = read.map_err(&failed)?;
        if read != kept {
            let partial = partial.display();
            let message = format!("{partial} became shorter meanwhile; run this again");
            return Err(Failure::new(Kind::Environment, message));
        }
        return Ok(file);
    }
    // The validator goes first and comes back last: it never belongs to another file's bytes.
    forget_validator(path)?;
    let file = File::create(&partial).map_err(&failed)?;
    if let Some(etag) = etag {
        let validator = Place::validator(path);
        fs::write(&validator, etag).map_err(cannot_write(&validator))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> (PathBuf, PathBuf) {
        let dir = std::env::temp_dir().join(format!("quicket-sink-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        (dir.clone(), dir.join("sub/file"))
    }

    #[tokio::test]
    async fn a_file_has_its_name_only_when_it_is_complete() {
        let (dir, path) = place("whole");
        let mut sink = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), true);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        let written = sink.finish().await.unwrap();
        assert!(written.sha256.unwrap().to_string().starts_with("ba7816bf"));
        assert!(!path.exists());
        assert_eq!(partial(&path), Some(Partial { len: 3, etag: "\"1\"".into() }));
        written.keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn the_hash_covers_what_an_earlier_run_has_left() {
        let (dir, path) = place("part");
        let mut first = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), false);
        first.write(Bytes::from_static(b"abX")).await.unwrap();
        assert_eq!(first.finish().await.unwrap().sha256, None, "nobody wanted it");
        let mut second = Sink::open(Place::File(path.clone()), 2, Some("\"1\"".into()), true);
        second.write(Bytes::from_static(b"c")).await.unwrap();
        let written = second.finish().await.unwrap();
        assert!(written.sha256.unwrap().to_string().starts_with("ba7816bf"));
        written.discard().unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn without_a_hash_the_rest_goes_behind_what_is_there_all_the_same() {
        let (dir, path) = place("unhashed");
        let mut first = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), false);
        first.write(Bytes::from_static(b"abX")).await.unwrap();
        first.finish().await.unwrap();
        let mut second = Sink::open(Place::File(path.clone()), 2, Some("\"1\"".into()), false);
        second.write(Bytes::from_static(b"cd")).await.unwrap();
        second.finish().await.unwrap().keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd");
        fs::remove_dir_all(dir).unwrap();
    }

    /// Waits for a file to have so many bytes; a place that is not there yet has none.
    fn wait_for(path: &Path, len: u64) {
        let begun = Instant::now();
        while fs::metadata(path).map_or(0, |it| it.len()) != len {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}: not {len}", path.display());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[tokio::test]
    async fn pieces_are_handed_over_together_and_none_is_left_behind() {
        let mut batch = Batch::of(&Place::File("file".into()));
        assert!(!batch.is_due(), "there is nothing");
        batch.last = Instant::now() + Duration::from_secs(3600);
        let piece = Bytes::from(vec![7; BATCH / 4]);
        let taken: Vec<bool> = (0..4).map(|_| batch.take(piece.clone())).collect();
        assert_eq!(taken, [false, false, false, true]);
        assert_eq!(batch.hand_over().len(), 4);
        batch.last = Instant::now() + Duration::from_secs(3600);
        assert!(!batch.take(piece) && !batch.is_due(), "a file can wait for more");
        assert_eq!(batch.due(), Some(batch.last + FILE_LAG));
        batch.last = Instant::now().checked_sub(FILE_LAG).unwrap();
        assert!(
            batch.is_due() && batch.take(Bytes::from_static(b"a")),
            "the one before was long ago"
        );
    }

    /// Each hand-over wakes a thread.
    #[tokio::test]
    async fn a_pipe_gets_together_what_came_together_and_all_of_it_soon() {
        let (batches, mut queue) = mpsc::channel(QUEUE);
        let (place, thread) = (Place::Stdout, None);
        let mut sink = Sink { batches: Some(batches), batch: Batch::of(&place), thread, place };
        sink.batch.last = Instant::now() + Duration::from_secs(3600);
        for piece in [b"a", b"b"] {
            sink.write(Bytes::from_static(piece)).await.unwrap();
        }
        sink.catch_up().await.unwrap();
        assert!(queue.try_recv().is_err(), "more may follow");
        assert_eq!(sink.due(), Some(sink.batch.last + PIPE_LAG));
        sink.batch.last = Instant::now().checked_sub(PIPE_LAG).unwrap();
        sink.catch_up().await.unwrap();
        assert_eq!(queue.try_recv().unwrap(), [&b"a"[..], b"b"]);
        assert_eq!(sink.due(), None);
        sink.catch_up().await.unwrap();
        assert!(queue.try_recv().is_err(), "there is nothing");
    }

    #[tokio::test]
    async fn a_download_that_is_given_up_leaves_what_has_come() {
        let (dir, path) = place("given-up");
        let mut sink = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), false);
        for len in [3, BATCH, 5] {
            sink.write(Bytes::from(vec![7; len])).await.unwrap();
        }
        drop(sink);
        wait_for(&Place::partial(&path), BATCH as u64 + 8);
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_part_without_validator_is_not_gone_on_with() {
        let (dir, path) = place("none");
        let mut sink = Sink::open(Place::File(path.clone()), 0, None, false);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        sink.finish().await.unwrap();
        assert_eq!(partial(&path), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_device_is_written_to_and_not_replaced() {
        let mut sink = Sink::open(Place::Device("/dev/null".into()), 0, Some("\"1\"".into()), true);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        sink.finish().await.unwrap().keep().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(!Path::new("/dev/null.part").exists());
        let mut sink = Sink::open(Place::Device("/dev/full".into()), 0, None, false);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        let failure = sink.finish().await.unwrap_err();
        assert!(failure.message.contains("cannot write /dev/full"), "{failure}");
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_said() {
        let sink = Sink::open(Place::File("/dev/null/file".into()), 0, None, false);
        let failure = sink.finish().await.unwrap_err();
        assert_eq!(failure.kind, Kind::Environment);
        assert!(failure.message.contains("/dev/null"), "{failure}");
    }
}
