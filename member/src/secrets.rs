//! The secrets of a site, as a server reads them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use quicket::SiteSecrets;
use quicket::secrets::{MAX_FILE, SecretsError};

/// What others than the owner and the group may not do: anything; and the group may not write.
const FORBIDDEN: u32 = 0o027;

/// Why secrets cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SecretsFault {
    /// They cannot be read.
    Read(io::Error),
    /// Others may read or change the file, which has this mode.
    Open(u32),
    /// They are none.
    Wrong(SecretsError),
}

impl fmt::Display for SecretsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Open(mode) => write!(
                f,
                "others may read or change it (mode {mode:03o}), and whoever can read it can pass for this site: chmod \
                 600, and rotate the secrets"
            ),
            Self::Wrong(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SecretsFault {}

/// The mode of a file that others than its owner may change, or others than its owner and group may read.
///
/// # Errors
///
/// If the system does not say.
pub fn open_to_others(file: &File) -> io::Result<Option<u32>> {
    let mode = file.metadata()?.mode();
    Ok((mode & FORBIDDEN != 0).then_some(mode & 0o777))
}

/// Reads secrets. A file `is_named` if it was opened by its name: then others may not have it.
///
/// # Errors
///
/// If they cannot be read, others may read them, or they are none.
pub fn read_secrets(file: File, is_named: bool) -> Result<SiteSecrets, SecretsFault> {
    if is_named && let Some(mode) = open_to_others(&file).map_err(SecretsFault::Read)? {
        return Err(SecretsFault::Open(mode));
    }
    let mut bytes = Vec::with_capacity(MAX_FILE + 1);
    let read = file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes);
    read.map_err(SecretsFault::Read)?;
    let parsed = SiteSecrets::parse(&bytes);
    bytes.fill(0);
    std::hint::black_box(&bytes);
    parsed.map_err(SecretsFault::Wrong)
}
