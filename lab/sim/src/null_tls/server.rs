//! The server's side of the pretended handshake.

use quicket_engine::crypto::{Alert, HandshakeError, HandshakeEvent, HandshakeStart, Level};
use quicket_wire::Side;

use super::common::{Common, Role};
use super::messages::{
    CERTIFICATE_REQUIRED, ClientHello, EncryptedExtensions, MessageKind, ServerHello, Session,
    error, frame,
};
use super::{ClientAuth, NullTlsOptions};
use crate::keyed_hash::KeyedHash;

/// Length of the checksum that ends a ticket.
const TICKET_TAG_LEN: usize = 16;

/// What the server waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ClientHello,
    SecondClientHello,
    Certificate,
    CertificateVerify,
    Finished,
    Nothing,
}

pub(super) struct Server {
    common: Common,
    random: [u8; 32],
    parameters: Vec<u8>,
    accept_early_data: bool,
    waits: Waits,
}

impl Server {
    pub(super) fn start(
        options: &NullTlsOptions,
        start: &HandshakeStart<'_>,
        random: [u8; 32],
    ) -> Self {
        Self {
            common: Common::new(options, Side::Server),
            random,
            parameters: start.transport_parameters.to_vec(),
            accept_early_data: start.early_data && options.early_data,
            waits: Waits::ClientHello,
        }
    }

    fn on_client_hello(&mut self, hello: ClientHello) -> Result<(), HandshakeError> {
        if self.common.options.hello_retry && self.waits == Waits::ClientHello {
            let message = ServerHello { random: self.random, retry: true, resumed: false }.encode();
            self.common.send(Level::Initial, MessageKind::ServerHello, message);
            self.waits = Waits::SecondClientHello;
            if hello.early_data {
                self.common.event(HandshakeEvent::EarlyData(false));
            }
            return Ok(());
        }
        let alpn = self.choose_protocol(&hello)?;
        let session = hello.ticket.as_deref().and_then(|ticket| self.open_ticket(ticket));
        // RFC 8446, Section 4.2.10: early data only for the protocol of the session.
        let early_data = hello.early_data
            && self.accept_early_data
            && session.as_ref().is_some_and(|s| s.early_data && s.alpn == alpn);
        if let Some(parameters) = hello.transport_parameters.clone() {
            self.common.event(HandshakeEvent::PeerTransportParameters(parameters));
        }
        if let Some(session) = session.as_ref().filter(|_| early_data) {
            self.common.give_early_secret(&session.psk);
        }
        if hello.early_data {
            self.common.event(HandshakeEvent::EarlyData(early_data));
        }
        self.common.summary.alpn = alpn;
        self.common.summary.server_name =
            Some(hello.server_name.clone()).filter(|name| !name.is_empty());
        self.common.summary.resumed = session.is_some();
        self.send_flight(&hello, session.as_ref(), early_data);
        Ok(())
    }

    fn choose_protocol(&self, hello: &ClientHello) -> Result<Vec<u8>, HandshakeError> {
        let ours = &self.common.options.alpn;
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        ours.iter().find(|name| hello.alpn.contains(name)).cloned().ok_or_else(|| {
            // RFC 9001, Section 8.1.
            error(Alert::NO_APPLICATION_PROTOCOL, "no application protocol in common")
        })
    }

    fn send_flight(&mut self, hello: &ClientHello, session: Option<&Session>, early_data: bool) {
        let resumed = session.is_some();
        let message = ServerHello { random: self.random, retry: false, resumed }.encode();
        self.common.send(Level::Initial, MessageKind::ServerHello, message);
        let psk = session.map(|s| &s.psk);
        self.common.give_handshake_secrets(&hello.random, &self.random, psk);
        let extensions = EncryptedExtensions {
            alpn: self.common.summary.alpn.clone(),
            transport_parameters: self.common.parameters_to_send(&self.parameters),
            early_data,
        };
        self.common.send(Level::Handshake, MessageKind::EncryptedExtensions, extensions.encode());
        let asks = !resumed && self.common.options.client_auth != ClientAuth::None;
        if asks {
            let message = frame(MessageKind::CertificateRequest, &[0; 20]);
            self.common.send(Level::Handshake, MessageKind::CertificateRequest, message);
        }
        if !resumed {
            self.common.send_certificate(self.common.options.certificate_len.max(1));
        }
        self.common.send_finished();
        self.common.give_application_secrets();
        self.waits = if asks { Waits::Certificate } else { Waits::Finished };
    }

    fn on_certificate(&mut self, certificate: &[u8]) -> Result<(), HandshakeError> {
        if certificate.is_empty() {
            if self.common.options.client_auth == ClientAuth::Required {
                return Err(error(CERTIFICATE_REQUIRED, "the client has no certificate"));
            }
            self.waits = Waits::Finished;
            return Ok(());
        }
        self.common.summary.peer_certificates = vec![certificate.to_vec()];
        self.waits = Waits::CertificateVerify;
        Ok(())
    }

    fn on_finished(&mut self) {
        self.common.complete();
        self.waits = Waits::Nothing;
        for nonce in 0..self.common.options.tickets as u64 {
            let session = self.session(nonce).encode();
            let message = frame(MessageKind::NewSessionTicket, &session);
            self.common.send(Level::OneRtt, MessageKind::NewSessionTicket, message);
        }
    }

    fn session(&self, nonce: u64) -> Session {
        let psk = self.common.resumption_psk(nonce);
        let early_data = self.common.options.early_data;
        let mut session =
            Session { psk, early_data, alpn: self.common.summary.alpn.clone(), ticket: Vec::new() };
        let mut ticket = session.encode();
        ticket.extend_from_slice(&self.ticket_tag(&ticket));
        session.ticket = ticket;
        session
    }

    fn ticket_tag(&self, ticket: &[u8]) -> [u8; TICKET_TAG_LEN] {
        let mut hash = KeyedHash::new(self.common.options.ticket_key);
        hash.field(ticket);
        hash.digest()
    }

    fn open_ticket(&self, ticket: &[u8]) -> Option<Session> {
        let (body, tag) = ticket.split_at_checked(ticket.len().checked_sub(TICKET_TAG_LEN)?)?;
        if self.ticket_tag(body) != *tag {
            return None;
        }
        Session::parse(body)
    }
}

impl Role for Server {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn expected_level(&self) -> Level {
        match self.waits {
            Waits::ClientHello | Waits::SecondClientHello => Level::Initial,
            Waits::Nothing => Level::OneRtt,
            _ => Level::Handshake,
        }
    }

    fn take(&mut self, kind: MessageKind, message: &[u8]) -> Result<(), HandshakeError> {
        match (self.waits, kind) {
            (Waits::CertificateVerify, MessageKind::CertificateVerify) => {
                self.common.verify_signature(message)?;
            }
            (Waits::Finished, MessageKind::Finished) => self.common.verify_finished(message)?,
            _ => {}
        }
        self.common.received(kind, message)?;
        match (self.waits, kind) {
            (Waits::ClientHello | Waits::SecondClientHello, MessageKind::ClientHello) => {
                self.on_client_hello(ClientHello::parse(message)?)
            }
            (Waits::Certificate, MessageKind::Certificate) => self.on_certificate(&message[4..]),
            (Waits::CertificateVerify, MessageKind::CertificateVerify) => {
                self.waits = Waits::Finished;
                Ok(())
            }
            (Waits::Finished, MessageKind::Finished) => {
                self.on_finished();
                Ok(())
            }
            _ => Err(error(
                Alert::UNEXPECTED_MESSAGE,
                format!("{kind:?} while waiting for {:?}", self.waits),
            )),
        }
    }
}
