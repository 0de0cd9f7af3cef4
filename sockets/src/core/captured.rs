//! Datagrams on their way in and out, as captures see them.

use std::net::SocketAddr;

use quicket_udp::{Outgoing, SendOutcome};
use quicket_wire::EcnCodepoint;

use super::Core;
use super::link::Link;
use crate::capture::{Captured, Captures, sent_of};

impl Core {
    /// Where captures of the endpoint begin.
    pub(crate) fn captures(&self) -> Option<&Captures> {
        self.switch.captures.as_ref()
    }

    fn capturing(&self) -> Option<&Captures> {
        self.captures().filter(|captures| captures.is_active())
    }

    /// Sends a burst.
    pub(crate) fn send_by(&self, link: &Link, burst: &Outgoing<'_>) -> SendOutcome {
        let outcome = link.sender.send(burst);
        self.captured_left(link, burst, outcome);
        outcome
    }

    /// Sends a burst from the address that it names, or not at all.
    pub(super) fn send_strictly_by(&self, link: &Link, burst: &Outgoing<'_>) -> SendOutcome {
        let outcome = link.sender.send_strictly(burst);
        self.captured_left(link, burst, outcome);
        outcome
    }

    fn captured_left(&self, link: &Link, burst: &Outgoing<'_>, outcome: SendOutcome) {
        if let Some(captures) = self.capturing() {
            let bound = link.socket.local_addr();
            let local = burst.local.map_or(bound, |local| SocketAddr::new(local, bound.port()));
            tell(captures, (true, burst.remote, local), burst, sent_of(burst, outcome));
        }
    }

    /// A train has come. Nobody has changed it yet.
    pub(super) fn captured_came(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        ecn: EcnCodepoint,
        stride: usize,
        bytes: &[u8],
    ) {
        if let Some(captures) = self.capturing() {
            let local = local.unwrap_or_else(|| self.local_addr());
            let train =
                Outgoing { remote, local: Some(local.ip()), ecn, segment_size: stride, bytes };
            tell(captures, (false, remote, local), &train, bytes);
        }
    }
}

fn tell(
    captures: &Captures,
    (sent, remote, local): (bool, SocketAddr, SocketAddr),
    burst: &Outgoing<'_>,
    bytes: &[u8],
) {
    if !bytes.is_empty() {
        let (ecn, segment_size) = (burst.ecn, burst.segment_size.max(1));
        captures.tell(&Captured { sent, remote, local, ecn, segment_size, bytes });
    }
}
