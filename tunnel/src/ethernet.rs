//! Ethernet headers of the frames that `gretap` carries.

use quicket_gue::Gre;

/// Bytes of a header without tags.
pub(crate) const ETHERNET_LEN: usize = 14;

const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;
/// Tags that are stepped over (IEEE 802.1ad).
const MAX_TAGS: usize = 2;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// IP, behind as many bytes.
    Ip { len: usize, v4: bool },
    /// Something else, such as ARP.
    Other,
}

/// Looks into a frame; none if it is shorter than its header.
pub(crate) fn look(frame: &[u8]) -> Option<Link> {
    let mut len = ETHERNET_LEN;
    for _ in 0..=MAX_TAGS {
        let kind = frame.get(..len)?.last_chunk::<2>()?;
        match u16::from_be_bytes(*kind) {
            Gre::IPV4 => return Some(Link::Ip { len, v4: true }),
            Gre::IPV6 => return Some(Link::Ip { len, v4: false }),
            VLAN | SERVICE_VLAN => len += 4,
            _ => return Some(Link::Other),
        }
    }
    Some(Link::Other)
}

/// The header of an answer to a frame with this header.
pub(crate) fn back(header: &[u8]) -> Vec<u8> {
    let mut answer = header.to_vec();
    if let Some(addresses) = answer.first_chunk_mut::<12>() {
        addresses.rotate_left(6);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_is_found_behind_tags_and_all_else_is_left_alone() {
        let frame = |kinds: &[u16]| {
            let mut frame = vec![7; 12];
            for kind in kinds {
                frame.extend(kind.to_be_bytes());
                frame.extend([0, 1]);
            }
            frame
        };
        assert_eq!(look(&frame(&[0x800])), Some(Link::Ip { len: 14, v4: true }));
        assert_eq!(look(&frame(&[0x8100, 0x86dd])), Some(Link::Ip { len: 18, v4: false }));
        assert_eq!(look(&frame(&[0x88a8, 0x8100, 0x800])), Some(Link::Ip { len: 22, v4: true }));
        assert_eq!(look(&frame(&[0x8100, 0x8100, 0x8100, 0x800])), Some(Link::Other));
        assert_eq!(look(&frame(&[0x806])), Some(Link::Other));
        assert_eq!(look(&frame(&[0x8100])), None, "cut off behind a tag");
        assert_eq!(look(&[0; 13]), None);
        assert_eq!(back(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0])[..7], [2, 2, 2, 2, 2, 2, 1]);
    }
}
