//! The library within this program, for those who have nothing but the program.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::exit::{Failure, Kind};
use crate::places;

/// The library; empty if the program was built without it.
#[cfg(embedded_preload)]
static LIBRARY: &[u8] = include_bytes!(env!("QUICKET_PRELOAD"));
#[cfg(not(embedded_preload))]
static LIBRARY: &[u8] = &[];

/// Of the file: all may read it, and its owner may write it.
const FILE_MODE: u32 = 0o644;
/// ... and of its directory.
const DIR_MODE: u32 = 0o755;

/// Where the loader finds the library within this program; `None` if there is none. Programs that
/// run need the file, and so do those that they start: it stays, and is named after its content.
pub(super) fn library() -> Option<Result<PathBuf, Failure>> {
    if LIBRARY.is_empty() {
        return None;
    }
    let unpacked =
        places::caches().and_then(|dirs| unpack_somewhere(&dirs, &name(LIBRARY), LIBRARY));
    Some(unpacked)
}

/// Unpacks to the first place where it is possible.
fn unpack_somewhere(dirs: &[PathBuf], name: &str, content: &[u8]) -> Result<PathBuf, Failure> {
    let mut reasons = Vec::new();
    for dir in dirs {
        match unpack(dir, name, content) {
            Ok(path) => return Ok(path),
            Err(error) => reasons.push(format!("{}: {error}", dir.display())),
        }
    }
    let advice = "XDG_CACHE_HOME names a folder elsewhere, --library a file that is there";
    let what = format!("cannot unpack a library to {}; {advice}", reasons.join(", nor to "));
    Err(Failure::new(Kind::Environment, what))
}

/// What the library is called. Programs of several builds share a cache.
fn name(content: &[u8]) -> String {
    format!("libquicket_preload-{:016x}.so", digest(content))
}

/// Tells builds apart, and nothing else: it is quick, as every start of a program waits for it.
fn digest(content: &[u8]) -> u64 {
    /// An odd number without a pattern: 2^64 divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = content.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let mut digest = content.len() as u64;
    for word in words.iter().chain([&last]) {
        digest = (digest.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(FACTOR);
    }
    digest
}

/// Programs may become another user before they start others: everybody may read the file and its directory. Nobody
/// else may write there, and all is done within the directory that was looked at.
fn unpack(dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)?;
    let within = rustix::fs::open(
        dir,
        OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY,
        Mode::empty(),
    )?;
    let found = rustix::fs::fstat(&within)?;
    if found.st_uid != rustix::process::geteuid().as_raw() {
        let text = format!("it belongs to another user (number {})", found.st_uid);
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if found.st_mode & 0o777 != DIR_MODE {
        rustix::fs::fchmod(&within, Mode::from_raw_mode(DIR_MODE))?;
    }
    let path = dir.join(name);
    let there = rustix::fs::statat(&within, name, AtFlags::SYMLINK_NOFOLLOW);
    if there.is_ok_and(|there| is_unpacked(&there, content)) {
        return Ok(path);
    }
    // Others may do the same at the same time: whole files replace each other. It has its name only
    // once all of it is on the disk.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = tempfile::Builder::new().make_in(dir, |path| {
        let name = path.file_name().unwrap_or_default();
        let made = rustix::fs::openat(&within, name, flags, Mode::from_raw_mode(FILE_MODE))?;
        Ok(File::from(made))
    })?;
    file.write_all(content)?;
    rustix::fs::fchmod(file.as_file(), Mode::from_raw_mode(FILE_MODE))?;
    file.as_file().sync_all()?;
    let made = file.path().file_name().unwrap_or_default();
    rustix::fs::renameat(&within, made, &within, name)?;
    file.disable_cleanup(true);
    Ok(path)
}

/// True for a file of this user that nobody has cut short and everybody can read. To read all of it would take longer
/// than everything else that happens before the program starts.
fn is_unpacked(there: &Stat, content: &[u8]) -> bool {
    FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
        && usize::try_from(there.st_size) == Ok(content.len())
        && there.st_uid == rustix::process::geteuid().as_raw()
        && there.st_mode & 0o777 == FILE_MODE
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn the_library_is_unpacked_once_and_mended_if_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("cache");
        let unpacked = || unpack(&below, "a.so", b"library").unwrap();
        let path = unpacked();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        let written = fs::metadata(&path).unwrap().ino();
        assert_eq!(unpacked(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), written);
        fs::write(&path, b"libr").unwrap();
        assert_eq!(unpacked(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_ne!(unpack(&below, "b.so", b"another").unwrap(), path);
    }

    #[test]
    fn libraries_that_differ_have_different_names() {
        let library = [7u8; 20];
        assert_eq!(name(&library), name(library.as_ref()));
        for at in 0..library.len() {
            let mut other = library;
            other[at] = 8;
            assert_ne!(name(&other), name(&library), "byte {at}");
        }
        assert_ne!(name(&library[..19]), name(&library));
        assert_ne!(name(&[library.as_slice(), &[0]].concat()), name(&library));
    }

    #[test]
    fn a_library_that_others_can_write_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = unpack(dir.path(), "a.so", b"library").unwrap();
        fs::write(&path, b"theirs!").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(unpack(dir.path(), "a.so", b"library").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, FILE_MODE);
    }

    #[test]
    fn all_users_can_read_the_library_and_none_can_write_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("quicket");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        for before in [0o700, 0o777] {
            fs::create_dir_all(&below).unwrap();
            fs::set_permissions(&below, fs::Permissions::from_mode(before)).unwrap();
            let path = unpack(&below, "a.so", b"library").unwrap();
            assert_eq!((mode(&below), mode(&path)), (0o755, 0o644));
            let listed = fs::read_dir(&below).unwrap().map(|entry| entry.unwrap().file_name());
            assert_eq!(listed.collect::<Vec<_>>(), ["a.so"]);
            // As this program once left it.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let path = unpack(&below, "a.so", b"library").unwrap();
            assert_eq!(mode(&path), 0o644);
        }
    }

    #[test]
    fn a_directory_that_others_have_made_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        let link = dir.path().join("link");
        fs::create_dir(&own).unwrap();
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(unpack(&link, "a.so", b"library").is_err());
        // That of another user, whoever this is.
        let other = if rustix::process::geteuid().is_root() {
            let other = dir.path().join("other");
            fs::create_dir(&other).unwrap();
            std::os::unix::fs::chown(&other, Some(65534), None).unwrap();
            other
        } else {
            PathBuf::from("/")
        };
        let said = unpack(&other, "a.so", b"library").unwrap_err().to_string();
        assert!(said.contains("belongs to another user"), "{said}");
        let dirs = [link, other, own.clone()];
        assert_eq!(unpack_somewhere(&dirs, "a.so", b"library"), Ok(own.join("a.so")));
        let said = unpack_somewhere(&dirs[..2], "a.so", b"library").unwrap_err().message;
        assert!(said.contains("XDG_CACHE_HOME"), "{said}");
    }
}
