//! What all programs at an address have in common.

use std::fmt;

use quicket_steering::{ConfigId, Format, FormatError, OwnerBits};
use serde::{Deserialize, Serialize};

use super::{Hex, ProtocolError};

/// The bits of an owner: so many programs and generations at one address, so many workers of each.
const OWNER_BITS: (u8, u8) = (8, 8);

/// What all programs of one user at an address have in common. Never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
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
        Self {
            configuration: 0,
            key: hex(random),
            mask: hex(random),
            reset_key: hex(random),
            token_key: hex(random),
            ticket_key: hex(random),
        }
    }

    /// The format of connection IDs: fourteen octets, of which 64 bits are random before they are
    /// enciphered.
    ///
    /// # Errors
    ///
    /// Never: the numbers above fit.
    pub fn format() -> Result<Format, FormatError> {
        let (generation, worker) = OWNER_BITS;
        let format = Format::new(1, 10)?;
        match OwnerBits::new(generation, worker) {
            Ok(bits) => format.with_owner(bits),
            Err(_) => Ok(format),
        }
    }

    /// The number of the configuration; `None` if there is no such.
    #[must_use]
    pub fn configuration(&self) -> Option<ConfigId> {
        ConfigId::new(self.configuration)
    }
}

impl Secrets {
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        match self.configuration() {
            Some(_) => Ok(()),
            None => Err(ProtocolError::Value("the configuration is not 0 to 6")),
        }
    }
}
