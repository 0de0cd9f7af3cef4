//! Copies of errors of ICMP, to the port whose packet they quote.

use std::time::{Duration, Instant};

use super::{Forwarder, Sender, port};
use crate::batch::Rule;
use crate::counters::{Counters, Reason};
use crate::device::MAX_DEVICES;
use crate::icmp;

/// Errors of ICMP that are copied to a port in a second, of those of one device: so no device takes what others have.
pub const ERRORS_PER_SECOND: u32 = 1000;
/// Those of a device that are copied to all ports in a second.
pub const ERRORS_PER_SECOND_OF_DEVICE: u32 = 4000;
/// Those of a device that are read before others have their turn.
const ERRORS_PER_LOOK: usize = 16;
const SECOND: Duration = Duration::from_secs(1);

/// How many errors each device has had copied lately.
#[derive(Debug, Default)]
pub(super) struct Shares {
    begun: Option<Instant>,
    /// By the number of the device, [`MAX_DEVICES`] of them at most.
    used: Vec<(u32, u32)>,
}

impl Shares {
    /// Whether a device may have another one copied, of so many in a second.
    fn take(&mut self, device: u32, most: u32, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= SECOND) {
            self.begun = Some(now);
            self.used.clear();
        }
        if let Some((_, used)) = self.used.iter_mut().find(|(other, _)| *other == device) {
            let may = *used < most;
            *used += u32::from(may);
            return may;
        }
        // More than there are have come and gone within that second.
        let may = self.used.len() < MAX_DEVICES;
        if may {
            self.used.push((device, 1));
        }
        may
    }
}

impl Forwarder {
    /// Reads what ICMP has said by a device of packets that were sent, and copies it to the ports whose packets those were, to
    /// the queue that has the flow. The system has got all of it already; what is about packets of its own is nobody's here.
    pub(crate) fn hear_errors(&mut self, device: u32) {
        for _ in 0..ERRORS_PER_LOOK {
            let Self { network, shown, .. } = self;
            let Some((place, len)) = network.take_error(device, shown) else { break };
            self.copy_error(device, place, len, Instant::now());
        }
        self.publish();
    }

    /// Copies the frame that is shown, which has come by a device, whose first place that is.
    pub(super) fn copy_error(&mut self, device: u32, place: usize, len: u16, now: Instant) {
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
        if !first.errors.take(device, ERRORS_PER_SECOND, now) {
            return first.counters.drop_one(Reason::Icmp);
        }
        // What a port is not given takes nothing of what others of the device have.
        if !self.errors.take(device, ERRORS_PER_SECOND_OF_DEVICE, now) {
            if let Some(counters) = self.network.counters(place) {
                counters.drop_one(Reason::Icmp);
            }
            return;
        }
        let copied = self.hand_over(Sender::Device(place), owner, 0..1);
        if let Some(counters) = self.network.counters(place) {
            counters.received += copied;
        }
    }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;
