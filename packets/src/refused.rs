//! What the switch has refused.

use std::fmt;
use std::io;

/// Why the switch has refused something: what is within such an [`io::Error`]. The kind of that leaves many numbers out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    errno: i32,
    why: String,
}

impl Refused {
    pub(crate) const fn new(errno: i32, why: String) -> Self {
        Self { errno, why }
    }

    /// The number of the error, as errno(3) has it. It is what the switch says, not what this system has.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = Self::from_raw_os_error(refused.errno).kind();
        Self::new(kind, refused)
    }
}
