//! First packets that wait. Where a process has passed its listener on over fork(2) and does not accept itself, who will is
//! not known yet: the process, or a child, to which the address's socket is left first. Once a packet of a server's
//! connection has reached the client it is that server's client (RFC 9000, Section 7.2), so nobody answers before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quicket_engine::Datagram;
use quicket_engine::time::Time;
use quicket_switch::first_packet::{HeldDatagram, Waiting};
use quicket_udp::Arrival;

use super::Core;
use super::mailbox::Parcels;

/// What becomes of first packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// They begin connections.
    #[default]
    In,
    /// They wait.
    Wait,
    /// They are other processes', for good.
    Away,
}

/// First packets of a worker that is alone.
#[derive(Default)]
pub(super) struct Aside {
    state: Mutex<State>,
    /// What has waited begins connections: its leader is to take it. Changed with the lock held.
    ready: AtomicBool,
}

#[derive(Default)]
struct State {
    way: Way,
    waiting: Waiting,
}

impl Aside {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a first packet begins a connection now; if not, it was seen to.
    pub(super) fn admits(&self, now: Time, datagram: &Datagram<'_>) -> bool {
        let mut state = self.lock();
        if state.way == Way::Wait {
            let Datagram { remote, local, ecn, ref data } = *datagram;
            state.waiting.add(now, HeldDatagram { remote, local, ecn, bytes: data.to_vec() });
        }
        state.way == Way::In
    }

    /// Has first packets wait, or begin connections.
    fn set_waiting(&self, waits: bool) {
        let mut state = self.lock();
        match state.way {
            Way::Away => return,
            _ if waits => state.way = Way::Wait,
            _ => state.way = Way::In,
        }
        self.ready.store(!waits && !state.waiting.is_empty(), Ordering::SeqCst);
    }

    /// No more first packets begin connections. Returns those that wait.
    fn leave(&self, now: Time) -> Vec<HeldDatagram> {
        let mut state = self.lock();
        state.way = Way::Away;
        self.ready.store(false, Ordering::SeqCst);
        state.waiting.take(now).into_iter().map(|(_, datagram)| datagram).collect()
    }

    /// Whether the leader has something to take.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::SeqCst)
    }

    /// Moves what has waited, and begins connections now, to `mail`.
    pub(super) fn take(&self, now: Time, mail: &mut Parcels) {
        let mut state = self.lock();
        if !self.ready.swap(false, Ordering::SeqCst) {
            return;
        }
        for (_, HeldDatagram { remote, local, ecn, bytes }) in state.waiting.take(now) {
            mail.add((remote, local), ecn, bytes.len(), &bytes);
        }
    }
}

impl Core {
    /// Has first packets wait until it is known who accepts, or begin connections. Where the address is shared the switch
    /// sees to that; and an endpoint of several workers is never left to it.
    pub(crate) fn set_first_packets_waiting(&self, waiting: bool) {
        if self.switch_config().is_none() && self.workers().len() == 1 {
            self.aside.set_waiting(waiting);
        }
    }

    /// Has the leader take what has waited and waits no longer. To be called without a lock.
    pub(crate) fn admit_first_packets(&self) {
        if self.aside.is_ready() {
            self.lead.interrupt();
        }
    }

    /// The endpoint has left its socket to the switch, where somebody has its clients by now: hands over the first
    /// packets that wait. For what finds no room clients send again.
    pub(crate) fn leave_first_packets(&self) {
        let waiting = self.aside.leave(self.clock().now());
        let links = self.links();
        let Some(port) = links.current().and_then(|link| link.socket.port_to_switch()) else {
            return;
        };
        for HeldDatagram { remote, local, ecn, bytes } in waiting {
            let (stride, len) = (bytes.len(), bytes.len());
            if port.hand_back(&Arrival { remote, local, ecn, stride, len }, &bytes).is_err() {
                log::debug!("a first packet from {remote} is lost on its way to the switch");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quicket_switch::first_packet::PARK_TIME;
    use quicket_wire::EcnCodepoint;

    use super::*;

    /// Whether a first packet with these octets begins a connection.
    fn admits(aside: &Aside, now: Time, octets: &[u8]) -> bool {
        let (remote, local) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:4433".parse().ok());
        let mut data = octets.to_vec();
        aside.admits(now, &Datagram { remote, local, ecn: EcnCodepoint::Ect0, data: &mut data })
    }

    /// What the leader takes, in order.
    fn taken(aside: &Aside, now: Time) -> Vec<Vec<u8>> {
        let mut mail = Parcels::default();
        aside.take(now, &mut mail);
        mail.trains().map(|(.., bytes)| bytes.to_vec()).collect()
    }

    #[test]
    fn what_has_waited_begins_connections_once_and_in_order() {
        let aside = Aside::default();
        assert!(admits(&aside, Time::ZERO, b"at once"));
        aside.set_waiting(true);
        assert!(!admits(&aside, Time::ZERO, b"first") && !admits(&aside, Time::ZERO, b"second"));
        assert!(!aside.is_ready() && taken(&aside, Time::ZERO).is_empty());
        aside.set_waiting(false);
        assert!(aside.is_ready() && admits(&aside, Time::ZERO, b"at once"));
        assert_eq!(taken(&aside, Time::ZERO), [&b"first"[..], b"second"]);
        assert!(!aside.is_ready() && taken(&aside, Time::ZERO).is_empty());
    }

    #[test]
    fn addresses_and_mark_stay_with_what_waits() {
        let aside = Aside::default();
        aside.set_waiting(true);
        admits(&aside, Time::ZERO, b"one");
        aside.set_waiting(false);
        let mut mail = Parcels::default();
        aside.take(Time::ZERO, &mut mail);
        let train = mail.trains().next().map(|(remote, local, ecn, stride, bytes)| {
            (remote.to_string(), local.unwrap().to_string(), ecn, stride, bytes.len())
        });
        let (remote, local) = ("192.0.2.1:9".to_owned(), "192.0.2.2:4433".to_owned());
        assert_eq!(train, Some((remote, local, EcnCodepoint::Ect0, 3, 3)));
    }

    #[test]
    fn it_goes_on_waiting_if_the_leader_was_too_late() {
        let aside = Aside::default();
        aside.set_waiting(true);
        admits(&aside, Time::ZERO, b"one");
        aside.set_waiting(false);
        aside.set_waiting(true);
        assert!(!aside.is_ready() && taken(&aside, Time::ZERO).is_empty());
        aside.set_waiting(false);
        assert_eq!(taken(&aside, Time::ZERO), [b"one"]);
    }

    #[test]
    fn what_has_waited_for_too_long_is_lost() {
        let aside = Aside::default();
        aside.set_waiting(true);
        admits(&aside, Time::ZERO, b"old");
        let then = Time::ZERO + PARK_TIME + PARK_TIME;
        admits(&aside, then, b"new");
        aside.set_waiting(false);
        assert_eq!(taken(&aside, then), [b"new"]);
    }

    #[test]
    fn an_address_that_was_left_stays_so() {
        let aside = Aside::default();
        aside.set_waiting(true);
        admits(&aside, Time::ZERO, b"one");
        let left = aside.leave(Time::ZERO);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].bytes, b"one");
        for waiting in [true, false] {
            aside.set_waiting(waiting);
            assert!(!admits(&aside, Time::ZERO, b"two") && !aside.is_ready());
        }
        assert!(aside.leave(Time::ZERO).is_empty());
    }
}
