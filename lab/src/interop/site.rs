//! The files that are served, and what comes of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::Case;

/// A folder of files with contents that no two share.
#[derive(Debug)]
pub(super) struct Site {
    folder: tempfile::TempDir,
    digests: BTreeMap<usize, String>,
}

impl Site {
    /// Writes the files of all `cases`.
    pub(super) fn generate(cases: &[Case]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("quicket-site").tempdir()?;
        let mut digests = BTreeMap::new();
        for &size in cases.iter().flat_map(|case| case.plan().files) {
            if let Entry::Vacant(entry) = digests.entry(size) {
                let content = content(size);
                std::fs::write(folder.path().join(name(size)), &content)?;
                entry.insert(sha256(&content));
            }
        }
        Ok(Self { folder, digests })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The digest of the file of this size.
    pub(super) fn sha256(&self, size: usize) -> &str {
        self.digests.get(&size).map_or("", String::as_str)
    }
}

/// The name of the file of this size.
pub(super) fn name(size: usize) -> String {
    format!("{size}-bytes")
}

/// The SHA-256 digest in lowercase hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn content(size: usize) -> Vec<u8> {
    let mut state = size as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut content = Vec::with_capacity(size + 8);
    while content.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(size);
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_on_disk_have_the_digests_told() {
        let site = Site::generate(&[Case::Transfer]).unwrap();
        for &size in Case::Transfer.plan().files {
            let content = std::fs::read(site.folder().join(name(size))).unwrap();
            assert_eq!(content.len(), size);
            assert_eq!(sha256(&content), site.sha256(size));
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(site.sha256(0), empty);
    }
}
