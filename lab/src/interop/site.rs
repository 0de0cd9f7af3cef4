//! The files that are served, and what comes of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::case::Case;

/// A folder of files with contents that no two share.
#[derive(Debug)]
pub(super) struct Site {
    folder: tempfile::TempDir,
    /// By name.
    digests: BTreeMap<String, String>,
}

impl Site {
    /// Writes the files of all `cases`.
    pub(super) fn generate(cases: &[&Case]) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("quicket-site").tempdir()?;
        let mut digests = BTreeMap::new();
        for case in cases {
            for (name, size) in names(case) {
                if let Entry::Vacant(entry) = digests.entry(name) {
                    let content = content(entry.key(), size);
                    std::fs::write(folder.path().join(entry.key()), &content)?;
                    entry.insert(sha256(&content));
                }
            }
        }
        Ok(Self { folder, digests })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether `folder` holds the files of a case and no others.
    pub(super) fn check(&self, case: &Case, folder: &Path) -> Result<(), String> {
        let told = |error: io::Error| format!("{}: {error}", folder.display());
        let mut stored = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(told)? {
            let entry = entry.map_err(told)?;
            let content = std::fs::read(entry.path()).map_err(told)?;
            stored.insert(entry.file_name().to_string_lossy().into_owned(), sha256(&content));
        }
        for (name, _) in names(case) {
            let digest = stored.remove(&name).ok_or_else(|| format!("{name} is missing"))?;
            if self.digests.get(&name) != Some(&digest) {
                return Err(format!("{name} differs"));
            }
        }
        match stored.first_key_value() {
            None => Ok(()),
            Some((name, _)) => Err(format!("{name} was not asked for")),
        }
    }
}

/// Names and sizes of the files of a case.
pub(super) fn names(case: &Case) -> impl Iterator<Item = (String, usize)> {
    let length = case.files.name;
    case.files.all().enumerate().map(move |(index, size)| {
        let name = format!("{size}-{index}");
        (format!("{name:0>length$}"), size)
    })
}

/// The SHA-256 digest in lowercase hexadecimal digits.
fn sha256(content: &[u8]) -> String {
    digest(&SHA256, content).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn content(name: &str, size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
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
    use super::super::case::CASES;
    use super::*;

    fn case(name: &str) -> &'static Case {
        CASES.iter().find(|case| case.name == name).unwrap()
    }

    #[test]
    fn names_are_as_long_as_the_case_says_and_files_as_large() {
        let site = Site::generate(&[case("zerortt"), case("resumption")]).unwrap();
        let all: Vec<_> = names(case("zerortt")).collect();
        assert_eq!(all.len(), 40);
        for (name, size) in all.into_iter().chain(names(case("resumption"))) {
            assert!(name.len() == 250 || name.len() == 10, "{name}");
            assert_eq!(std::fs::read(site.folder().join(name)).unwrap().len(), size);
        }
    }

    #[test]
    fn files_that_are_missing_differ_or_are_too_many_are_told() {
        let case = case("resumption");
        let site = Site::generate(&[case]).unwrap();
        let stored = tempfile::tempdir().unwrap();
        let check = || site.check(case, stored.path());
        assert!(check().unwrap_err().contains("missing"));
        for (name, _) in names(case) {
            std::fs::copy(site.folder().join(&name), stored.path().join(&name)).unwrap();
        }
        assert_eq!(check(), Ok(()));
        std::fs::write(stored.path().join("more"), b"").unwrap();
        assert!(check().unwrap_err().contains("more was not asked for"));
        std::fs::remove_file(stored.path().join("more")).unwrap();
        let (name, _) = names(case).next().unwrap();
        std::fs::write(stored.path().join(name), b"other").unwrap();
        assert!(check().unwrap_err().contains("differs"));
    }
}
