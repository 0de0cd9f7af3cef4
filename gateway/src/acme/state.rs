//! What is kept on disk: the account, and each certificate with its key in one file, so that both always belong
//! together. Files are written beside and renamed, and are their owner's alone.
//!
//! Who holds the lock writes; all others only read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use instant_acme::AccountCredentials;
use quicket::Identity;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::plan::Wanted;
use super::schedule::Life;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Directories and files that only their owner may use.
const OWN_DIRECTORY: u32 = 0o700;
const OWN_FILE: u32 = 0o600;

/// The directory in which all of it is.
#[derive(Clone, Debug)]
pub(crate) struct State {
    directory: PathBuf,
    /// Clones have it in common: what is being written when a task ends is written under the lock still.
    _turn: Option<Arc<Turn>>,
}

/// The account at an authority.
#[derive(Deserialize, Serialize)]
pub(crate) struct KeptAccount {
    pub(crate) credentials: AccountCredentials,
    /// What the authority was told.
    pub(crate) contact: Vec<String>,
}

/// A certificate that is here.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) identity: Identity,
    pub(crate) life: Life,
}

/// What was tried for a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Tried {
    ordered: Option<u64>,
    failed: Option<u64>,
}

impl Tried {
    /// When it was ordered.
    pub(crate) fn ordered(self) -> Option<SystemTime> {
        self.ordered.and_then(time)
    }

    /// When the last attempt failed, if the last one did.
    pub(crate) fn failed(self) -> Option<SystemTime> {
        self.failed.and_then(time)
    }

    pub(crate) fn succeed(&mut self, now: SystemTime) {
        *self = Self { ordered: Some(seconds(now)), failed: None };
    }

    pub(crate) fn fail(&mut self, now: SystemTime) {
        self.failed = Some(seconds(now));
    }
}

fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The right to order certificates, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: File,
}

impl State {
    /// The directory, made if it is not there.
    ///
    /// # Errors
    ///
    /// If it cannot be made, in words.
    pub(crate) fn open(directory: &Path) -> Result<Self, String> {
        let made = DirBuilder::new().recursive(true).mode(OWN_DIRECTORY).create(directory);
        made.map_err(|error| {
            format!(
                "cannot make the directory {}: {error}; make it for the gateway's user, with mode 700",
                directory.display()
            )
        })?;
        Ok(Self { directory: directory.to_owned(), _turn: None })
    }

    /// The right to order; none while another process has it.
    ///
    /// # Errors
    ///
    /// If the lock cannot be opened.
    pub(crate) fn turn(&self) -> io::Result<Option<Turn>> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(OWN_FILE);
        let lock = options.open(self.directory.join("lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Turn { _lock: lock })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The same with the right to order, as long as this or a clone is there.
    pub(crate) fn holding(self, turn: Turn) -> Self {
        Self { _turn: Some(Arc::new(turn)), ..self }
    }

    /// The account of this name, if there is one.
    ///
    /// # Errors
    ///
    /// If its file cannot be read, or is damaged: in words.
    pub(crate) fn account(&self, id: &str) -> Result<Option<KeptAccount>, String> {
        let path = self.account_path(id);
        let Some(text) = read(&path)? else { return Ok(None) };
        // What serde says may have a part of the key in it.
        let account = serde_json::from_slice(&text);
        let account = account.map_err(|_| format!("{} is damaged", path.display()))?;
        Ok(Some(account))
    }

    /// Keeps an account.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn keep_account(&self, id: &str, account: &KeptAccount) -> Result<(), String> {
        let text = serde_json::to_vec(account).map_err(|_| "the account cannot be written down")?;
        self.write(&self.account_path(id), &text)
    }

    /// Puts an account aside that is damaged, or that the authority does not know.
    pub(crate) fn discard_account(&self, id: &str) -> Result<(), String> {
        let path = self.account_path(id);
        let aside = path.with_extension("discarded");
        match fs::rename(&path, &aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot put {} aside: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// A certificate, if it is here.
    ///
    /// # Errors
    ///
    /// If its file cannot be read, or does not hold what it should: in words.
    pub(crate) fn certificate(&self, wanted: &Wanted) -> Result<Option<Kept>, String> {
        let path = self.certificate_path(wanted);
        let Some(text) = read(&path)? else { return Ok(None) };
        let identity = Identity::from_pem(&text, &text).map_err(|error| error.to_string());
        let kept = identity.and_then(|identity| Kept::of(identity, wanted));
        kept.map(Some).map_err(|error| format!("{} is damaged: {error}", path.display()))
    }

    /// Keeps a certificate with its key.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn keep_certificate(
        &self,
        wanted: &Wanted,
        identity: &Identity,
    ) -> Result<(), String> {
        let text = format!("{}{}", identity.key_pem(), identity.chain_pem());
        self.write(&self.certificate_path(wanted), text.as_bytes())
    }

    /// What was tried for a certificate. What cannot be read counts as nothing: it only says when to try again.
    pub(crate) fn tried(&self, wanted: &Wanted) -> Tried {
        let text = read(&self.path(wanted, "json")).ok().flatten();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Remembers what was tried for a certificate.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn keep_tried(&self, wanted: &Wanted, tried: Tried) -> Result<(), String> {
        let text = serde_json::to_vec(&tried).map_err(|error| error.to_string())?;
        self.write(&self.path(wanted, "json"), &text)
    }

    /// When a certificate's file was written, if it is there: another time, or another length, is another
    /// certificate.
    pub(crate) fn written(&self, wanted: &Wanted) -> Option<(SystemTime, u64)> {
        let found = fs::metadata(self.certificate_path(wanted)).ok()?;
        Some((found.modified().ok()?, found.len()))
    }

    fn account_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("account-{id}.json"))
    }

    fn certificate_path(&self, wanted: &Wanted) -> PathBuf {
        self.path(wanted, "pem")
    }

    fn path(&self, wanted: &Wanted, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", wanted.id))
    }

    /// Puts a file in its place as a whole.
    fn write(&self, path: &Path, content: &[u8]) -> Result<(), String> {
        // Only who has the lock writes, one file at a time.
        let beside = self.directory.join("new");
        let write = || {
            match fs::remove_file(&beside) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(OWN_FILE).open(&beside)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&beside, path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::PermissionDenied => "; the directory must be the gateway's user's",
                ErrorKind::StorageFull => "; make room",
                _ => "",
            };
            format!("cannot write {}: {error}{hint}", path.display())
        })
    }
}

