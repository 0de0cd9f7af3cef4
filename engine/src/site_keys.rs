//! The keys of an endpoint that are replaced while it works.

use core::any::Any;
use core::fmt;

use quicket_wire::ConnectionId;

use crate::config::EndpointConfig;

/// Token keys that are tried for one token.
const MAX_TOKEN_KEYS: usize = 3;

/// The keys that servers have in common which stand in for each other, where these are rotated while
/// connections live: in place of [`EndpointConfig::reset_key`] and [`EndpointConfig::token_key`].
///
/// It is asked for each connection ID and each token: an implementation answers from memory.
pub trait SiteKeys: Any + fmt::Debug + Send + Sync {
    /// The key of the stateless reset token of a connection ID of ours (RFC 9000, Section 10.3.2): the
    /// same for as long as the connection ID may be in use, on all servers that may get its packets.
    fn reset_key(&self, cid: &ConnectionId) -> [u8; 32];

    /// What seals and opens Retry and NEW_TOKEN tokens now.
    fn token_keys(&self) -> TokenKeys;
}

/// The keys of address tokens (RFC 9000, Section 8.1.4): the first seals, all open.
#[derive(Clone, Copy)]
pub struct TokenKeys {
    keys: [[u8; 32]; MAX_TOKEN_KEYS],
    len: usize,
}

impl TokenKeys {
    /// The current key, and those whose tokens are taken as well: two of them at most.
    #[must_use]
    pub fn new<'a>(current: &'a [u8; 32], others: impl IntoIterator<Item = &'a [u8; 32]>) -> Self {
        let mut all = Self { keys: [[0; 32]; MAX_TOKEN_KEYS], len: 0 };
        let keys = [current].into_iter().chain(others);
        for (place, key) in all.keys.iter_mut().zip(keys) {
            *place = *key;
            all.len = all.len.saturating_add(1);
        }
        all
    }

    /// The first seals, all open.
    pub(crate) fn all(&self) -> &[[u8; 32]] {
        self.keys.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for TokenKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenKeys").field("len", &self.len).finish_non_exhaustive()
    }
}

impl EndpointConfig {
    /// The key of the stateless reset token of a connection ID.
    pub(crate) fn reset_key_of(&self, cid: &ConnectionId) -> [u8; 32] {
        self.site_keys.as_ref().map_or(self.reset_key, |keys| keys.reset_key(cid))
    }

    /// What seals and opens tokens.
    pub(crate) fn token_keys(&self) -> TokenKeys {
        match &self.site_keys {
            Some(keys) => keys.token_keys(),
            None => TokenKeys::new(&self.token_key, []),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_key_is_first_and_no_more_than_three_are_tried() {
        let others = [[2; 32], [3; 32], [4; 32]];
        let keys = TokenKeys::new(&[1; 32], &others);
        assert_eq!(keys.all(), [[1; 32], [2; 32], [3; 32]]);
        assert_eq!(TokenKeys::new(&[1; 32], []).all(), [[1; 32]]);
        let printed = alloc::format!("{keys:?}");
        assert_eq!(printed, "TokenKeys { len: 3, .. }");
    }
}
