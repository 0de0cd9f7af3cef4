//! What all programs at an address have in common.

use std::fmt;

use quicket_steering::secrets::RingError;
use quicket_steering::{ConfigId, Format, FormatError, KeyRing, KeySet, ServerId, SiteSecrets};
use serde::{Deserialize, Serialize};

use super::{Hex, ProtocolError};

/// What all programs of one user at an address have in common. Never printed.
///
/// Where there is a site, keys are derived from its secrets and change with them; programs never get those.
/// Where there is none, they are drawn at random, and one set of them is all.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// The host in connection IDs, for balancers.
    pub server_id: u8,
    /// What new connection IDs, tokens and tickets are made with first, and then what is accepted beside it.
    /// Each is of another configuration.
    pub keys: Vec<Keys>,
}

/// Keys that were derived from one secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// Counts rotations; 0 for keys that were drawn at random.
    pub number: u32,
    /// Which of the seven configurations (draft-ietf-quic-load-balancers).
    pub configuration: u8,
    /// Enciphers connection IDs.
    pub key: Hex<16>,
    /// Masks their owner.
    pub mask: Hex<8>,
    /// Stateless reset tokens (RFC 9000, Section 10.3.2).
    pub reset_key: Hex<32>,
    /// Retry and NEW_TOKEN tokens (RFC 9000, Section 8.1.4).
    pub token_key: Hex<32>,
    /// Session tickets (RFC 8446, Section 4.6.1), of each program by its name.
    pub ticket_key: Hex<32>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("server_id", &self.server_id)
            .field("keys", &self.keys)
            .finish()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("number", &self.number)
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Drawn at random.
    pub fn draw(random: &mut dyn FnMut(&mut [u8])) -> Self {
        fn hex<const N: usize>(random: &mut dyn FnMut(&mut [u8])) -> Hex<N> {
            let mut octets = [0; N];
            random(&mut octets);
            Hex(octets)
        }
        let keys = Keys {
            number: 0,
            configuration: 0,
            key: hex(random),
            mask: hex(random),
            reset_key: hex(random),
            token_key: hex(random),
            ticket_key: hex(random),
        };
        Self { server_id: 0, keys: vec![keys] }
    }

    /// Those of a host of a site.
    #[must_use]
    pub fn of_site(ring: &KeyRing, server_id: u8) -> Self {
        Self { server_id, keys: ring.sets().iter().map(Keys::from).collect() }
    }

    /// True if they are those of a site, which other hosts may have, too: their file has three.
    #[must_use]
    pub fn are_of_site(&self) -> bool {
        self.keys.len() > 1
    }

    /// The same without what makes and reads connection IDs, which are those of all who share an address.
    #[must_use]
    pub fn without_ids(mut self) -> Self {
        for keys in &mut self.keys {
            (keys.key, keys.mask) = (Hex([0; 16]), Hex([0; 8]));
        }
        self
    }

    /// The format of connection IDs.
    ///
    /// # Errors
    ///
    /// Never: its numbers fit.
    pub fn format() -> Result<Format, FormatError> {
        SiteSecrets::format()
    }

    /// The same keys to work with.
    ///
    /// # Errors
    ///
    /// When there is none, or they are not of different configurations.
    pub fn ring(&self) -> Result<KeyRing, ProtocolError> {
        let sets = self.keys.iter().map(Keys::set).collect::<Result<_, _>>()?;
        KeyRing::new(sets).map_err(|error| {
            ProtocolError::Value(match error {
                RingError::Empty => "there are no keys",
                RingError::Twice(_) => "two keys are of one configuration",
            })
        })
    }

    /// The host in connection IDs.
    #[must_use]
    pub fn server_id(&self) -> Option<ServerId> {
        ServerId::new(&[self.server_id])
    }

    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        self.ring().map(drop)
    }
}

impl Keys {
    fn set(&self) -> Result<KeySet, ProtocolError> {
        let configuration = ConfigId::new(self.configuration);
        Ok(KeySet {
            number: self.number,
            configuration: configuration
                .ok_or(ProtocolError::Value("the configuration is not 0 to 6"))?,
            block: self.key.0,
            mask: self.mask.0,
            reset: self.reset_key.0,
            token: self.token_key.0,
            ticket: self.ticket_key.0,
        })
    }
}

impl From<&KeySet> for Keys {
    fn from(set: &KeySet) -> Self {
        Self {
            number: set.number,
            configuration: set.configuration.number(),
            key: Hex(set.block),
            mask: Hex(set.mask),
            reset_key: Hex(set.reset),
            token_key: Hex(set.token),
            ticket_key: Hex(set.ticket),
        }
    }
}
