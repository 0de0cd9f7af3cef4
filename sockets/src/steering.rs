//! Connection IDs that say where a connection lives, so that a load balancer can route datagrams
//! without a table (draft-ietf-quic-load-balancers-21).
//!
//! ```
//! use quicket::EndpointConfig;
//! use quicket::steering::{Codec, ConfigId, Format, Place, RoutableConnectionIds, ServerId, aes_128};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // As the load balancer is configured: one octet of server ID, a nonce of 15, a key.
//! let format = Format::new(1, 15)?;
//! let id = ConfigId::new(0).ok_or("0 to 6")?;
//! let codec = Codec::new(id, format, Some(aes_128(&[0x5a; 16])), Default::default());
//! // This server is number 7.
//! let place = Place { server_id: ServerId::new(&[7]).ok_or("1 to 15 octets")?, owner: None };
//! let config = EndpointConfig::default().connection_ids(RoutableConnectionIds::new(codec, place)?);
//! # let _ = config;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use quicket_engine::ConnectionIdGenerator;
use quicket_engine::random::Random;
use quicket_wire::ConnectionId;

pub use quicket_steering::{
    BlockCipher, Codec, ConfigId, FirstOctet, Format, FormatError, HashKey, Owner, OwnerBits,
    OwnerError, Place, ServerId,
};

/// AES-128 with this key, for [`Codec::new`].
#[must_use]
pub fn aes_128(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    Arc::new(quicket_handshake::Aes128::new(key))
}

/// Issues connection IDs that lead to one place: for
/// [`EndpointConfig::connection_ids`](crate::EndpointConfig::connection_ids).
#[derive(Clone, Debug)]
pub struct RoutableConnectionIds {
    codec: Codec,
    place: Place,
}

impl RoutableConnectionIds {
    /// Connection IDs of a configuration that lead to `place`.
    ///
    /// # Errors
    ///
    /// When the place does not fit into the configuration's format.
    pub fn new(codec: Codec, place: Place) -> Result<Self, FormatError> {
        codec.check(&place)?;
        Ok(Self { codec, place })
    }
}

impl ConnectionIdGenerator for RoutableConnectionIds {
    fn generate(&self, random: &mut dyn Random) -> ConnectionId {
        let minted = self.codec.mint(&self.place, &mut |out| random.fill(out));
        minted.expect("a place that was checked fits")
    }

    fn len(&self) -> usize {
        self.codec.format().id_len()
    }
}
