//! Sessions that outlive the process: one small file per server in a directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::SessionStore;
use super::memory::{PER_SERVER, Remembered};

/// First bytes of a file.
const MAGIC: &[u8] = b"quicket sessions 1\n";
/// The longest file that is read; a session has some kilobytes.
const MAX_FILE: u64 = 256 << 10;

/// A [`SessionStore`] in a directory. Files can be read by their owner only; what cannot be read
/// or is damaged counts as absent, and what cannot be written is lost; the first time with a warning.
#[derive(Debug)]
pub struct FileSessionStore {
    directory: PathBuf,
    /// One change at a time.
    lock: Mutex<()>,
    /// It was told that something cannot be kept.
    told: AtomicBool,
}

impl FileSessionStore {
    /// Uses a directory; makes it if it does not exist.
    ///
    /// # Errors
    ///
    /// If the directory cannot be made.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        fs::create_dir_all(&directory)?;
        Ok(Self { directory, lock: Mutex::new(()), told: AtomicBool::new(false) })
    }

    /// A file name for any server name: letters, digits, dots and hyphens stay, all else becomes
    /// `_` and its code.
    fn path(&self, server: &str) -> PathBuf {
        let mut name = String::with_capacity(server.len() + 9);
        for byte in server.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
                name.push(byte.into());
            } else {
                name.push_str(&format!("_{byte:02x}"));
            }
        }
        name.push_str(".session");
        self.directory.join(name)
    }

    /// Reads a server's file, changes what it says and writes it back if it changed.
    fn change<R>(&self, server: &str, change: impl FnOnce(&mut Remembered) -> R) -> R {
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.path(server);
        let before = read(&path).unwrap_or_default();
        let mut after = before.clone();
        let result = change(&mut after);
        if after != before
            && let Err(error) = write(&path, &after)
            && !self.told.swap(true, Ordering::Relaxed)
        {
            log::warn!("cannot keep the session of {server} in {}: {error}", path.display());
        }
        result
    }
}

impl SessionStore for FileSessionStore {
    fn save_session(&self, server: &str, session: &[u8]) {
        self.change(server, |remembered| remembered.add_session(session));
    }

    fn take_session(&self, server: &str) -> Option<Vec<u8>> {
        self.change(server, |remembered| remembered.sessions.pop_back())
    }

    fn save_token(&self, server: &str, token: &[u8]) {
        self.change(server, |remembered| remembered.add_token(token));
    }

    fn take_token(&self, server: &str) -> Option<Vec<u8>> {
        self.change(server, |remembered| remembered.tokens.pop_back())
    }
}

fn read(path: &Path) -> Option<Remembered> {
    let file = fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    decode(&bytes)
}

/// Writes beside the file and renames, so that a reader never sees half of it.
fn write(path: &Path, remembered: &Remembered) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&beside)?;
    let kept = file.write_all(&encode(remembered)).and_then(|()| fs::rename(&beside, path));
    // Nobody would look for half of it, nor remove it.
    kept.inspect_err(|_| drop(fs::remove_file(&beside)))
}

/// The magic, then each item as a kind (`s` or `t`), its length in four bytes, and itself.
fn encode(remembered: &Remembered) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let sessions = remembered.sessions.iter().map(|item| (b's', item));
    let tokens = remembered.tokens.iter().map(|item| (b't', item));
    for (kind, item) in sessions.chain(tokens) {
        out.push(kind);
        out.extend_from_slice(&u32::try_from(item.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(item);
    }
    out
}

fn decode(bytes: &[u8]) -> Option<Remembered> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let mut remembered = Remembered::default();
    while let Some((&kind, behind)) = rest.split_first() {
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (item, behind) = behind.split_at_checked(length)?;
        match kind {
            b's' if remembered.sessions.len() < PER_SERVER => remembered.add_session(item),
            b't' if remembered.tokens.len() < PER_SERVER => remembered.add_token(item),
            _ => return None,
        }
        rest = behind;
    }
    Some(remembered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("quicket-{name}-{}", std::process::id()))
    }

    #[test]
    fn sessions_outlive_the_store() {
        let directory = directory("outlive");
        let store = FileSessionStore::open(&directory).unwrap();
        store.save_session("example.com:443", b"one");
        store.save_session("example.com:443", b"two");
        store.save_token("[::1]:443", b"token");
        let again = FileSessionStore::open(&directory).unwrap();
        assert_eq!(again.take_session("example.com:443").as_deref(), Some(&b"two"[..]));
        assert_eq!(store.take_session("example.com:443").as_deref(), Some(&b"one"[..]));
        assert_eq!(store.take_session("example.com:443"), None);
        assert_eq!(store.take_token("[::1]:443").as_deref(), Some(&b"token"[..]));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        let directory = directory("names");
        let store = FileSessionStore::open(&directory).unwrap();
        let path = store.path("../../etc/passwd");
        assert_eq!(path.parent(), Some(directory.as_path()));
        assert_ne!(store.path("a_b"), store.path("a:b"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn damaged_files_count_as_absent() {
        let mut good = Remembered::default();
        good.add_session(b"session");
        good.add_token(b"token");
        let bytes = encode(&good);
        assert_eq!(decode(&bytes), Some(good));
        for len in 0..bytes.len() {
            // A cut between two items leaves a whole file with fewer of them.
            if let Some(less) = decode(&bytes[..len]) {
                assert!(less.tokens.is_empty());
            }
        }
        assert_eq!(decode(b"something else"), None);
        let mut endless = MAGIC.to_vec();
        endless.extend_from_slice(b"s\xff\xff\xff\xffx");
        assert_eq!(decode(&endless), None);
    }

    #[test]
    fn what_cannot_be_kept_leaves_nothing_behind() {
        let directory = directory("unkept");
        let store = FileSessionStore::open(&directory).unwrap();
        // No file takes the place of a directory.
        fs::create_dir(store.path("a:1")).unwrap();
        store.save_session("a:1", b"lost");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let directory = directory("mode");
        let store = FileSessionStore::open(&directory).unwrap();
        store.save_session("a:1", b"secret");
        let mode = fs::metadata(store.path("a:1")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(directory).unwrap();
    }
}
