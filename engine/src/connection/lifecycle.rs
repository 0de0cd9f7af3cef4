//! From open to drained, and what the endpoint must know on the way.

use quicket_wire::{Side, TransportErrorCode};

use super::Connection;
use super::space::SpaceId;
use super::state::CloseReason;
use crate::crypto::Level;
use crate::endpoint::EndpointEvent;
use crate::error::{ConnectionError, TransportError};
use crate::event::Event;
use crate::observer::Observation;
use crate::stateless_reset;
use crate::time::Time;
use crate::token::{self, TokenSealer};

impl Connection {
    /// What the endpoint must know: pass it to [`crate::Endpoint::handle_event`].
    pub fn poll_endpoint_event(&mut self) -> Option<EndpointEvent> {
        self.reporting.endpoint.pop()
    }

    /// What the application may want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.reporting.events.is_over() {
            return None;
        }
        if let Some(event) = self.reporting.events.pop() {
            return Some(event);
        }
        if self.datagrams.take_unblocked() {
            return Some(Event::DatagramsUnblocked);
        }
        let event = self.streams.poll_event().map(Event::Stream);
        event.or_else(|| self.reporting.events.pop_end())
    }

    /// Issues connection IDs as far as the peer wants them (RFC 9000, Section 5.1.1).
    pub(super) fn issue_cids(&mut self, now: Time) {
        if !self.handshake.complete {
            return;
        }
        let (endpoint, crypto, rng) = (&self.endpoint, self.keys.crypto(), &mut self.rng);
        self.cids.issue(now, || {
            let cid = endpoint.cid_generator.generate(&mut **rng);
            let token = stateless_reset::token(&**crypto, &endpoint.reset_key_of(&cid), &cid);
            (cid, token)
        });
        self.report_cids(now);
    }

    /// Tells the endpoint of new and retired connection IDs, ours and the peer's.
    pub(super) fn report_cids(&mut self, now: Time) {
        self.reporting.endpoint.on_cids(now, &mut self.cids, &self.paths);
    }

    /// What follows from the confirmation of the handshake.
    pub(super) fn on_confirmed(&mut self, now: Time) {
        self.recovery.on_handshake_confirmed();
        self.paths.set_handshake_confirmed();
        if self.role.side() == Side::Server {
            self.reporting.endpoint.handshake_over(self.handshake.cids.initial_dcid);
        } else {
            self.move_to_preferred_address(now);
        }
        self.set_loss_timer();
    }

    /// Forgets a packet number space whose keys are discarded (RFC 9001, Section 4.9;
    /// RFC 9002, Section 6.4).
    pub(super) fn discard_space(&mut self, now: Time, id: SpaceId) {
        let Some(mut space) = self.recovery.discard_space(id) else { return };
        space.recovery.discard(|packet| self.paths.on_packet_discarded(packet));
        match id {
            SpaceId::Initial => self.keys.discard_initial(),
            SpaceId::Handshake => self.keys.discard_handshake(),
            SpaceId::Data => {}
        }
        self.reporting.observe(now, &Observation::KeysDiscarded { level: id.level() });
        self.set_loss_timer();
    }

    /// True once a packet of the peer was opened.
    pub fn has_received(&self) -> bool {
        self.reporting.has_received()
    }

    /// The keys were updated (RFC 9001, Section 6).
    pub(super) fn on_key_update(&mut self, now: Time, by_peer: bool) {
        self.reporting.key_updated(now, self.keys.updates(), by_peer);
    }

    /// Updates the keys before the AEAD's limit is reached; ends the connection if that is no
    /// longer possible (RFC 9001, Section 6.6).
    pub(super) fn watch_key_usage(&mut self, now: Time) {
        if !self.keys.is_update_due() {
            return;
        }
        if self.keys.may_update(self.handshake.confirmed) {
            self.keys.update();
            self.on_key_update(now, false);
        } else if self.keys.is_exhausted() {
            self.fail(
                now,
                TransportError::new(
                    TransportErrorCode::AEAD_LIMIT_REACHED,
                    "the peer did not let the keys be updated in time",
                ),
            );
        }
    }

    /// Server: queues tokens for the client's next connections (RFC 9000, Section 8.1.3).
    pub(super) fn queue_new_tokens(&mut self, now: Time, count: u8) {
        let Some(now) = self.role.unix_secs(now) else { return };
        let sealer =
            TokenSealer { crypto: &**self.keys.crypto(), keys: self.endpoint.token_keys(), now };
        let client = self.paths.active().remote().ip();
        for _ in 0..count {
            if let Some(token) = token::seal_new_token(&sealer, client, &mut *self.rng) {
                self.pending.push_token(token);
            }
        }
    }

    /// Server: sends the client a token for its next connection (RFC 9000, Section 8.1.3); false
    /// if the last one is still on its way, or the handshake not complete.
    pub fn send_new_token(&mut self, now: Time) -> bool {
        let may = self.role.side() == Side::Server
            && self.is_established()
            && !self.pending.has_unacknowledged_token();
        if may {
            self.queue_new_tokens(now, 1);
        }
        may
    }

    /// An error found here closes the connection.
    pub(super) fn fail(&mut self, now: Time, error: TransportError) {
        self.close_with(now, CloseReason::Transport(error));
    }

    /// Sends CONNECTION_CLOSE and enters the closing state (RFC 9000, Section 10.2.1).
    pub(super) fn close_with(&mut self, now: Time, reason: CloseReason) {
        let until = now + self.pto().times(3);
        if self.termination.close(until, reason) {
            self.closed(now);
        }
    }

    /// The peer closed: enters the draining state (RFC 9000, Section 10.2.2).
    pub(super) fn drain(&mut self, now: Time, error: ConnectionError) {
        let until = now + self.pto().times(3);
        if self.termination.drain(until, error) {
            self.closed(now);
        }
    }

    /// Ends the connection at once, without a word.
    pub(super) fn end(&mut self, now: Time, error: ConnectionError) {
        if self.termination.end(error) {
            self.closed(now);
            self.reporting.endpoint.drained();
        }
    }

    /// The connection is over: tells the application.
    fn closed(&mut self, now: Time) {
        if let Some(error) = self.termination.error() {
            self.reporting.closed(now, error);
        }
    }

    /// Nothing is left of the connection.
    pub(super) fn become_drained(&mut self) {
        if self.termination.become_drained() {
            self.reporting.endpoint.drained();
        }
    }

    /// A long header tells the peer's connection ID and, to a server, that the client has
    /// Handshake keys.
    pub(super) fn on_long_header(
        &mut self,
        now: Time,
        header: &quicket_wire::Header,
        level: Level,
    ) -> Result<(), crate::TransportError> {
        if level != Level::EarlyData {
            self.remember_peer_cid(header.scid);
            // RFC 9000, Section 7.2: later packets with another Source Connection ID are
            // discarded; this one has authenticated, so the peer is at fault.
            if self.handshake.cids.remote_scid != Some(header.scid) {
                return Err(crate::TransportError::new(
                    quicket_wire::TransportErrorCode::PROTOCOL_VIOLATION,
                    "the peer changed its connection ID during the handshake",
                ));
            }
        }
        if self.role.side().is_client() && header.version != self.handshake.versions.current {
            self.handshake.versions.current = header.version;
            self.use_version(now);
        }
        if level == Level::Handshake && self.role.side() == Side::Server {
            // RFC 9000, Section 8.1: the client's address is validated. Its keys come of what was sent to that address alone,
            // so this may have come from another one. RFC 9001, Section 4.9.1: Initial keys are of no more use.
            self.paths.active_mut().set_validated();
            self.discard_space(now, SpaceId::Initial);
        }
        Ok(())
    }
}
