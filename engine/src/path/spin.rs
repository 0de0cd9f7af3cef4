//! The latency spin bit (RFC 9000, Section 17.4).

use quicket_wire::ConnectionId;

use crate::random::Random;

/// One in this many paths does not spin even when it may (RFC 9000, Section 17.4).
const DISABLED_ONE_IN: u64 = 16;

/// The spin bit of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinBit {
    enabled: bool,
    value: bool,
    /// The connection ID that the bit was last sent with.
    cid: ConnectionId,
}

impl SpinBit {
    /// Spins if `wanted`, except on a random one in sixteen paths, where the bit has a random
    /// value (RFC 9000, Section 17.4).
    pub(crate) fn new(wanted: bool, random: &mut dyn Random) -> Self {
        let enabled = wanted && random.below(DISABLED_ONE_IN) != 0;
        let value = !enabled && random.below(2) == 1;
        Self { enabled, value, cid: ConnectionId::EMPTY }
    }

    /// The bit for the next 1-RTT packet, which goes to `cid`. It starts over with every
    /// connection ID (RFC 9000, Section 17.4).
    #[inline]
    pub(crate) fn next(&mut self, cid: &ConnectionId, random: &mut dyn Random) -> bool {
        if self.cid != *cid {
            self.cid = *cid;
            self.value = !self.enabled && random.below(2) == 1;
        }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cid::test_support::TestRandom;

    fn cid(n: u8) -> ConnectionId {
        ConnectionId::new(&[n; 8]).unwrap()
    }

    fn spinning(value: bool) -> SpinBit {
        SpinBit { enabled: true, value, cid: cid(1) }
    }

    #[test]
    fn client_and_server_make_the_bit_spin_once_per_round_trip() {
        let mut random = TestRandom::new(3);
        let (mut client, mut server) = (spinning(false), spinning(false));
        let mut seen = [false; 6];
        for bit in &mut seen {
            server.on_largest_received(client.next(&cid(1), &mut random), false);
            client.on_largest_received(server.next(&cid(1), &mut random), true);
            *bit = client.next(&cid(1), &mut random);
        }
        assert_eq!(seen, [true, false, true, false, true, false]);
    }

    /// RFC 9000, Section 17.4.
    #[test]
    fn the_bit_starts_over_with_another_connection_id() {
        let mut random = TestRandom::new(3);
        let mut spin = spinning(true);
        assert!(spin.next(&cid(1), &mut random));
        assert!(!spin.next(&cid(2), &mut random));
        let mut disabled = SpinBit { enabled: false, ..spinning(false) };
        let ones = (0..100).filter(|n| disabled.next(&cid(*n), &mut random)).count();
        assert!((30..=70).contains(&ones), "random for every connection ID: {ones}");
    }

    /// RFC 9000, Section 17.4: disabled on at least one in sixteen paths, even when configured.
    #[test]
    fn about_one_in_sixteen_paths_does_not_spin() {
        let mut random = TestRandom::new(7);
        let off = (0..4096).filter(|_| !SpinBit::new(true, &mut random).enabled).count();
        assert!((180..=340).contains(&off), "{off}");
        assert!((0..100).all(|_| !SpinBit::new(false, &mut random).enabled));
        let ones = (0..1000).filter(|_| SpinBit::new(false, &mut random).value).count();
        assert!((400..=600).contains(&ones), "random value when disabled: {ones}");
    }

    #[test]
    fn a_disabled_bit_ignores_the_peer() {
        let mut spin = SpinBit { enabled: false, ..spinning(true) };
        spin.on_largest_received(false, false);
        assert!(spin.value);
    }
}
