//! The files of a capture, which nobody but their owner reads.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::args;
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// The most qlogs.
const MAX_QLOGS: usize = 65_536;
/// The most files of one name, told apart by numbers.
const MAX_SAME: u32 = 1000;

/// Where a capture is written.
pub(super) struct Output {
    capture: Option<Target>,
    qlog: Option<Qlogs>,
}

enum Target {
    /// With the length of what is whole.
    File(File, PathBuf, u64),
    Standard,
}

impl Output {
    /// Makes the file and the directory.
    pub(super) fn open(args: &args::Capture) -> Result<Self, Failure> {
        if let Some(directory) = &args.qlog {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            made.map_err(|error| Failure::file(cannot(directory), &error))?;
        }
        let capture = args.out.as_deref().map(target).transpose()?;
        let qlog = args.qlog.clone().map(Qlogs::new);
        Ok(Self { capture, qlog })
    }

    /// The next bytes of the capture.
    pub(super) fn capture(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.capture {
            Some(Target::File(file, path, whole)) => {
                if let Err(error) = file.write_all(bytes) {
                    // What is there stays readable.
                    let _ = file.set_len(*whole);
                    return Err(Failure::file(cannot(path), &error));
                }
                *whole += bytes.len() as u64;
                Ok(())
            }
            Some(Target::Standard) => {
                let mut out = io::stdout();
                let written = out.write_all(bytes).and_then(|()| out.flush());
                written.map_err(|error| Failure::file("cannot write to standard output", &error))
            }
            None => Ok(()),
        }
    }

    /// The next bytes of a qlog. One that cannot be written ends nothing else, unless the disk is full.
    pub(super) fn qlog(&mut self, name: &str, is_new: bool, bytes: &[u8]) -> Result<(), Failure> {
        self.qlog.as_mut().map_or(Ok(()), |qlogs| qlogs.append(name, is_new, bytes))
    }

    /// How many qlogs could not be written.
    pub(super) fn qlogs_failed(&self) -> u64 {
        self.qlog.as_ref().map_or(0, |qlogs| qlogs.failed)
    }

    /// Where it is, in words.
    pub(super) fn places(&self) -> String {
        let capture = self.capture.as_ref().map(|target| match target {
            Target::File(_, path, _) => path.display().to_string(),
            Target::Standard => "standard output".to_owned(),
        });
        let qlog = self.qlog.as_ref().map(|qlogs| qlogs.directory.display().to_string());
        capture.into_iter().chain(qlog).collect::<Vec<_>>().join(" and ")
    }

    /// Nothing was captured: there is no file.
    pub(super) fn withdraw(self) {
        if let Some(Target::File(_, path, 0)) = self.capture {
            let _ = fs::remove_file(path);
        }
    }
}

/// The qlogs of a capture, in a directory.
struct Qlogs {
    directory: PathBuf,
    /// Where each is, by the name that the gateway says; nowhere if it cannot be written.
    paths: HashMap<String, Option<Made>>,
    failed: u64,
}

/// A file that was made here. It is not kept open: there may be more of them than a process may open.
struct Made {
    path: PathBuf,
    /// Device and inode.
    is: (u64, u64),
}

impl Made {
    fn of(path: PathBuf, file: &File) -> io::Result<Self> {
        Ok(Self { path, is: identity(file)? })
    }

    /// Writes more to it, and to no other file that others have put in its place since.
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        // A pipe in its place would wait for a reader.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let mut file =
            OpenOptions::new().append(true).custom_flags(flags as i32).open(&self.path)?;
        if identity(&file)? != self.is {
            return Err(io::Error::other("it is another file than it was"));
        }
        file.write_all(bytes)
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

impl Qlogs {
    fn new(directory: PathBuf) -> Self {
        Self { directory, paths: HashMap::new(), failed: 0 }
    }

    fn append(&mut self, name: &str, is_new: bool, bytes: &[u8]) -> Result<(), Failure> {
        if is_new && !self.paths.contains_key(name) && self.paths.len() >= MAX_QLOGS {
            self.failed += 1;
            return Ok(());
        }
        let written = match (is_new, self.paths.get(name)) {
            (false, Some(Some(made))) => {
                made.append(bytes).map_err(|error| (made.path.clone(), error))
            }
            (false, _) => return Ok(()),
            (true, _) => self.begin(name, bytes),
        };
        match written {
            Ok(()) => Ok(()),
            Err((path, error)) if is_full(&error) => Err(Failure::file(cannot(&path), &error)),
            Err((path, error)) => {
                if self.failed == 0 {
                    tell!("quicket: {}, and a qlog is missing: {error}", cannot(&path));
                }
                self.failed += 1;
                self.paths.insert(name.to_owned(), None);
                Ok(())
            }
        }
    }

