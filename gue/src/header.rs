//! The header of Generic UDP Encapsulation (draft-ietf-intarea-gue-09, Section 3), with the private
//! flags that Linux defines.
//!
//! ```text
//! |Ver|C|  Hlen   | Proto/ctype   |        flags              |P|
//! |  private flags, if P; then remote checksum start and offset |
//! ```

use crate::error::write;
use crate::remote_checksum::{REMOTE_CHECKSUM_LEN, RemoteChecksum};
use crate::{DecodeError, Full, protocol};

/// The port that IANA has assigned to GUE.
pub const GUE_PORT: u16 = 6080;
/// The longest header that is written.
pub const MAX_GUE_LEN: usize = 12;

/// The base header.
const BASE_LEN: usize = 4;
const CONTROL: u8 = 0x20;
const HLEN: u8 = 0x1f;
/// Private flags follow.
const FLAG_PRIVATE: u16 = 0x0001;
const PRIVATE_LEN: usize = 4;
/// Remote checksum offload follows the private flags.
const PRIVATE_REMOTE_CHECKSUM: u32 = 0x8000_0000;

/// What a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A packet of this IP protocol.
    Data(u8),
    /// A control message of this type.
    Control(u8),
}

/// A received datagram, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// 0, with a header; 1, without.
    pub version: u8,
    /// What it carries.
    pub kind: Kind,
    /// Remote checksum offload, checked against the payload's length.
    pub remote_checksum: Option<RemoteChecksum>,
    /// What follows the header.
    pub payload: &'a [u8],
}

/// Takes a datagram of GUE apart, version 0 or 1.
///
/// Flags that are not known are an error, as their fields cannot be told from the payload
/// (draft, Section 3.3). Header bytes without a flag are skipped.
#[inline]
pub fn decode(datagram: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    let (base, rest) = datagram.split_first_chunk::<BASE_LEN>().ok_or(DecodeError::Truncated)?;
    let [first, kind, f0, f1] = *base;
    match first >> 6 {
        0 => {}
        // The two bits are the upper half of the version of IPv4 and IPv6.
        1 => {
            let kind = Kind::Data(
                implied_protocol(datagram)
                    .ok_or(DecodeError::InvalidValue("GUE version 1 with neither IPv4 nor IPv6"))?,
            );
            return Ok(Decoded { version: 1, kind, remote_checksum: None, payload: datagram });
        }
        _ => return Err(DecodeError::InvalidValue("unknown version of GUE")),
    }
    let options_len = usize::from(first & HLEN).saturating_mul(4);
    let (options, payload) = rest.split_at_checked(options_len).ok_or(DecodeError::Truncated)?;
    let flags = u16::from_be_bytes([f0, f1]);
    if flags & !FLAG_PRIVATE != 0 {
        return Err(DecodeError::InvalidValue("unknown flag of GUE"));
    }
    let remote_checksum = if flags & FLAG_PRIVATE != 0 { private(options, payload)? } else { None };
    let kind = if first & CONTROL != 0 { Kind::Control(kind) } else { Kind::Data(kind) };
    Ok(Decoded { version: 0, kind, remote_checksum, payload })
}

/// Reads the private flags and their fields.
fn private(options: &[u8], payload: &[u8]) -> Result<Option<RemoteChecksum>, DecodeError> {
    const TOO_SHORT: DecodeError =
        DecodeError::InvalidValue("the fields of GUE's flags exceed its header");
    let (flags, fields) = options.split_first_chunk::<PRIVATE_LEN>().ok_or(TOO_SHORT)?;
    let flags = u32::from_be_bytes(*flags);
    if flags & !PRIVATE_REMOTE_CHECKSUM != 0 {
        return Err(DecodeError::InvalidValue("unknown private flag of GUE"));
    }
    if flags == 0 {
        return Ok(None);
    }
    let field = fields.first_chunk::<REMOTE_CHECKSUM_LEN>().ok_or(TOO_SHORT)?;
    let option = RemoteChecksum::from_bytes(*field);
    option.check(payload)?;
    Ok(Some(option))
}

/// The protocol of a payload by its first bits, as version 1 of GUE tells it.
#[inline]
#[must_use]
pub fn implied_protocol(payload: &[u8]) -> Option<u8> {
    match payload.first()? >> 4 {
        4 => Some(protocol::IPIP),
        6 => Some(protocol::IPV6),
        _ => None,
    }
}

/// A header of version 0 to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gue {
    /// What follows.
    pub kind: Kind,
    /// Remote checksum offload for the payload.
    pub remote_checksum: Option<RemoteChecksum>,
}

impl Gue {
    /// The header of a packet of an IP protocol.
    #[must_use]
    pub const fn data(protocol: u8) -> Self {
        Self { kind: Kind::Data(protocol), remote_checksum: None }
    }

