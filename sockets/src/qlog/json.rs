//! Values as qlog writes them.

use std::fmt;

use quicket_engine::time::Duration;
use quicket_wire::{ConnectionId, Version};
use serde::{Serialize, Serializer};

/// Bytes in hexadecimal.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A connection ID in hexadecimal.
pub(super) struct Cid(pub(super) ConnectionId);

impl Serialize for Cid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A version in hexadecimal.
pub(super) struct VersionHex(pub(super) Version);

impl Serialize for VersionHex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:08x}", self.0.0))
    }
}

/// Nanoseconds, written as milliseconds with a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Millis(pub(super) u64);

impl From<std::time::Duration> for Millis {
    fn from(duration: std::time::Duration) -> Self {
        Duration::from(duration).into()
    }
}

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(duration.as_nanos())
    }
}

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / 1e6)
    }
}

/// Text of a peer's: what is not UTF-8 is replaced.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(self.0))
    }
}

/// Lengths of a packet or frame.
#[derive(Serialize)]
pub(super) struct RawInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_length: Option<usize>,
}

impl RawInfo {
    pub(super) const fn length(length: usize) -> Self {
        Self { length: Some(length), payload_length: None }
    }

    pub(super) const fn payload(payload_length: usize) -> Self {
        Self { length: None, payload_length: Some(payload_length) }
    }
}
