//! What is left of a path's MTU inside of a tunnel.

/// The smallest MTU of IPv4 that a tunnel announces: 68 bytes (RFC 791, Section 3.2).
pub const MIN_MTU_V4: u16 = 68;
/// The smallest MTU of IPv6 (RFC 8200, Section 5).
pub const MIN_MTU_V6: u16 = 1280;

/// The outer IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outer {
    /// IPv4, without options.
    V4,
    /// IPv6, perhaps with the tunnel encapsulation limit (RFC 2473, Section 4.1.1).
    V6 {
        /// Whether there is one.
        encapsulation_limit: bool,
    },
}

/// What is between the outer IP header and what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shim {
    /// Nothing: IP in IP, GRE in IP.
    None,
    /// UDP: direct encapsulation, which Linux calls foo over UDP; version 1 of GUE as well.
    Udp,
    /// UDP and GUE version 0.
    Gue {
        /// Whether there is room for remote checksum offload. It is kept free in all packets.
        remote_checksum: bool,
    },
}

/// All that a tunnel adds to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overhead {
    /// The outer IP header.
    pub outer: Outer,
    /// UDP and GUE.
    pub shim: Shim,
    /// Bytes of GRE, and of an Ethernet header behind it; 0 without.
    pub gre: u16,
}

impl Overhead {
    /// In bytes.
    #[must_use]
    pub const fn bytes(&self) -> u16 {
        let outer = match self.outer {
            Outer::V4 => 20u16,
            Outer::V6 { encapsulation_limit: false } => 40,
            Outer::V6 { encapsulation_limit: true } => 48,
        };
        let shim = match self.shim {
            Shim::None => 0,
            Shim::Udp => 8,
            Shim::Gue { remote_checksum: false } => 12,
            Shim::Gue { remote_checksum: true } => 20,
        };
        outer.saturating_add(shim).saturating_add(self.gre)
    }

    /// The MTU inside, of a path with an MTU of `path` bytes outside. Not below what IPv4 asks
    /// for, where packets are fragmented outside at need.
    #[must_use]
    pub const fn mtu(&self, path: u16) -> u16 {
        let left = path.saturating_sub(self.bytes());
        if left < MIN_MTU_V4 { MIN_MTU_V4 } else { left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethernet_leaves_what_linux_says_it_does() {
        let gue = Shim::Gue { remote_checksum: false };
        let remcsum = Shim::Gue { remote_checksum: true };
        let v6 = Outer::V6 { encapsulation_limit: false };
        let limit = Outer::V6 { encapsulation_limit: true };
        for (outer, shim, gre, mtu) in [
            (Outer::V4, Shim::None, 0, 1480),
            (Outer::V4, Shim::Udp, 0, 1472),
            (Outer::V4, gue, 0, 1468),
            (Outer::V4, gue, 4, 1464),
            (Outer::V4, remcsum, 0, 1460),
            (limit, gue, 0, 1440),
            (v6, gue, 0, 1448),
            (v6, Shim::Udp, 0, 1452),
        ] {
            assert_eq!(Overhead { outer, shim, gre }.mtu(1500), mtu, "{outer:?} {shim:?} {gre}");
        }
        assert_eq!(Overhead { outer: v6, shim: gue, gre: 16 }.mtu(70), 68);
    }
}
