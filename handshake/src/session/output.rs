//! From rustls to the engine: messages to send and secrets to use.

use quicket_engine::crypto::{Direction, HandshakeEvent, Level, Secret};
use rustls::quic::KeyChange;

use super::{Role, Running};
use crate::key_log::SecretBytes;

impl Running {
    /// Takes all messages and key changes that rustls has ready.
    pub(super) fn drain_output(&mut self) {
        loop {
            let mut message = Vec::new();
            let change = self.tls.write_hs(&mut message);
            if message.is_empty() && change.is_none() {
                return;
            }
            if !message.is_empty() {
                self.send(message);
            }
            match change {
                Some(KeyChange::Handshake { .. }) => self.handshake_keys(),
                Some(KeyChange::OneRtt { .. }) => self.traffic_keys(),
                None => {}
            }
        }
    }

    fn send(&mut self, message: Vec<u8>) {
        let mut retried = false;
        let message = match &mut self.role {
            Role::Client { hello_sent, .. } if self.write_level == Level::Initial => {
                retried = std::mem::replace(hello_sent, true);
                message
            }
            Role::Server { tickets, .. } if self.write_level == Level::OneRtt => {
                tickets.seal_messages(&message)
            }
            _ => message,
        };
        if retried {
            // A HelloRetryRequest refuses early data (RFC 8446, Section 4.2.10).
            self.answer_early_data(Some(false));
        }
        if !message.is_empty() {
            self.events.push_back(HandshakeEvent::Send(self.write_level, message));
        }
    }

    fn handshake_keys(&mut self) {
        let (client, server) = {
            let mut secrets = self.tap.secrets();
            (secrets.client_handshake.take(), secrets.server_handshake.take())
        };
        let (receive, send) = self.by_direction(client, server);
        self.give_secret(Level::Handshake, Direction::Send, send);
        self.give_secret(Level::Handshake, Direction::Receive, receive);
        self.write_level = Level::Handshake;
        self.enter(Level::Handshake);
    }

    fn traffic_keys(&mut self) {
        let (client, server) = {
            let mut secrets = self.tap.secrets();
            (secrets.client_traffic.take(), secrets.server_traffic.take())
        };
        let (receive, send) = self.by_direction(client, server);
        self.give_secret(Level::OneRtt, Direction::Send, send);
        match &mut self.role {
            Role::Server { receive_secret, .. } => *receive_secret = receive,
            Role::Client { .. } => self.give_secret(Level::OneRtt, Direction::Receive, receive),
        }
        self.write_level = Level::OneRtt;
    }

    /// The secrets of both sides as (receive, send) of this one.
    fn by_direction(
        &self,
        client: Option<SecretBytes>,
        server: Option<SecretBytes>,
    ) -> (Option<Secret>, Option<Secret>) {
        let secret = |bytes: Option<SecretBytes>| Secret::new(self.aead()?, bytes?.as_bytes());
        match self.role {
            Role::Client { .. } => (secret(server), secret(client)),
            Role::Server { .. } => (secret(client), secret(server)),
        }
    }

    fn give_secret(&mut self, level: Level, direction: Direction, secret: Option<Secret>) {
        // rustls reports a secret before it announces its use; without it the connection stalls
        // and times out.
        debug_assert!(secret.is_some(), "no {level:?} secret was reported");
        if let Some(secret) = secret {
            self.events.push_back(HandshakeEvent::Secret(level, direction, secret));
        }
    }
}
