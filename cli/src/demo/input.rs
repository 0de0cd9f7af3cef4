//! The files that the demonstration sends.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::args::Demo;
use crate::digest::{Hasher, Sha256};
use crate::exit::{Failure, Kind};

/// Where ordinary machines have many small files that everybody may read.
const USUAL_PLACES: [&str; 4] =
    ["/usr/share/doc", "/usr/share/licenses", "/usr/share/man", "/usr/share"];
/// How much of what may be sent the small files take up, as a divisor: the rest is for a large one.
const SMALL_SHARE: u64 = 4;
/// How deep directories are looked into.
const MAX_DEPTH: usize = 8;
/// How many directory entries are looked at.
const MAX_ENTRIES: usize = 200_000;

const IN_PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A file to send.
#[derive(Debug)]
pub(super) struct Item {
    /// Its path below the directory, with slashes.
    pub(super) path: String,
    pub(super) len: u64,
    pub(super) sha256: Sha256,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Input {
    /// The directory that is served.
    pub(super) dir: PathBuf,
    /// Where the files are from, for people.
    pub(super) origin: String,
    pub(super) items: Vec<Item>,
}

impl Input {
    /// Chooses files: those of the given directory, or copies of some found on this machine.
    pub(super) fn gather(args: &Demo, place: &Path) -> Result<Self, Failure> {
        let max_size = args.max_size.saturating_mul(1_000_000);
        let max_files = args.max_files as usize;
        if let Some(dir) = &args.dir {
            let found = find(dir, max_size, max_files)
                .map_err(|error| Failure::file(format!("cannot read {}", dir.display()), &error))?;
            return Self::of(dir.clone(), dir.display().to_string(), found);
        }
        let dir = place.join("files");
        let cannot = |error| Failure::environment("cannot gather files to send", error);
        let small = max_size / SMALL_SHARE;
        let (mut origin, mut found) =
            copy_usual(&dir, small, max_files.saturating_sub(1)).map_err(cannot)?;
        let used: u64 = found.iter().map(|(_, len)| len).sum();
        let (large, whence) = large_file(&dir, max_size - used).map_err(cannot)?;
        found.push(large);
        if !origin.is_empty() {
            origin.push_str(" and ");
        }
        origin.push_str(whence);
        Self::of(dir, origin, found)
    }

    fn of(dir: PathBuf, origin: String, found: Vec<(String, u64)>) -> Result<Self, Failure> {
        let mut items = Vec::with_capacity(found.len());
        for (path, _) in found {
            let cannot =
                |error| Failure::environment(format!("cannot read {path} of {origin}"), error);
            let mut file = File::open(dir.join(&path)).map_err(cannot)?;
            let mut hasher = Hasher::new();
            let len = hasher.update_from(&mut file).map_err(cannot)?;
            items.push(Item { path, len, sha256: hasher.finish() });
        }
        if items.is_empty() {
            let message = format!("{origin} has no files that can be sent; name another directory");
            return Err(Failure::new(Kind::Usage, message));
        }
        Ok(Self { dir, origin, items })
    }

    /// How much there is to send, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.items.iter().map(|item| item.len).sum()
    }

    /// The URLs, one per line.
    pub(super) fn urls(&self, address: &str) -> String {
        let url = |item: &Item| {
            let path = utf8_percent_encode(&item.path, IN_PATH);
            format!("https://{address}/{path}\n")
        };
        self.items.iter().map(url).collect()
    }

    /// The hashes, as sha256sum prints them.
    pub(super) fn sums(&self) -> String {
        self.items.iter().map(|item| format!("{}  {}\n", item.sha256, item.path)).collect()
    }
}

