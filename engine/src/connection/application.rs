//! What the application does with a connection.

mod datagrams;
mod streams;

use alloc::boxed::Box;
use core::net::SocketAddr;

use quicket_wire::{Side, TransportParameters, Version};

pub(super) use datagrams::new_datagrams;
pub(super) use streams::new_streams;

use super::parameters::Kept;
use super::state::CloseReason;
use super::{Connection, EarlyData, close};
use crate::cid::CidNumbers;
use crate::congestion::Congestion;
use crate::crypto::{APPLICATION_LIMITS, Deferred, HandshakeError, HandshakeSummary, TlsConfig};
use crate::error::{ConnectionError, TransportError};
use crate::observer::Observer;
use crate::stats::{PathStats, Stats};
use crate::time::Time;

/// Why keys cannot be updated now (RFC 9001, Section 6.1 and 6.5).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyUpdateError;

/// In words, for it is what a `main` that returns the error shows.
impl core::fmt::Debug for KeyUpdateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self} (KeyUpdateError)")
    }
}

impl core::fmt::Display for KeyUpdateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "keys can be updated once the handshake is confirmed and the last update is \
             acknowledged; try again a few round trips later",
        )
    }
}

impl core::error::Error for KeyUpdateError {}

/// What is the application's.
impl Connection {
    /// What TLS leaves to be done for the application, in its order. Whoever holds a lock for this
    /// connection calls it after that: it may use the connection.
    pub fn poll_deferred(&mut self) -> Option<Deferred> {
        self.handshake.poll_deferred()
    }
}

/// The end.
impl Connection {
    /// Closes the connection with the application's `code` and up to 256 bytes of `reason`;
    /// what was not delivered may be lost (RFC 9000, Section 10.2).
    pub fn close(&mut self, now: Time, code: u64, reason: &[u8]) {
        let code = code.min(quicket_wire::varint::MAX);
        let reason = reason.get(..close::MAX_REASON).unwrap_or(reason).to_vec();
        self.close_with(now, CloseReason::Application { code, reason });
    }

    /// True once the connection has ended; packets may still be sent to tell the peer.
    pub fn is_closed(&self) -> bool {
        !self.termination.is_open()
    }

    /// True once nothing is left to do and the connection can be dropped.
    pub fn is_drained(&self) -> bool {
        self.termination.is_drained()
    }

    /// Why the connection ended.
    pub fn close_reason(&self) -> Option<&ConnectionError> {
        self.termination.error()
    }

    /// What TLS said when the handshake failed on this side.
    pub fn handshake_error(&self) -> Option<&HandshakeError> {
        self.handshake.error()
    }
}

