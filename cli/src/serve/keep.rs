//! The server's certificate and keys: given, or made once and kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use pem::Pem;
use quicket::{ConfigError, Identity, TicketKey};

use crate::exit::{Failure, Kind};
use crate::places;

/// Length of a secret that is made here, in bytes.
const SECRET_LEN: usize = 32;

/// The certificate that is made here once, and its file.
pub(crate) fn identity() -> Result<(Identity, PathBuf), Failure> {
    let path = places::data()?.join("self-signed.pem");
    if !path.exists() {
        make_identity(&path)?;
    }
    let identity = Identity::from_pem_files(&path, &path).map_err(|error| match error {
        ConfigError::File { path, source } => unreadable(&path, &source),
        error => Failure::new(
            Kind::Environment,
            format!("{error}; or remove {}, and a new one will be made", path.display()),
        ),
    })?;
    Ok((identity, path))
}

/// Makes a certificate for this host's usual names. Its key and itself are in one file, so that
/// they always belong together.
fn make_identity(path: &Path) -> Result<(), Failure> {
    let names = ["localhost", "127.0.0.1", "::1"];
    let identity = Identity::self_signed(names)
        .map_err(|error| Failure::environment("cannot make a certificate", error))?;
    let certificates = identity.chain().map(|der| Pem::new("CERTIFICATE", der));
    let parts: Vec<Pem> =
        [Pem::new("PRIVATE KEY", identity.key())].into_iter().chain(certificates).collect();
    keep(path, pem::encode_many(&parts).as_bytes())
}

/// A file that was kept here cannot be read: what to do instead.
fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot read {}, which an earlier quicket serve has kept", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::environment(
            what,
            format!(
                "{error}; it may be another user's (ls -l shows whose): let the variable \
                 XDG_DATA_HOME name a directory of your own",
            ),
        ),
        _ => Failure::file(what, error),
    }
}

/// The key that protects session tickets.
pub(crate) fn ticket_key(given: Option<&Path>) -> Result<TicketKey, Failure> {
    let (path, secret) = match given {
        Some(path) => {
            let failed = |error| Failure::file(format!("cannot read {}", path.display()), &error);
            (path.to_owned(), fs::read(path).map_err(failed)?)
        }
        None => {
            let path = kept_ticket_key()?;
            let secret = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
            (path, secret)
        }
    };
    TicketKey::new(&secret).map_err(|len| {
        Failure::new(
            Kind::Environment,
            format!(
                "{} has {len} bytes, but a ticket key needs 32; make one with: head -c 32 \
                 /dev/urandom > FILE",
                path.display()
            ),
        )
    })
}

fn kept_ticket_key() -> Result<PathBuf, Failure> {
    let path = places::data()?.join("ticket-key");
    make_secret(&path)?;
    Ok(path)
}

/// The key of stateless resets (RFC 9000, Section 10.3.2): with the same one, clients whose
/// connections ended with an earlier process hear of it from this one.
pub(crate) fn reset_key() -> Result<[u8; SECRET_LEN], Failure> {
    secret(&places::data()?.join("reset-key"))
}

/// A secret that is made once and kept.
fn secret(path: &Path) -> Result<[u8; SECRET_LEN], Failure> {
    make_secret(path)?;
    let secret = fs::read(path).map_err(|error| unreadable(path, &error))?;
    secret.try_into().map_err(|secret: Vec<u8>| {
        Failure::new(
            Kind::Environment,
            format!(
                "{} has {} bytes instead of {SECRET_LEN}; remove it and a new one will be made",
                path.display(),
                secret.len()
            ),
        )
    })
}

fn make_secret(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let mut secret = [0; SECRET_LEN];
    SystemRandom::new()
        .fill(&mut secret)
        .map_err(|error| Failure::environment("no random numbers", error))?;
    keep(path, &secret)
}

/// Writes a file unless another process has just made it. It appears as a whole or not at all.
fn keep(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let mut failure =
            Failure::file(format!("cannot keep {} for the next time", path.display()), &error);
        // Often there is no home that can be written to, as for a service.
        failure.message.push_str("; XDG_DATA_HOME can name another directory for it");
        failure
    };
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let written = places::write_secret(&beside, content);
    let linked = if written.is_ok() { fs::hard_link(&beside, path) } else { Ok(()) };
    // Half of one goes as well, and what an earlier process of this number has left.
    let removed = fs::remove_file(&beside);
    written.map_err(failed)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => removed.map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_is_the_owners() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below").join("reset-key");
        let first = secret(&path).unwrap();
        assert_eq!(secret(&path).unwrap(), first);
        assert_ne!(secret(&dir.path().join("other")).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, b"short").unwrap();
        assert!(secret(&path).unwrap_err().message.contains("5 bytes instead of 32"));
    }

    #[test]
    fn what_cannot_be_kept_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reset-key");
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        fs::write(&beside, b"left").unwrap();
        assert!(secret(&path).unwrap_err().message.contains("XDG_DATA_HOME"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        secret(&path).unwrap();
    }

    #[test]
    fn a_made_identity_can_be_read_back_and_is_not_replaced() {
        let dir = std::env::temp_dir().join(format!("quicket-keep-{}", std::process::id()));
        let path = dir.join("self-signed.pem");
        make_identity(&path).unwrap();
        let first = Identity::from_pem_files(&path, &path).unwrap().fingerprint();
        make_identity(&path).unwrap();
        assert_eq!(Identity::from_pem_files(&path, &path).unwrap().fingerprint(), first);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }
}
