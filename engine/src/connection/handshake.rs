//! Drives TLS: CRYPTO bytes in and out, secrets into keys, completion (RFC 9001, Section 4).

mod state;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use quicket_wire::{ClientHello, Side, TransportErrorCode, TransportParameters, Version};

use state::Opening;
pub(super) use state::{Attempt, HandshakeState};

use super::Connection;
use super::parameters::{self, Kept, Session};
use super::space::SpaceId;
use crate::config::ANSWER_TIME;
use crate::crypto::{
    Alert, Direction, HandshakeError, HandshakeEvent, HandshakeStart, HandshakeSummary, Level,
    TlsConfig,
};
use crate::error::TransportError;
use crate::event::Event;
use crate::observer::Observation;
use crate::time::{Duration, Time};

/// What became of early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum EarlyData {
    /// Not offered.
    #[default]
    None,
    /// Offered by the client; the server has not answered yet.
    Offered,
    /// The server reads it.
    Accepted,
    /// The server does not read it.
    Rejected,
}

impl From<HandshakeError> for TransportError {
    fn from(error: HandshakeError) -> Self {
        Self::new(TransportErrorCode::crypto(error.alert.0), "the TLS handshake failed")
    }
}

/// The session in `bytes`, if it is one for `version`.
#[inline(never)] // keeps copies of the parameters out of the frame of its caller
fn session_of(bytes: Option<&[u8]>, version: Version) -> Option<Session<'_>> {
    // RFC 9369, Section 5: tickets are good for the version that issued them.
    bytes.and_then(Session::decode).filter(|session| session.version == version)
}

impl Connection {
    /// Starts a client's handshake.
    #[inline(never)] // keeps the parameters out of the frame of `Connection::client`
    pub(super) fn start_client_handshake(
        &mut self,
        now: Time,
        tls: &dyn TlsConfig,
        server_name: &str,
        session: Option<&[u8]>,
        early_data: bool,
    ) -> Result<(), HandshakeError> {
        let session = session_of(session, self.handshake.versions.original);
        let parameters = self.announce_parameters(now);
        let handshake = tls.start_client(&HandshakeStart {
            server_name,
            peer: Some(self.active_route().remote),
            transport_parameters: &parameters,
            resume: session.as_ref().map(|session| session.ticket),
            early_data,
        })?;
        self.handshake.tls = Some(handshake);
        if let Some(session) = session {
            self.handshake.remember(session.parameters);
        }
        self.drive_tls(now).map_err(|error| HandshakeError {
            alert: Alert::INTERNAL_ERROR,
            reason: error.reason.into(),
        })
    }

    /// Encodes our transport parameters and remembers them.
    #[inline(never)] // keeps the parameters out of the frames of its callers
    fn announce_parameters(&mut self, now: Time) -> Vec<u8> {
        let handshake = &mut self.handshake;
        let mut ours = parameters::local(
            self.role.side(),
            &self.config,
            &self.endpoint,
            &handshake.cids,
            &handshake.versions,
        );
        if self.role.side() == Side::Server {
            self.server_parameters(&mut ours);
        }
        let mut encoded = Vec::new();
        let noise = self.rng.next_u64().to_be_bytes();
        // RFC 9000, Section 18.1: reserved parameters are 31 * N + 27.
        let reserved = self.rng.below(1 << 20).saturating_mul(31).saturating_add(27);
        let grease = self.config.grease.then_some((reserved, noise.as_slice()));
        ours.encode(self.role.side(), &mut encoded, grease);
        self.reporting.observe(
            now,
            &Observation::Parameters { direction: Direction::Send, parameters: &ours },
        );
        self.handshake.local_parameters = Some(Kept::new(&ours, self.role.side()));
        encoded
    }

    /// Hands TLS what has arrived and does what it asks for, until there is nothing to do.
    pub(super) fn drive_handshake(&mut self, now: Time) -> Result<(), TransportError> {
        if self.handshake.listening().is_some() {
            self.read_client_hello(now)?;
        } else if self.role.side().is_client() && self.reporting.has_received() {
            // RFC 9000, Section 6.2: no Version Negotiation packet counts after this.
            self.handshake.opening = None;
        }
        for level in [Level::Initial, Level::Handshake, Level::OneRtt] {
            while let Some(tls) = &mut self.handshake.tls {
                let Some(space) = self.recovery.spaces.of_level_mut(level) else { break };
                let stream = &mut space.crypto;
                let data = stream.readable();
                if data.is_empty() {
                    break;
                }
                // RFC 9001, Section 4.1.3: nothing new comes at a level that TLS has left.
                if level < self.handshake.read_level {
                    return Err(TransportError::new(
                        TransportErrorCode::PROTOCOL_VIOLATION,
                        "CRYPTO data continues at a level that TLS has left",
                    ));
                }
                let len = data.len();
                if len > tls.room() {
                    return Err(TransportError::new(
                        TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                        "nobody takes the TLS messages that have come",
                    ));
                }
                let result = tls.read(level, data);
                stream.consume(len);
                if let Err(error) = result {
                    return Err(self.handshake.fail(error));
                }
                self.drive_tls(now)?;
            }
        }
        self.drive_tls(now)
    }

