//! Where the counters can be read.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::check::Problems;
use super::read_bytes;
use crate::metrics::Place;
use crate::snapshot::Reading;

/// The longest file with a token, in bytes.
const MAX_TOKEN: u64 = 1 << 20;
/// The shortest token, in bytes: what is shorter could be guessed.
const MIN_TOKEN: usize = 16;

/// Where the counters can be read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// `IP:PORT`, or `unix:/PATH` for a socket that only the gateway's own user may use.
    pub listen: String,
    /// A file with a token of 16 bytes at least, which readers must send (`Authorization: Bearer`). An address
    /// of TCP takes one.
    pub token_file: Option<PathBuf>,
}

impl Metrics {
    /// Checks it.
    pub(super) fn check(&self, directory: &Path, problems: &mut Problems) -> Option<Reading> {
        let place = problems.take("metrics.listen", Place::parse(&self.listen));
        let field = "metrics.token_file";
        let token = self.token_file.as_ref().and_then(|path| {
            let read = problems.take(field, read_bytes(&directory.join(path), MAX_TOKEN))?;
            let token = String::from_utf8_lossy(&read).trim().to_owned();
            if token.len() < MIN_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let what = format!("is not one word of {MIN_TOKEN} printable bytes at least");
                problems.add(field, what);
            }
            Some(token)
        });
        match &place {
            Some(Place::Tcp(_)) if self.token_file.is_none() => {
                problems.add(field, "is due: everybody could read the counters else");
            }
            Some(Place::Unix(_)) if self.token_file.is_some() => {
                problems.add(field, "has no effect with a Unix socket");
            }
            _ => {}
        }
        Some(Reading { place: place?, token })
    }
}
