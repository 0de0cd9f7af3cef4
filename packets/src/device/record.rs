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
    all: Vec<Noted>,
    /// The last one.
    serial: u64,
}

#[derive(Debug)]
struct Noted {
    /// Tells it from others of its device, or of another device that has its number.
    serial: u64,
    /// Nobody here has the device attached any more: it could not be set back.
    is_left: bool,
    note: Note,
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
        let left = match read(&file, &head) {
            Ok(Left::Notes(all)) => all,
            Ok(Left::Broken) => {
                log::warn!(
                    "what another switch has altered before it was killed stays so: its notes are not in order"
                );
                // It would be read again and again.
                let _ = file.set_len(0);
                Vec::new()
            }
            Ok(Left::Others(what)) => {
                log::warn!(
                    "what attaching alters stays so if this switch is killed: in the file beside its path, with .lock behind its \
                     name, {what}; remove it if nobody needs it"
                );
                return Self::nowhere();
            }
            Err(error) => {
                log::warn!("what attaching alters stays so if this switch is killed: {error}");
                return Self::nowhere();
            }
        };
        let serial = left.len() as u64;
        let noted = |(serial, note)| Noted { serial, is_left: true, note };
        let all = (1..).zip(left).map(noted).collect();
        Self(Mutex::new(Notes { file: Some(file), head, all, serial }))
    }

    /// Notes that nobody reads.
    pub(crate) const fn nowhere() -> Self {
        Self(Mutex::new(Notes { file: None, head: String::new(), all: Vec::new(), serial: 0 }))
    }

    /// Whether nobody reads them: what stands in the file is not this switch's.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.notes().file.is_none()
    }

    /// Whether nothing stands in a file that would have to be set back, in whatever network namespace.
    pub(crate) fn is_over(file: &File) -> bool {
        // No namespace has this number.
        let left = head(0).and_then(|head| read(file, &head));
        matches!(left, Ok(Left::Notes(all)) if all.is_empty())
    }

    /// Sets back what a switch has left that was killed. What cannot be now stays noted.
    pub(crate) fn undo(&self) {
        let left = |noted: &Noted| noted.is_left.then(|| (noted.serial, noted.note.clone()));
        let all: Vec<_> = self.notes().all.iter().filter_map(left).collect();
        for (serial, note) in all {
            match note.set_back() {
                Ok(()) => {
                    log::info!("{} is set as it was before another switch was killed", note.name);
                    self.forget(serial);
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

    /// Notes what a device has to be set back to, with what was left to be set back of it: returns that, and its number here. To be
    /// called before it is altered.
    pub(super) fn begin(&self, mut note: Note) -> (u64, Note) {
        let mut notes = self.notes();
        notes.serial += 1;
        let serial = notes.serial;
        // Of two devices of one number, the other one has gone.
        if let Some(at) = notes.all.iter().position(|other| other.note.index == note.index) {
            let older = notes.all.swap_remove(at);
            if older.is_left && older.note.name == note.name {
                note.add(&older.note);
            }
        }
        if !note.is_empty() {
            notes.put(serial, &note);
        } else if let Err(error) = notes.write() {
            log::warn!("what was noted of {} is believed by the next switch: {error}", note.name);
        }
        (serial, note)
    }

    /// Something else is known of a device that is altered.
    pub(super) fn change(&self, serial: u64, note: &Note) {
        if note.is_empty() {
            return self.forget(serial);
        }
        let mut notes = self.notes();
        notes.all.retain(|other| other.serial != serial);
        // One that has its number now has come later.
        if !notes.all.iter().any(|other| other.note.index == note.index) {
            notes.put(serial, note);
        }
    }

    /// A device could not be set back.
    pub(super) fn leave(&self, serial: u64) {
        let mut notes = self.notes();
        let noted = notes.all.iter_mut().find(|noted| noted.serial == serial);
        noted.into_iter().for_each(|noted| noted.is_left = true);
    }

    /// A device is as it was.
    pub(super) fn forget(&self, serial: u64) {
        let mut notes = self.notes();
        let Some(at) = notes.all.iter().position(|noted| noted.serial == serial) else { return };
        let Noted { note, .. } = notes.all.swap_remove(at);
        if let Err(error) = notes.write() {
            log::warn!("{} may be set back once more by the next switch: {error}", note.name);
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notes {
    fn put(&mut self, serial: u64, note: &Note) {
        let noted = match self.all.len() {
            0..MAX_NOTES => {
                self.all.push(Noted { serial, is_left: false, note: note.clone() });
                self.write()
            }
            _ => Err(io::Error::other("there are too many notes")),
        };
        if let Err(error) = noted {
            log::warn!("{} stays altered if this switch is killed: {error}", note.name);
        }
    }

    /// One call writes them, so that a switch which is killed meanwhile leaves the former ones or these.
    fn write(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.all.is_empty() {
            return file.set_len(0);
        }
        let mut text = Vec::new();
        writeln!(text, "{}", self.head)?;
        self.all.iter().try_for_each(|noted| writeln!(text, "{}", noted.note))?;
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
    let why = match found.len() {
        0 => {
            "the file beside the path with .lock behind its name is not this user's alone: remove it"
        }
        _ => {
            "the file beside the path with .lock behind its name is not this user's alone, and says what another switch has altered: \
             set that back, and remove the file"
        }
    };
    if is_own { Ok(()) } else { Err(io::Error::new(io::ErrorKind::PermissionDenied, why)) }
}

/// What stands in a file.
#[derive(Debug, PartialEq, Eq)]
enum Left {
    /// Notes of a switch that was killed; none if they are of a time before the machine was started.
    Notes(Vec<Note>),
    /// Notes, and not in order.
    Broken,
    /// Something that is not to be touched.
    Others(&'static str),
}

fn read(file: &File, head: &str) -> io::Result<Left> {
    let mut text = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut text)?;
    Ok(parse(&String::from_utf8_lossy(&text), head))
}

fn parse(text: &str, head: &str) -> Left {
    if text.is_empty() {
        return Left::Notes(Vec::new());
    }
    let Some(of) = text.strip_prefix(MAGIC).filter(|of| of.starts_with([' ', '\n'])) else {
        return Left::Others("there are no notes of a switch");
    };
    let Some((first, rest)) = of.split_once('\n') else { return Left::Broken };
    let own = head.strip_prefix(MAGIC).unwrap_or_default();
    if first != own {
        return match (first.rsplit_once(' '), own.rsplit_once(' ')) {
            (Some((boot, _)), Some((own, _))) if boot == own => {
                Left::Others("there are notes of a switch in another network namespace")
            }
            // The machine has been started since: nothing is as it was set.
            _ => Left::Notes(Vec::new()),
        };
    }
    notes(rest).map_or(Left::Broken, Left::Notes)
}

/// All lines; none if one is not in order.
fn notes(text: &str) -> Option<Vec<Note>> {
    let mut all: Vec<Note> = Vec::new();
    let mut lines = text.split_inclusive('\n');
    loop {
        let line = lines.next()?;
        if line == END {
            return Some(all);
        }
        let note = line.strip_suffix('\n').and_then(Note::read)?;
        if all.len() >= MAX_NOTES || all.iter().any(|other| other.index == note.index) {
            return None;
        }
        all.push(note);
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