/// The handshake.
impl Connection {
    /// Which side of the connection this is.
    pub fn side(&self) -> Side {
        self.role.side()
    }

    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        !self.handshake.complete && self.termination.is_open()
    }

    /// True while the handshake is complete and the connection open.
    pub fn is_established(&self) -> bool {
        self.handshake.complete && self.termination.is_open()
    }

    /// True once the peer is known to know that the handshake is complete
    /// (RFC 9001, Section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        self.handshake.confirmed
    }

    /// What the handshake settled, once it is complete.
    pub fn handshake_summary(&self) -> Option<&HandshakeSummary> {
        self.handshake.summary.as_deref()
    }

    /// The application protocol, once settled: servers know it before they read early data
    /// (RFC 9001, Section 8.1). Empty if none was negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        let settled = self.handshake_summary().map(|summary| summary.alpn.as_slice());
        settled.or_else(|| self.handshake.tls()?.alpn())
    }

    /// The server name that was asked for: servers know it with [`Self::alpn`]. `None` if the client asked for none.
    pub fn server_name(&self) -> Option<&str> {
        match self.handshake_summary() {
            Some(summary) => summary.server_name.as_deref(),
            None => self.handshake.tls()?.server_name(),
        }
    }

    /// The limits that an application of a server has to announce here, as tickets promise them
    /// ([`Handshake::application_limits`](crate::crypto::Handshake::application_limits)).
    pub fn application_limits(&self) -> Option<[u64; APPLICATION_LIMITS]> {
        self.handshake.tls()?.application_limits()
    }

    /// What became of early data.
    pub fn early_data(&self) -> EarlyData {
        self.handshake.early_data
    }

    /// The version in use.
    pub fn version(&self) -> Version {
        self.handshake.versions.current
    }

    /// The peer's transport parameters, once known.
    pub fn peer_transport_parameters(&self) -> Option<TransportParameters> {
        self.handshake.remote_parameters.as_ref().map(Kept::get)
    }

    /// Our transport parameters, once sent.
    pub fn local_transport_parameters(&self) -> Option<TransportParameters> {
        self.handshake.local_parameters.as_ref().map(Kept::get)
    }

    /// True if 1-RTT packets are not encrypted, because both sides asked for that.
    pub fn is_1rtt_encryption_disabled(&self) -> bool {
        self.keys.is_1rtt_plain()
    }

    /// Keying material for the application (RFC 8446, Section 7.5).
    pub fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        match self.handshake.tls() {
            Some(tls) => tls.export_keying_material(label, context, out),
            None => Err(HandshakeError {
                alert: crate::crypto::Alert::INTERNAL_ERROR,
                reason: "the handshake has not started".into(),
            }),
        }
    }

    /// Server: goes on after [`crate::Event::ClientHello`] with this TLS configuration.
    pub fn accept_handshake(&mut self, now: Time, tls: &dyn TlsConfig) {
        let result = self.start_server_handshake(now, tls);
        self.after_tls(now, result);
    }

    /// Server: goes on after [`crate::Event::ClientHello`] with the configuration that the connection was accepted with.
    pub fn accept_handshake_as_configured(&mut self, now: Time) {
        if let Some(tls) = self.handshake.held_tls() {
            self.accept_handshake(now, &*tls);
        }
    }

    /// A handshake that runs elsewhere has something new to say.
    pub fn handshake_progressed(&mut self, now: Time) {
        if self.termination.is_open() {
            let result = self.drive_handshake(now);
            self.after_tls(now, result);
        }
    }

    fn after_tls(&mut self, now: Time, result: Result<(), TransportError>) {
        match result {
            Ok(()) => self.after_receiving(now),
            Err(error) => self.fail(now, error),
        }
    }
}

/// Keys, paths, numbers.
impl Connection {
    /// Has another congestion controller decide from now on, as it would on a new path: it is meant for the
    /// beginning of a connection, once more is known of the peer. Nothing changes if it is the one that decides
    /// already, with the same parameters.
    pub fn set_congestion(&mut self, now: Time, congestion: impl Into<Congestion>) {
        self.paths.set_congestion(congestion.into(), now, &mut *self.rng);
    }

    /// Updates the 1-RTT keys (RFC 9001, Section 6).
    pub fn update_keys(&mut self, now: Time) -> Result<(), KeyUpdateError> {
        if !self.termination.is_open() || !self.keys.may_update(self.handshake.confirmed) {
            return Err(KeyUpdateError);
        }
        self.wake_keys(now);
        self.keys.update();
        self.on_key_update(now, false);
        Ok(())
    }

    /// Sends a PING, so that the peer answers.
    pub fn ping(&mut self) {
        self.recovery.ping();
    }

    /// Replaces all our connection IDs (RFC 9000, Section 5.1.2); false if a replacement is
    /// under way.
    pub fn rotate_local_cids(&mut self, now: Time) -> bool {
        let rotated = self.cids.local.rotate();
        self.issue_cids(now);
        rotated
    }

    /// Addresses the peer by another of its connection IDs; false if it has given us no other.
    pub fn rotate_remote_cid(&mut self, now: Time) -> bool {
        let key = self.paths.active().key();
        let rotated = match self.cids.remote.rotate(key) {
            Ok(rotated) => rotated,
            Err(error) => {
                self.fail(now, error);
                false
            }
        };
        self.report_cids(now);
        rotated
    }