    /// The header's length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        if self.remote_checksum.is_some() { MAX_GUE_LEN } else { BASE_LEN }
    }

    /// Whether the header has no bytes, which is never so.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header to the front of `out`, and returns its length.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, Full> {
        let (control, kind) = match self.kind {
            Kind::Data(protocol) => (0, protocol),
            Kind::Control(kind) => (CONTROL, kind),
        };
        let Some(option) = self.remote_checksum else {
            return write(out, &[control, kind, 0, 0]);
        };
        let [s0, s1, o0, o1] = option.to_bytes();
        let [p0, p1, p2, p3] = PRIVATE_REMOTE_CHECKSUM.to_be_bytes();
        let [f0, f1] = FLAG_PRIVATE.to_be_bytes();
        write(out, &[control | 2, kind, f0, f1, p0, p1, p2, p3, s0, s1, o0, o1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;
    use std::vec::Vec;

    #[test]
    fn the_header_of_an_ipv4_packet_is_four_bytes() {
        let mut out = [0xee; 6];
        assert_eq!(Gue::data(protocol::IPIP).encode(&mut out), Ok(4));
        assert_eq!(out, [0, 4, 0, 0, 0xee, 0xee]);
        let decoded = decode(&out).unwrap();
        assert_eq!((decoded.version, decoded.kind), (0, Kind::Data(4)));
        assert_eq!(decoded.payload, [0xee, 0xee]);
    }

    #[test]
    fn remote_checksum_offload_is_private_flag_31_and_two_offsets() {
        let option = RemoteChecksum { start: 20, offset: 36 };
        let gue = Gue { kind: Kind::Data(4), remote_checksum: Some(option) };
        let mut out = [0; 60];
        assert_eq!(gue.encode(&mut out), Ok(12));
        assert_eq!(out[..12], [0x02, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 36]);
        let decoded = decode(&out).unwrap();
        assert_eq!(decoded.remote_checksum, Some(option));
        assert_eq!(decoded.payload.len(), 48);
        assert_eq!(gue.encode(&mut [0; 11]), Err(Full));
    }

    #[test]
    fn version_1_has_no_header() {
        for (first, protocol) in [(0x45, 4), (0x60, 41)] {
            let datagram = [first, 0, 0, 0, 1];
            let decoded = decode(&datagram).unwrap();
            assert_eq!((decoded.version, decoded.kind), (1, Kind::Data(protocol)));
            assert_eq!(decoded.payload, datagram);
        }
        assert!(decode(&[0x55, 0, 0, 0]).is_err(), "version 5 of IP");
        assert!(decode(&[0x85, 0, 0, 0]).is_err(), "version 2 of GUE");
    }

    #[test]
    fn what_is_not_known_is_refused_and_spare_words_are_skipped() {
        let decode_kind = |bytes: &[u8]| decode(bytes).map(|decoded| decoded.kind);
        assert_eq!(decode_kind(&[0x02, 4, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), Ok(Kind::Data(4)));
        assert_eq!(decode_kind(&[0x20, 7, 0, 0]), Ok(Kind::Control(7)));
        assert!(decode_kind(&[0, 4, 0x80, 0]).is_err(), "unknown flag");
        assert!(decode_kind(&[0, 4, 0, 1]).is_err(), "no room for private flags");
        assert!(decode_kind(&[1, 4, 0, 1, 0x40, 0, 0, 0]).is_err(), "unknown private flag");
        assert_eq!(decode_kind(&[1, 4, 0, 1, 0, 0, 0, 0]), Ok(Kind::Data(4)));
        // Linux takes this one, with an option from beyond the header.
        assert!(decode_kind(&[1, 4, 0, 1, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0]).is_err());
        assert_eq!(decode_kind(&[0x1f, 4, 0, 0]), Err(DecodeError::Truncated));
        assert_eq!(decode_kind(&[0, 4, 0]), Err(DecodeError::Truncated));
    }

    #[test]
    fn offsets_outside_of_the_payload_are_refused() {
        for (start, offset, len, good) in [
            (0u16, 0u16, 2, true),
            (0, 1, 2, false),
            (20, 36, 40, true),
            (36, 20, 40, false),
            (20, 39, 40, false),
            (20, 0xffff, 40, false),
            (0xffff, 0xffff, 40, false),
        ] {
            let mut bytes = std::vec![0x02, 4, 0, 1, 0x80, 0, 0, 0];
            bytes.extend(start.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
            bytes.resize(12 + len, 0);
            assert_eq!(decode(&bytes).is_ok(), good, "{start} {offset} {len}");
        }
    }

    #[test]
    fn whatever_is_decoded_is_within_the_datagram() {
        let mut rng = Rng::new(3);
        let mut good = 0;
        for _ in 0..100_000 {
            let mut bytes = rng.bytes_up_to(60);
            if let [first, _, f0, f1, rest @ ..] = &mut bytes[..] {
                *first &= 0x63;
                (*f0, *f1) = (0, *f1 & 1);
                if let [p0, p1, p2, p3, s0, _, o0, _, ..] = rest {
                    (*p0, *p1, *p2, *p3) = (*p0 & 0x80, 0, 0, 0);
                    (*s0, *o0) = (0, 0);
                }
            }
            if let Ok(decoded) = decode(&bytes) {
                good += 1;
                assert!(decoded.payload.len() <= bytes.len());
                if let Some(option) = decoded.remote_checksum {
                    let mut payload = decoded.payload.to_vec();
                    option.apply(&mut payload).unwrap();
                    assert_eq!(payload.len(), decoded.payload.len());
                }
            }
        }
        assert!(good > 10_000, "{good}");
    }

    #[test]
    fn headers_survive_writing_and_reading() {
        let mut rng = Rng::new(4);
        for _ in 0..10_000 {
            let payload: Vec<u8> = (0..100 + rng.below(100)).map(|_| rng.next() as u8).collect();
            let start = rng.below(50) as u16;
            let gue = Gue {
                kind: if rng.below(2) == 0 {
                    Kind::Data(rng.next() as u8)
                } else {
                    Kind::Control(rng.next() as u8)
                },
                remote_checksum: (rng.below(2) == 0)
                    .then(|| RemoteChecksum { start, offset: start + rng.below(40) as u16 }),
            };
            let mut out = [0; 300];
            let len = gue.encode(&mut out).unwrap();
            assert_eq!(len, gue.len());
            out[len..len + payload.len()].copy_from_slice(&payload);
            let decoded = decode(&out[..len + payload.len()]).unwrap();
            assert_eq!(decoded.kind, gue.kind);
            assert_eq!(decoded.remote_checksum, gue.remote_checksum);
            assert_eq!(decoded.payload, payload);
        }
    }
}
