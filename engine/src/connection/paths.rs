//! Path validation, rebinding and migration (RFC 9000, Sections 8.2 and 9).

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quicket_wire::frame::{PathChallenge, PathResponse, Ping};
use quicket_wire::{ConnectionId, EcnCodepoint, Header, Side, TransportParameters};

use super::Connection;
use super::receive::Arrival;
use super::sealing::Draft;
use super::transmit::{MIN_PACKET, Outgoing, Purpose, Route, Transmit};
use crate::config::{MAX_UDP_PAYLOAD, TransportConfig};
use crate::crypto::Level;
use crate::error::TransportError;
use crate::event::Event;
use crate::frame_sink::FrameSink;
use crate::path::{
    FourTuple, MigrationError, MtuSettings, PacketContext, Path, PathChange, PathEvent, PathKey,
    PathSettings, Paths,
};
use crate::random::Random;
use crate::sent_frame::SentFrame;
use crate::time::{Duration, Time};

/// The path of the first datagram.
#[inline(never)] // keeps it out of the frame of `Connection::new`
pub(super) fn first_path(
    side: Side,
    now: Time,
    config: &TransportConfig,
    tuple: FourTuple,
    peer_may_migrate: bool,
    rng: &mut dyn Random,
) -> Box<Paths> {
    Box::new(Paths::new(side, now, tuple, settings(config, peer_may_migrate), rng))
}

/// What paths need of the configuration.
pub(super) fn settings(config: &TransportConfig, peer_may_migrate: bool) -> PathSettings {
    let mtu = MtuSettings {
        initial: config.initial_udp_payload_size,
        upper_bound: config
            .mtu_discovery
            .map_or(config.initial_udp_payload_size, |m| m.upper_bound),
        interval: config.mtu_discovery.map_or(Duration::MAX, |discovery| discovery.interval.into()),
        peer_limit: MAX_UDP_PAYLOAD,
    };
    PathSettings {
        ecn: config.ecn,
        spin_bit: config.spin_bit,
        mtu,
        peer_may_migrate,
        congestion: config.congestion.into(),
        initial_rtt: config.initial_rtt.into(),
        pacing: config.pacing,
    }
}

