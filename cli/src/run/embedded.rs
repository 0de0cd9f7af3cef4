//! The library within this program, for those who have nothing but the program.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::places;

/// The library; empty if the program was built without it.
#[cfg(embedded_preload)]
static LIBRARY: &[u8] = include_bytes!(env!("QUICKET_PRELOAD"));
#[cfg(not(embedded_preload))]
static LIBRARY: &[u8] = &[];

/// Who but the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// Where the loader finds the library within this program; `None` if there is none. Programs that
/// run need the file, and so do those that they start: it stays, and is named after its content.
pub(super) fn library() -> Option<Result<PathBuf, Failure>> {
    if LIBRARY.is_empty() {
        return None;
    }
    let unpacked = places::cache().and_then(|dir| {
        unpack(&dir, &name(LIBRARY), LIBRARY).map_err(|error| {
            let what = format!("cannot unpack a library to {}", dir.display());
            let advice = "XDG_CACHE_HOME names a folder elsewhere, --library a file that is there";
            Failure::environment(what, format!("{error}; {advice}"))
        })
    });
    Some(unpacked)
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

fn unpack(dir: &Path, name: &str, content: &[u8]) -> io::Result<PathBuf> {
    let path = dir.join(name);
    if fs::metadata(&path).is_ok_and(|there| is_unpacked(&there, content)) {
        return Ok(path);
    }
    fs::create_dir_all(dir)?;
    // Others may do the same at the same time: whole files replace each other. It has its name only
    // once all of it is on the disk.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

/// True for a file of this user that nobody has cut short. To read all of it would take longer than
/// everything else that happens before the program starts.
fn is_unpacked(there: &Metadata, content: &[u8]) -> bool {
    there.is_file()
        && there.len() == content.len() as u64
        && there.uid() == rustix::process::geteuid().as_raw()
        && there.mode() & OTHERS_WRITE == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        assert_eq!(fs::metadata(&path).unwrap().mode() & OTHERS_WRITE, 0);
    }
}
