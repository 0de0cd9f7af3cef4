//! What is served, and where it is fetched to.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use quicket_workload::bench::Failure;
use tempfile::TempDir;

/// The names of the files.
pub(super) const LARGE: &str = "large";
pub(super) const SMALL: &str = "small";
const SMALL_BYTES: u64 = 1024;
/// A file system in memory, where there is one: a disk would be what is measured otherwise.
const MEMORY: &str = "/dev/shm";

/// A folder that is removed on drop, in memory if that can be had.
pub(in crate::bench) fn folder_in_memory(prefix: &str) -> io::Result<TempDir> {
    let parent = if Path::new(MEMORY).is_dir() { MEMORY.into() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix(prefix).tempdir_in(parent)
}

/// A folder with two files, and one for what is fetched. Both are removed on drop.
pub(super) struct Site {
    folder: TempDir,
}

impl Site {
    /// With a large file of so many bytes, no two blocks of which are the same.
    pub(super) fn new(bytes: u64) -> Result<Self, Failure> {
        let site = Self { folder: folder_in_memory("quicket-site")? };
        std::fs::create_dir(site.served())?;
        std::fs::create_dir(site.fetched())?;
        for (name, bytes) in [(LARGE, bytes), (SMALL, SMALL_BYTES)] {
            write(&site.served().join(name), bytes)?;
        }
        Ok(site)
    }

    /// Where programs may write what they keep.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn served(&self) -> PathBuf {
        self.folder.path().join("served")
    }

    pub(super) fn fetched(&self) -> PathBuf {
        self.folder.path().join("fetched")
    }

    /// Checks that the files that were fetched are those that were served.
    pub(super) fn compare(&self) -> Result<(), Failure> {
        for name in [SMALL, LARGE] {
            if !same(&self.served().join(name), &self.fetched().join(name))? {
                return Err(format!("the {name} file arrived with other bytes").into());
            }
        }
        Ok(())
    }
}

/// Bytes of a block.
const BLOCK: usize = 64 << 10;

fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BLOCK, File::create(path)?);
    let mut block: Vec<u8> = (0..BLOCK).map(|at| (at % 251) as u8).collect();
    let mut left = bytes;
    let mut number = 0_u64;
    while left > 0 {
        block[..8].copy_from_slice(&number.to_be_bytes());
        let len = left.min(BLOCK as u64);
        out.write_all(&block[..len as usize])?;
        (left, number) = (left - len, number + 1);
    }
    out.flush()
}

fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let open = |path: &Path| {
        let file = File::open(path)?;
        Ok::<_, io::Error>((file.metadata()?.len(), BufReader::with_capacity(BLOCK, file)))
    };
    let ((len, mut one), (other_len, mut other)) = (open(one)?, open(other)?);
    if len != other_len {
        return Ok(false);
    }
    let (mut left, mut blocks) = (len, [vec![0; BLOCK], vec![0; BLOCK]]);
    while left > 0 {
        let len = left.min(BLOCK as u64) as usize;
        let [a, b] = &mut blocks;
        one.read_exact(&mut a[..len])?;
        other.read_exact(&mut b[..len])?;
        if a[..len] != b[..len] {
            return Ok(false);
        }
        left -= len as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_is_compared_byte_by_byte() {
        let site = Site::new(200_001).unwrap();
        assert_eq!(std::fs::metadata(site.served().join(LARGE)).unwrap().len(), 200_001);
        assert!(site.compare().is_err(), "nothing was fetched");
        for name in [LARGE, SMALL] {
            std::fs::copy(site.served().join(name), site.fetched().join(name)).unwrap();
        }
        site.compare().unwrap();
        let large = site.fetched().join(LARGE);
        let mut bytes = std::fs::read(&large).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&large, &bytes).unwrap();
        assert!(site.compare().unwrap_err().to_string().contains("other bytes"));
        std::fs::write(&large, &bytes[..200_000]).unwrap();
        assert!(site.compare().is_err(), "it is shorter");
    }
}
