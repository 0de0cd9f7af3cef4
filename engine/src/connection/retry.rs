//! Retry and Version Negotiation at the client (RFC 9000, Sections 6.2 and 17.2.5).

use quicket_wire::{ConnectionId, Header, RetryPacket, Version, VersionNegotiation};

use super::Connection;
use super::receive::Arrival;
use super::space::SpaceId;
use crate::crypto::Level;
use crate::error::ConnectionError;
use crate::observer::{LossTrigger, PacketContent};
use crate::time::Time;

impl Connection {
    /// Begins anew with the token of a Retry packet; false if the packet is to be ignored.
    pub(super) fn handle_retry(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &[u8],
    ) -> bool {
        // RFC 9000, Section 17.2.5.2: at most one Retry, and none after a packet was processed.
        if !self.role.side().is_client()
            || self.handshake.cids.retry_scid.is_some()
            || self.reporting.has_received()
            || header.version != self.handshake.versions.current
        {
            return false;
        }
        let Ok(retry) = RetryPacket::parse(packet, header) else { return false };
        // The token must not be empty, and the connection ID must be a new one.
        if retry.token.is_empty() || header.scid == self.handshake.cids.initial_dcid {
            return false;
        }
        let crypto = self.keys.crypto().clone();
        let expected =
            crypto.retry_tag(header.version, &self.handshake.cids.initial_dcid, retry.before_tag);
        if !crypto.constant_time_eq(&expected, retry.tag) {
            return false;
        }
        self.observe_received(arrival, header, 0, PacketContent { header: packet, payload: &[] });
        self.handshake.cids.retry_scid = Some(header.scid);
        self.role.set_token(retry.token.to_vec());
        self.restart_initial(arrival.now, header.scid);
        true
    }

    /// Everything sent so far is void: the same CRYPTO data and 0-RTT data go out again, under
    /// keys of the new connection ID (RFC 9000, Section 17.2.5.2 and 17.2.5.3).
    fn restart_initial(&mut self, now: Time, dcid: ConnectionId) {
        self.handshake.cids.initial_dcid = dcid;
        self.cids.remote.set_initial(dcid);
        self.keys.discard_initial();
        let version = self.handshake.versions.current;
        self.keys.derive_initial(version, &dcid, self.role.side());
        for id in [SpaceId::Initial, SpaceId::Data] {
            self.declare_all_lost(now, id, LossTrigger::EarlyDataRejected);
        }
        self.recovery.reset_backoff();
        self.set_loss_timer();
    }

    /// A server that does not speak the version of the first flight; false if the packet is to be
    /// ignored.
    ///
    /// The connection begins anew, once, with the best version that both speak
    /// (RFC 9368, Section 2.1). Without one, and if early data was offered, it ends; the error
    /// names the server's versions.
    pub(super) fn handle_version_negotiation(
        &mut self,
        arrival: &Arrival,
        header: &Header,
        packet: &[u8],
    ) -> bool {
        // RFC 9000, Section 6.2: ignored once a packet was processed, and if it lists the
        // version that was tried. Its connection IDs must be ours, mirrored.
        if !self.role.side().is_client() || self.reporting.has_received() {
            return false;
        }
        let Ok(offer) = VersionNegotiation::parse(packet) else { return false };
        let (ours, theirs) = (&self.handshake.cids.local_scid, &self.handshake.cids.initial_dcid);
        if offer.dcid != ours.as_slice() || offer.scid != theirs.as_slice() {
            return false;
        }
        if offer.versions().any(|version| version == self.handshake.versions.original) {
            return false;
        }
        self.observe_received(arrival, header, 0, PacketContent { header: packet, payload: &[] });
        let common = |version: &&Version| offer.versions().any(|offered| offered == **version);
        let best = self.handshake.versions.available.iter().find(common).copied();
        if best.is_some_and(|version| self.begin_with_version(arrival.now, version)) {
            return true;
        }
        let versions = offer.versions().take(MAX_OFFERED).collect();
        self.end(arrival.now, ConnectionError::VersionNegotiation { versions });
        true
    }

    /// Whether a long header's version is one that this connection may see.
    pub(super) fn version_is_expected(&mut self, header: &Header, level: Level) -> bool {
        let versions = &self.handshake.versions;
        if header.version == versions.current {
            return true;
        }
        if !self.role.side().is_client() {
            // RFC 9369, Section 4.1: the client goes on with the original version until it
            // learns of the change; 0-RTT always has it. Who has Handshake keys has learnt of it.
            return header.version == versions.original && level != Level::Handshake;
        }
        // RFC 9369, Section 4.1: the first Initial packet of another version tells of a compatible
        // change. Acknowledgments of a ClientHello in pieces may have come in the original one;
        // ServerHello in it would have settled the matter.
        let change = level == Level::Initial
            && versions.current == versions.original
            && versions.available.contains(&header.version)
            && self.handshake.awaits_hello();
        if change {
            let dcid = self.handshake.cids.initial_dcid;
            self.keys.derive_initial(header.version, &dcid, self.role.side());
        }
        change
    }
}

/// How many versions of a Version Negotiation packet are kept for the error.
const MAX_OFFERED: usize = 16;
