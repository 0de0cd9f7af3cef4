//! Copies of errors of ICMP, to the port whose packet they quote.

use std::time::{Duration, Instant};

use super::{Forwarder, Sender, port};
use crate::batch::Rule;
use crate::counters::{Counters, Reason};
use crate::device::MAX_DEVICES;
use crate::icmp;

/// Errors of ICMP that are copied to a port in a second, of those of one device: so no device takes what others have.
pub const ERRORS_PER_SECOND: u32 = 1000;
/// Those of a device that are copied to all ports in a second, beside those that each port has anyway.
pub const ERRORS_PER_SECOND_OF_DEVICE: u32 = 4000;
/// Those of a device that each port has in a second, whatever others have.
pub const ERRORS_OF_EACH_PORT: u32 = 4;
/// A port may have had no more than this part of what is left to all of them: so many that are flooded have the same, and leave
/// three times as much to others.
const PART: u32 = ERRORS_PER_SECOND_OF_DEVICE / ERRORS_PER_SECOND - 1;
/// Those of a device that are read before others have their turn.
const ERRORS_PER_LOOK: usize = 16;
const SECOND: Duration = Duration::from_secs(1);

/// How many errors each device has had copied lately.
#[derive(Debug, Default)]
pub(super) struct Shares {
    begun: Option<Instant>,
    /// The second that these are of.
    counted: Option<Instant>,
    /// By the number of the device, [`MAX_DEVICES`] of them at most.
    used: Vec<(u32, u32)>,
}

impl Shares {
    /// When the second began that this is in.
    fn second(&mut self, now: Instant) -> Instant {
        let is_over = |begun: &Instant| now.saturating_duration_since(*begun) >= SECOND;
        let begun = self.begun.filter(|begun| !is_over(begun)).unwrap_or(now);
        self.begun = Some(begun);
        begun
    }

    /// How many a device has had copied in the second that began then. None if too many devices have come and gone within it.
    fn of(&mut self, device: u32, second: Instant) -> Option<&mut u32> {
        if self.counted != Some(second) {
            self.counted = Some(second);
            self.used.clear();
        }
        let at = match self.used.iter().position(|(other, _)| *other == device) {
            Some(at) => at,
            None if self.used.len() >= MAX_DEVICES => return None,
            None => {
                self.used.push((device, 0));
                self.used.len() - 1
            }
        };
        self.used.get_mut(at).map(|(_, used)| used)
    }
}

/// Whether a port may have another error of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Copied,
    /// It has had as many as any port may.
    OfPort,
    /// It has had its share of what is left.
    OfDevice,
}

/// Judges that by how many the port has had, and how many were copied to all, and counts it there.
const fn share(of_port: &mut u32, of_all: &mut u32) -> Verdict {
    let left = ERRORS_PER_SECOND_OF_DEVICE.saturating_sub(*of_all);
    if *of_port >= ERRORS_PER_SECOND {
        return Verdict::OfPort;
    }
    if *of_port >= ERRORS_OF_EACH_PORT {
        if *of_port * PART >= left {
            return Verdict::OfDevice;
        }
        *of_all += 1;
    }
    *of_port += 1;
    Verdict::Copied
}

impl Forwarder {
    /// Reads what ICMP has said by a device of packets that were sent, and copies it to the ports whose packets those were, to
    /// the queue that has the flow. The system has got all of it already; what is about packets of its own is nobody's here.
    pub(crate) fn hear_errors(&mut self, device: u32) {
        for _ in 0..ERRORS_PER_LOOK {
            let Self { network, shown, .. } = self;
            let Some((place, len, by)) = network.take_error(device, shown) else { break };
            self.copy_error(device, by, place, len, Instant::now());
        }
        self.publish();
    }

    /// Copies the frame that is shown, which has come by a device, whose first place that is. `by` is that device, or that of
    /// the VLAN which it was of.
    pub(super) fn copy_error(
        &mut self,
        device: u32,
        by: u32,
        place: usize,
        len: u16,
        now: Instant,
    ) {
        let Self { batch, registry, shown, network, .. } = self;
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
        let entrance = network.entrance(device);
        let rule = Rule { sender: None, may_leave: false, entrance };
        let arrival = network.arrival(device, by);
        batch.check(rule, registry, &mut nobodys, |frame| {
            let ends = icmp::check(frame)?;
            arrival.map_or(Ok(()), |arrival| arrival.admit(ends.destination.address))?;
            Ok((ends, 0))
        });
        let Some((Some(owner), 1)) = self.batch.run(0) else { return };
        // The bound is that of the port, whichever queue has the flow.
        let first = port(&mut self.ports, owner).map(|queue| queue.owner);
        let Some(first) = first.and_then(|first| port(&mut self.ports, first)) else { return };
        // The second of ports is that of devices: a port whose own began later would have two shares of one.
        let second = self.errors.second(now);
        let verdict = match (first.errors.of(device, second), self.errors.of(device, second)) {
            (Some(of_port), Some(of_all)) => share(of_port, of_all),
            _ => Verdict::OfPort,
        };
        match verdict {
            Verdict::Copied => {}
            Verdict::OfPort => return first.counters.drop_one(Reason::Icmp),
            Verdict::OfDevice => {
                if let Some(counters) = self.network.counters(place) {
                    counters.drop_one(Reason::Icmp);
                }
                return;
            }
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
