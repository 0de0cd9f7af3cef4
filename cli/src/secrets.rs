//! The file of a site's secrets: read by whoever uses them, and kept from others.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use quicket::SiteSecrets;
use quicket_member::{SecretsFault, read_secrets};

use crate::exit::{Failure, Kind};

/// Where secrets are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    /// A descriptor that the process was started with.
    Descriptor(u32),
}

impl Source {
    /// What a flag says: a file, or fd: and a number.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        match text.strip_prefix("fd:") {
            None if text.is_empty() => Err("give the name of a file, or fd: and a number"),
            None => Ok(Self::File(text.into())),
            // The numbers of standard input, output and error have a use.
            Some(number) => match number.parse() {
                Ok(number) if number > 2 => Ok(Self::Descriptor(number)),
                _ => Err("give a descriptor from 3 on, such as fd:3, or the name of a file"),
            },
        }
    }

    /// Reads them, as often as it is asked to.
    pub(crate) fn read(&self) -> Result<SiteSecrets, Failure> {
        let failed = |error| Failure::file(format!("cannot read the secrets of {self}"), &error);
        let (file, is_named) = match self {
            Self::File(path) => (File::open(path).map_err(failed)?, true),
            // Opened anew, it is read from the beginning.
            Self::Descriptor(number) => {
                (File::open(format!("/proc/self/fd/{number}")).map_err(failed)?, false)
            }
        };
        read_secrets(file, is_named).map_err(|fault| match fault {
            SecretsFault::Read(error) => failed(error),
            fault => self.wrong(&fault),
        })
    }

    fn wrong(&self, why: &dyn fmt::Display) -> Failure {
        Failure::new(Kind::Environment, format!("{self}: {why}"))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Descriptor(number) => write!(f, "descriptor {number}"),
        }
    }
}

/// Makes a file that must not exist yet.
pub(crate) fn make(path: &Path, secrets: &SiteSecrets) -> Result<(), Failure> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            Kind::Environment,
            format!(
                "{} exists: quicket switch secrets rotate replaces its secrets",
                path.display()
            ),
        ),
        _ => Failure::file(format!("cannot make {}", path.display()), &error),
    };
    let beside = write_beside(path, &secrets.to_file(), None).map_err(failed)?;
    // Unlike renaming, this never replaces one that somebody has made meanwhile.
    let linked = fs::hard_link(&beside, path);
    fs::remove_file(&beside).map_err(failed)?;
    linked.and_then(|()| sync_folder(path)).map_err(failed)
}

/// Replaces a file by what `change` makes of its secrets. Who reads it meanwhile gets the one or the other.
pub(crate) fn change(
    path: &Path,
    change: impl FnOnce(&SiteSecrets) -> Result<SiteSecrets, Failure>,
) -> Result<SiteSecrets, Failure> {
    let failed = |error| Failure::file(format!("cannot change {}", path.display()), &error);
    // A link stays one.
    let path = &fs::canonicalize(path).map_err(failed)?;
    let _lock = lock(path)?;
    let secrets = change(&Source::File(path.clone()).read()?)?;
    replace(path, &secrets.to_file()).map_err(failed)?;
    Ok(secrets)
}

/// Keeps others who would change a file from doing so at the same time, as long as it lives.
fn lock(path: &Path) -> Result<File, Failure> {
    let failed =
        |error: io::Error| Failure::file(format!("cannot lock {}", path.display()), &error);
    loop {
        let file = File::open(path).map_err(failed)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        // It may have been replaced while this waited.
        let is_it = |now: fs::Metadata| {
            file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        };
        if fs::metadata(path).is_ok_and(is_it) {
            return Ok(file);
        }
    }
}

/// Writes a file that only its owner can read in the place of another, if there is one, whose owner it keeps.
pub(crate) fn replace(path: &Path, content: &str) -> io::Result<()> {
    let owner = fs::metadata(path).ok().map(|before| (before.uid(), before.gid()));
    let beside = write_beside(path, content, owner)?;
    fs::rename(&beside, path).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    sync_folder(path)
}

