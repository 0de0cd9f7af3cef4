//! Stateless reset tokens (RFC 9000, Section 10.3).

use core::fmt;

/// The 16 bytes that end a stateless reset.
///
/// `==` takes a time that depends on the values: to recognise a received token, compare in
/// constant time (RFC 9000, Section 10.3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatelessResetToken(pub [u8; Self::LEN]);

impl StatelessResetToken {
    /// The length in bytes.
    pub const LEN: usize = 16;
}

impl From<[u8; Self::LEN]> for StatelessResetToken {
    fn from(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for StatelessResetToken {
    /// Who knows the token can end the connection, so logs do not get it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatelessResetToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn debug_hides_the_secret() {
        assert_eq!(format!("{:?}", StatelessResetToken([0xab; 16])), "StatelessResetToken(..)");
    }
}
