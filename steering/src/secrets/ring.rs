//! The keys that are derived from roots, and which of them a connection ID stands for.

use core::fmt;

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{ROOT_LEN, SiteSecrets, wipe};
use crate::cipher::BlockCipher;
use crate::codec::Codec;
use crate::configurations::Configurations;
use crate::format::{ConfigId, FormatError};
use crate::keyed_hash::HashKey;

/// The keys of one root for one tenant. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySet {
    /// That of the root; 0 for keys without one.
    pub number: u32,
    /// Which of the seven configurations of connection IDs.
    pub configuration: ConfigId,
    /// Enciphers connection IDs.
    pub block: [u8; 16],
    /// Masks the owner in them.
    pub mask: [u8; 8],
    /// Stateless reset tokens (RFC 9000, Section 10.3.2).
    pub reset: [u8; ROOT_LEN],
    /// Retry and NEW_TOKEN tokens (RFC 9000, Section 8.1.4).
    pub token: [u8; ROOT_LEN],
    /// Session tickets (RFC 8446, Section 4.6.1).
    pub ticket: [u8; ROOT_LEN],
}

impl KeySet {
    /// How connection IDs are written and read, with AES-128 as `aes_128` makes it of a key.
    ///
    /// # Errors
    /// Never: the format of sites is one.
    pub fn codec(
        &self,
        aes_128: &dyn Fn(&[u8; 16]) -> Arc<dyn BlockCipher>,
    ) -> Result<Codec, FormatError> {
        let (format, cipher) = (SiteSecrets::format()?, aes_128(&self.block));
        Ok(Codec::new(self.configuration, format, Some(cipher), HashKey::new(self.mask)))
    }
}

impl Drop for KeySet {
    fn drop(&mut self) {
        wipe(&mut self.block);
        wipe(&mut self.mask);
        wipe(&mut self.reset);
        wipe(&mut self.token);
        wipe(&mut self.ticket);
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("number", &self.number)
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}

/// The keys of a tenant: one set makes what is new, and all are accepted. Connection IDs tell them apart
/// by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRing {
    /// The current one first.
    sets: Vec<KeySet>,
}

/// Why sets of keys make no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// There is none.
    Empty,
    /// Two are of one configuration.
    Twice(ConfigId),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there are no keys"),
            Self::Twice(id) => write!(f, "two sets of keys are of configuration {}", id.number()),
        }
    }
}

impl core::error::Error for RingError {}

impl KeyRing {
    /// These sets, the current one first. There are at most seven, as there are configurations.
    ///
    /// # Errors
    /// When there is none, or two are of one configuration.
    pub fn new(sets: Vec<KeySet>) -> Result<Self, RingError> {
        if sets.is_empty() {
            return Err(RingError::Empty);
        }
        let mut seen = [false; ConfigId::COUNT];
        for set in &sets {
            let slot = seen.get_mut(usize::from(set.configuration.number()));
            if slot.is_none_or(|seen| core::mem::replace(seen, true)) {
                return Err(RingError::Twice(set.configuration));
            }
        }
        Ok(Self { sets })
    }

    /// All sets, the current one first.
    #[must_use]
    pub fn sets(&self) -> &[KeySet] {
        &self.sets
    }

    /// The set that makes what is new.
    #[must_use]
    pub fn current(&self) -> Option<&KeySet> {
        self.sets.first()
    }

    /// The set of which a connection ID is; the current one for what follows no configuration here.
    #[must_use]
    pub fn of(&self, id: &[u8]) -> Option<&KeySet> {
        let configuration = id.first().copied().and_then(ConfigId::of_first_octet);
        let found = self.sets.iter().find(|set| Some(set.configuration) == configuration);
        found.or_else(|| self.current())
    }

    /// The same with the sets of another ring that are in none of the configurations here: accepted as well,
    /// by whoever takes over from one that used them.
    #[must_use]
    pub fn with_earlier(mut self, earlier: &Self) -> Self {
        for set in &earlier.sets {
            if self.sets.iter().all(|own| own.configuration != set.configuration) {
                self.sets.push(set.clone());
            }
        }
        self
    }

    /// Whether this ring reads and proves all that another one has made: it has all of its sets.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        other.sets.iter().all(|set| self.sets.contains(set))
    }

    /// How connection IDs are written, with the current keys, and read, with all of them.
    ///
    /// # Errors
    /// Never: formats are one, and configurations differ.
    pub fn configurations(
        &self,
        aes_128: &dyn Fn(&[u8; 16]) -> Arc<dyn BlockCipher>,
    ) -> Result<Configurations, FormatError> {
        let (current, others) = self.sets.split_first().ok_or(FormatError::NoServerId)?;
        let mut all = Configurations::new(current.codec(aes_128)?);
        for set in others {
            // They have one length and different numbers.
            let _ = all.add(set.codec(aes_128)?);
        }
        Ok(all)
    }
}