/// Files below a directory, with their lengths: no links, nothing hidden, nothing empty, and no
/// more than the limits allow.
fn find(dir: &Path, max_size: u64, max_files: usize) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut left = max_size;
    let mut looked_at = 0;
    let mut dirs = vec![(dir.to_owned(), String::new(), 0)];
    while let Some((dir, prefix, depth)) = dirs.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(_) if depth > 0 => continue,
            entries => entries?,
        };
        for entry in entries.flatten() {
            looked_at += 1;
            if found.len() >= max_files || looked_at > MAX_ENTRIES {
                return Ok(found);
            }
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata())
            else {
                continue;
            };
            // Such names mean something in URLs or lists of hashes.
            if name.starts_with('.') || name.contains(['\n', '\r', '\\']) {
                continue;
            }
            let path = format!("{prefix}{name}");
            if metadata.is_dir() && depth < MAX_DEPTH {
                dirs.push((entry.path(), format!("{path}/"), depth + 1));
            } else if metadata.is_file() && (1..=left).contains(&metadata.len()) {
                if File::open(entry.path()).is_err() {
                    continue;
                }
                left -= metadata.len();
                found.push((path, metadata.len()));
            }
        }
    }
    Ok(found)
}

/// Copies files from the first place that has some.
fn copy_usual(
    to: &Path,
    max_size: u64,
    max_files: usize,
) -> io::Result<(String, Vec<(String, u64)>)> {
    fs::create_dir_all(to)?;
    for usual in USUAL_PLACES {
        let found = find(Path::new(usual), max_size, max_files).unwrap_or_default();
        if found.is_empty() {
            continue;
        }
        for (path, _) in &found {
            let to = to.join(path);
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            io::copy(&mut File::open(Path::new(usual).join(path))?, &mut File::create(to)?)?;
        }
        return Ok((usual.to_owned(), found));
    }
    let made_up = max_files.min(20);
    let each = max_size / 20;
    let mut found = Vec::new();
    for number in 0..made_up {
        let path = format!("made-up-{number}");
        make_up(&to.join(&path), each, number as u64 + 1)?;
        found.push((path, each));
    }
    Ok(("made-up files".to_owned(), found))
}

/// A large file: this program itself, as often as it fits; where it cannot be read, a made-up one.
fn large_file(dir: &Path, max_size: u64) -> io::Result<((String, u64), &'static str)> {
    let name = "large.bin".to_owned();
    let to = dir.join(&name);
    let program = env::current_exe().and_then(fs::read).unwrap_or_default();
    if program.is_empty() {
        make_up(&to, max_size, 0x5eed)?;
        return Ok(((name, max_size), "a large made-up file"));
    }
    let mut out = BufWriter::new(File::create(&to)?);
    let mut left = max_size;
    while left > 0 {
        let piece = program.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        out.write_all(&program[..piece])?;
        left -= piece as u64;
    }
    out.flush()?;
    Ok(((name, max_size), "a large file made of this program"))
}

/// Writes bytes that look random (xorshift, Marsaglia 2003).
fn make_up(path: &Path, len: u64, seed: u64) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut state = seed | 1 << 40;
    let mut left = len;
    while left > 0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let piece = left.min(8);
        out.write_all(&state.to_le_bytes()[..piece as usize])?;
        left -= piece;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_chosen_within_the_limits() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub")).unwrap();
        for (path, len) in
            [("a b", 10), ("sub/c", 20), ("sub/empty", 0), (".hidden", 5), ("big", 900)]
        {
            make_up(&dir.path().join(path), len, 7).unwrap();
        }
        let mut found = find(dir.path(), 100, 10).unwrap();
        found.sort();
        assert_eq!(found, [("a b".to_owned(), 10), ("sub/c".to_owned(), 20)]);
        assert_eq!(find(dir.path(), 100, 1).unwrap().len(), 1);
        let input = Input::of(dir.path().to_owned(), "here".into(), found).unwrap();
        assert_eq!(input.size(), 30);
        assert_eq!(input.urls("h:1"), "https://h:1/a%20b\nhttps://h:1/sub/c\n");
        assert!(input.sums().ends_with("  sub/c\n"));
    }

    #[test]
    fn made_up_files_have_their_length_and_differ() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("1"), dir.path().join("2"));
        make_up(&one, 1003, 1).unwrap();
        make_up(&two, 1003, 2).unwrap();
        let (one, two) = (fs::read(one).unwrap(), fs::read(two).unwrap());
        assert_eq!((one.len(), two.len()), (1003, 1003));
        assert_ne!(one, two);
    }
}
