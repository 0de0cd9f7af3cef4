//! The latency spin bit (RFC 9000, Section 17.4).

use crate::random::Random;

/// One in this many paths does not spin even when it may (RFC 9000, Section 17.4).
const DISABLED_ONE_IN: u64 = 16;

/// The spin bit of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinBit {
    enabled: bool,
    value: bool,
}

impl SpinBit {
    /// Spins if `wanted`, except on a random one in sixteen paths, where the bit has a random
    /// value (RFC 9000, Section 17.4).
    pub(crate) fn new(wanted: bool, random: &mut dyn Random) -> Self {
        let enabled = wanted && random.below(DISABLED_ONE_IN) != 0;
        let value = !enabled && random.below(2) == 1;
        Self { enabled, value }
    }

    /// The bit for the next 1-RTT packet.
    #[inline]
    pub(crate) fn value(&self) -> bool {
        self.value
    }

    /// A 1-RTT packet that increases the largest packet number of the path arrived: a server
    /// reflects its bit, a client inverts it.
    #[inline]
    pub(crate) fn on_largest_received(&mut self, bit: bool, is_client: bool) {
        if self.enabled {
            self.value = bit != is_client;
        }
    }

    /// The connection ID changed: the bit starts over (RFC 9000, Section 17.4).
    pub(crate) fn on_cid_changed(&mut self, random: &mut dyn Random) {
        self.value = !self.enabled && random.below(2) == 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::test_support::TestRandom;

    #[test]
    fn client_and_server_make_the_bit_spin_once_per_round_trip() {
        let (mut client, mut server) =
            (SpinBit { enabled: true, value: false }, SpinBit { enabled: true, value: false });
        let mut seen = [false; 6];
        for bit in &mut seen {
            server.on_largest_received(client.value(), false);
            client.on_largest_received(server.value(), true);
            *bit = client.value();
        }
        assert_eq!(seen, [true, false, true, false, true, false]);
        client.value = true;
        client.on_cid_changed(&mut TestRandom::new(3));
        assert!(!client.value());
    }

    /// RFC 9000, Section 17.4: disabled on at least one in sixteen paths, even when configured.
    #[test]
    fn about_one_in_sixteen_paths_does_not_spin() {
        let mut random = TestRandom::new(7);
        let off = (0..4096).filter(|_| !SpinBit::new(true, &mut random).enabled).count();
        assert!((180..=340).contains(&off), "{off}");
        assert!((0..100).all(|_| !SpinBit::new(false, &mut random).enabled));
        let ones = (0..1000).filter(|_| SpinBit::new(false, &mut random).value()).count();
        assert!((400..=600).contains(&ones), "random value when disabled: {ones}");
    }

    #[test]
    fn a_disabled_bit_ignores_the_peer() {
        let mut spin = SpinBit { enabled: false, value: true };
        spin.on_largest_received(false, false);
        assert!(spin.value());
    }
}