    /// Makes a file. Clients choose what it is called by, and may do so twice; and an earlier capture may have one.
    fn begin(&mut self, name: &str, bytes: &[u8]) -> Result<(), (PathBuf, io::Error)> {
        let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
        for number in 1..=MAX_SAME {
            let path = self.directory.join(match number {
                1 => name.to_owned(),
                _ => format!("{}-{number}.sqlog", name.strip_suffix(".sqlog").unwrap_or(name)),
            });
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let made =
                        Made::of(path.clone(), &file).map_err(|error| (path.clone(), error))?;
                    self.paths.insert(name.to_owned(), Some(made));
                    return file.write_all(bytes).map_err(|error| (path, error));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
                Err(error) => return Err((path, error)),
            }
        }
        Err((self.directory.join(name), refused))
    }
}

/// Other files would have no room either.
fn is_full(error: &io::Error) -> bool {
    let full = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];
    Errno::from_io_error(error).is_some_and(|error| full.contains(&error))
}

fn target(path: &Path) -> Result<Target, Failure> {
    if path.as_os_str() == "-" {
        if io::stdout().is_terminal() {
            let why = "a capture is no text for a terminal: name a file, or | wireshark -k -i -";
            return Err(Failure::new(Kind::Usage, why));
        }
        return Ok(Target::Standard);
    }
    // A file that is there may be another's, or readable for others.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match file {
        Ok(file) => Ok(Target::File(file, path.to_owned(), 0)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let what = format!("{} is there already: remove it, or name another", path.display());
            Err(Failure::new(Kind::Environment, what))
        }
        Err(error) => Err(Failure::file(cannot(path), &error)),
    }
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qlog_that_is_there_already_gets_another_name_and_ends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        fs::write(dir.path().join("a_server.sqlog"), "old").unwrap();
        let mut qlogs = Qlogs::new(dir.path().to_owned());
        qlogs.append("a_server.sqlog", true, b"1").unwrap();
        qlogs.append("a_server.sqlog", false, b"2").unwrap();
        // Another connection with the same connection ID.
        qlogs.append("a_server.sqlog", true, b"3").unwrap();
        qlogs.append("a_server.sqlog", false, b"4").unwrap();
        assert_eq!(read("a_server.sqlog"), "old");
        assert_eq!(read("a_server-2.sqlog"), "12");
        assert_eq!(read("a_server-3.sqlog"), "34");
        assert_eq!(qlogs.failed, 0);
    }

    #[test]
    fn nothing_is_written_to_what_others_put_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (other, here) = (dir.path().join("other"), |name: &str| dir.path().join(name));
        fs::write(&other, "theirs").unwrap();
        let mut qlogs = Qlogs::new(dir.path().to_owned());
        for name in ["link.sqlog", "file.sqlog"] {
            qlogs.append(name, true, b"1").unwrap();
            // Its inode is not free for another file.
            fs::rename(here(name), here(&format!("{name}.old"))).unwrap();
        }
        std::os::unix::fs::symlink(&other, here("link.sqlog")).unwrap();
        fs::hard_link(&other, here("file.sqlog")).unwrap();
        for name in ["link.sqlog", "file.sqlog"] {
            qlogs.append(name, false, b"2").unwrap();
        }
        assert_eq!(qlogs.failed, 2);
        assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
    }

    #[test]
    fn one_that_cannot_be_written_is_left_out_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut qlogs = Qlogs::new(dir.path().to_owned());
        qlogs.append("a.sqlog", true, b"1").unwrap();
        fs::remove_file(dir.path().join("a.sqlog")).unwrap();
        qlogs.append("a.sqlog", false, b"2").unwrap();
        qlogs.append("a.sqlog", false, b"3").unwrap();
        // Nobody said how this one begins.
        qlogs.append("b.sqlog", false, b"1").unwrap();
        qlogs.append("c.sqlog", true, b"1").unwrap();
        assert_eq!(qlogs.failed, 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(
            is_full(&io::Error::from(Errno::NOSPC)) && !is_full(&io::Error::from(Errno::NOENT))
        );
    }
}
