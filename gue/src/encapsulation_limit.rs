//! The tunnel encapsulation limit: how many tunnels a packet may still enter (RFC 2473, Section 4.1.1).

use crate::Packet;
use crate::ip::{DESTINATION, HOP_BY_HOP, ROUTING};

/// Bytes of the header that has the option alone.
pub const ENCAPSULATION_LIMIT_LEN: usize = 8;

const OPTION: u8 = 4;
const PAD1: u8 = 0;
const PADN: u8 = 1;

/// The destination options header with a limit. Its first byte, which says what follows, is zero:
/// the system fills it in.
#[must_use]
pub const fn encapsulation_limit_header(limit: u8) -> [u8; ENCAPSULATION_LIMIT_LEN] {
    [0, 0, OPTION, 1, limit, PADN, 1, 0]
}

/// The limit that a packet of IPv6 carries, and at which of its bytes.
#[must_use]
pub fn encapsulation_limit(packet: &Packet<'_>) -> Option<(usize, u8)> {
    if packet.is_v4() {
        return None;
    }
    let mut kind = *packet.bytes.get(6)?;
    let mut at = 40usize;
    // The headers that were stepped over, whose number is bounded.
    while at < packet.transport && matches!(kind, HOP_BY_HOP | ROUTING | DESTINATION) {
        let header = packet.bytes.get(at..packet.transport)?;
        let len = usize::from(*header.get(1)?).saturating_add(1).saturating_mul(8);
        if kind == DESTINATION
            && let Some(found) = option(header.get(..len)?)
        {
            return Some((at.saturating_add(found.0), found.1));
        }
        kind = *header.first()?;
        at = at.saturating_add(len);
    }
    None
}

/// The option in a header, and where its value is.
fn option(header: &[u8]) -> Option<(usize, u8)> {
    let mut at = 2usize;
    loop {
        let rest = header.get(at..)?;
        let len = match *rest {
            [PAD1, ..] => 1,
            [OPTION, 1, limit, ..] => return Some((at.saturating_add(2), limit)),
            [_, len, ..] => usize::from(len).saturating_add(2),
            _ => return None,
        };
        at = at.saturating_add(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket_testing::Rng;
    use std::vec::Vec;

    /// A packet of IPv6 with these extension headers, whose first one is of this kind.
    fn packet(kind: u8, headers: &[u8]) -> Vec<u8> {
        let mut bytes = std::vec![0x60, 0, 0, 0];
        bytes.extend((headers.len() as u16).to_be_bytes());
        bytes.extend([kind, 64]);
        bytes.extend([0x20; 32]);
        bytes.extend(headers);
        bytes
    }

    fn limit(kind: u8, headers: &[u8]) -> Option<(usize, u8)> {
        encapsulation_limit(&Packet::parse(&packet(kind, headers)).unwrap())
    }

    #[test]
    fn the_limit_is_found_where_it_is_and_nowhere_else() {
        let mut header = encapsulation_limit_header(3);
        header[0] = 59;
        assert_eq!(limit(DESTINATION, &header), Some((44, 3)));
        assert_eq!(limit(HOP_BY_HOP, &header), None, "of another header");
        assert_eq!(limit(DESTINATION, &[59, 0, 0, 0, OPTION, 1, 9, 0]), Some((46, 9)));
        assert_eq!(limit(DESTINATION, &[59, 0, PADN, 4, 0, 0, 0, 0]), None);
        assert_eq!(limit(DESTINATION, &[59, 0, PADN, 9, 0, 0, 0, 0]), None, "a length that lies");
        let both = [&[DESTINATION, 0, PADN, 4, 0, 0, 0, 0][..], &header].concat();
        assert_eq!(limit(ROUTING, &both), Some((52, 3)));
    }

    #[test]
    fn no_options_make_it_panic_or_run_on() {
        let mut rng = Rng::new(11);
        for _ in 0..50_000 {
            let mut headers = rng.bytes_up_to(64);
            if let [next, len, ..] = &mut headers[..] {
                (*next, *len) = (DESTINATION, *len & 3);
            }
            if let Some((at, value)) = limit(DESTINATION, &headers) {
                assert_eq!(packet(DESTINATION, &headers)[at], value);
            }
        }
    }
}
