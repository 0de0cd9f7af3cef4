//! Clients that take nothing of what they asked for.

use std::time::{Duration, Instant};

use quicket::tokio::Connection;

/// How long a client may take nothing while something waits for it. It keeps a connection's
/// memory meanwhile, and perhaps open files.
const STALLED: Duration = Duration::from_secs(60);
/// How often to look.
const LOOK: Duration = Duration::from_secs(5);
/// STREAM frames (RFC 9000, Section 19.8).
const STREAM_TYPES: std::ops::RangeInclusive<u64> = 0x08..=0x0f;

/// Ends once the client has taken nothing for too long, and never before.
pub(super) async fn stalled(connection: &Connection) {
    let mut stall = Stall { sent: 0, since: Instant::now() };
    loop {
        tokio::time::sleep(LOOK).await;
        let stats = connection.stats();
        let sent = STREAM_TYPES.map(|frame| stats.counters.frames_sent.of_type(frame)).sum();
        if stall.look(Instant::now(), sent, stats.send_buffered) {
            return;
        }
    }
}

/// Since when nothing has left.
struct Stall {
    /// How many STREAM frames were sent.
    sent: u64,
    since: Instant,
}

impl Stall {
    /// True if something waits and nothing has left for too long.
    fn look(&mut self, now: Instant, sent: u64, waiting: usize) -> bool {
        if waiting == 0 || sent != self.sent {
            *self = Self { sent, since: now };
        }
        now.duration_since(self.since) >= STALLED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_that_takes_nothing_of_what_waits_is_stalled() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut stall = Stall { sent: 0, since: begun };
        assert!(!stall.look(at(1000), 0, 0), "nothing waits");
        assert!(!stall.look(at(1059), 0, 10));
        assert!(!stall.look(at(1059), 1, 10), "something has left");
        assert!(!stall.look(at(1118), 1, 10));
        assert!(stall.look(at(1119), 1, 10));
    }
}
