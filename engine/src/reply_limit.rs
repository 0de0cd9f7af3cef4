//! How often strangers are answered: a bucket of tokens for each kind of answer that needs no state
//! (RFC 9000, Sections 6.1, 8.1 and 10.3.3).

use crate::config::ReplyRates;
use crate::time::{Duration, Time};

/// An answer to a datagram that belongs to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A stateless reset (RFC 9000, Section 10.3).
    StatelessReset,
    /// A Version Negotiation packet (RFC 9000, Section 6).
    VersionNegotiation,
    /// A Retry packet (RFC 9000, Section 8.1.2).
    Retry,
    /// A close with CONNECTION_REFUSED or INVALID_TOKEN.
    Refusal,
}

/// Limits of all kinds.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    stateless_resets: RateLimiter,
    version_negotiations: RateLimiter,
    retries: RateLimiter,
    refusals: RateLimiter,
}

impl ReplyLimits {
    /// So many in a second.
    pub fn new(rates: ReplyRates) -> Self {
        Self {
            stateless_resets: RateLimiter::new(rates.stateless_resets),
            version_negotiations: RateLimiter::new(rates.version_negotiations),
            retries: RateLimiter::new(rates.retries),
            refusals: RateLimiter::new(rates.refusals),
        }
    }

    /// True if one more of this kind may be sent now; it then counts as sent.
    pub fn take(&mut self, now: Time, reply: Reply) -> bool {
        let limiter = match reply {
            Reply::StatelessReset => &mut self.stateless_resets,
            Reply::VersionNegotiation => &mut self.version_negotiations,
            Reply::Retry => &mut self.retries,
            Reply::Refusal => &mut self.refusals,
        };
        limiter.take(now)
    }
}

/// Limits how often something happens that strangers can bring about: a bucket of tokens.
#[derive(Clone, Copy, Debug)]
pub struct RateLimiter {
    per_second: u32,
    allowance: u32,
    refilled: Time,
}

impl RateLimiter {
    /// At most `per_second` in a second, all at once if need be; 0 is never.
    pub const fn new(per_second: u32) -> Self {
        Self { per_second, allowance: per_second, refilled: Time::ZERO }
    }

    /// True if it may happen once more now; it then counts.
    pub fn take(&mut self, now: Time) -> bool {
        let interval = Duration::from_secs(1).over(u64::from(self.per_second));
        let more = now
            .since(self.refilled)
            .as_nanos()
            .checked_div(interval.as_nanos().max(1))
            .unwrap_or(0);
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.allowance = self.allowance.saturating_add(more).min(self.per_second);
            self.refilled = now;
        }
        let allowed = self.allowance > 0;
        self.allowance = self.allowance.saturating_sub(1);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_answers_is_limited() {
        let mut limiter = RateLimiter::new(10);
        let start = Time::ZERO + Duration::from_secs(100);
        let burst = (0..100).filter(|_| limiter.take(start)).count();
        assert_eq!(burst, 10);
        assert!(!limiter.take(start + Duration::from_millis(99)));
        assert!(limiter.take(start + Duration::from_millis(100)));
        assert!(!limiter.take(start + Duration::from_millis(150)));
        let mut sent = 0;
        for millis in 0..10_000 {
            sent += u32::from(limiter.take(start + Duration::from_millis(1000 + millis)));
        }
        assert!((100..=111).contains(&sent), "{sent}");
        assert!(!RateLimiter::new(0).take(start));
    }
}
