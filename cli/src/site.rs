//! The file of a site's connection IDs, which balancers and servers have in common.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use quicket_balancer::Site;
use quicket_member::MAX_FILE;
#[cfg(target_os = "linux")]
pub(crate) use quicket_member::{aes, sign, verify, wall_clock};

use crate::exit::{Failure, Kind};

/// Reads a file of text, which has a bound.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > MAX_FILE {
        true => Err(wrong(path, format!("it is longer than {MAX_FILE} bytes"))),
        false => Ok(text),
    }
}

/// A file that says what cannot be.
pub(crate) fn wrong(path: &Path, why: impl fmt::Display) -> Failure {
    Failure::new(Kind::Usage, format!("{}: {why}", path.display()))
}

/// Reads the file of connection IDs.
pub(crate) fn read(path: &Path) -> Result<Site, Failure> {
    Site::parse(&read_text(path)?).map_err(|error| wrong(path, error))
}
