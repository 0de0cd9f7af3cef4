//! Whether clients may be captured, and how much of them.

use std::time::Duration;

use serde::Deserialize;

use super::check::Problems;
use crate::capture::Allowed;

/// The longest capture, in seconds: an hour.
const MAX_SECONDS: u64 = 3600;
/// The largest, in MiB.
pub const MAX_MIB: u64 = 16_384;

/// What captures may have (`quicket gateway capture`).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capture {
    /// There may be some. They show who asks, root or the gateway's user, what clients send and get.
    pub allow: bool,
    /// With the secrets of connections that begin during a capture.
    #[serde(default = "yes")]
    pub secrets: bool,
    /// How long one may take, in seconds.
    #[serde(default = "seconds")]
    pub max_s: u64,
    /// How large one may be, in MiB.
    #[serde(default = "mebibytes")]
    pub max_mib: u64,
}

const fn yes() -> bool {
    true
}

const fn seconds() -> u64 {
    300
}

const fn mebibytes() -> u64 {
    256
}

impl Capture {
    /// Checks it.
    pub(super) fn check(self, problems: &mut Problems) -> Option<Allowed> {
        if !(1..=MAX_SECONDS).contains(&self.max_s) {
            problems.add("capture.max_s", format!("is not within 1 and {MAX_SECONDS} (an hour)"));
        }
        if !(1..=MAX_MIB).contains(&self.max_mib) {
            problems.add("capture.max_mib", format!("is not within 1 and {MAX_MIB}"));
        }
        let (time, bytes) = (Duration::from_secs(self.max_s), self.max_mib << 20);
        self.allow.then_some(Allowed { secrets: self.secrets, time, bytes })
    }
}
