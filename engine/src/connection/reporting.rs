//! What others are told of a connection: the endpoint, the application, an observer; and what is
//! counted.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;

use quicket_wire::{ConnectionId, PacketKind, StatelessResetToken};

use crate::cid::{CidEvent, ConnectionIds};
use crate::crypto::Level;
use crate::endpoint::EndpointEvent;
use crate::error::ConnectionError;
use crate::event::{Event, Events};
use crate::observer::{DropReason, LossTrigger, Observation, Observer};
use crate::path::Paths;
use crate::recovery::SentPacket;
use crate::tally::Tally;
use crate::time::Time;

/// Everybody who hears of what happens.
#[derive(Default)]
pub(super) struct Reporting {
    pub(super) endpoint: EndpointReports,
    /// For the application.
    pub(super) events: Events,
    pub(super) counters: Tally,
    pub(super) observer: Option<Box<dyn Observer>>,
}

impl Reporting {
    /// Gives back memory without reports.
    pub(super) fn trim(&mut self) {
        self.endpoint.trim();
        self.events.trim();
        self.counters.trim();
    }

    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    #[inline]
    pub(super) fn observe(&mut self, now: Time, observation: &Observation<'_>) {
        if let Some(observer) = &mut self.observer {
            observer.observe(now, observation);
        }
    }

    /// Forgets the observer, if it wants to hear no more.
    pub(super) fn forget_observer_that_is_done(&mut self) {
        self.observer.take_if(|observer| observer.is_done());
    }

    /// A packet that came is not processed.
    pub(super) fn packet_dropped(
        &mut self,
        now: Time,
        kind: Option<PacketKind>,
        size: usize,
        reason: DropReason,
    ) {
        let counters = self.counters.count();
        counters.packets_dropped = counters.packets_dropped.saturating_add(1);
        self.observe(now, &Observation::PacketDropped { kind, size, reason });
    }

    /// A packet that was sent is taken for lost.
    pub(super) fn packet_lost(
        &mut self,
        now: Time,
        (level, number): (Level, u64),
        packet: &SentPacket,
        trigger: LossTrigger,
    ) {
        let mtu_probe = packet.mtu_probe;
        let counters = self.counters.count();
        if mtu_probe {
            counters.mtu_probes_lost = counters.mtu_probes_lost.saturating_add(1);
        } else {
            counters.packets_lost = counters.packets_lost.saturating_add(1);
            counters.bytes_lost = counters.bytes_lost.saturating_add(u64::from(packet.size));
        }
        self.observe(now, &Observation::PacketLost { level, number, mtu_probe, trigger });
    }

    /// A probe timeout has passed (RFC 9002, Section 6.2).
    pub(super) fn probe_timeout(&mut self) {
        let counters = self.counters.count();
        counters.probe_timeouts = counters.probe_timeouts.saturating_add(1);
    }

    /// The keys were updated (RFC 9001, Section 6).
    pub(super) fn key_updated(&mut self, now: Time, updates: u64, by_peer: bool) {
        let counters = self.counters.count();
        counters.key_updates = counters.key_updates.saturating_add(1);
        self.observe(now, &Observation::KeyUpdated { updates, by_peer });
        self.events.push(Event::KeyUpdated { updates, by_peer });
    }

    /// The connection moved to another path.
    pub(super) fn path_changed(
        &mut self,
        now: Time,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) {
        let counters = self.counters.count();
        counters.path_changes = counters.path_changes.saturating_add(1);
        self.endpoint.on_remote(remote);
        self.observe(now, &Observation::PathChanged { local, remote });
        self.events.push(Event::PathChanged { local, remote });
    }

    /// The connection is over.
    pub(super) fn closed(&mut self, now: Time, error: &ConnectionError) {
        self.observe(now, &Observation::Closed(error));
        self.events.close(error.clone());
    }

    /// True once a packet of the peer was opened.
    pub(super) fn has_received(&self) -> bool {
        self.counters.packets_received() > 0
    }
}

