//! Handshakes that wait for their application: it may still choose the configuration, and TLS
//! may be a matter between it and the peer.

use alloc::sync::Arc;

use quicket_wire::{Side, TransportParameters, Version};

use super::handshake::{Attempt, EarlyData};
use super::idle::Idle;
use super::{ClientStart, Connection, Start, ack_policy, application, paths};
use crate::ack::AckScheduler;
use crate::config::{ClientConfig, ServerConfig, TransportConfig};
use crate::crypto::HandshakeError;
use crate::error::TransportError;
use crate::time::Time;

impl Connection {
    /// Client made with [`ClientConfig::hold`]: begins the handshake, with `config` in place of
    /// what the connection was made with. Does nothing on a connection that has begun.
    ///
    /// # Errors
    ///
    /// If TLS would not start.
    pub fn start_handshake(
        &mut self,
        now: Time,
        config: ClientConfig,
        server_name: &str,
    ) -> Result<(), HandshakeError> {
        if !self.handshake.held || !self.termination.is_open() {
            return Ok(());
        }
        let config = ClientConfig { hold: false, ..config };
        self.begin_anew(now, ClientStart { config, server_name, negotiated: false })
    }

    /// Client: begins anew with another version, which the server named
    /// (RFC 9368, Section 2.1); false if that is not possible.
    pub(super) fn begin_with_version(&mut self, now: Time, version: Version) -> bool {
        // What was written as early data would be lost.
        if self.handshake.early_data == EarlyData::Offered {
            return false;
        }
        let Some(Attempt { config, server_name }) = self.handshake.take_attempt() else {
            return false;
        };
        // The observer of the first attempt goes on.
        let config = ClientConfig { version, observers: None, ..config };
        let start = ClientStart { config, server_name: &server_name, negotiated: true };
        self.begin_anew(now, start).is_ok()
    }

    /// Puts a connection that has just begun in the place of this one. Nothing of the
    /// application's was sent yet, so nothing is lost.
    fn begin_anew(&mut self, now: Time, client: ClientStart<'_>) -> Result<(), HandshakeError> {
        let start = Start {
            now,
            endpoint: self.endpoint.clone(),
            crypto: self.keys.crypto().clone(),
            rng: self.rng.fork(),
            scid: self.handshake.cids.local_scid,
            remote: self.remote(),
            local: self.local(),
        };
        let mut begun = Self::client(start, client)?;
        begun.reporting.observer = self.reporting.observer.take();
        begun.streams.follow(self.streams.is_followed());
        core::mem::swap(self, &mut *begun);
        Ok(())
    }

    /// Server: the ClientHello that waits for [`Connection::accept_handshake`], as TLS wrote it.
    pub fn held_client_hello(&self) -> Option<&[u8]> {
        self.handshake.held_hello()
    }

    /// Server: goes on after [`crate::Event::ClientHello`], with `config` in place of what the
    /// connection was accepted with.
    pub fn accept_handshake_with(&mut self, now: Time, config: Arc<ServerConfig>) {
        if !self.handshake.replace_config(config.clone()) {
            return;
        }
        self.reconfigure(now, &config.transport, config.migration);
        self.accept_handshake(now, &*config.tls);
    }

    /// Applies another configuration before its parameters are announced. What the connection
    /// knows of the peer stays.
    fn reconfigure(&mut self, now: Time, config: &Arc<TransportConfig>, peer_may_migrate: bool) {
        let followed = self.streams.is_followed();
        self.streams = application::new_streams(self.role.side(), config, &mut *self.rng);
        self.streams.follow(followed);
        self.datagrams = application::new_datagrams(config);
        self.cids.remote.set_limit(config.active_connection_id_limit);
        self.recovery.spaces.data.acks = AckScheduler::new(ack_policy(config));
        self.idle = Idle::new(
            now,
            config.max_idle_timeout.into(),
            config.keep_alive.into(),
            config.answer_probe.into(),
        );
        self.handshake.deadline = now + config.handshake_timeout.into();
        self.keys.set_update_after(config.key_update_after);
        let settings = paths::settings(config, peer_may_migrate);
        self.paths.begin_anew(settings, &mut *self.rng);
        self.reception.set_takes_any_fixed_bit(config.takes_any_fixed_bit(&self.endpoint));
        self.config = config.clone();
    }

    /// Client whose TLS is the application's: what the server's transport parameters were when
    /// it issued the session that is resumed, for 0-RTT (RFC 9000, Section 7.4.1). Call before
    /// the key of early data comes. From now on streams can be opened and written to.
    pub fn remember_parameters(&mut self, parameters: TransportParameters) {
        if self.role.side() == Side::Client && self.handshake.early_data == EarlyData::None {
            self.streams.set_peer_limits(&parameters);
            self.handshake.remember(parameters);
        }
    }

    /// Closes the connection with a CONNECTION_CLOSE of type 0x1c: for servers that turn a
    /// client away, and TLS that runs elsewhere and failed.
    pub fn abort(&mut self, now: Time, error: TransportError) {
        if self.termination.is_open() {
            self.fail(now, error);
        }
    }
}
