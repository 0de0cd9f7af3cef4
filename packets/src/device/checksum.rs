//! Checksums that the sender's system has left to a device which there is not.
//!
//! A system leaves the checksums of TCP and UDP to its devices: it writes the sum of the pseudo-header alone into their
//! place. A device that leads to another namespace of the same machine (veth) leaves it so, as nothing can go
//! wrong on the way. A frame with exactly that sum is completed here; whoever writes it on purpose
//! could as well have written the right one.

use quicket_gue::Sum;

use crate::frame::{ETHERNET_LEN, MAX_EXTENSIONS, MAX_TAGS};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Completes the checksum of a frame if it has been left open; returns whether it was. Where anything else
/// is wrong nothing is changed: the parser says so.
pub(super) fn complete(frame: &mut [u8]) -> bool {
    try_complete(frame).is_some()
}

fn try_complete(frame: &mut [u8]) -> Option<()> {
    let mut at = 12;
    for _ in 0..MAX_TAGS {
        if matches!(frame.get(at..at + 2)?, [0x81, 0] | [0x88, 0xa8]) {
            at += 4;
        }
    }
    let is_v4 = match frame.get(at..at + 2)? {
        [8, 0] => true,
        [0x86, 0xdd] => false,
        _ => return None,
    };
    let packet = frame.get_mut(at + 2..)?;
    debug_assert!(at + 2 >= ETHERNET_LEN);
    let word = |at: usize| Some(usize::from(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?)));
    let (len, header, protocol, addresses) = match is_v4 {
        true => (word(2)?, usize::from(packet.first()? & 0xf) * 4, *packet.get(9)?, 12..20),
        false => {
            let (header, protocol) = step_over(packet)?;
            (40 + word(4)?, header, protocol, 8..40)
        }
    };
    let place = match protocol {
        UDP => 6,
        TCP => 16,
        _ => return None,
    };
    let sum = Sum::new().bytes(packet.get(addresses)?).add_u16(protocol.into());
    let payload = packet.get_mut(header..len)?;
    let pseudo = sum.add_u32(payload.len() as u32);
    let field = payload.get_mut(place..place + 2)?;
    if field != pseudo.folded().to_be_bytes() {
        return None;
    }
    field.fill(0);
    let checksum = match pseudo.bytes(payload).checksum() {
        // None at all, of UDP (RFC 768); the same for TCP.
        0 => 0xffff,
        checksum => checksum,
    };
    payload.get_mut(place..place + 2)?.copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Where the transport header of a packet of IPv6 is, and its protocol.
fn step_over(packet: &[u8]) -> Option<(usize, u8)> {
    let (mut at, mut kind) = (40, *packet.get(6)?);
    for _ in 0..MAX_EXTENSIONS {
        // Hop-by-hop and destination options: the parser accepts no others.
        if !matches!(kind, 0 | 60) {
            break;
        }
        let [next, len, ..] = *packet.get(at..)? else { return None };
        (at, kind) = (at + 8 * (usize::from(len) + 1), next);
    }
    Some((at, kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Reason, compose, tuples};

    fn frame(source: &str, destination: &str) -> Vec<u8> {
        let mut slot = vec![0; 2048];
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        let len = compose::udp(&mut slot, source, destination, &[7; 33]).unwrap();
        slot.truncate(len);
        slot
    }

    #[test]
    fn a_checksum_that_was_left_open_is_completed_and_a_wrong_one_is_not() {
        for (source, destination, addresses, at) in [
            ("192.0.2.1:1", "192.0.2.2:2", 26..34, 40),
            ("[2001:db8::1]:1", "[2001:db8::2]:2", 22..54, 60),
        ] {
            let right = frame(source, destination);
            let mut open = right.clone();
            let sum = Sum::new().bytes(&right[addresses]).add_u16(17).add_u32(41).folded();
            open[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            assert_eq!(tuples(&open), Err(Reason::Checksum));
            assert!(complete(&mut open));
            assert_eq!(open, right);
            for wrong in [sum ^ 1, !sum, 0x1234] {
                let mut frame = right.clone();
                frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
                let before = frame.clone();
                assert!(!complete(&mut frame));
                assert_eq!(frame, before);
            }
            // Nothing that is cut off leads out of it.
            for len in 0..open.len() {
                complete(&mut open.clone()[..len]);
            }
        }
    }
}
