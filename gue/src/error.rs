//! Why bytes could not be read or written.

use core::fmt;

/// The bytes are not what the format allows, or not what is understood here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// The input ends before the value does.
    Truncated,
    /// A field holds a value that is forbidden or unknown; the text names it.
    InvalidValue(&'static str),
    /// A checksum is wrong.
    Checksum,
}

impl DecodeError {
    /// A static explanation.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "input ends before the value does",
            Self::InvalidValue(what) => what,
            Self::Checksum => "a checksum is wrong",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for DecodeError {}

/// The value does not fit into the output; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value does not fit into the output")
    }
}

impl core::error::Error for Full {}

/// Writes `bytes` to the front of `out`, all or nothing, and returns how many.
pub(crate) fn write(out: &mut [u8], bytes: &[u8]) -> Result<usize, Full> {
    out.get_mut(..bytes.len()).ok_or(Full)?.copy_from_slice(bytes);
    Ok(bytes.len())
}