impl Kept {
    /// A certificate that is what is wanted.
    ///
    /// # Errors
    ///
    /// If it is not, in words.
    pub(crate) fn of(identity: Identity, wanted: &Wanted) -> Result<Self, String> {
        // Looks whether the key belongs to the certificate.
        identity.key_type().map_err(|error| error.to_string())?;
        let names = identity.dns_names();
        let has = |name: &String| names.iter().any(|found| found.eq_ignore_ascii_case(name));
        if let Some(name) = wanted.names.iter().find(|name| !has(name)) {
            return Err(format!("the certificate is not for {name}"));
        }
        let validity = identity.not_before().zip(identity.not_after());
        let (not_before, not_after) =
            validity.ok_or("the certificate does not say how long it is good")?;
        Ok(Self { identity, life: Life { not_before, not_after } })
    }
}

/// A file of no more than [`MAX_FILE`] bytes, if it is there.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut content));
    match read {
        Ok(_) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OrderedKey;
    use std::os::unix::fs::PermissionsExt;

    fn state() -> (tempfile::TempDir, State) {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(&dir.path().join("a/state")).unwrap();
        (dir, state)
    }

    fn wanted(names: &[&str]) -> Wanted {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        Wanted::new(names, OrderedKey::default(), "https://ca.example/")
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_kept_is_its_owners_alone_and_read_back() {
        let (_dir, state) = state();
        let wanted = wanted(&["a.example", "b.example"]);
        assert!(state.certificate(&wanted).unwrap().is_none());
        assert_eq!(state.written(&wanted), None);
        let identity = Identity::self_signed(["b.example", "A.example"]).unwrap();
        state.keep_certificate(&wanted, &identity).unwrap();
        let kept = state.certificate(&wanted).unwrap().unwrap();
        assert_eq!(kept.identity.fingerprint(), identity.fingerprint());
        assert_eq!(kept.identity.key(), identity.key());
        assert!(kept.life.not_before < kept.life.not_after);
        assert!(state.written(&wanted).is_some());
        assert_eq!(mode(&state.directory), 0o700);
        assert_eq!(mode(&state.certificate_path(&wanted)), 0o600);
        let (now, mut tried) = (SystemTime::now(), Tried::default());
        tried.fail(now);
        state.keep_tried(&wanted, tried).unwrap();
        assert_eq!(state.tried(&wanted), tried);
        assert!(state.tried(&wanted).failed().is_some());
        tried.succeed(now);
        assert_eq!((tried.failed(), tried.ordered().is_some()), (None, true));
        let left: Vec<_> = fs::read_dir(&state.directory).unwrap().collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn damaged_files_are_told_and_never_taken() {
        let (_dir, state) = state();
        let wanted = wanted(&["a.example"]);
        let path = state.certificate_path(&wanted);
        let good = Identity::self_signed(["a.example"]).unwrap();
        let other = Identity::self_signed(["a.example"]).unwrap();
        let of_other_name = Identity::self_signed(["b.example"]).unwrap();
        let pem = format!("{}{}", good.key_pem(), good.chain_pem());
        for (text, what) in [
            (String::new(), "no certificate found"),
            (pem[..pem.len() / 3].to_owned(), "is damaged"),
            (good.chain_pem(), "no private key found"),
            (format!("{}{}", other.key_pem(), good.chain_pem()), "is damaged"),
            (
                format!("{}{}", of_other_name.key_pem(), of_other_name.chain_pem()),
                "not for a.example",
            ),
        ] {
            fs::write(&path, &text).unwrap();
            let told = state.certificate(&wanted).unwrap_err();
            assert!(
                told.contains(what) && told.contains("a.example-"),
                "{what:?} is not in {told}"
            );
            let key = good.key_pem();
            assert!(key.lines().all(|line| !told.contains(line)), "{told}");
        }
        fs::write(state.path(&wanted, "json"), "{").unwrap();
        assert_eq!(state.tried(&wanted), Tried::default());
        fs::write(state.account_path("1"), "{\"credentials\": {\"key_pkcs8\": \"c2VjcmV0\"")
            .unwrap();
        let told = state.account("1").err().unwrap();
        assert!(told.contains("is damaged") && !told.contains("c2VjcmV0"), "{told}");
        state.discard_account("1").unwrap();
        assert!(state.account("1").unwrap().is_none());
        state.discard_account("1").unwrap();
    }

    #[test]
    fn one_at_a_time_orders() {
        let (_dir, state) = state();
        let turn = state.turn().unwrap();
        assert!(turn.is_some());
        assert!(state.turn().unwrap().is_none());
        let holding = state.clone().holding(turn.unwrap());
        let writing = holding.clone();
        drop(holding);
        assert!(state.turn().unwrap().is_none(), "something may be written still");
        drop(writing);
        assert!(state.turn().unwrap().is_some());
    }

    #[test]
    fn a_directory_that_cannot_be_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let told = State::open(&dir.path().join("file/state")).unwrap_err();
        assert!(told.contains("mode 700"), "{told}");
    }
}
