//! Probes of a path's MTU (RFC 8899), as control messages of GUE between two ends of Quicket.
//!
//! A probe is as long as the packet that is asked about; the answer is short. An end that knows no such
//! messages drops them, as Linux does.
//!
//! ```text
//! GUE: version 0, control, type 209
//! |         "QPMT"         |  1: probe, 2: answer  |  0  |  0  |  0  |
//! |                          number                                 |
//! |  zeros, in a probe
//! ```

use crate::{Gue, Kind, decode};

/// Octets of a message without what makes a probe longer: the header of GUE, and what is said.
pub const PROBE_LEN: usize = 20;

/// The type of control messages: one of those that are for private use
/// (draft-ietf-intarea-gue-09, Section 8.3).
const CONTROL_TYPE: u8 = 209;

/// A control message about the MTU of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Is answered if it arrives. The number is random, so that nobody answers unasked.
    Ask(u64),
    /// The probe of this number has arrived.
    Answer(u64),
}

impl Probe {
    /// Reads one; none for anything else.
    #[must_use]
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        // Most datagrams carry packets.
        if datagram.first()? >> 5 != 1 {
            return None;
        }
        let decoded = decode(datagram).ok()?;
        let (head, rest) = decoded.payload.split_first_chunk::<8>()?;
        let number = u64::from_be_bytes(*rest.first_chunk()?);
        match (decoded.kind, *head) {
            (Kind::Control(CONTROL_TYPE), [b'Q', b'P', b'M', b'T', 1, 0, 0, 0]) => {
                Some(Self::Ask(number))
            }
            (Kind::Control(CONTROL_TYPE), [b'Q', b'P', b'M', b'T', 2, 0, 0, 0]) => {
                Some(Self::Answer(number))
            }
            _ => None,
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(self) -> [u8; PROBE_LEN] {
        let mut out = [0; PROBE_LEN];
        let (kind, number) = match self {
            Self::Ask(number) => (1, number),
            Self::Answer(number) => (2, number),
        };
        let gue = Gue { kind: Kind::Control(CONTROL_TYPE), remote_checksum: None };
        let len = gue.encode(&mut out).unwrap_or(0);
        let parts = [b'Q', b'P', b'M', b'T', kind, 0, 0, 0].into_iter().chain(number.to_be_bytes());
        out.iter_mut().skip(len).zip(parts).for_each(|(octet, part)| *octet = part);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written_and_nothing_else_is() {
        for message in [Probe::Ask(7), Probe::Answer(u64::MAX)] {
            let bytes = message.encode();
            assert_eq!(Probe::decode(&bytes), Some(message));
            assert_eq!(Probe::decode(&[&bytes[..], &[0; 1000]].concat()), Some(message));
            for len in 0..bytes.len() {
                assert_eq!(Probe::decode(&bytes[..len]), None);
            }
            for at in 0..12 {
                let mut other = bytes;
                other[at] ^= 0x40;
                assert_eq!(Probe::decode(&other), None, "{at}");
            }
        }
    }
}
