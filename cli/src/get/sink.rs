//! Writes a download, and hashes it if anybody wants that, on a thread of its own, so that the network does not wait for the
//! disk more than a little.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

use super::place::Place;
use crate::digest::{Hasher, Sha256};
use crate::exit::{Failure, Kind};

/// How many pieces wait for the disk at most.
const QUEUE: usize = 16;
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
    pieces: mpsc::Sender<Bytes>,
    thread: JoinHandle<Result<Option<Sha256>, Failure>>,
    place: Place,
}

impl Sink {
    /// Begins to write, behind the `kept` bytes of an earlier run. `etag` is what a later run will
    /// go on by. The hash costs as much time as all the rest: it is made only if it is wanted.
    pub(crate) fn open(place: Place, kept: u64, etag: Option<String>, hashed: bool) -> Self {
        let (pieces, queue) = mpsc::channel(QUEUE);
        let to = place.clone();
        let thread = spawn_blocking(move || {
            let mut hasher = hashed.then(Hasher::new);
            write_all(&to, kept, etag.as_deref(), queue, &mut hasher)?;
            Ok(hasher.map(Hasher::finish))
        });
        Self { pieces, thread, place }
    }

    /// Writes a piece. When it cannot be written, [`Sink::finish`] will say why.
    pub(crate) async fn write(&self, piece: Bytes) -> Result<(), Stuck> {
        self.pieces.send(piece).await.map_err(|_| Stuck)
    }

    /// Waits for the disk; says the hash of the whole file if it was wanted.
    pub(crate) async fn finish(self) -> Result<Written, Failure> {
        drop(self.pieces);
        let ended = self.thread.await.map_err(|error| Failure::environment("cannot write", error));
        Ok(Written { sha256: ended??, place: self.place })
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

    /// Removes what was written: it is not what was wanted.
    pub(crate) fn discard(self) -> Result<(), Failure> {
        let Place::File(path) = &self.place else { return Ok(()) };
        let partial = Place::partial(path);
        fs::remove_file(&partial).map_err(cannot_write(&partial))?;
        forget_validator(path)
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
    move |error| Failure::file(format!("cannot write {}", path.display()), &error)
}

/// The writing thread.
fn write_all(
    place: &Place,
    kept: u64,
    etag: Option<&str>,
    mut queue: mpsc::Receiver<Bytes>,
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
    let failed = cannot_write(&shown);
    while let Some(piece) = queue.blocking_recv() {
        out.write_all(&piece).map_err(&failed)?;
        if let Some(hasher) = hasher {
            hasher.update(&piece);
        }
    }
    out.flush().map_err(&failed)
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
        let sink = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), true);
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
        let first = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), false);
        first.write(Bytes::from_static(b"abX")).await.unwrap();
        assert_eq!(first.finish().await.unwrap().sha256, None, "nobody wanted it");
        let second = Sink::open(Place::File(path.clone()), 2, Some("\"1\"".into()), true);
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
        let first = Sink::open(Place::File(path.clone()), 0, Some("\"1\"".into()), false);
        first.write(Bytes::from_static(b"abX")).await.unwrap();
        first.finish().await.unwrap();
        let second = Sink::open(Place::File(path.clone()), 2, Some("\"1\"".into()), false);
        second.write(Bytes::from_static(b"cd")).await.unwrap();
        second.finish().await.unwrap().keep().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd");
        fs::remove_dir_all(dir).unwrap();
    }

    #[tokio::test]
    async fn a_part_without_validator_is_not_gone_on_with() {
        let (dir, path) = place("none");
        let sink = Sink::open(Place::File(path.clone()), 0, None, false);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        sink.finish().await.unwrap();
        assert_eq!(partial(&path), None);
        fs::remove_dir_all(dir).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_device_is_written_to_and_not_replaced() {
        let sink = Sink::open(Place::Device("/dev/null".into()), 0, Some("\"1\"".into()), true);
        sink.write(Bytes::from_static(b"abc")).await.unwrap();
        sink.finish().await.unwrap().keep().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(!Path::new("/dev/null.part").exists());
        let sink = Sink::open(Place::Device("/dev/full".into()), 0, None, false);
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
