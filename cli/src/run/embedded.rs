//! The library within this program, for those who have nothing but the program.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::digest::Hasher;
use crate::exit::Failure;
use crate::places;

/// The library, if the program was built with it.
#[cfg(embedded_preload)]
const LIBRARY: Option<&[u8]> = Some(include_bytes!(env!("QUICKET_EMBED")));
#[cfg(not(embedded_preload))]
const LIBRARY: Option<&[u8]> = None;

/// Where the loader finds the library within this program; `None` if there is none. Programs that
/// run need the file, and so do those that they start: it stays, and is named after its content.
pub(super) fn library() -> Option<Result<PathBuf, Failure>> {
    let content = LIBRARY?;
    let unpacked = places::cache().and_then(|dir| {
        unpack(&dir, content).map_err(|error| {
            Failure::environment(format!("cannot unpack a library to {}", dir.display()), error)
        })
    });
    Some(unpacked)
}

fn unpack(dir: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let mut hash = Hasher::new();
    hash.update(content);
    let path = dir.join(format!("libquicket_preload-{}.so", hash.finish()));
    // It is compared, not trusted: it may have been cut short.
    if fs::read(&path).is_ok_and(|there| there == content) {
        return Ok(path);
    }
    fs::create_dir_all(dir)?;
    // Others may do the same at the same time: whole files replace each other.
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_unpacked_once_and_mended_if_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("cache");
        let path = unpack(&below, b"library").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(unpack(&below, b"library").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), written);
        fs::write(&path, b"libr").unwrap();
        assert_eq!(unpack(&below, b"library").unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_ne!(unpack(&below, b"another").unwrap(), path);
    }
}
