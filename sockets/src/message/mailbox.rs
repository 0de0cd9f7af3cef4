//! A handshake whose TLS runs in the program: messages and secrets travel through the socket.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quicket_engine::crypto::{
    Alert, Direction, Handshake, HandshakeError, HandshakeEvent, HandshakeStart, HandshakeSummary,
    Level, Secret, TlsConfig,
};

/// How many bytes of TLS messages may wait for room in the program's inbox.
const MAX_WAITING: usize = 1 << 16;

/// The two compartments between the engine and the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Mailbox(Arc<Mutex<Mail>>);

#[derive(Debug, Default)]
struct Mail {
    /// Our transport parameters, once TLS may announce them.
    parameters: Option<Vec<u8>>,
    /// For the engine.
    outgoing: VecDeque<HandshakeEvent>,
    /// The client's first flight, until the server answers: it goes out again where the server
    /// speaks another version.
    flight: Vec<Vec<u8>>,
    answered: bool,
    /// For the program.
    incoming: VecDeque<(Level, Vec<u8>)>,
    waiting: usize,
    /// How many bytes of the ClientHello the program has seen already.
    shown: usize,
    /// Secrets that came for [`Level::OneRtt`].
    app_secrets: [bool; 2],
    handshake_send: bool,
    complete: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program has seen the ClientHello before the handshake began.
    pub(super) fn set_shown(&self, len: usize) {
        self.lock().shown = len;
    }

    /// Our transport parameters, encoded; `None` before the handshake began.
    pub(super) fn parameters(&self) -> Option<Vec<u8>> {
        self.lock().parameters.clone()
    }

    /// The next piece of a TLS message for the program.
    pub(super) fn take(&self) -> Option<(Level, Vec<u8>)> {
        let mut mail = self.lock();
        let next = mail.incoming.pop_front()?;
        mail.waiting -= next.1.len();
        Some(next)
    }

    /// The program has a message for the peer.
    pub(super) fn send(&self, level: Level, data: &[u8]) {
        let mut mail = self.lock();
        if level == Level::Initial && !mail.answered {
            mail.flight.push(data.to_vec());
        }
        mail.outgoing.push_back(HandshakeEvent::Send(level, data.to_vec()));
    }

    /// The program has the peer's transport parameters.
    pub(super) fn set_peer_parameters(&self, encoded: &[u8]) {
        let event = HandshakeEvent::PeerTransportParameters(encoded.to_vec());
        self.lock().outgoing.push_back(event);
    }

    /// The program has a secret. With both of [`Level::OneRtt`] the handshake is complete.
    pub(super) fn set_secret(&self, level: Level, direction: Direction, secret: Secret) {
        let mut mail = self.lock();
        let aead = secret.aead();
        if level == Level::EarlyData && direction == Direction::Receive {
            mail.outgoing.push_back(HandshakeEvent::EarlyData(true));
        }
        mail.outgoing.push_back(HandshakeEvent::Secret(level, direction, secret));
        match (level, direction) {
            (Level::Handshake, Direction::Send) => mail.handshake_send = true,
            (Level::OneRtt, Direction::Send) => mail.app_secrets[0] = true,
            (Level::OneRtt, Direction::Receive) => mail.app_secrets[1] = true,
            _ => {}
        }
        if mail.app_secrets == [true, true] && !std::mem::replace(&mut mail.complete, true) {
            let summary =
                HandshakeSummary { cipher_suite: aead.cipher_suite(), ..Default::default() };
            mail.outgoing.push_back(HandshakeEvent::Complete(Box::new(summary)));
        }
    }

    /// True if messages of the level can be sent.
    pub(super) fn can_send(&self, level: Level) -> bool {
        let mail = self.lock();
        match level {
            Level::Initial => true,
            Level::Handshake => mail.handshake_send,
            Level::OneRtt => mail.app_secrets[0],
            Level::EarlyData => false,
        }
    }

    /// True if what is received at [`Level::OneRtt`] can be opened.
    pub(super) fn has_receive_secret(&self) -> bool {
        self.lock().app_secrets[1]
    }

    fn begin(&self, start: &HandshakeStart<'_>) -> Box<dyn Handshake> {
        let mut mail = self.lock();
        // The kernel's sockets too send the same ClientHello with another version. Its Chosen
        // Version then is the one that was tried first: a server that checks it says so
        // (RFC 9368, Section 4).
        if mail.parameters.replace(start.transport_parameters.to_vec()).is_some() {
            let is_flight =
                |event: &HandshakeEvent| matches!(event, HandshakeEvent::Send(Level::Initial, _));
            mail.outgoing.retain(|event| !is_flight(event));
            for message in mail.flight.clone().into_iter().rev() {
                mail.outgoing.push_front(HandshakeEvent::Send(Level::Initial, message));
            }
        }
        drop(mail);
        Box::new(Correspondence(self.clone()))
    }
}

