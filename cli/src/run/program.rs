//! Programs into which the loader preloads nothing: better said than wondered about.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Failure, Kind};

/// How much of a file is looked at: its header and the table of segments.
const HEAD: u64 = 64 << 10;
const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_CLASS_64: u8 = 2;
/// What shared libraries are by their headers.
const ET_DYN: u16 = 3;
/// The segment that names the loader.
const PT_INTERP: u32 = 3;
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Finds a program as a shell would.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = if name.as_bytes().contains(&b'/') {
        Some(PathBuf::from(name)).filter(|path| is_program(path))
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|dir| dir.join(name)).find(|path| is_program(path))
    };
    found.ok_or_else(|| {
        let path = Path::new(name);
        let shown = path.display();
        let message = match fs::metadata(path) {
            // A name without a slash is not one of this folder.
            _ if !name.as_bytes().contains(&b'/') => {
                format!("there is no program {shown} in the folders of PATH")
            }
            Ok(found) if found.is_dir() => format!("{shown} is a directory, and no program"),
            Ok(_) => format!("{shown} may not be executed: chmod +x, if it is a program"),
            Err(_) => format!("there is no program {shown}"),
        };
        Failure::new(Kind::Environment, message)
    })
}

/// Fails for files that the loader would pass over as a library, with a line on standard error and nothing else.
pub(super) fn check_library(path: &Path) -> Result<(), Failure> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.map_err(|error| Failure::environment(format!("cannot read {}", path.display()), error))?;
    let is_library = head.starts_with(ELF_MAGIC) && half(&head, 16) == Some(ET_DYN);
    if is_library && Image::of(&head) != Image::Foreign {
        return Ok(());
    }
    let message = format!("{} is no shared library of this kind of machine", path.display());
    Err(Failure::new(Kind::Environment, message))
}

/// Fails for programs that would start, but without QUIC sockets.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let cannot_read =
        |error| Failure::environment(format!("cannot read {}", path.display()), error);
    let metadata = fs::metadata(path).map_err(cannot_read)?;
    let refuse =
        |why: &str| Err(Failure::new(Kind::Environment, format!("{} {why}", path.display())));
    let own = fs::metadata("/proc/self").map_err(cannot_read)?;
    let changes = |bit, is_other| metadata.mode() & bit != 0 && is_other;
    if changes(SETUID, metadata.uid() != own.uid()) || changes(SETGID, metadata.gid() != own.gid())
    {
        return refuse(
            "gains privileges when it starts, and the loader preloads nothing into such programs",
        );
    }
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(HEAD).read_to_end(&mut head))
        .map_err(cannot_read)?;
    match Image::of(&head) {
        Image::Static => refuse("is statically linked: there is no call that could be answered"),
        Image::Foreign => refuse("is a program for another kind of machine"),
        Image::Dynamic | Image::Script => Ok(()),
    }
}

/// What a file is to the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Image {
    Dynamic,
    Static,
    Foreign,
    /// Something that another program reads.
    Script,
}

impl Image {
    fn of(head: &[u8]) -> Self {
        if !head.starts_with(ELF_MAGIC) {
            return Self::Script;
        }
        let is_ours = head.get(4) == Some(&ELF_CLASS_64) && cfg!(target_pointer_width = "64");
        if !is_ours || half(head, 18) != Some(machine()) {
            return Self::Foreign;
        }
        match has_interpreter(head) {
            Some(true) => Self::Dynamic,
            _ => Self::Static,
        }
    }
}

/// The number of this machine in ELF files.
const fn machine() -> u16 {
    if cfg!(target_arch = "aarch64") { 183 } else { 62 }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// True if one of the segments names a loader.
fn has_interpreter(head: &[u8]) -> Option<bool> {
    let offset = head.get(32..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))?;
    let (size, count) = (usize::from(half(head, 54)?), usize::from(half(head, 56)?));
    let segments = head.get(usize::try_from(offset).ok()?..)?.chunks(size.max(1)).take(count);
    let kind = |segment: &[u8]| segment.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
    Some(segments.into_iter().any(|segment| kind(segment) == Some(PT_INTERP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_apart() {
        let this = fs::read(env::current_exe().unwrap()).unwrap();
        assert_eq!(Image::of(&this), Image::Dynamic);
        assert_eq!(Image::of(b"#!/bin/sh\n"), Image::Script);
        let mut foreign = this.clone();
        foreign[18] ^= 0xff;
        assert_eq!(Image::of(&foreign), Image::Foreign);
        let mut without = this;
        without[56..58].fill(0);
        assert_eq!(Image::of(&without), Image::Static);
        assert_eq!(Image::of(ELF_MAGIC), Image::Foreign);
    }

    #[test]
    fn programs_are_found_by_name_and_by_path() {
        assert!(find(OsStr::new("sh")).unwrap().ends_with("sh"));
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert!(find(OsStr::new("./no such program")).is_err());
        let said = |name: &str| find(OsStr::new(name)).unwrap_err().message;
        assert!(said("/etc/passwd").contains("chmod +x"));
        assert!(said("/etc").contains("is a directory"));
        assert!(said("no such program").contains("PATH"));
    }

    #[test]
    fn what_the_loader_would_pass_over_is_no_library() {
        assert!(check_library(Path::new("/etc/passwd")).is_err());
        assert!(check_library(Path::new("/etc")).is_err());
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        let library = paths.find(|path| path.contains(".so")).unwrap();
        assert_eq!(check_library(Path::new(library)), Ok(()));
    }
}
