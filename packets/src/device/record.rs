//! What attaching has altered, noted for whoever has the path next: a switch that is killed sets nothing back.
//!
//! The notes stand in the file that is locked for the path of a switch, so that who reads or writes them is alone. They are about
//! numbers of devices, which are those of one network namespace until the machine is started again: both are noted, too.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::altered::Note;

/// Devices that are noted, those of a switch before among them that could not be set back.
const MAX_NOTES: usize = 32;
/// The longest file that is read, in octets.
const MAX_LEN: u64 = 4096;
/// What stands first, with the version of what follows.
const MAGIC: &str = "quicket-packets-altered 1";
/// What stands last: a longer file that there was before may be behind it for a moment.
const END: &str = "end\n";
/// A number that the machine has until it is started again.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The notes of the switch that has the lock.
#[derive(Debug)]
pub(crate) struct Record(Mutex<Notes>);

#[derive(Debug)]
struct Notes {
    /// Where they stand; none where that is nowhere.
    file: Option<File>,
    /// The first line.
    head: String,
    all: Vec<Note>,
}

impl Record {
    /// Reads what has been left in a file that is locked. `namespace` is the network namespace of this thread.
    pub(crate) fn open(file: File, namespace: u64) -> Self {
        let opened = head(namespace).and_then(|head| check(&file).map(|()| head));
        let head = match opened {
            Ok(head) => head,
            Err(error) => {
                log::warn!("what attaching alters stays so if this switch is killed: {error}");
                return Self::nowhere();
            }
        };
        let all = read(&file, &head).unwrap_or_else(|error| {
            log::warn!("what another switch has altered before it was killed stays so: {error}");
            // It would be read again and again.
            let _ = file.set_len(0);
            Vec::new()
        });
        Self(Mutex::new(Notes { file: Some(file), head, all }))
    }

    /// Notes that nobody reads.
    pub(crate) const fn nowhere() -> Self {
        Self(Mutex::new(Notes { file: None, head: String::new(), all: Vec::new() }))
    }

    /// Sets back what a switch has left that was killed. What cannot be now stays noted.
    pub(crate) fn undo(&self) {
        let all = self.notes().all.clone();
        for note in all {
            match note.set_back() {
                Ok(()) => {
                    log::info!("{} is set as it was before another switch was killed", note.name);
                    self.forget(note.index);
                }
                Err(error) => log::warn!(
                    "{} is not set as it was before another switch was killed: {error}",
                    note.name
                ),
            }
        }
    }

    /// Nothing is left to be set back.
    pub(crate) fn is_empty(&self) -> bool {
        self.notes().all.is_empty()
    }

    /// Notes what a device has to be set back to, in place of what was noted of it. To be called before it is altered.
    pub(super) fn note(&self, note: &Note) {
        let mut notes = self.notes();
        notes.all.retain(|other| other.index != note.index);
        let noted = match notes.all.len() {
            0..MAX_NOTES => {
                notes.all.push(note.clone());
                notes.write()
            }
            _ => Err(io::Error::other("there are too many notes")),
        };
        if let Err(error) = noted {
            log::warn!("{} stays altered if this switch is killed: {error}", note.name);
        }
    }

    /// A device is as it was.
    pub(super) fn forget(&self, index: u32) {
        let mut notes = self.notes();
        let before = notes.all.len();
        notes.all.retain(|note| note.index != index);
        if notes.all.len() < before
            && let Err(error) = notes.write()
        {
            log::warn!("device {index} may be set back once more by the next switch: {error}");
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    /// One call writes them, so that a switch which is killed meanwhile leaves the former ones or these.
    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.all.is_empty() {
            return file.set_len(0);
        }
        let mut text = Vec::new();
        writeln!(text, "{}", self.head)?;
        self.all.iter().try_for_each(|note| writeln!(text, "{note}"))?;
        text.extend(END.bytes());
        let written = file.write_at(&text, 0)?;
        if written < text.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.set_len(text.len() as u64)
    }
}

/// What the notes are about.
fn head(namespace: u64) -> io::Result<String> {
    let boot = std::fs::read_to_string(BOOT)
        .map_err(|error| io::Error::new(error.kind(), format!("{BOOT}: {error}")))?;
    Ok(format!("{MAGIC} {} {namespace}", boot.trim()))
}

/// Whether nobody else has a say in what stands in a file, and nothing else does: it might be a link to a file of this user's that
/// somebody has made who may write in the folder.
fn check(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let is_own = found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.nlink() == 1
        && found.mode() & 0o022 == 0;
    let why =
        "the file beside the path with .lock behind its name is not this user's alone: remove it";
    if is_own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, why)) }
}

/// The notes of a file. None if they are of another time or network namespace.
fn read(file: &File, head: &str) -> io::Result<Vec<Note>> {
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    parse(&text, head)
}

fn parse(text: &str, head: &str) -> io::Result<Vec<Note>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "its notes are not in order");
    let (first, rest) = text.split_once('\n').ok_or_else(invalid)?;
    if !first.starts_with(MAGIC) {
        return Err(invalid());
    }
    if first != head {
        let (of, own) = (first.rsplit_once(' '), head.rsplit_once(' '));
        if of.map(|of| of.0) != own.map(|own| own.0) {
            // The machine has been started since: nothing is as it was set.
            return Ok(Vec::new());
        }
        return Err(io::Error::other("it was in another network namespace"));
    }
    let mut all: Vec<Note> = Vec::new();
    let mut lines = rest.split_inclusive('\n');
    loop {
        let line = lines.next().ok_or_else(invalid)?;
        if line == END {
            return Ok(all);
        }
        let note = line.strip_suffix('\n').and_then(Note::read).ok_or_else(invalid)?;
        if all.len() >= MAX_NOTES || all.iter().any(|other| other.index == note.index) {
            return Err(invalid());
        }
        all.push(note);
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