impl TlsConfig for Mailbox {
    fn start_client(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        Ok(self.begin(start))
    }

    fn start_server(
        &self,
        start: &HandshakeStart<'_>,
    ) -> Result<Box<dyn Handshake>, HandshakeError> {
        Ok(self.begin(start))
    }

    fn is_application(&self) -> bool {
        true
    }
}

/// The engine's view of the mailbox.
struct Correspondence(Mailbox);

impl Handshake for Correspondence {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        let mut mail = self.0.lock();
        mail.answered = true;
        mail.flight = Vec::new();
        let seen = if level == Level::Initial { mail.shown.min(data.len()) } else { 0 };
        mail.shown -= seen;
        let data = data.get(seen..).unwrap_or_default();
        if data.is_empty() {
            return Ok(());
        }
        mail.waiting += data.len();
        mail.incoming.push_back((level, data.to_vec()));
        Ok(())
    }

    /// What the program does not take from its socket waits here, once that is full.
    fn room(&self) -> usize {
        let mail = self.0.lock();
        MAX_WAITING.saturating_sub(mail.waiting).saturating_add(mail.shown)
    }

    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        Ok(self.0.lock().outgoing.pop_front())
    }

    fn export_keying_material(
        &self,
        _label: &[u8],
        _context: &[u8],
        _out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        Err(HandshakeError {
            alert: Alert::INTERNAL_ERROR,
            reason: "TLS runs in the program: ask it for keying material".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use quicket_engine::crypto::Aead;

    use super::*;

    fn secret() -> Secret {
        Secret::new(Aead::Aes128Gcm, &[7; 32]).unwrap()
    }

    fn start(mailbox: &Mailbox) -> Box<dyn Handshake> {
        let start = HandshakeStart {
            server_name: "",
            peer: None,
            transport_parameters: b"ours",
            resume: None,
            early_data: false,
        };
        mailbox.start_server(&start).unwrap()
    }

    #[test]
    fn both_application_secrets_complete_the_handshake_once() {
        let mailbox = Mailbox::default();
        let mut engine = start(&mailbox);
        assert_eq!(mailbox.parameters().as_deref(), Some(&b"ours"[..]));
        mailbox.set_secret(Level::OneRtt, Direction::Send, secret());
        assert!(mailbox.can_send(Level::OneRtt) && !mailbox.has_receive_secret());
        assert!(matches!(engine.poll(), Ok(Some(HandshakeEvent::Secret(..)))));
        assert!(matches!(engine.poll(), Ok(None)));
        for _ in 0..2 {
            mailbox.set_secret(Level::OneRtt, Direction::Receive, secret());
        }
        let mut completions = 0;
        while let Ok(Some(event)) = engine.poll() {
            completions += u32::from(matches!(event, HandshakeEvent::Complete(_)));
        }
        assert_eq!(completions, 1);
    }

    #[test]
    fn a_client_hello_is_shown_once() {
        let mailbox = Mailbox::default();
        mailbox.set_shown(5);
        let mut engine = start(&mailbox);
        engine.read(Level::Initial, b"hello").unwrap();
        assert_eq!(mailbox.take(), None);
        engine.read(Level::Initial, b"again").unwrap();
        assert_eq!(mailbox.take(), Some((Level::Initial, b"again".to_vec())));
    }

    #[test]
    fn the_first_flight_goes_out_again_when_the_handshake_begins_anew() {
        let mailbox = Mailbox::default();
        mailbox.send(Level::Initial, b"client ");
        let mut first = start(&mailbox);
        let sent = |engine: &mut Box<dyn Handshake>| match engine.poll() {
            Ok(Some(HandshakeEvent::Send(Level::Initial, data))) => Some(data),
            Ok(None) => None,
            _ => panic!("something else is sent"),
        };
        assert_eq!(sent(&mut first).as_deref(), Some(&b"client "[..]));
        mailbox.send(Level::Initial, b"hello");
        let mut second = start(&mailbox);
        assert_eq!(sent(&mut second).as_deref(), Some(&b"client "[..]));
        assert_eq!(sent(&mut second).as_deref(), Some(&b"hello"[..]));
        assert_eq!(sent(&mut second), None);
        second.read(Level::Initial, b"server hello").unwrap();
        assert_eq!(sent(&mut start(&mailbox)), None, "the server has answered");
    }

    #[test]
    fn a_program_that_does_not_read_ends_the_handshake() {
        let mailbox = Mailbox::default();
        mailbox.set_shown(5);
        let mut engine = start(&mailbox);
        assert_eq!(engine.room(), MAX_WAITING + 5);
        engine.read(Level::Initial, b"hello").unwrap();
        engine.read(Level::Handshake, &[0; MAX_WAITING]).unwrap();
        assert_eq!(engine.room(), 0);
        assert!(mailbox.take().is_some());
        assert_eq!(engine.room(), MAX_WAITING);
    }
}