    /// Collects the ClientHello and, once it is whole, starts the server's TLS.
    fn read_client_hello(&mut self, now: Time) -> Result<(), TransportError> {
        let Some(listening) = self.handshake.listening() else { return Ok(()) };
        let Some(space) = self.recovery.spaces.of_level_mut(Level::Initial) else { return Ok(()) };
        let stream = &mut space.crypto;
        // What came in another order than it was sent may lie in two parts.
        while !stream.readable().is_empty() {
            let data = stream.readable();
            let len = data.len();
            if listening.hello.len().saturating_add(len) > self.config.crypto_buffer {
                return Err(TransportError::new(
                    TransportErrorCode::CRYPTO_BUFFER_EXCEEDED,
                    "the ClientHello is larger than the CRYPTO buffer",
                ));
            }
            listening.hello.extend_from_slice(data);
            stream.consume(len);
        }
        let whole = ClientHello::message_len(&listening.hello)
            .map_err(|_| unexpected_message("the first TLS message is no ClientHello"))?
            .is_some_and(|len| listening.hello.len() >= len);
        if !whole || listening.held {
            return Ok(());
        }
        if listening.config.hold_client_hello {
            listening.held = true;
            let hello = parse_hello(&listening.hello)?;
            let event = Event::ClientHello {
                alpn: hello.alpn().map(<[u8]>::to_vec).collect(),
                server_name: hello.server_name().map(String::from),
            };
            self.reporting.events.push(event);
            return Ok(());
        }
        let tls = listening.config.tls.clone();
        self.start_server_handshake(now, &*tls)
    }

    /// Goes on with a handshake held by [`ServerConfig::hold_client_hello`], with the TLS
    /// configuration chosen by the ClientHello.
    pub(super) fn start_server_handshake(
        &mut self,
        now: Time,
        tls: &dyn TlsConfig,
    ) -> Result<(), TransportError> {
        let Some(opening) = self.handshake.opening.take() else { return Ok(()) };
        let Opening::Server(listening) = *opening else { return Ok(()) };
        let preferred = listening.config.preferred_version;
        let chosen = parameters_in_hello(&listening.hello).and_then(|theirs| {
            self.handshake.versions.choose(theirs.version_information.as_ref(), preferred)
        });
        if !tls.is_application() {
            chosen?;
        }
        self.role.set_server_config(listening.config);
        self.use_version(now);
        let parameters = self.announce_parameters(now);
        let early_data = self.role.server_config().is_some_and(|config| config.early_data);
        let start = HandshakeStart {
            server_name: "",
            peer: Some(self.active_route().remote),
            transport_parameters: &parameters,
            resume: None,
            early_data,
        };
        let mut handshake = tls.start_server(&start).map_err(|error| self.handshake.fail(error))?;
        let read = handshake.read(Level::Initial, &listening.hello);
        self.handshake.tls = Some(handshake);
        if let Err(error) = read {
            // Alerts may come with nothing else to say.
            return Err(self.handshake.fail(error));
        }
        self.drive_tls(now)
    }

    /// Derives what depends on the version once it is settled.
    pub(super) fn use_version(&mut self, now: Time) {
        let version = self.handshake.versions.current;
        if version != self.handshake.versions.original {
            // RFC 9369, Section 4.1: the same connection ID, the new version's salt.
            let dcid = self.handshake.cids.initial_dcid;
            self.keys.derive_initial(version, &dcid, self.role.side());
        }
        self.keys.set_version(version);
        self.reporting.observe(now, &Observation::Version(version));
    }

    /// Does what TLS asks for, and gives whom TLS waits for some time.
    fn drive_tls(&mut self, now: Time) -> Result<(), TransportError> {
        let done = self.do_as_tls_says(now);
        let waits = self.handshake.tls.as_ref().is_some_and(|tls| tls.waits());
        let until = self.handshake.waits_until.unwrap_or_else(|| now + ANSWER_TIME.into());
        self.handshake.waits_until = waits.then_some(until);
        done
    }

