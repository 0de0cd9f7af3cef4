//! What stands before packets of IP, by the kind of link that they were captured on.

use pcap_parser::Linktype;

/// Kinds of links, by their numbers in files.
const NULL: i32 = 0;
const ETHERNET: i32 = 1;
const RAW: i32 = 101;
const LOOP: i32 = 108;
/// Any device of Linux at once.
const LINUX_SLL: i32 = 113;
const LINUX_SLL2: i32 = 276;
const IPV4: i32 = 228;
const IPV6: i32 = 229;

/// Types of Ethernet.
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Tags of VLANs (IEEE 802.1Q and 802.1ad), of which there may be two.
const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const MAX_TAGS: usize = 2;

/// The packet of IP in what was captured; none if there is none, or the kind of link is not known.
pub(super) fn ip_packet(link: Linktype, data: &[u8]) -> Option<&[u8]> {
    match link.0 {
        RAW | IPV4 | IPV6 => Some(data),
        // The family, whose number differs between systems: the packet says its version.
        NULL | LOOP => data.get(4..),
        ETHERNET => typed(data.get(12..)?),
        LINUX_SLL => typed(data.get(14..)?),
        LINUX_SLL2 => {
            let kind = *data.first_chunk::<2>()?;
            [TYPE_IPV4, TYPE_IPV6].contains(&kind).then(|| data.get(20..))?
        }
        _ => None,
    }
}

/// What follows a type of Ethernet, and tags before it.
fn typed(mut data: &[u8]) -> Option<&[u8]> {
    for _ in 0..=MAX_TAGS {
        let (kind, rest) = data.split_first_chunk::<2>()?;
        match *kind {
            TYPE_IPV4 | TYPE_IPV6 => return Some(rest),
            tag if TAGS.contains(&tag) => data = rest.get(2..)?,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_behind_what_links_put_before_them() {
        let packet = b"E the rest";
        let of = |link: i32, before: &[u8]| {
            let data = [before, packet].concat();
            ip_packet(Linktype(link), &data).map(<[u8]>::to_vec)
        };
        let is = Some(packet.to_vec());
        assert_eq!(of(RAW, b""), is);
        assert_eq!(of(NULL, &[2, 0, 0, 0]), is);
        assert_eq!(of(ETHERNET, &[&[0; 12][..], &TYPE_IPV4].concat()), is);
        let tags = [&[0; 12][..], &TAGS[1], &[0, 1], &TAGS[0], &[0, 2], &TYPE_IPV6].concat();
        assert_eq!(of(ETHERNET, &tags), is);
        assert_eq!(of(LINUX_SLL, &[&[0; 14][..], &TYPE_IPV6].concat()), is);
        assert_eq!(of(LINUX_SLL2, &[&TYPE_IPV4[..], &[0; 18]].concat()), is);
        assert_eq!(of(ETHERNET, &[&[0; 12][..], &[0x08, 0x06]].concat()), None);
        assert_eq!(of(147, b""), None);
        for link in [NULL, ETHERNET, LINUX_SLL, LINUX_SLL2] {
            for len in 0..4 {
                assert!(ip_packet(Linktype(link), &[8; 4][..len]).is_none_or(<[u8]>::is_empty));
            }
        }
    }
}