/// The addresses of a path; this side's is unspecified where it is not known.
pub(super) fn four_tuple(local: Option<SocketAddr>, remote: SocketAddr) -> FourTuple {
    let unspecified = match remote {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    FourTuple { local: local.unwrap_or(SocketAddr::new(unspecified, 0)), remote }
}

impl Route {
    pub(super) fn of(path: &Path) -> Self {
        let local = path.local();
        let known = !local.ip().is_unspecified() || local.port() != 0;
        Self {
            key: path.key(),
            remote: path.remote(),
            local: known.then_some(local),
            ecn: path.ecn.codepoint(),
        }
    }
}

impl Connection {
    pub(super) fn active_route(&self) -> Route {
        Route::of(self.paths.active())
    }

    fn packet_context(&self, now: Time, dcid: &ConnectionId) -> PacketContext {
        PacketContext {
            now,
            is_probing: true,
            is_largest: false,
            local_cid: self.cids.local.sequence_of(dcid).unwrap_or(0),
            pto: self.validation_pto(),
        }
    }

    /// RFC 9000, Section 8.2.4: the larger of the current PTO and that of a new path.
    fn validation_pto(&self) -> Duration {
        self.pto().max(Duration::from(self.config.initial_rtt).times(3))
    }

    /// The path of an authenticated packet; `None` if the packet must be dropped for where it
    /// comes from.
    pub(super) fn admit_path(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        level: Level,
    ) -> Result<Option<PathKey>, TransportError> {
        if arrival.path.is_some() {
            return Ok(arrival.path);
        }
        // What completes the handshake counts wherever it comes from, such as a NAT's next port: nobody but the client has
        // the keys, which proves that the address that it began with is its own (Section 8.1). That one is stable until then
        // (Section 9), so nothing is sent elsewhere yet.
        if level == Level::Handshake && self.role.side() == Side::Server && !self.handshake.complete
        {
            return Ok(Some(self.paths.active().key()));
        }
        let context = self.packet_context(arrival.now, &header.dcid);
        let known = self.paths.find(&arrival.tuple);
        let len = arrival.datagram_len;
        let Some(key) = self.paths.admit(arrival.tuple, len, &context, &mut *self.rng) else {
            return Ok(None);
        };
        // The path that made room leaves its place among the users of a connection ID too.
        self.release_removed_paths()?;
        if known.is_none() {
            self.give_cid(key);
        }
        Ok(Some(key))
    }

    /// Finds a connection ID of the peer's for a path: the one in use if the peer's address
    /// changed under it, or else an unused one (RFC 9000, Section 9.5). False if there is none.
    fn give_cid(&mut self, key: PathKey) -> bool {
        let shared = self.paths.shares_cid_with(key);
        self.cids.give(key, shared)
    }

    /// A packet of the application data space was processed on path `key`.
    pub(super) fn on_packet_path(
        &mut self,
        now: Time,
        dcid: &ConnectionId,
        key: PathKey,
        (is_largest, is_probing): (bool, bool),
    ) -> Result<(), TransportError> {
        let mut context = self.packet_context(now, dcid);
        context.is_largest = is_largest;
        // RFC 9000, Section 9.5: the peer cannot be followed to where no connection ID of its own
        // leads. Perhaps this packet brought one. A client follows nobody: what comes late on a
        // path that it has left must not cost a connection ID.
        let stays = key == self.paths.active().key() || self.role.side().is_client();
        let reachable = stays || self.give_cid(key);
        context.is_probing = is_probing || !reachable;
        let event = self.paths.on_packet(key, &context);
        self.on_path_event(now, event)
    }

    pub(super) fn on_path_challenge(&mut self, key: PathKey, frame: &PathChallenge) {
        if let Some(path) = self.paths.get_mut(key) {
            path.responses.push(frame.data);
        }
    }

    pub(super) fn on_path_response(
        &mut self,
        now: Time,
        frame: &PathResponse,
    ) -> Result<(), TransportError> {
        let pto = self.validation_pto();
        let event = self.paths.on_path_response(now, frame.data, pto);
        self.on_path_event(now, event)
    }

    /// Paths' timers.
    pub(super) fn paths_timeout(&mut self, now: Time) -> Result<(), TransportError> {
        // Each round removes a path or settles one, so there are few.
        let pto = self.validation_pto();
        for _ in 0..2 * crate::path::MAX_PATHS {
            match self.paths.on_timeout(now, pto) {
                PathEvent::None => break,
                event => self.on_path_event(now, event)?,
            }
        }
        self.release_removed_paths()
    }

    fn release_removed_paths(&mut self) -> Result<(), TransportError> {
        while let Some(key) = self.paths.take_removed() {
            self.cids.remote.release(key)?;
        }
        Ok(())
    }

    fn on_path_event(&mut self, now: Time, event: PathEvent) -> Result<(), TransportError> {
        match event {
            PathEvent::None | PathEvent::Validated(_) => {}
            PathEvent::Migrated(change) | PathEvent::FellBack(change) => {
                self.on_path_change(now, change);
            }
            PathEvent::Failed(_) => {
                let remote = self.paths.active().remote();
                self.reporting.events.push(Event::PathFailed { remote });
            }
            PathEvent::NoViablePath => self.end(now, crate::ConnectionError::NoViablePath),
        }
        self.release_removed_paths()?;
        self.report_cids(now);
        Ok(())
    }

    fn on_path_change(&mut self, now: Time, _change: PathChange) {
        self.recovery.ack_frequency.on_path_changed();
        // That the other path did not answer says nothing about this one.
        self.recovery.reset_backoff();
        // RFC 9000, Section 9.2: the server follows what is more than a probe. Who only receives has
        // nothing else to send.
        self.recovery.spaces.data.ping |= self.role.side() == Side::Client;
        let route = self.active_route();
        self.reporting.path_changed(now, route.local, route.remote);
        self.set_loss_timer();
    }

    /// Client: moves the connection to another local address, once that path is validated
    /// (RFC 9000, Section 9.2).
    ///
    /// # Errors
    ///
    /// Says why the connection cannot move, or not now.
    pub fn migrate(&mut self, now: Time, local: SocketAddr) -> Result<(), MigrationError> {
        let tuple = FourTuple { local, remote: self.remote() };
        if !self.cids.allow_another_path() {
            return Err(MigrationError::NoConnectionId);
        }
        let pto = self.validation_pto();
        let key = self.paths.migrate(tuple, now, pto, &mut *self.rng)?;
        self.cids.remote.take_unused(key);
        self.report_cids(now);
        Ok(())
    }

    /// Client: moves the connection to another local address at once, without asking first whether
    /// the server is reached from there (RFC 9000, Section 9.2): for one whose present address is
    /// gone. The path is validated afterwards.
    ///
    /// Where the server forbids active migration (Section 18.2), or has given no connection ID for
    /// another path (Section 9.5), the present path goes on from there: the server sees what it
    /// sees of a NAT that has forgotten a binding. Nothing else is left to do, and a server that
    /// takes no packets from there loses the connection to its idle timeout, as it would without.
    ///
    /// # Errors
    ///
    /// On servers, and before the handshake is confirmed.
    pub fn move_at_once(&mut self, now: Time, local: SocketAddr) -> Result<(), MigrationError> {
        if self.role.side() != Side::Client {
            return Err(MigrationError::NotClient);
        }
        if !self.handshake.confirmed {
            return Err(MigrationError::HandshakeNotConfirmed);
        }
        match self.migrate(now, local) {
            Ok(()) => {
                let key = self.paths.find(&FourTuple { local, remote: self.remote() });
                if let Some(change) = key.and_then(|key| self.paths.move_at_once(key)) {
                    self.on_path_change(now, change);
                }
            }
            Err(
                MigrationError::DisabledByPeer
                | MigrationError::NoConnectionId
                | MigrationError::TooManyPaths
                | MigrationError::AlreadyActive,
            ) => self.rebind(now, local),
            Err(error) => return Err(error),
        }
        self.report_cids(now);
        Ok(())
    }

    /// Client: the present path goes on from another local address, which may come about during the
    /// handshake, too; and what was in flight is probed for at once.
    pub fn rebind(&mut self, now: Time, local: SocketAddr) {
        if self.role.side() == Side::Client {
            self.paths.rebind(local);
            self.on_network_returned(now);
        }
    }

    /// This host has a network again, after a time in which nothing went out: probes at once, and
    /// not when a timeout says so that has grown meanwhile (RFC 9002, Section 6.2.1).
    pub fn on_network_returned(&mut self, now: Time) {
        if !self.termination.is_open() {
            return;
        }
        // RFC 9002, Section 6.2.1: the back-off is for a network that does not answer.
        self.recovery.reset_backoff();
        self.set_loss_timer();
        match self.recovery.timer() {
            Some(timer) => self.on_loss_timer(now, timer),
            None => self.recovery.spaces.data.ping |= self.handshake.complete,
        }
    }

    /// Client: moves to the server's preferred address (RFC 9000, Section 9.6): the one of the
    /// path's IP family, or else that of the other, if there is a way there.
    pub(super) fn move_to_preferred_address(&mut self, now: Time) {
        let Some((same, other)) = self.preferred_addresses() else { return };
        let active = self.paths.active().tuple();
        let tuple = match (same, other.zip(self.handshake.other_family.as_deref().copied())) {
            (Some(remote), _) if remote != active.remote => {
                FourTuple { local: active.local, remote }
            }
            (None, Some((remote, local))) => FourTuple { local, remote },
            _ => return,
        };
        let pto = self.validation_pto();
        if let Ok(key) = self.paths.move_when_valid(tuple, now, pto, &mut *self.rng) {
            self.cids.remote.take_unused(key);
        }
    }

    /// Client: where the server would like the connection to move, if it names an address of the
    /// IP family that the path does not have, and none of the other. See
    /// [`Connection::reach_other_family`].
    #[must_use]
    pub fn preferred_other_family(&self) -> Option<SocketAddr> {
        let (same, other) = self.preferred_addresses()?;
        if same.is_none() { other } else { None }
    }

    /// The addresses of the server's preferred_address: that of the path's IP family, and that of
    /// the other. None for a client of zero-length connection IDs: by the server's address alone it knows whose
    /// packets are whose (RFC 9000, Section 5.1), and nothing would lead from another one to the connection.
    fn preferred_addresses(&self) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
        if self.handshake.cids.local_scid.is_empty() {
            return None;
        }
        let preferred = self.peer_transport_parameters()?.preferred_address?;
        let v4 = preferred.ipv4.map(SocketAddr::V4);
        let v6 = preferred.ipv6.map(SocketAddr::V6);
        Some(if self.remote().is_ipv4() { (v4, v6) } else { (v6, v4) })
    }

    /// Client: there is a local address from which the connection can reach
    /// [`Connection::preferred_other_family`]. It moves there once the handshake is confirmed and
    /// the path validated (RFC 9000, Section 9.6.1).
    pub fn reach_other_family(&mut self, now: Time, local: SocketAddr) {
        self.handshake.other_family = Some(Box::new(local));
        if self.role.side() == Side::Client && self.handshake.confirmed {
            self.move_to_preferred_address(now);
        }
    }

    /// A server's parameters that depend on the connection: reset token and preferred address.
    pub(super) fn server_parameters(&mut self, ours: &mut TransportParameters) {
        let crypto = self.keys.crypto().clone();
        let endpoint = self.endpoint.clone();
        let token = |cid: &ConnectionId| {
            crate::stateless_reset::token(&*crypto, &endpoint.reset_key_of(cid), cid)
        };
        let scid = self.handshake.cids.local_scid;
        if !scid.is_empty() && self.config.announced.stateless_reset != Some(false) {
            ours.stateless_reset_token = Some(token(&scid));
        }
        let Some(server) = self.role.server_config().cloned() else { return };
        ours.disable_active_migration = !server.migration;
        let (ipv4, ipv6) = (server.preferred_address_v4, server.preferred_address_v6);
        if (ipv4.is_none() && ipv6.is_none()) || scid.is_empty() {
            return;
        }
        let connection_id = self.endpoint.cid_generator.generate(&mut *self.rng);
        let stateless_reset_token = token(&connection_id);
        self.cids.local.add_preferred(connection_id, stateless_reset_token);
        self.paths.set_preferred_address();
        ours.preferred_address = Some(Box::new(quicket_wire::PreferredAddress {
            ipv4,
            ipv6,
            connection_id,
            stateless_reset_token,
        }));
    }

    /// PATH_CHALLENGE and PATH_RESPONSE on paths other than the active one, each in a datagram
    /// of its own (RFC 9000, Sections 8.2.1 and 8.2.2).
    #[inline(never)] // keeps its datagram out of the frame of `poll_transmit`
    pub(super) fn transmit_path_probe(
        &mut self,
        now: Time,
        buf: &mut [u8],
    ) -> Option<Draft<Transmit>> {
        if !self.handshake.complete {
            return None;
        }
        let active = self.paths.active().key();
        let wants = |path: &&Path| {
            path.key() != active
                && (path.responses.has_pending() || path.validation.is_challenge_due(now))
                && path.sendable() >= MIN_PACKET
                && self.cids.remote.get(path.key()).is_some()
        };
        let path = self.paths.iter().find(wants)?;
        let says_last_word = path.is_left() && path.responses.has_pending();
        let route = Route::of(path);
        let limit = buf.len().min(usize::from(path.max_datagram())).min(path.sendable());
        let mut out = Outgoing::new(now, buf, route, limit, Purpose::PathProbe);
        self.build_packet(&mut out, Level::OneRtt, |_, owners, packet| {
            owners.write_path(packet);
        });
        let len = self.finish_datagram(&mut out)?;
        if says_last_word && self.role.side().is_client() {
            self.leave_path(now, route.key);
        }
        Some(route.transmit(len, len))
    }

    /// Client: the server has seen the move, as its challenge on the former path shows (RFC 9000,
    /// Section 9.3.3), and has its answer: nothing else is to be sent there, and an endpoint
    /// should retire the connection ID of an address that it uses no more (Section 5.1.2). The
    /// path stays for what comes late.
    fn leave_path(&mut self, now: Time, key: PathKey) {
        if self.cids.remote.is_zero_length() {
            return;
        }
        // The endpoint hears of it with the next packet: not in between, while packets go out.
        if let Err(error) = self.cids.remote.release(key) {
            self.fail(now, error);
        }
    }

    /// A probe for a larger MTU: a PING and padding (RFC 9000, Section 14.4).
    #[inline(never)] // keeps its datagram out of the frame of `poll_transmit`
    pub(super) fn transmit_mtu_probe(
        &mut self,
        now: Time,
        buf: &mut [u8],
    ) -> Option<Draft<Transmit>> {
        if !self.handshake.confirmed || !self.paths.active().is_validated() {
            return None;
        }
        let path = self.paths.active_mut();
        let size = path.mtu.poll_probe(now)?;
        let limit = usize::from(size);
        if limit > buf.len() || !path.congestion.can_send(u64::from(size)) {
            return None;
        }
        let mut route = Route::of(path);
        route.ecn = EcnCodepoint::NotEct;
        let mut out = Outgoing::new(now, buf, route, limit, Purpose::MtuProbe);
        self.build_packet(&mut out, Level::OneRtt, |_, _, packet| {
            // The packet is empty so far and has room for more than a PING.
            let _ = packet.frame(&Ping, Some(SentFrame::Ping));
        });
        let len = self.finish_datagram(&mut out)?;
        self.paths.active_mut().mtu.on_probe_sent();
        Some(route.transmit(len, len))
    }

    /// The spin bit (RFC 9000, Section 17.4).
    pub(super) fn update_spin(&mut self, key: PathKey, spin: bool, is_largest: bool) {
        let is_client = self.role.side().is_client();
        if let Some(path) = self.paths.get_mut(key)
            && is_largest
        {
            path.spin.on_largest_received(spin, is_client);
        }
    }
}