fn write_beside(path: &Path, content: &str, owner: Option<(u32, u32)>) -> io::Result<PathBuf> {
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.new", process::id()));
    let beside = path.with_file_name(name);
    let written = (|| {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        if let Some((uid, gid)) = owner
            && file.metadata().is_ok_and(|ours| (ours.uid(), ours.gid()) != (uid, gid))
        {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.write_all(content.as_bytes())?;
        file.sync_all()
    })();
    match written {
        Ok(()) => Ok(beside),
        Err(error) => {
            // One that was there before is not ours.
            if error.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&beside);
            }
            Err(error)
        }
    }
}

/// Has the name outlive a loss of power.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn drawn(seed: u8) -> SiteSecrets {
        let mut next = seed;
        SiteSecrets::draw(7, &mut |out| {
            next += 1;
            out.fill(next);
        })
    }

    #[test]
    fn what_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        make(&path, &drawn(1)).unwrap();
        let source = Source::parse(path.to_str().unwrap()).unwrap();
        assert_eq!(source.read().unwrap(), drawn(1));
        for (mode, taken) in
            [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o660, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = source.read();
            assert_eq!(read.is_ok(), taken, "{mode:o}");
            if let Err(failure) = read {
                assert!(failure.message.contains("chmod 600"), "{}", failure.message);
            }
        }
    }

    #[test]
    fn a_file_is_made_once_and_changed_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        make(&path, &drawn(1)).unwrap();
        assert!(make(&path, &drawn(2)).unwrap_err().message.contains("secrets rotate"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let rotated =
            change(&link, |secrets| Ok(secrets.rotate(8, &mut |out| out.fill(99)).unwrap()));
        let read = Source::File(path.clone()).read().unwrap();
        assert_eq!((rotated.unwrap(), read.current().number()), (read, 2));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let refused = change(&path, |_| Err(Failure::new(Kind::Usage, "no")));
        assert_eq!(refused.unwrap_err().message, "no");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let names = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 2, "nothing is left beside it");
    }

    /// Each of them finds what those before have made.
    #[test]
    fn changes_at_the_same_time_follow_each_other() {
        const CHANGES: u32 = 20;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        make(&path, &drawn(1)).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..CHANGES {
                let path = &path;
                scope.spawn(move || {
                    let octet = u8::try_from(100 + seed).unwrap();
                    let random = &mut |out: &mut [u8]| out.fill(octet);
                    change(path, |secrets| Ok(secrets.rotate(8, random).unwrap())).unwrap();
                });
            }
        });
        assert_eq!(Source::File(path).read().unwrap().current().number(), 1 + CHANGES);
    }

    #[test]
    fn descriptors_are_read_from_the_beginning_each_time() {
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        make(&path, &drawn(1)).unwrap();
        let file = File::open(&path).unwrap();
        let source = Source::parse(&format!("fd:{}", file.as_raw_fd())).unwrap();
        for _ in 0..2 {
            assert_eq!(source.read().unwrap(), drawn(1));
        }
        for wrong in ["", "fd:", "fd:0", "fd:2", "fd:-3", "fd:x"] {
            assert!(Source::parse(wrong).is_err(), "{wrong}");
        }
        let message = Source::Descriptor(u32::MAX).read().unwrap_err().message;
        assert!(message.contains("descriptor 4294967295"), "{message}");
    }

    #[test]
    fn hostile_files_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        fs::write(&path, vec![b'#'; 1 << 20]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let source = Source::File(path.clone());
        assert!(source.read().unwrap_err().message.contains("more than 4096 bytes"));
        fs::write(&path, "quicket-secrets 1\ncurrent 1 0 abc\n").unwrap();
        let message = source.read().unwrap_err().message;
        assert!(message.contains("secrets: line 2") && !message.contains("abc"), "{message}");
        assert!(Source::File(dir.path().into()).read().is_err());
        assert!(Source::File(dir.path().join("none")).read().is_err());
    }
}
