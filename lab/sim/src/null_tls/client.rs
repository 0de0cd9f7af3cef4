//! The client's side of the pretended handshake.

use quicket_engine::crypto::{Alert, HandshakeError, HandshakeEvent, HandshakeStart, Level};
use quicket_wire::Side;

use super::NullTlsOptions;
use super::common::{Common, Role};
use super::messages::{ClientHello, EncryptedExtensions, MessageKind, ServerHello, Session, error};

/// What the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ServerHello,
    EncryptedExtensions,
    Certificate,
    CertificateVerify,
    Finished,
    Tickets,
}

pub(super) struct Client {
    common: Common,
    hello: ClientHello,
    session: Option<Session>,
    waits: Waits,
    asked_for_certificate: bool,
}

impl Client {
    pub(super) fn start(
        options: &NullTlsOptions,
        start: &HandshakeStart<'_>,
        random: [u8; 32],
    ) -> Self {
        let mut common = Common::new(options, Side::Client);
        // A session for another protocol is of no use; a garbled one is no session.
        let session = start.resume.and_then(Session::parse);
        let session = session.filter(|s| options.alpn.is_empty() || options.alpn.contains(&s.alpn));
        let early_data = start.early_data && session.as_ref().is_some_and(|s| s.early_data);
        let hello = ClientHello {
            random,
            server_name: start.server_name.to_owned(),
            alpn: options.alpn.clone(),
            transport_parameters: common.parameters_to_send(start.transport_parameters),
            ticket: session.as_ref().map(|s| s.ticket.clone()),
            early_data,
            cookie: false,
        };
        common.summary.server_name = Some(hello.server_name.clone());
        let message = hello.encode(options.client_hello_len);
        common.send(Level::Initial, MessageKind::ClientHello, message);
        if let Some(session) = session.as_ref().filter(|_| early_data) {
            common.give_early_secret(&session.psk);
        }
        Self { common, hello, session, waits: Waits::ServerHello, asked_for_certificate: false }
    }

    fn on_server_hello(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        let server = ServerHello::parse(message)?;
        if server.retry {
            if self.hello.cookie {
                return Err(error(Alert::UNEXPECTED_MESSAGE, "a second HelloRetryRequest"));
            }
            // RFC 8446, Section 4.1.2: no early data after a HelloRetryRequest.
            let offered = std::mem::take(&mut self.hello.early_data);
            self.hello.cookie = true;
            if offered {
                self.common.event(HandshakeEvent::EarlyData(false));
            }
            let message = self.hello.encode(self.common.options.client_hello_len);
            self.common.send(Level::Initial, MessageKind::ClientHello, message);
            return Ok(());
        }
        if server.resumed && self.session.is_none() {
            return Err(error(Alert(47), "the server resumed a session that was not offered"));
        }
        self.common.summary.resumed = server.resumed;
        let psk = self.session.as_ref().filter(|_| server.resumed).map(|s| s.psk);
        self.common.give_handshake_secrets(&self.hello.random, &server.random, psk.as_ref());
        self.waits = Waits::EncryptedExtensions;
        Ok(())
    }

    fn on_encrypted_extensions(&mut self, message: &[u8]) -> Result<(), HandshakeError> {
        let extensions = EncryptedExtensions::parse(message)?;
        if !self.hello.alpn.is_empty() && !self.hello.alpn.contains(&extensions.alpn) {
            // RFC 9001, Section 8.1: a client too insists on a protocol.
            return Err(error(
                Alert::NO_APPLICATION_PROTOCOL,
                "the server chose no protocol of ours",
            ));
        }
        if extensions.early_data && !(self.hello.early_data && self.common.summary.resumed) {
            return Err(error(Alert(110), "early data was accepted that was not offered"));
        }
        self.common.summary.alpn = extensions.alpn;
        if let Some(parameters) = extensions.transport_parameters {
            self.common.event(HandshakeEvent::PeerTransportParameters(parameters));
        }
        if self.hello.early_data {
            self.common.event(HandshakeEvent::EarlyData(extensions.early_data));
        }
        self.waits = if self.common.summary.resumed { Waits::Finished } else { Waits::Certificate };
        Ok(())
    }

    fn on_finished(&mut self) {
        self.common.give_application_secrets();
        if self.asked_for_certificate {
            let len = self.common.options.client_certificate_len.unwrap_or(0);
            self.common.send_certificate(len);
        }
        self.common.send_finished();
        self.common.complete();
        self.waits = Waits::Tickets;
    }
}

impl Role for Client {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn expected_level(&self) -> Level {
        match self.waits {
            Waits::ServerHello => Level::Initial,
            Waits::Tickets => Level::OneRtt,
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
            (Waits::ServerHello, MessageKind::ServerHello) => self.on_server_hello(message),
            (Waits::EncryptedExtensions, MessageKind::EncryptedExtensions) => {
                self.on_encrypted_extensions(message)
            }
            (Waits::Certificate, MessageKind::CertificateRequest)
                if !self.asked_for_certificate =>
            {
                self.asked_for_certificate = true;
                Ok(())
            }
            (Waits::Certificate, MessageKind::Certificate) => {
                self.common.summary.peer_certificates = vec![message[4..].to_vec()];
                self.waits = Waits::CertificateVerify;
                Ok(())
            }
            (Waits::CertificateVerify, MessageKind::CertificateVerify) => {
                self.waits = Waits::Finished;
                Ok(())
            }
            (Waits::Finished, MessageKind::Finished) => {
                self.on_finished();
                Ok(())
            }
            (Waits::Tickets, MessageKind::NewSessionTicket) => {
                let session = message[4..].to_vec();
                self.common.event(HandshakeEvent::SessionTicket(session));
                Ok(())
            }
            _ => Err(error(
                Alert::UNEXPECTED_MESSAGE,
                format!("{kind:?} while waiting for {:?}", self.waits),
            )),
        }
    }
}
