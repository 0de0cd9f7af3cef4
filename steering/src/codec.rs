//! Writing and reading connection IDs of one configuration.

use alloc::sync::Arc;
use core::fmt;

use quicket_wire::ConnectionId;

use crate::cipher::{self, Block, BlockCipher};
use crate::format::{ConfigId, FirstOctet, Format, FormatError};
use crate::keyed_hash::HashKey;
use crate::owner::{self, Owner};

/// The name of a server towards load balancers: 1 to 15 octets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId {
    len: u8,
    octets: [u8; Self::MAX_LEN],
}

impl ServerId {
    /// The most octets: 19 less the shortest nonce.
    pub const MAX_LEN: usize = 15;

    /// Copies `octets`; `None` when there are none or more than [`MAX_LEN`](Self::MAX_LEN).
    #[must_use]
    pub fn new(octets: &[u8]) -> Option<Self> {
        let mut id = Self { len: 0, octets: [0; Self::MAX_LEN] };
        id.octets.get_mut(..octets.len())?.copy_from_slice(octets);
        id.len = u8::try_from(octets.len()).ok().filter(|len| *len > 0)?;
        Some(id)
    }

    /// The octets.
    #[must_use]
    pub const fn as_slice(&self) -> &[u8] {
        self.octets.split_at(self.len as usize).0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerId({self})")
    }
}

/// Where a connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The host, towards load balancers.
    pub server_id: ServerId,
    /// Who on the host, if the format says so.
    pub owner: Option<Owner>,
}

/// One configuration: a format with its keys.
#[derive(Clone, Debug)]
pub struct Codec {
    id: ConfigId,
    format: Format,
    /// `None`: the block is not enciphered, and everybody can read and link it.
    cipher: Option<Arc<dyn BlockCipher>>,
    /// Masks the owner, and nothing else.
    mask: HashKey,
}

impl Codec {
    /// A configuration. `mask` hides the owner and means nothing in a format without one.
    ///
    /// Without a cipher anybody can tell which connection IDs lead to one server; such servers
    /// should not issue more than one for each connection (draft-ietf-quic-load-balancers-21,
    /// Section 9).
    #[must_use]
    pub fn new(
        id: ConfigId,
        format: Format,
        cipher: Option<Arc<dyn BlockCipher>>,
        mask: HashKey,
    ) -> Self {
        Self { id, format, cipher, mask }
    }

    /// The number of the configuration.
    #[must_use]
    pub const fn id(&self) -> ConfigId {
        self.id
    }

    /// The lengths of the fields.
    #[must_use]
    pub const fn format(&self) -> &Format {
        &self.format
    }

    /// Whether it takes a cipher to read the server ID.
    #[must_use]
    pub const fn is_enciphered(&self) -> bool {
        self.cipher.is_some()
    }

    /// Whether another configuration finds the same server ID in every connection ID.
    #[must_use]
    pub fn reads_like(&self, other: &Self) -> bool {
        // Two keys that make the same of one block are the same, but for a chance of 2^-128.
        let block = |codec: &Self| {
            codec.cipher.as_ref().map(|cipher| {
                let mut block = Block::default();
                cipher.encrypt(&mut block);
                block
            })
        };
        (self.id, self.format) == (other.id, other.format) && block(self) == block(other)
    }

    /// The key that masks the owner, for a BPF program.
    #[must_use]
    pub const fn mask(&self) -> &HashKey {
        &self.mask
    }

    /// Checks that connection IDs of this configuration can lead to `place`.
    ///
    /// # Errors
    /// When the server ID has another length, or the owner is missing, unexpected or too large.
    pub fn check(&self, place: &Place) -> Result<(), FormatError> {
        self.packed(place).map(drop)
    }

    fn packed(&self, place: &Place) -> Result<u16, FormatError> {
        self.format.takes(&place.server_id)?;
        match (self.format.owner(), place.owner) {
            (Some(bits), Some(owner)) => bits.pack(owner).map_err(FormatError::Owner),
            (None, None) => Ok(0),
            _ => Err(FormatError::OwnerMissing),
        }
    }

    /// A new connection ID that leads to `place`. `random` fills what is random: nobody else can
    /// tell two connection IDs of one place from those of two.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn mint(
        &self,
        place: &Place,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<ConnectionId, FormatError> {
        let packed = self.packed(place)?;
        let mut octets = [0; ConnectionId::MAX_LEN];
        let len = self.format.id_len();
        let too_long = FormatError::TooLong(len);
        let id = octets.get_mut(..len).ok_or(too_long)?;
        random(id);
        let (first, rest) = id.split_first_mut().ok_or(too_long)?;
        let low = match self.format.first_octet() {
            FirstOctet::Random => *first & 0x1f,
            // At most 19.
            FirstOctet::Length => rest.len() as u8,
        };
        *first = self.id.in_first_octet() | low;
        let block = rest.get_mut(..self.format.block_len()).ok_or(too_long)?;
        let (server_id, nonce) =
            block.split_at_mut_checked(self.format.server_id_len()).ok_or(too_long)?;
        server_id.copy_from_slice(place.server_id.as_slice());
        if let Some(bits) = self.format.owner() {
            owner::write(packed, nonce.get_mut(..bits.octets()).ok_or(too_long)?);
        }
        if let Some(cipher) = &self.cipher {
            cipher::encrypt(&**cipher, block);
        }
        if let Some(bits) = self.format.owner() {
            owner::seal(bits, packed, &self.mask, id);
        }
        ConnectionId::new(id).ok_or(too_long)
    }

