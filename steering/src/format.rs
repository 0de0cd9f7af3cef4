//! How long the fields of a connection ID are.

use core::fmt;

use quicket_wire::ConnectionId;

use crate::codec::ServerId;
use crate::owner::{OwnerBits, OwnerError};

/// The fewest octets of a nonce (draft-ietf-quic-load-balancers-21, Section 5.3), an owner in it
/// not counted.
const MIN_NONCE: usize = 4;

/// Which configuration a connection ID follows: the upper three bits of its first octet, 0 to 6
/// (draft-ietf-quic-load-balancers-21, Section 3.1). 7 marks what cannot be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigId(u8);

impl ConfigId {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// The first.
    pub(crate) const ZERO: Self = Self(0);

    /// The configuration with this number; `None` above 6.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// The configuration that a connection ID with this first octet follows; `None` for 0b111.
    #[must_use]
    pub const fn of_first_octet(octet: u8) -> Option<Self> {
        Self::new(octet >> 5)
    }

    /// The number, 0 to 6.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The number in the upper three bits of an octet.
    pub(crate) const fn in_first_octet(self) -> u8 {
        self.0 << 5
    }
}

/// What the lower five bits of the first octet are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstOctet {
    /// Random bits.
    #[default]
    Random,
    /// How many octets follow, for hardware that must know
    /// (draft-ietf-quic-load-balancers-21, Section 3.3).
    Length,
}

/// The fields of a connection ID and their lengths: the first octet, the block of server ID and
/// nonce, and perhaps an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    server_id_len: u8,
    nonce_len: u8,
    first_octet: FirstOctet,
    owner: Option<OwnerBits>,
}

/// Why fields make no connection ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The server ID has no octets.
    NoServerId,
    /// The nonce has fewer octets than this.
    ShortNonce(usize),
    /// All fields together have this many octets, more than 20.
    TooLong(usize),
    /// A server ID of this many octets where the format has another length.
    ServerIdLength(usize),
    /// An owner where the format has none, or none where it has one.
    OwnerMissing,
    /// The owner, or the bits for it.
    Owner(OwnerError),
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServerId => f.write_str("the server ID needs at least one octet"),
            Self::ShortNonce(least) => write!(f, "the nonce needs at least {least} octets"),
            Self::TooLong(octets) => write!(
                f,
                "connection IDs would have {octets} octets, and have at most {}",
                ConnectionId::MAX_LEN
            ),
            Self::ServerIdLength(octets) => {
                write!(f, "the server ID has {octets} octets, which is not the format's length")
            }
            Self::OwnerMissing => {
                f.write_str("the format and the place differ in whether there is an owner")
            }
            Self::Owner(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FormatError {}

impl Format {
    /// A server ID of 1 to 15 octets and a nonce of 4 to 18, together at most 19.
    ///
    /// 16 octets together are enciphered in one pass of AES, other sums in four.
    ///
    /// # Errors
    /// When a field is too short or all are too long (draft-ietf-quic-load-balancers-21,
    /// Section 5.3).
    pub fn new(server_id_len: usize, nonce_len: usize) -> Result<Self, FormatError> {
        if server_id_len == 0 {
            return Err(FormatError::NoServerId);
        }
        if nonce_len < MIN_NONCE {
            return Err(FormatError::ShortNonce(MIN_NONCE));
        }
        let len = server_id_len.saturating_add(nonce_len).saturating_add(1);
        let lengths = (u8::try_from(server_id_len), u8::try_from(nonce_len));
        match lengths {
            (Ok(server_id), Ok(nonce)) if len <= ConnectionId::MAX_LEN => Ok(Self {
                server_id_len: server_id,
                nonce_len: nonce,
                first_octet: FirstOctet::default(),
                owner: None,
            }),
            _ => Err(FormatError::TooLong(len)),
        }
    }

    /// The same with the first octet as said.
    #[must_use]
    pub const fn with_first_octet(self, first_octet: FirstOctet) -> Self {
        Self { first_octet, ..self }
    }

    /// The same with an owner: behind the block, masked, and within the nonce, so that no two
    /// workers write the same block.
    ///
    /// # Errors
    /// When the nonce has fewer than four octets besides, or the whole more than 20.
    pub fn with_owner(self, bits: OwnerBits) -> Result<Self, FormatError> {
        let least = bits.octets().saturating_add(MIN_NONCE);
        if self.nonce_len() < least {
            return Err(FormatError::ShortNonce(least));
        }
        let format = Self { owner: Some(bits), ..self };
        if format.id_len() > ConnectionId::MAX_LEN {
            return Err(FormatError::TooLong(format.id_len()));
        }
        Ok(format)
    }

    /// The octets of a server ID.
    #[must_use]
    pub const fn server_id_len(&self) -> usize {
        self.server_id_len as usize
    }

    /// The octets of a nonce, the owner in it included.
    #[must_use]
    pub const fn nonce_len(&self) -> usize {
        self.nonce_len as usize
    }

    /// The octets of server ID and nonce.
    #[must_use]
    pub const fn block_len(&self) -> usize {
        self.server_id_len().saturating_add(self.nonce_len())
    }

    /// The octets of a connection ID.
    #[must_use]
    pub const fn id_len(&self) -> usize {
        let owner = match self.owner {
            Some(bits) => bits.octets(),
            None => 0,
        };
        self.block_len().saturating_add(owner).saturating_add(1)
    }

    /// How the owner is divided, if there is one.
    #[must_use]
    pub const fn owner(&self) -> Option<OwnerBits> {
        self.owner
    }

    /// What the lower five bits of the first octet are.
    #[must_use]
    pub const fn first_octet(&self) -> FirstOctet {
        self.first_octet
    }

    /// Checks that a server ID has this format's length.
    pub(crate) const fn takes(&self, server_id: &ServerId) -> Result<(), FormatError> {
        let len = server_id.as_slice().len();
        if len == self.server_id_len() { Ok(()) } else { Err(FormatError::ServerIdLength(len)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_within_the_drafts_limits_are_taken_and_others_refused() {
        assert_eq!(Format::new(0, 8), Err(FormatError::NoServerId));
        assert_eq!(Format::new(1, 3), Err(FormatError::ShortNonce(4)));
        assert_eq!(Format::new(10, 10), Err(FormatError::TooLong(21)));
        assert_eq!(Format::new(usize::MAX, 4), Err(FormatError::TooLong(usize::MAX)));
        let shortest = Format::new(1, 4).unwrap();
        assert_eq!((shortest.block_len(), shortest.id_len()), (5, 6));
        assert_eq!(Format::new(15, 4).unwrap().id_len(), 20);
        let single = Format::new(3, 13).unwrap().with_owner(OwnerBits::TWO_OCTETS).unwrap();
        assert_eq!((single.block_len(), single.id_len()), (16, 19));
        let owner = Format::new(3, 4).unwrap().with_owner(OwnerBits::ONE_OCTET);
        assert_eq!(owner, Err(FormatError::ShortNonce(5)));
        let owner = Format::new(10, 9).unwrap().with_owner(OwnerBits::ONE_OCTET);
        assert_eq!(owner, Err(FormatError::TooLong(21)));
    }

    #[test]
    fn seven_configurations_have_numbers() {
        assert_eq!(ConfigId::new(7), None);
        assert_eq!(ConfigId::of_first_octet(0xff), None);
        assert_eq!(ConfigId::of_first_octet(0x5f).map(ConfigId::number), Some(2));
    }
}