/// Events for the endpoint, and what it was told already.
#[derive(Debug, Default)]
pub(super) struct EndpointReports {
    queue: VecDeque<EndpointEvent>,
    /// [`crate::cid::RemoteCids::generation`] at the last report.
    generation: Option<u32>,
    /// The stateless reset tokens at the last report, and the peer's address then.
    resets: Vec<StatelessResetToken>,
    resets_of: Option<SocketAddr>,
    handshake_over: bool,
}

impl EndpointReports {
    /// Gives back memory without events.
    fn trim(&mut self) {
        self.queue.shrink_to_fit();
        self.resets.shrink_to_fit();
    }

    /// The next event.
    pub(super) fn pop(&mut self) -> Option<EndpointEvent> {
        self.queue.pop_front()
    }

    /// Tells of connection IDs, ours and the peer's, that are new or retired.
    pub(super) fn on_cids(&mut self, now: Time, cids: &mut ConnectionIds, paths: &Paths) {
        while let Some(event) = cids.local.poll_event(now) {
            self.queue.push_back(match event {
                CidEvent::Added(cid) => EndpointEvent::CidAdded(cid),
                CidEvent::Retired(cid) => EndpointEvent::CidRetired(cid),
            });
        }
        let generation = cids.remote.generation();
        if self.generation == Some(generation) {
            return;
        }
        self.generation = Some(generation);
        let remote = paths.active().remote();
        if let Some(former) = self.resets_of.replace(remote) {
            let removed = |token| EndpointEvent::ResetTokenRemoved(former, token);
            self.queue.extend(self.resets.drain(..).map(removed));
        }
        for token in cids.remote.reset_tokens() {
            self.resets.push(*token);
            self.queue.push_back(EndpointEvent::ResetTokenAdded(remote, *token));
        }
    }

    /// The peer is at this address now. From another one its stateless reset tokens are good no more
    /// (RFC 9000, Section 10.3.1).
    fn on_remote(&mut self, remote: SocketAddr) {
        if self.resets_of.is_some_and(|former| former != remote) {
            self.generation = None;
        }
    }

    /// Server: the handshake is confirmed, and the connection ID of Initial packets leads to the
    /// connection no longer. Where a handshake has failed, what is left of it counts until it is
    /// drained.
    pub(super) fn handshake_over(&mut self, initial: ConnectionId) {
        if !core::mem::replace(&mut self.handshake_over, true) {
            self.queue.push_back(EndpointEvent::HandshakeOver);
        }
        self.queue.push_back(EndpointEvent::CidRetired(initial));
    }

    /// Nothing is left of the connection.
    pub(super) fn drained(&mut self) {
        self.queue.push_back(EndpointEvent::Drained);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_told_to_the_application_and_the_endpoint() {
        let mut reporting = Reporting::default();
        reporting.closed(Time::ZERO, &ConnectionError::IdleTimeout);
        reporting.endpoint.drained();
        assert_eq!(reporting.events.pop_end(), Some(Event::Closed(ConnectionError::IdleTimeout)));
        assert_eq!(reporting.endpoint.pop(), Some(EndpointEvent::Drained));
        assert_eq!(reporting.endpoint.pop(), None);
    }

    #[test]
    fn the_handshake_is_over_once() {
        let mut endpoint = EndpointReports::default();
        let cid = ConnectionId::new(&[1; 8]).unwrap();
        endpoint.handshake_over(cid);
        endpoint.handshake_over(cid);
        let events = [EndpointEvent::HandshakeOver, EndpointEvent::CidRetired(cid)];
        for event in events.into_iter().chain([EndpointEvent::CidRetired(cid)]) {
            assert_eq!(endpoint.pop(), Some(event));
        }
    }

    #[test]
    fn what_is_dropped_is_counted() {
        let mut reporting = Reporting::default();
        reporting.packet_dropped(Time::ZERO, None, 20, DropReason::Malformed);
        reporting.probe_timeout();
        reporting.trim();
        let counters = reporting.counters.get();
        assert_eq!((counters.packets_dropped, counters.probe_timeouts), (1, 1));
        assert!(!reporting.has_received());
    }
}
