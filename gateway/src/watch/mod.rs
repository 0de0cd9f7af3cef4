//! The files of a configuration, watched: when they change, whoever holds them reads them again.
//!
//! inotify (7) tells of names in directories, and not of files: files are replaced by others of the same name, and so
//! are the directories and symbolic links that lead to them. It only says when to look; whether something has
//! changed, what the files are (`seen`) decides.

mod places;
mod seen;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, ReadFlags, WatchFlags, add_watch, init};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, sleep, timeout};

use self::places::Places;
pub use self::seen::Seen;

/// How long nothing happens before files are looked at: several that belong together are written one after the other.
const QUIET: Duration = Duration::from_millis(250);
/// How long that may be put off by what happens on and on.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often files are looked at unasked: not every file system tells of changes.
const LOOK: Duration = Duration::from_secs(30);
/// How often watching begins anew because directories changed meanwhile. After that, `LOOK` finds what was missed.
const BEGINNINGS: usize = 16;
/// Room for events that are read at once, in bytes.
const EVENTS: usize = 4096;
/// Length of an event without its name, in bytes.
const HEAD: usize = 16;

/// The files of a configuration, watched.
pub struct Watch {
    seen: Seen,
    /// `None` where the system has no more of them: then files are looked at now and then.
    inotify: Option<Inotify>,
}

impl Watch {
    /// Watches these files, if their configuration says so.
    pub fn new(seen: Seen) -> Self {
        let mut this = Self { seen, inotify: None };
        this.follow();
        this
    }

    /// Takes up what was seen when the files were read again.
    pub fn read_again(&mut self, seen: Seen) {
        self.seen.join(seen);
        self.follow();
    }

    /// True if the configuration says so.
    pub fn is_on(&self) -> bool {
        self.seen.wanted == Some(true)
    }

    fn follow(&mut self) {
        self.inotify = None;
        if !self.is_on() {
            return;
        }
        let places = || {
            let mut places = Places::new();
            self.seen.paths().for_each(|path| places::add(path, &mut places));
            places
        };
        match Inotify::settled(places) {
            Ok(inotify) => self.inotify = Some(inotify),
            Err(error) => log::warn!(
                "changes of files are noticed every {} s only, for they cannot be watched: {error}; \
                 fs.inotify in /proc/sys says how many may be",
                LOOK.as_secs()
            ),
        }
    }

    /// Waits until files have changed since they were seen, and are no longer being changed; which. Never comes to its
    /// end if they are not to be watched.
    pub async fn changed(&mut self) -> Vec<PathBuf> {
        if !self.is_on() {
            return std::future::pending().await;
        }
        loop {
            let seen = self.seen.clone();
            // A file system may be slow, or far away.
            let looked = tokio::task::spawn_blocking(move || seen.changed()).await;
            let changed = looked.unwrap_or_default();
            if !changed.is_empty() {
                // They may just be written.
                let begun = Instant::now();
                while begun.elapsed() < PATIENCE && self.happens_within(QUIET).await {}
                return changed;
            }
            if self.happens_within(LOOK).await {
                let until = Instant::now() + PATIENCE;
                while Instant::now() < until && self.happens_within(QUIET).await {}
                // A link may lead elsewhere, and a directory be another one.
                self.follow();
            }
        }
    }

    /// True if something happens to a name on the way to a file.
    async fn happens_within(&self, limit: Duration) -> bool {
        match &self.inotify {
            Some(inotify) => timeout(limit, inotify.happens()).await.is_ok(),
            None => {
                sleep(limit).await;
                false
            }
        }
    }
}

/// Directories that are watched.
struct Inotify {
    /// To tokio it is as a pipe: what is read are whole events.
    events: Receiver,
    /// Names that count, by the number of the watch.
    names: HashMap<i32, BTreeSet<OsString>>,
}

impl Inotify {
    /// Watches the places, and looks where they are once more: a directory that came between looking and watching told
    /// nobody, and what is within it would be missed.
    fn settled(places: impl Fn() -> Places) -> io::Result<Self> {
        let mut now = places();
        for _ in 1..BEGINNINGS {
            let inotify = Self::new(now.clone())?;
            let then = std::mem::replace(&mut now, places());
            if now == then {
                return Ok(inotify);
            }
        }
        Self::new(now)
    }

    fn new(places: Places) -> io::Result<Self> {
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let what = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ATTRIB
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut names: HashMap<i32, BTreeSet<OsString>> = HashMap::new();
        for (directory, of) in places {
            match add_watch(&fd, &directory, what) {
                // Two paths may lead to one directory.
                Ok(number) => names.entry(number).or_default().extend(of),
                Err(Errno::NOSPC | Errno::NOMEM) => return Err(Errno::NOSPC.into()),
                // It is gone, or others may not read it: what is changed within is noticed all the same, later.
                Err(error) => log::debug!("{} is not watched: {error}", directory.display()),
            }
        }
        Ok(Self { events: Receiver::from_owned_fd_unchecked(fd)?, names })
    }

    /// Waits until something happens that counts.
    async fn happens(&self) {
        let mut bytes = [0; EVENTS];
        loop {
            if self.events.readable().await.is_err() {
                return std::future::pending().await;
            }
            while let Ok(read) = self.events.try_read(&mut bytes) {
                if self.counts(&bytes[..read]) {
                    return;
                }
            }
        }
    }

    /// Whether one of these events counts: each is the number of a watch, what happened, a cookie and the length of the
    /// name, and the name with zeros behind it.
    fn counts(&self, mut events: &[u8]) -> bool {
        while let Some((head, rest)) = events.split_first_chunk::<HEAD>() {
            let word = |at: usize| {
                let [a, b, c, d] = [head[at], head[at + 1], head[at + 2], head[at + 3]];
                u32::from_ne_bytes([a, b, c, d])
            };
            let (number, what, length) = (word(0).cast_signed(), word(4), word(12));
            let Some((name, next)) = rest.split_at_checked(length as usize) else { return true };
            events = next;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            // Without a name it is the directory itself.
            let is_named = |names: &BTreeSet<OsString>| {
                name.is_empty() || names.contains(OsStr::from_bytes(name))
            };
            let are_lost = what & ReadFlags::QUEUE_OVERFLOW.bits() != 0;
            if are_lost || self.names.get(&number).is_some_and(is_named) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::fs;

    /// It is made after the places were found, and before they are watched.
    #[tokio::test]
    async fn a_directory_that_comes_as_watching_begins_is_watched() {
        let dir = tempfile::tempdir().unwrap();
        let (below, is_first) = (dir.path().join("sub"), Cell::new(true));
        let inotify = Inotify::settled(|| {
            let mut found = Places::new();
            places::add(&below.join("cert.pem"), &mut found);
            if is_first.replace(false) {
                fs::create_dir(&below).unwrap();
            }
            found
        });
        fs::write(below.join("cert.pem"), "").unwrap();
        timeout(Duration::from_secs(10), inotify.unwrap().happens()).await.unwrap();
    }
}