    /// TLS waits no longer for somebody else.
    pub(super) fn stop_waiting(&mut self, now: Time) {
        if let Some(tls) = &mut self.handshake.tls {
            tls.stop_waiting();
        }
        self.handshake_progressed(now);
    }

    fn do_as_tls_says(&mut self, now: Time) -> Result<(), TransportError> {
        loop {
            let Some(tls) = &mut self.handshake.tls else { return Ok(()) };
            let event = match tls.poll() {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.handshake.fail(error)),
            };
            match event {
                HandshakeEvent::Send(level, data) => {
                    // TLS that runs elsewhere may be late.
                    if let Some(space) = self.recovery.spaces.of_level_mut(level) {
                        space.crypto.write(&data)?;
                    }
                }
                HandshakeEvent::Secret(level, direction, secret) => {
                    self.keys.install(level, direction, secret);
                    self.reporting.observe(now, &Observation::KeyInstalled { level, direction });
                    self.on_key_installed(now, level, direction);
                }
                HandshakeEvent::PeerTransportParameters(encoded) => {
                    self.read_peer_parameters(now, &encoded)?;
                }
                HandshakeEvent::EarlyData(accepted) => self.on_early_data(now, accepted)?,
                HandshakeEvent::Complete(summary) => self.on_handshake_complete(now, summary)?,
                HandshakeEvent::SessionTicket(ticket) => self.on_session_ticket(&ticket),
            }
        }
    }

    /// RFC 9001, Section 4.9.3.
    pub(super) fn discard_early_keys(&mut self, now: Time) {
        if self.keys.discard_early() {
            self.reporting.observe(now, &Observation::KeysDiscarded { level: Level::EarlyData });
        }
    }

    fn on_key_installed(&mut self, now: Time, level: Level, direction: Direction) {
        if direction == Direction::Receive && level != Level::EarlyData {
            self.handshake.read_level = level;
        }
        match (level, direction, self.role.side()) {
            (Level::EarlyData, Direction::Send, Side::Client) => {
                let Some(old) = self.handshake.remembered.as_deref() else { return };
                self.handshake.early_data = EarlyData::Offered;
                self.streams.set_peer_limits(old);
                self.datagrams.set_peer_limit(old.max_datagram_frame_size);
                self.reporting.events.push(Event::EarlyDataReady);
            }
            (Level::OneRtt, Direction::Send, Side::Client) => self.discard_early_keys(now),
            (Level::EarlyData | Level::OneRtt, Direction::Send, Side::Server)
            | (Level::EarlyData | Level::OneRtt, Direction::Receive, _)
            | (Level::Initial | Level::Handshake, _, _) => {}
        }
        self.reception.try_again();
    }

    fn read_peer_parameters(&mut self, now: Time, encoded: &[u8]) -> Result<(), TransportError> {
        let theirs = TransportParameters::decode(encoded, self.role.side().peer())
            .map_err(parameter_error)?;
        let handshake = &mut self.handshake;
        parameters::check_cids(self.role.side(), &handshake.cids, &theirs)?;
        if self.role.side().is_client() {
            handshake.versions.check(theirs.version_information.as_ref())?;
        }
        self.reporting.observe(
            now,
            &Observation::Parameters { direction: Direction::Receive, parameters: &theirs },
        );
        self.apply_peer_parameters(now, &theirs)?;
        self.handshake.remote_parameters = Some(Kept::new(&theirs, self.role.side().peer()));
        Ok(())
    }

    fn apply_peer_parameters(
        &mut self,
        now: Time,
        theirs: &TransportParameters,
    ) -> Result<(), TransportError> {
        self.idle.negotiate(Duration::from_millis(theirs.max_idle_timeout));
        self.streams.set_peer_limits(theirs);
        self.datagrams.set_peer_limit(theirs.max_datagram_frame_size);
        self.cids.local.set_peer_limit(theirs.active_connection_id_limit);
        self.paths.on_peer_parameters(theirs.disable_active_migration, theirs.max_udp_payload_size);
        let grease = self.endpoint.grease_quic_bit && theirs.grease_quic_bit;
        self.transmission.set_grease_fixed_bit(grease);
        let min_ack_delay = theirs.min_ack_delay.filter(|_| self.config.ack_frequency);
        self.recovery.ack_frequency.on_peer_parameters(
            min_ack_delay.map(Duration::from_micros),
            Duration::from_millis(theirs.max_ack_delay),
        );
        if let Some(token) = theirs.stateless_reset_token {
            self.cids.remote.set_initial_token(token);
        }
        if let Some(preferred) = &theirs.preferred_address {
            self.cids
                .remote
                .add_preferred(preferred.connection_id, preferred.stateless_reset_token);
        }
        self.report_cids(now);
        if theirs.disable_1rtt_encryption && self.config.disable_1rtt_encryption {
            self.keys.disable_1rtt_encryption();
            // Who may read and change what is sent is known by the address; and anybody could have it sent elsewhere.
            self.paths.fix_peer();
        }
        Ok(())
    }

    fn on_early_data(&mut self, now: Time, accepted: bool) -> Result<(), TransportError> {
        self.handshake.early_data =
            if accepted { EarlyData::Accepted } else { EarlyData::Rejected };
        if self.role.side() == Side::Server {
            return Ok(());
        }
        if accepted {
            if let (Some(old), Some(new)) =
                (&self.handshake.remembered, &self.handshake.remote_parameters)
            {
                parameters::check_not_lowered(old, &new.get())?;
            }
            return Ok(());
        }
        // What is sent again from here on must not be 0-RTT.
        self.discard_early_keys(now);
        self.early_data_rejected(now);
        if let Some(theirs) = &self.handshake.remote_parameters {
            self.streams.set_peer_limits(&theirs.get());
        }
        Ok(())
    }

    fn on_handshake_complete(
        &mut self,
        now: Time,
        summary: Box<HandshakeSummary>,
    ) -> Result<(), TransportError> {
        // RFC 9001, Section 8.2.
        if self.handshake.remote_parameters.is_none() {
            return Err(TransportError::new(
                TransportErrorCode::crypto(Alert::MISSING_EXTENSION.0),
                "the peer sent no transport parameters",
            ));
        }
        self.handshake.complete = true;
        self.handshake.remembered = None;
        // 1-RTT packets may have waited for this (RFC 9001, Section 5.7).
        self.reception.try_again();
        self.reporting.observe(now, &Observation::HandshakeComplete(&summary));
        self.handshake.summary = Some(summary);
        self.reporting.events.push(Event::HandshakeComplete);
        if self.role.side() == Side::Server {
            // RFC 9001, Section 4.9.3: 0-RTT packets may still be on their way.
            self.keys.expire_early(now + self.pto().times(3));
            // RFC 9001, Section 4.1.2: a server's handshake is confirmed when it is complete.
            self.pending.set_handshake_done();
            let tokens = self.role.server_config().map_or(0, |config| config.new_tokens);
            self.queue_new_tokens(now, tokens);
            self.confirm_handshake(now);
        }
        self.issue_cids(now);
        Ok(())
    }

    /// RFC 9001, Section 4.9.2: Handshake keys go when the handshake is confirmed.
    pub(super) fn confirm_handshake(&mut self, now: Time) {
        if core::mem::replace(&mut self.handshake.confirmed, true) {
            return;
        }
        self.reporting.observe(now, &Observation::HandshakeConfirmed);
        self.discard_space(now, SpaceId::Initial);
        self.discard_space(now, SpaceId::Handshake);
        self.on_confirmed(now);
        self.reporting.events.push(Event::HandshakeConfirmed);
    }

    fn on_session_ticket(&mut self, ticket: &[u8]) {
        if let Some(theirs) = &self.handshake.remote_parameters {
            let session = Session::encode(self.handshake.versions.current, &theirs.get(), ticket);
            self.reporting.events.push(Event::SessionTicket(session));
        }
    }
}

fn parse_hello(bytes: &[u8]) -> Result<ClientHello<'_>, TransportError> {
    ClientHello::parse(bytes).map_err(|_| unexpected_message("the ClientHello is malformed"))
}

fn parameters_in_hello(bytes: &[u8]) -> Result<TransportParameters, TransportError> {
    let hello = parse_hello(bytes)?;
    let Some(theirs) = hello.quic_transport_parameters() else {
        // RFC 9001, Section 8.2.
        return Err(TransportError::new(
            TransportErrorCode::crypto(Alert::MISSING_EXTENSION.0),
            "the ClientHello has no transport parameters",
        ));
    };
    TransportParameters::decode(theirs, Side::Client).map_err(parameter_error)
}

fn unexpected_message(reason: &'static str) -> TransportError {
    TransportError::new(TransportErrorCode::crypto(Alert::UNEXPECTED_MESSAGE.0), reason)
}

fn parameter_error(error: quicket_wire::ParameterError) -> TransportError {
    TransportError::new(TransportErrorCode::TRANSPORT_PARAMETER_ERROR, error.reason())
}
