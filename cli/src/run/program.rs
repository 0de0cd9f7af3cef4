//! Programs into which the loader preloads nothing: better said than wondered about.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::gains::Gain;
use crate::exit::{Failure, Kind};

/// How much of a file is looked at: its header and the table of segments.
const HEAD: u64 = 64 << 10;
const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_CLASS_64: u8 = 2;
/// What shared libraries are by their headers.
const ET_DYN: u16 = 3;
/// The segment that names the loader.
const PT_INTERP: u32 = 3;
/// How many interpreters the kernel starts one for another.
const INTERPRETERS: usize = 5;
/// How much of a script's first line the kernel reads (`BINPRM_BUF_SIZE`).
const FIRST_LINE: usize = 256;

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

/// Fails for programs that would start, but without QUIC sockets. What a script is, its interpreter decides.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let mut path = path.to_owned();
    let mut reads = String::new();
    for _ in 0..=INTERPRETERS {
        let refuse = |why: &str| {
            let text = format!("{} {why}{reads}", path.display());
            Err(Failure::new(Kind::Environment, text))
        };
        let cannot_read =
            |error| Failure::environment(format!("cannot read {}{reads}", path.display()), error);
        let metadata = fs::metadata(&path).map_err(cannot_read)?;
        // To open a pipe would wait; the kernel starts none.
        if !metadata.is_file() {
            return Ok(());
        }
        let mut head = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
        match read {
            Ok(_) => {}
            // It may be executed all the same, if it is no script.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let gain = Gain::of(&path, &metadata);
                return gain.map_or(Ok(()), |gain| refuse(gain.advice()));
            }
            Err(error) => return Err(cannot_read(error)),
        }
        let image = Image::of(&head);
        // The kernel does not look at the mode of a script.
        if let (false, Some(gain)) = (image == Image::Script, Gain::of(&path, &metadata)) {
            return refuse(gain.advice());
        }
        match image {
            Image::Static => {
                return refuse(
                    "is statically linked, and the loader preloads nothing into such programs: it must be linked \
                     to the C library as a shared one",
                );
            }
            Image::Foreign => return refuse("is a program for another kind of machine"),
            Image::Dynamic => return Ok(()),
            Image::Script => {}
        }
        let Some(interpreter) = interpreter(&head) else { return Ok(()) };
        if reads.is_empty() {
            reads = format!(" (it reads the script {})", path.display());
        }
        path = interpreter.to_owned();
    }
    // The kernel says what is wrong.
    Ok(())
}

/// The interpreter that a script names in its first line. Other text is read by a shell.
fn interpreter(head: &[u8]) -> Option<&Path> {
    let head = head.get(..FIRST_LINE).unwrap_or(head);
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0));
    let word = words.find(|word| !word.is_empty())?;
    Some(Path::new(OsStr::from_bytes(word)))
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
    fn the_interpreter_of_a_script_is_looked_at() {
        let path = |head: &'static [u8]| interpreter(head).and_then(Path::to_str);
        assert_eq!(path(b"#!/bin/sh\n"), Some("/bin/sh"));
        assert_eq!(path(b"#! \t/usr/bin/env python3\nexit"), Some("/usr/bin/env"));
        assert_eq!(path(b"#!\n/bin/sh"), None);
        assert_eq!(path(b"echo\n"), None);

        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let mut without = fs::read(env::current_exe().unwrap()).unwrap();
        without.truncate(4096);
        without[56..58].fill(0);
        let fixed = write("static", &without);
        let first = write("first", format!("#!{} -x\n", fixed.display()).as_bytes());
        let second = write("second", format!("#!{}\n", first.display()).as_bytes());
        for script in [&first, &second] {
            let said = check(script).unwrap_err().message;
            assert!(said.contains("static is statically linked"), "{said}");
            assert!(said.contains(&format!("the script {}", script.display())), "{said}");
        }
        let none = write("none", b"#!/nonexistent/interpreter\n");
        let said = check(&none).unwrap_err().message;
        assert!(said.contains("cannot read /nonexistent/interpreter"), "{said}");
        assert_eq!(check(&write("shell", b"#!/bin/sh\n")), Ok(()));
        assert_eq!(check(&write("text", b"echo\n")), Ok(()));
        // The kernel refuses it.
        let itself = dir.path().join("itself");
        assert_eq!(check(&write("itself", format!("#!{}\n", itself.display()).as_bytes())), Ok(()));
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
