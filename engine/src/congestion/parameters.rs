//! What may be chosen of a congestion controller beside its kind.

use super::CongestionAlgorithm;

/// A congestion controller with its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Congestion {
    /// Which one.
    pub algorithm: CongestionAlgorithm,
    /// Its parameters.
    pub parameters: CongestionParameters,
}

impl From<CongestionAlgorithm> for Congestion {
    fn from(algorithm: CongestionAlgorithm) -> Self {
        Self { algorithm, parameters: CongestionParameters::default() }
    }
}

/// Parameters of congestion controllers. Each is brought within its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionParameters {
    /// How much may be in flight before anything is acknowledged, in full datagrams from 2 to 100; 10 unless another
    /// number is chosen, which RFC 9002, Section 7.2 recommends. Each counts as 1472 bytes at most.
    pub initial_window: u16,
    /// What is left of the window after a loss, in percent from 50 to 90: beta_cubic of CUBIC, 70 unless another
    /// number is chosen (RFC 9438, Section 4.6). Other controllers do without.
    pub cubic_beta: u8,
    /// CUBIC gives way to flows that are new after a loss (RFC 9438, Section 4.7); true unless chosen otherwise.
    pub cubic_fast_convergence: bool,
}

impl CongestionParameters {
    /// The smallest and the largest initial window, in datagrams.
    pub const INITIAL_WINDOW: core::ops::RangeInclusive<u16> = 2..=100;
    /// The smallest and the largest share that is left after a loss, in percent.
    pub const CUBIC_BETA: core::ops::RangeInclusive<u8> = 50..=90;

    /// Those that the RFCs recommend.
    pub const DEFAULT: Self =
        Self { initial_window: 10, cubic_beta: 70, cubic_fast_convergence: true };

    /// The window that a path of datagrams of `mtu` bytes starts with, in bytes (RFC 9002, Section 7.2).
    pub(crate) fn initial_bytes(self, mtu: u16) -> u64 {
        /// What a datagram counts at most: ten of them are the 14,720 bytes of the RFC.
        const FULL: u64 = 1472;
        let (low, high) = Self::INITIAL_WINDOW.into_inner();
        let datagrams = u64::from(self.initial_window.clamp(low, high));
        let mtu = u64::from(mtu);
        datagrams.saturating_mul(mtu).min(datagrams.saturating_mul(FULL).max(mtu.saturating_mul(2)))
    }

    /// beta_cubic, in percent.
    pub(crate) fn beta(self) -> u64 {
        let (low, high) = Self::CUBIC_BETA.into_inner();
        u64::from(self.cubic_beta.clamp(low, high))
    }
}

impl Default for CongestionParameters {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(initial_window: u16, mtu: u16) -> u64 {
        CongestionParameters { initial_window, ..CongestionParameters::default() }
            .initial_bytes(mtu)
    }

    #[test]
    fn the_initial_window_is_that_of_the_rfc_unless_another_is_chosen() {
        // RFC 9002, Section 7.2
        let known = [(1200, 12_000), (1472, 14_720), (1500, 14_720), (9000, 18_000)];
        for (mtu, expected) in known {
            assert_eq!(CongestionParameters::default().initial_bytes(mtu), expected);
        }
        assert_eq!((bytes(32, 1200), bytes(32, 1500)), (38_400, 47_104));
        assert_eq!((bytes(0, 1200), bytes(1000, 1200)), (2400, 120_000), "within the range");
    }
}
