//! What ICMP says of a port's datagrams, until it is taken: as the error queue of a socket of the system.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quicket_udp::{Undelivered, Unreachable};

use crate::icmp::{Failure, Report};

const UDP: u8 = 17;
/// Octets of a header of UDP.
const HEADER: usize = 8;
/// Messages that are kept: others are lost, and come again with the next datagrams.
const MAX_HEARD: usize = 64;
/// How much of a datagram is kept: the header of QUIC.
const QUOTED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Heard {
    is_kept: AtomicBool,
    is_some: AtomicBool,
    messages: Mutex<VecDeque<Message>>,
}

#[derive(Debug)]
struct Message {
    remote: SocketAddr,
    what: Unreachable,
    quoted: Vec<u8>,
}

impl Heard {
    fn messages(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps messages from now on, or forgets those that are there.
    pub(super) fn keep(&self, on: bool) {
        self.is_kept.store(on, Ordering::Relaxed);
        if !on {
            let mut messages = self.messages();
            messages.clear();
            messages.shrink_to_fit();
            self.is_some.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn is_some(&self) -> bool {
        self.is_some.load(Ordering::Relaxed)
    }

    /// Hears of a frame that is no datagram. What ICMP says of the MTU is left to probes, which need nobody's word (RFC 9000,
    /// Section 14.2.1; RFC 8899), and so is what may pass.
    #[cold]
    pub(super) fn hear(&self, frame: &[u8], local: SocketAddr) {
        if !self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        let Some(report) = Report::read(frame).filter(|report| report.source.protocol == UDP)
        else {
            return;
        };
        let what = match report.failure {
            Failure::Port => Unreachable::Port,
            Failure::Host => Unreachable::Host,
            Failure::TooBig { .. } | Failure::TimeExceeded | Failure::Parameter => return,
        };
        if local != SocketAddr::from((report.source.address, report.source.port)) {
            return;
        }
        let mut messages = self.messages();
        // Nobody wants it any more, perhaps.
        if messages.len() < MAX_HEARD && self.is_kept.load(Ordering::Relaxed) {
            let quoted = report.quoted.get(HEADER..).unwrap_or_default();
            let quoted = quoted.get(..QUOTED).unwrap_or(quoted).to_vec();
            let remote = (report.destination.address, report.destination.port).into();
            messages.push_back(Message { remote, what, quoted });
            self.is_some.store(true, Ordering::Relaxed);
        }
    }

    /// Takes all of them.
    pub(super) fn take(&self, each: &mut dyn FnMut(Undelivered<'_>)) {
        let messages = {
            let mut messages = self.messages();
            self.is_some.store(false, Ordering::Relaxed);
            std::mem::take(&mut *messages)
        };
        for Message { remote, what, quoted } in messages {
            each(Undelivered { remote, what, quoted: &quoted });
        }
    }
}
