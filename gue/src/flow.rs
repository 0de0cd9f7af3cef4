//! Flows: a hash of what stays the same in a flow, and the source port that it chooses.

use core::net::IpAddr;

use crate::Packet;

/// Source ports for GRE in UDP: those that are dynamic (RFC 8086, Section 3.2.1).
pub const DYNAMIC_PORTS: (u16, u16) = (49152, 65535);

/// A hash of a packet's addresses, protocol and ports, or flow label where there are no ports.
///
/// The same for all packets of a flow, fragments of a datagram among each other. `secret` keeps
/// strangers from choosing what collides.
#[must_use]
pub fn hash(packet: &Packet<'_>, secret: u64) -> u32 {
    let address = |address: IpAddr| match address {
        IpAddr::V4(address) => (u64::from(address.to_bits()), 0),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            ((bits >> 64) as u64, bits as u64)
        }
    };
    // Fragments are kept together: the others have no ports.
    let ports = if packet.fragment { None } else { packet.ports() };
    let rest = match ports {
        Some((source, destination)) => u64::from(source) << 16 | u64::from(destination),
        None if packet.fragment => 0,
        None => u64::from(packet.flow_label),
    };
    let (s0, s1) = address(packet.source);
    let (d0, d1) = address(packet.destination);
    let mut state = secret;
    for word in [s0, s1, d0, d1, u64::from(packet.protocol) << 32 | rest] {
        state = mix(state ^ word);
    }
    (state >> 32) as u32
}

/// The finalizer of SplitMix64: each bit of the input reaches each bit of the output.
const fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Which of `count` things a flow takes, as Linux chooses a source port of its range; 0 if there are
/// none.
#[must_use]
pub const fn choose(hash: u32, count: usize) -> usize {
    // The upper bits count most in what follows.
    let hash = hash ^ (hash << 16);
    ((hash as u64).wrapping_mul(count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::tests::{v4, v6};

    #[test]
    fn the_formula_of_linux_stays_in_range() {
        let count = 60999 - 32768;
        assert_eq!(choose(0, count), 0);
        assert_eq!(choose(0x0000_ffff, count), 28230);
        assert_eq!(choose(0x8000_0000, count), 14115);
        for hash in (0..u32::MAX - 999_983).step_by(999_983) {
            assert!(choose(hash, count) < count);
        }
        assert_eq!(choose(u32::MAX, 0), 0);
    }

    #[test]
    fn a_flow_keeps_its_port_and_flows_are_spread() {
        let mut seen = [0u32; 16];
        for port in 0..4096u16 {
            let [p0, p1] = port.to_be_bytes();
            let bytes = v4(17, 9, 0, &[p0, p1, 0, 80, 1, 2, 3, 4]);
            let again = v4(17, 8, 3, &[p0, p1, 0, 80, 9, 9, 9, 9]);
            let flow = |bytes: &[u8]| hash(&Packet::parse(bytes).unwrap(), 42);
            assert_eq!(flow(&bytes), flow(&again));
            seen[choose(flow(&bytes), 16)] += 1;
        }
        assert!(seen.iter().all(|&count| (150..400).contains(&count)), "{seen:?}");
    }

    #[test]
    fn fragments_of_a_datagram_stay_together_and_labels_count() {
        let hash_of = |bytes: &[u8]| hash(&Packet::parse(bytes).unwrap(), 1);
        let mut first = v4(17, 9, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
        first[6..8].copy_from_slice(&[0x20, 0]);
        let mut later = v4(17, 9, 0, &[8, 8, 8, 8, 8, 8, 8, 8]);
        later[6..8].copy_from_slice(&[0, 1]);
        assert_eq!(hash_of(&first), hash_of(&later));
        let one = v6(50, 9, 0, &[0; 8]);
        let mut other = one.clone();
        other[3] ^= 1;
        assert_ne!(hash_of(&one), hash_of(&other));
    }
}
