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
        state.waiting.take(now)
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
        for HeldDatagram { remote, local, ecn, bytes } in state.waiting.take(now) {
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