    /// The server ID in a connection ID, or in octets that begin with one. `None` when they are
    /// too few or follow another configuration.
    ///
    /// A client's first connection ID is random: whatever it deciphers to may name no server.
    #[must_use]
    pub fn server_id(&self, octets: &[u8]) -> Option<ServerId> {
        let (_, block) = self.deciphered(octets, self.format.server_id_len())?;
        ServerId::new(block.get(..self.format.server_id_len())?)
    }

    /// The owner behind the block, which takes one hash to read; `None` when there is none, the
    /// octets are too few or follow another configuration.
    ///
    /// Nothing proves that this configuration wrote it: [`Self::place`] does.
    #[must_use]
    pub fn owner(&self, octets: &[u8]) -> Option<Owner> {
        let bits = self.format.owner()?;
        Some(bits.unpack(owner::open(bits, &self.mask, self.id_of(octets)?)?))
    }

    /// All that a connection ID says. `None` also when the owner behind the block is not that
    /// within, so that this configuration did not write it.
    #[must_use]
    pub fn place(&self, octets: &[u8]) -> Option<Place> {
        let (id, block) = self.deciphered(octets, self.format.block_len())?;
        let (server_id, nonce) = block.split_at_checked(self.format.server_id_len())?;
        let owner = match self.format.owner() {
            Some(bits) => {
                let behind = owner::open(bits, &self.mask, id)?;
                let within = owner::read(nonce.get(..bits.octets())?);
                (behind == within).then(|| Some(bits.unpack(within)))?
            }
            None => None,
        };
        Some(Place { server_id: ServerId::new(server_id)?, owner })
    }

    /// The connection ID at the beginning of `octets`, if it follows this configuration.
    fn id_of<'a>(&self, octets: &'a [u8]) -> Option<&'a [u8]> {
        let id = octets.get(..self.format.id_len())?;
        let follows = ConfigId::of_first_octet(*id.first()?) == Some(self.id);
        follows.then_some(id)
    }

    /// The connection ID, and its block of which at least the first `wanted` octets are
    /// deciphered.
    fn deciphered<'a>(&self, octets: &'a [u8], wanted: usize) -> Option<(&'a [u8], Text)> {
        let id = self.id_of(octets)?;
        let mut block = Text { octets: [0; MAX_BLOCK], len: self.format.block_len() };
        let from = id.get(1..self.format.block_len().saturating_add(1))?;
        block.octets.get_mut(..block.len)?.copy_from_slice(from);
        if let Some(cipher) = &self.cipher {
            cipher::decrypt(&**cipher, block.octets.get_mut(..block.len)?, wanted);
        }
        Some((id, block))
    }
}

/// The longest server ID and nonce.
const MAX_BLOCK: usize = ConnectionId::MAX_LEN - 1;

/// A deciphered block.
struct Text {
    octets: [u8; MAX_BLOCK],
    len: usize,
}

