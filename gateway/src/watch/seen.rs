//! Files as they were when they were read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What differs once a file was written, or another is in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds.
    written: (i64, i64),
    changed: (i64, i64),
}

/// The mark of a file, behind all links; `None` if there is none.
fn mark(path: &Path) -> Option<Mark> {
    let is = fs::metadata(path).ok()?;
    Some(Mark {
        device: is.dev(),
        inode: is.ino(),
        length: is.len(),
        written: (is.mtime(), is.mtime_nsec()),
        changed: (is.ctime(), is.ctime_nsec()),
    })
}

/// The files of a configuration, as they were just before they were read.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    marks: BTreeMap<PathBuf, Option<Mark>>,
    /// What the file says of watching; `None` if it could not be read.
    pub(super) wanted: Option<bool>,
}

impl Seen {
    /// Looks at a file that is about to be read.
    pub(crate) fn look(&mut self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mark = mark(&path);
        self.marks.insert(path, mark);
    }

    /// What the file says of watching.
    pub(crate) const fn want(&mut self, wanted: bool) {
        self.wanted = Some(wanted);
    }

    /// Whether files should be watched, if the file could be read.
    pub const fn wanted(&self) -> Option<bool> {
        self.wanted
    }

    /// Of a file that could not be read, those count on that it had before; as they are now, since that alone is no
    /// reason to read all again.
    pub(super) fn join(&mut self, next: Self) {
        if next.wanted.is_some() {
            *self = next;
        } else {
            self.marks.iter_mut().for_each(|(path, known)| *known = mark(path));
            self.marks.extend(next.marks);
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.marks.keys().map(PathBuf::as_path)
    }

    /// The files that are others now.
    pub(super) fn changed(&self) -> Vec<PathBuf> {
        let others = self.marks.iter().filter(|&(path, &before)| mark(path) != before);
        others.map(|(path, _)| path.clone()).collect()
    }
}
