//! Remote checksum offload (draft-herbert-remotecsumoffload): the receiver of a tunnel completes a
//! checksum of the packet inside, for which the outer one has vouched.

use crate::{DecodeError, Sum};

/// The length of the option in bytes.
pub const REMOTE_CHECKSUM_LEN: usize = 4;

/// Where the checksum is, from the end of the encapsulation's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RemoteChecksum {
    /// Where the bytes that are summed begin; they end with the packet.
    pub start: u16,
    /// Where the checksum is, which holds the sum of the pseudo-header.
    pub offset: u16,
}

impl RemoteChecksum {
    pub(crate) const fn from_bytes(bytes: [u8; REMOTE_CHECKSUM_LEN]) -> Self {
        let [s0, s1, o0, o1] = bytes;
        Self { start: u16::from_be_bytes([s0, s1]), offset: u16::from_be_bytes([o0, o1]) }
    }

    pub(crate) const fn to_bytes(self) -> [u8; REMOTE_CHECKSUM_LEN] {
        let ([s0, s1], [o0, o1]) = (self.start.to_be_bytes(), self.offset.to_be_bytes());
        [s0, s1, o0, o1]
    }

    /// Whether the checksum lies within the payload, and within what is summed.
    pub(crate) fn check(self, payload: &[u8]) -> Result<(), DecodeError> {
        let end = usize::from(self.offset).saturating_add(2);
        if self.start > self.offset || end > payload.len() {
            return Err(DecodeError::InvalidValue(
                "remote checksum offload points outside of the packet",
            ));
        }
        Ok(())
    }

    /// Completes the checksum.
    pub fn apply(self, payload: &mut [u8]) -> Result<(), DecodeError> {
        self.check(payload)?;
        let summed = payload.get(usize::from(self.start)..).ok_or(DecodeError::Truncated)?;
        let checksum = Sum::new().bytes(summed).checksum().to_be_bytes();
        let field = payload.get_mut(usize::from(self.offset)..).ok_or(DecodeError::Truncated)?;
        *field.first_chunk_mut::<2>().ok_or(DecodeError::Truncated)? = checksum;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pseudo_header;
    use quicket_testing::Rng;

    #[test]
    fn a_completed_checksum_is_the_one_of_the_transport() {
        let mut rng = Rng::new(2);
        let addresses = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        for _ in 0..1000 {
            let mut bytes = rng.bytes_up_to(200);
            bytes.resize(bytes.len() + 40, 7);
            let pseudo = pseudo_header(addresses.0, addresses.1, 6, bytes.len() as u32 - 20);
            bytes[36..38].copy_from_slice(&pseudo.folded().to_be_bytes());
            RemoteChecksum { start: 20, offset: 36 }.apply(&mut bytes).unwrap();
            assert!(pseudo.bytes(&bytes[20..]).is_intact());
        }
    }
}
