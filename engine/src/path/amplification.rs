//! The anti-amplification limit (RFC 9000, Sections 8.1 and 9.3).

/// How many times the received bytes may be sent before the peer's address is validated.
const FACTOR: u64 = 3;

/// Counts what an unvalidated address sent and was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AmplificationLimit {
    received: u64,
    sent: u64,
    lifted: bool,
}

impl AmplificationLimit {
    /// The limit of an address that has sent nothing yet.
    pub(crate) fn limited() -> Self {
        Self { received: 0, sent: 0, lifted: false }
    }

    /// No limit: the address is validated, or it is the one that we chose to connect to.
    pub(crate) fn unlimited() -> Self {
        Self { received: 0, sent: 0, lifted: true }
    }

    /// A datagram of `bytes` UDP payload arrived from the address. All of it counts, even what
    /// could not be processed (RFC 9000, Section 8.1).
    #[inline]
    pub(crate) fn on_received(&mut self, bytes: usize) {
        if !self.lifted {
            self.received = self.received.saturating_add(bytes as u64);
        }
    }

    /// A datagram of `bytes` UDP payload was sent to the address.
    #[inline]
    pub(crate) fn on_sent(&mut self, bytes: usize) {
        if !self.lifted {
            self.sent = self.sent.saturating_add(bytes as u64);
        }
    }

    /// How many more bytes may be sent now (RFC 9000, Section 8.1: MUST NOT send more than three
    /// times the bytes received).
    #[inline]
    pub(crate) fn budget(&self) -> u64 {
        if self.lifted {
            return u64::MAX;
        }
        self.received.saturating_mul(FACTOR).saturating_sub(self.sent)
    }

    /// True once there is no limit.
    #[inline]
    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted
    }

    /// The address is validated.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000, Section 8.1.
    #[test]
    fn at_most_three_times_the_received_bytes_may_be_sent() {
        let mut limit = AmplificationLimit::limited();
        assert_eq!(limit.budget(), 0);
        limit.on_received(1200);
        assert_eq!(limit.budget(), 3600);
        limit.on_sent(3500);
        assert_eq!(limit.budget(), 100);
        limit.on_sent(100);
        assert_eq!(limit.budget(), 0);
        limit.on_received(1);
        assert_eq!(limit.budget(), 3);
    }

    #[test]
    fn validation_lifts_the_limit() {
        let mut limit = AmplificationLimit::limited();
        limit.lift();
        assert_eq!(limit.budget(), u64::MAX);
        assert_eq!(AmplificationLimit::unlimited().budget(), u64::MAX);
    }

    #[test]
    fn counters_saturate() {
        let mut limit = AmplificationLimit::limited();
        for _ in 0..3 {
            limit.on_received(usize::MAX);
        }
        assert_eq!(limit.budget(), u64::MAX);
        limit.on_sent(usize::MAX);
        assert_eq!(limit.budget(), 0);
    }
}
