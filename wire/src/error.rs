//! Why bytes could not be read or written.

use core::fmt;

/// The bytes are not what the format allows: the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// The input ends before the value does.
    Truncated,
    /// A field holds a value the specification forbids; the text names the field and the rule.
    InvalidValue(&'static str),
}

impl DecodeError {
    /// A static explanation, fit for the reason phrase of a CONNECTION_CLOSE frame.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "input ends before the value does",
            Self::InvalidValue(what) => what,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for DecodeError {}

/// The value does not fit into what is left of the output (or into its encoding);
/// nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value does not fit into the remaining space of the packet")
    }
}

impl core::error::Error for Full {}