impl core::ops::Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::OwnerBits;
    use crate::testing::{Aes, hex};
    use quicket_testing::Rng;

    const KEY: &str = "8f95f09245765f80256934e50c66207f";

    fn codec(id: u8, format: Format, key: Option<&str>) -> Codec {
        let cipher = key.map(|key| Arc::new(Aes::new(key)) as Arc<dyn BlockCipher>);
        Codec::new(ConfigId::new(id).unwrap(), format, cipher, HashKey::new(*b"maskmask"))
    }

    /// What `random` would have to give for a connection ID with this nonce.
    fn minted(codec: &Codec, server_id: &str, nonce: &str) -> ConnectionId {
        let place = Place { server_id: ServerId::new(&hex(server_id)).unwrap(), owner: None };
        let nonce = hex(nonce);
        let mut random = |out: &mut [u8]| {
            let at = out.len() - nonce.len();
            out[at..].copy_from_slice(&nonce);
        };
        codec.mint(&place, &mut random).unwrap()
    }

    /// Appendix B. The draft prints 0x12 as the first octet of the last connection ID, though
    /// configuration 3 makes it 0x72.
    #[test]
    fn connection_ids_are_those_of_the_drafts_appendix() {
        let rows = [
            (0, None, "c4605e", "4504cc4f", "07c4605e4504cc4f"),
            (0, Some(KEY), "ed793a", "ee080dbf", "0720b1d07b359d3c"),
            (
                1,
                Some(KEY),
                "ed793a51d49b8f5fab65",
                "ee080dbf48",
                "2fcc381bc74cb4fbad2823a3d1f8fed2",
            ),
            (
                2,
                Some(KEY),
                "ed793a51d49b8f5f",
                "ee080dbf48c0d1e5",
                "504dd2d05a7b0de9b2b9907afb5ecf8cc3",
            ),
            (
                3,
                Some(KEY),
                "ed793a51d49b8f5fab",
                "ee080dbf48c0d1e55d",
                "725779c9cc86beb3a3a4a3ca96fce4bfe0cdbc",
            ),
        ];
        for (id, key, server_id, nonce, expected) in rows {
            let format = Format::new(server_id.len() / 2, nonce.len() / 2)
                .unwrap()
                .with_first_octet(FirstOctet::Length);
            let codec = codec(id, format, key);
            let minted = minted(&codec, server_id, nonce);
            assert_eq!(minted.as_slice(), hex(expected), "{expected}");
            let read = codec.server_id(minted.as_slice()).unwrap();
            assert_eq!(read.as_slice(), hex(server_id), "{expected}");
        }
    }

    #[test]
    fn every_format_is_read_as_it_was_written() {
        let mut rng = Rng::new(4);
        let owners = [None, Some(OwnerBits::ONE_OCTET), Some(OwnerBits::TWO_OCTETS)];
        for (server_id_len, nonce_len) in (1..=15).flat_map(|s| (4..=18).map(move |n| (s, n))) {
            for bits in owners {
                let Ok(format) = Format::new(server_id_len, nonce_len) else { continue };
                let format = match bits.map(|bits| format.with_owner(bits)) {
                    Some(Err(_)) => continue,
                    Some(Ok(format)) => format,
                    None => format,
                };
                for key in [None, Some(KEY)] {
                    let codec = codec(5, format, key);
                    let place = Place {
                        server_id: ServerId::new(&rng.bytes(server_id_len)).unwrap(),
                        owner: bits.map(|bits| Owner {
                            generation: (rng.next() as usize % bits.generations()) as u8,
                            worker: (rng.next() as usize % bits.workers()) as u16,
                        }),
                    };
                    let id = codec.mint(&place, &mut |out| rng.fill(out)).unwrap();
                    assert_eq!(id.len(), format.id_len());
                    assert_eq!(codec.place(id.as_slice()), Some(place), "{format:?}");
                    assert_eq!(codec.server_id(id.as_slice()), Some(place.server_id));
                    assert_eq!(codec.owner(id.as_slice()), place.owner);
                    // As it comes in a packet with a short header: other octets follow.
                    let mut longer = id.as_slice().to_vec();
                    longer.extend([0xaa; 9]);
                    assert_eq!(codec.place(&longer), Some(place));
                    assert_eq!(codec.place(&id.as_slice()[..id.len() - 1]), None);
                }
            }
        }
    }

    #[test]
    fn random_connection_ids_are_nearly_never_taken_for_ours() {
        let format = Format::new(3, 13).unwrap().with_owner(OwnerBits::TWO_OCTETS).unwrap();
        let codec = codec(0, format, Some(KEY));
        let mut rng = Rng::new(5);
        let taken = (0..200_000).filter(|_| codec.place(&rng.bytes(19)).is_some()).count();
        // One in 65,536 of those with the right configuration bits: 0.4 are expected.
        assert!(taken <= 5, "{taken}");
    }

    #[test]
    fn places_that_do_not_fit_are_refused() {
        let format = Format::new(2, 14).unwrap().with_owner(OwnerBits::ONE_OCTET).unwrap();
        let codec = codec(0, format, Some(KEY));
        let server_id = ServerId::new(&[1, 2]).unwrap();
        let owner = Some(Owner { generation: 3, worker: 1 });
        assert_eq!(codec.check(&Place { server_id, owner }), Ok(()));
        let missing = Place { server_id, owner: None };
        assert_eq!(codec.check(&missing), Err(FormatError::OwnerMissing));
        let long = Place { server_id: ServerId::new(&[1; 3]).unwrap(), owner };
        assert_eq!(codec.check(&long), Err(FormatError::ServerIdLength(3)));
        assert_eq!(ServerId::new(&[]), None);
        assert_eq!(ServerId::new(&[0; 16]), None);
    }

    #[test]
    fn octets_of_any_kind_are_read_without_harm() {
        let mut rng = Rng::new(6);
        let format = Format::new(4, 9).unwrap().with_owner(OwnerBits::ONE_OCTET).unwrap();
        let codec = codec(1, format, Some(KEY));
        for _ in 0..20_000 {
            let len = rng.next() as usize % 40;
            let octets = rng.bytes(len);
            let known = octets.len() >= 15 && octets[0] >> 5 == 1;
            assert_eq!(codec.server_id(&octets).is_some(), known);
            assert_eq!(codec.owner(&octets).is_some(), known);
            if let Some(place) = codec.place(&octets) {
                assert_eq!(place.owner, codec.owner(&octets));
            }
        }
    }
}
