//! Copies of errors of ICMP, to the port whose packet they quote.

use std::time::{Duration, Instant};

use super::{Forwarder, Sender, port};
use crate::batch::Rule;
use crate::counters::{Counters, Reason};
use crate::icmp;

/// Errors of ICMP that are copied to a port in a second.
pub const ERRORS_PER_SECOND: u32 = 1000;
/// Those of a device that are read before others have their turn.
const ERRORS_PER_LOOK: usize = 16;

/// What a port has heard lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    begun: Option<Instant>,
    used: u32,
}

impl Allowance {
    /// Whether it may hear another one.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        match self.begun {
            Some(begun) if now.saturating_duration_since(begun) < Duration::from_secs(1) => {
                self.used += u32::from(self.used < ERRORS_PER_SECOND + 1);
            }
            _ => (self.begun, self.used) = (Some(now), 1),
        }
        self.used <= ERRORS_PER_SECOND
    }
}

impl Forwarder {
    /// Reads what ICMP has said by a device of packets that were sent, and copies it to the ports whose packets those were, to
    /// the queue that has the flow. The system has got all of it already; what is about packets of its own is nobody's here.
    pub(crate) fn hear_errors(&mut self, device: u32) {
        for _ in 0..ERRORS_PER_LOOK {
            let Self { network, shown, .. } = self;
            let Some((place, len)) = network.take_error(device, shown) else { break };
            self.copy_error(place, len);
        }
        self.publish();
    }

    fn copy_error(&mut self, place: usize, len: u16) {
        let Self { batch, registry, shown, .. } = self;
        // What is not in order, and what quotes nobody here, is the system's: nothing is lost with it.
        let mut nobodys = Counters::default();
        batch.fill(
            (0, 1),
            &mut nobodys,
            |_| ((), len),
            |(), len, to| {
                let octets = shown.get(..usize::from(len)).ok_or(Reason::Length)?;
                to.get_mut(..octets.len()).ok_or(Reason::Length)?.copy_from_slice(octets);
                Ok(())
            },
        );
        // The far end of the flow is nobody's here, too: between ports there are no errors.
        let rule = Rule { sender: None, may_leave: false };
        batch.check(rule, registry, &mut nobodys, |frame| icmp::check(frame));
        let Some((Some(owner), 1)) = self.batch.run(0) else { return };
        // The bound is that of the port, whichever queue has the flow.
        let first = port(&mut self.ports, owner).map(|queue| queue.owner);
        let Some(first) = first.and_then(|first| port(&mut self.ports, first)) else { return };
        if !first.errors.take(Instant::now()) {
            return first.counters.drop_one(Reason::Icmp);
        }
        let copied = self.hand_over(Sender::Device(place), owner, 0..1);
        if let Some(counters) = self.network.counters(place) {
            counters.received += copied;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_errors_are_heard_in_a_second() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        for second in 0..3 {
            let now = now + Duration::from_secs(second);
            let heard = (0..5000).filter(|_| allowance.take(now)).count();
            assert_eq!(heard, ERRORS_PER_SECOND as usize);
        }
        // Those that were not heard do not put off the next second.
        let last = now + Duration::from_millis(2900);
        assert!(!allowance.take(last) && allowance.take(last + Duration::from_millis(100)));
    }
}