    /// The numbers of our connection IDs.
    pub fn local_cid_numbers(&self) -> CidNumbers {
        self.cids.local.numbers()
    }

    /// The numbers of the peer's connection IDs.
    pub fn remote_cid_numbers(&self) -> CidNumbers {
        self.cids.remote.numbers(self.paths.active().key())
    }

    /// Has the peer retire our connection IDs below this number (RFC 9000, Section 5.1.2); false
    /// if the number is not above that of an earlier request and below that of the next
    /// connection ID, or an earlier request is unanswered.
    pub fn retire_local_cids(&mut self, now: Time, prior_to: u64) -> bool {
        let retires = self.cids.local.retire_prior_to(prior_to);
        self.issue_cids(now);
        retires
    }

    /// Retires the peer's connection IDs below this number; paths that used them take others.
    pub fn retire_remote_cids(&mut self, now: Time, prior_to: u64) {
        if let Err(error) = self.cids.remote.retire_prior_to(prior_to) {
            self.fail(now, error);
        }
        self.report_cids(now);
    }

    /// Addresses the peer by its connection ID of this number; false if there is none or it was
    /// used already.
    pub fn use_remote_cid(&mut self, now: Time, sequence: u64) -> bool {
        let switched = self.cids.remote.switch_to(self.paths.active().key(), sequence);
        self.report_cids(now);
        switched
    }

    /// True while a path is being validated to which this side wants to move.
    pub fn is_migrating(&self) -> bool {
        self.paths.is_migrating()
    }

    /// The local address to which this side moves as soon as the peer answers there.
    pub fn migrating_to(&self) -> Option<core::net::SocketAddr> {
        self.paths.migrating_to()
    }

    /// The ports of this host that its paths have, those that it may still hear from included.
    pub fn local_ports(&self) -> impl Iterator<Item = u16> {
        self.paths.iter().map(|path| path.local().port())
    }

    /// True while it is not known whether the peer is reached by the active path.
    pub fn is_validating(&self) -> bool {
        self.paths.active().validation.is_validating()
    }

    /// Bytes that were sent and neither acknowledged nor taken for lost, on the active path.
    pub fn bytes_in_flight(&self) -> u64 {
        self.paths.active().congestion.stats().in_flight
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.paths.active().remote()
    }

    /// This side's address, if known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.active_route().local
    }

    /// The socket refused to send a datagram of `size` bytes as too large for this host.
    pub fn on_send_refused(&mut self, size: usize) {
        let Ok(size) = u16::try_from(size) else { return };
        let path = self.paths.active_mut();
        if path.mtu.on_send_refused(size) {
            path.congestion.on_mtu_changed(path.mtu.current());
        }
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats {
            counters: self.reporting.counters.get(),
            path: self.path_stats(),
            streams: self.streams.len(),
            send_buffered: self.streams.held(),
            datagrams_dropped: self.datagrams.received_dropped(),
        }
    }

    /// Gauges of the active path.
    pub(super) fn path_stats(&self) -> PathStats {
        let path = self.paths.active();
        let congestion = path.congestion.stats();
        PathStats {
            latest_rtt: path.rtt.latest().into(),
            min_rtt: path.rtt.min().into(),
            smoothed_rtt: path.rtt.smoothed().into(),
            rtt_variation: path.rtt.variation().into(),
            mtu: path.max_datagram(),
            ecn_capable: path.ecn.is_capable(),
            ecn: path.ecn.state(),
            congestion_controller: congestion.algorithm,
            congestion_state: congestion.state,
            congestion_window: congestion.window,
            slow_start_threshold: congestion.ssthresh,
            bytes_in_flight: congestion.in_flight,
            pacing_rate: congestion.pacing_rate,
            delivery_rate: congestion.delivery_rate,
            congestion_events: congestion.congestion_events,
            ecn_ce_events: congestion.ecn_ce_events,
            persistent_congestion: congestion.persistent_congestion,
        }
    }

    /// Reports everything to `observer` from now on.
    pub fn set_observer(&mut self, observer: Option<Box<dyn Observer>>) {
        self.reporting.observer = observer;
    }
}
