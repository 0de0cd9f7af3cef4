//! The secrets of a site as plain values: what its file says, and the keys that are derived from it.
//!
//! A site is all servers that stand in for each other: workers, generations, programs, hosts. They have
//! one [`SiteSecrets`]: three roots, *previous*, *current* and *next*. Each root gives a [`KeySet`]:
//! what is new is made with the current one, and all three are accepted, so that hosts may rotate one
//! after the other. The [`KeyRing`] of a [`Tenant`] has the three of them.
//!
//! Keys are derived by HKDF-SHA256 (RFC 5869) with a label for each purpose. Keys of connection IDs are
//! the site's, since whoever routes must read them all; the others are the tenant's.

mod file;
mod ring;
#[cfg(test)]
mod tests;

use core::fmt;

use alloc::vec::Vec;

use crate::format::{ConfigId, Format, FormatError};
use crate::owner::OwnerBits;

pub use file::{MAX_FILE, SecretsError};
pub use ring::{KeyRing, KeySet, RingError};

/// The octets of a root, and of most keys.
pub const ROOT_LEN: usize = 32;

/// The octets of the server ID in connection IDs of a site.
const SERVER_ID_LEN: usize = 1;
/// The octets of their nonce, the owner in it included.
const NONCE_LEN: usize = 10;
/// The bits of an owner: so many generations at one address, so many workers of each.
const OWNER_BITS: (u8, u8) = (8, 8);
/// The salt of HKDF-Extract (RFC 5869, Section 2.2). HMAC pads its key with zeros (RFC 2104, Section 2).
const SALT: &[u8; ROOT_LEN] = b"quicket site secrets 1\0\0\0\0\0\0\0\0\0\0";

/// HMAC-SHA256 (RFC 2104), with a key of 32 octets.
pub type HmacSha256<'a> = &'a dyn Fn(&[u8; ROOT_LEN], &[u8]) -> [u8; ROOT_LEN];

/// Whose the keys are that are not common to the site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenant {
    /// Who has the file.
    #[default]
    Site,
    /// Another user of the host, by number.
    User(u32),
}

impl Tenant {
    /// What stands for it in a derivation.
    fn context(self) -> Vec<u8> {
        match self {
            Self::Site => Vec::new(),
            Self::User(uid) => [&b"user "[..], &uid.to_be_bytes()].concat(),
        }
    }
}

/// A secret of which keys are derived. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Root {
    number: u32,
    made: u64,
    secret: [u8; ROOT_LEN],
}

impl Root {
    /// Counts rotations. The configuration of connection IDs follows it.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// When it was drawn, in seconds since 1970.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.made
    }

    /// The configuration of connection IDs (draft-ietf-quic-load-balancers-21, Section 3.1), from 0 to 6:
    /// those of roots that follow each other differ.
    #[must_use]
    pub fn configuration(&self) -> ConfigId {
        let number = self.number.checked_rem(ConfigId::COUNT as u32).unwrap_or(0);
        // Below seven.
        ConfigId::new(number as u8).unwrap_or(ConfigId::ZERO)
    }

    /// The keys of a tenant.
    #[must_use]
    pub fn keys(&self, tenant: Tenant, hmac: HmacSha256<'_>) -> KeySet {
        // RFC 5869, Section 2.2.
        let mut prk = hmac(SALT, &self.secret);
        let key = |label: &[u8], context: &[u8]| {
            // One block (RFC 5869, Section 2.3): T(1) = HMAC(PRK, info | 0x01).
            hmac(&prk, &[b"quicket ", label, b"\0", context, &[1]].concat())
        };
        let tenant = tenant.context();
        let set = KeySet {
            number: self.number,
            configuration: self.configuration(),
            block: first(&key(b"connection id block", b"")),
            mask: first(&key(b"connection id mask", b"")),
            reset: key(b"stateless reset", &tenant),
            token: key(b"address token", &tenant),
            ticket: key(b"session ticket", &tenant),
        };
        wipe(&mut prk);
        set
    }
}

/// The first octets of a key.
fn first<const N: usize>(key: &[u8; ROOT_LEN]) -> [u8; N] {
    key.first_chunk().copied().unwrap_or([0; N])
}

/// Overwrites a secret that is used no more.
fn wipe(secret: &mut [u8]) {
    secret.fill(0);
    core::hint::black_box(secret);
}

impl Drop for Root {
    fn drop(&mut self) {
        wipe(&mut self.secret);
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root")
            .field("number", &self.number)
            .field("made", &self.made)
            .finish_non_exhaustive()
    }
}

/// The secrets of a site: three roots whose numbers follow each other. They are never printed;
/// [`to_file`](Self::to_file) writes them where they belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSecrets {
    /// None before the first rotation.
    previous: Option<Root>,
    current: Root,
    next: Root,
}

impl SiteSecrets {
    /// Draws roots at random, at a time in seconds since 1970.
    #[must_use]
    pub fn draw(made: u64, random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut root = |number| Root { number, made, secret: drawn(random) };
        let (current, next) = (root(1), root(2));
        Self { previous: None, current, next }
    }

    /// The same one step on: next becomes current, current becomes previous, and a new next is drawn at
    /// random. What was previous is accepted no more.
    ///
    /// # Errors
    /// When the numbers have come to their end.
    pub fn rotate(
        &self,
        made: u64,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<Self, SecretsError> {
        let number = self.next.number.checked_add(1).ok_or(SecretsError::LastNumber)?;
        Ok(Self {
            previous: Some(self.current.clone()),
            current: self.next.clone(),
            next: Root { number, made, secret: drawn(random) },
        })
    }

    /// What keys are made of.
    #[must_use]
    pub const fn current(&self) -> &Root {
        &self.current
    }

    /// All whose keys are accepted: the current one first, then the next, in case that another host has
    /// rotated already, and the previous.
    pub fn roots(&self) -> impl Iterator<Item = &Root> {
        [&self.current, &self.next].into_iter().chain(&self.previous)
    }

    /// The keys of a tenant.
    ///
    /// # Errors
    /// Never: numbers that follow each other have different configurations.
    pub fn keys(&self, tenant: Tenant, hmac: HmacSha256<'_>) -> Result<KeyRing, RingError> {
        KeyRing::new(self.roots().map(|root| root.keys(tenant, hmac)).collect())
    }

    /// The format of connection IDs of all sites: fourteen octets, of which 64 bits are random before they
    /// are enciphered. A server ID of one octet tells up to 256 hosts apart.
    ///
    /// # Errors
    /// Never: the numbers above fit.
    pub fn format() -> Result<Format, FormatError> {
        let (generation, worker) = OWNER_BITS;
        let bits = OwnerBits::new(generation, worker).map_err(FormatError::Owner)?;
        Format::new(SERVER_ID_LEN, NONCE_LEN)?.with_owner(bits)
    }
}

fn drawn(random: &mut dyn FnMut(&mut [u8])) -> [u8; ROOT_LEN] {
    let mut secret = [0; ROOT_LEN];
    random(&mut secret);
    secret
}
