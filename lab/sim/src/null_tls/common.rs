//! What both sides of the pretended handshake share: transcript, secrets, what goes out.

use std::collections::VecDeque;

use quicket_engine::crypto::{
    Aead, Alert, Direction, Handshake, HandshakeError, HandshakeEvent, HandshakeSummary, Level,
};
use quicket_wire::Side;

use super::messages::{DECRYPT_ERROR, Inbox, MessageKind, error, frame};
use super::{Misbehaviour, NullTlsOptions, ParameterFault};
use crate::keyed_hash::KeyedHash;
use crate::test_crypto::secret;

/// Length of the signature in CertificateVerify, about that of ECDSA with P-256.
const SIGNATURE_LEN: usize = 72;

pub(super) struct Common {
    pub(super) options: NullTlsOptions,
    pub(super) side: Side,
    pub(super) inbox: Inbox,
    pub(super) summary: HandshakeSummary,
    events: VecDeque<HandshakeEvent>,
    transcript: KeyedHash,
    /// What all secrets come from once both hellos are known.
    master: KeyedHash,
    exporter: Option<KeyedHash>,
    /// Server: the client's 1-RTT secret, given when it has finished: until then TLS reads at
    /// Handshake level.
    held: Option<KeyedHash>,
    failed: Option<HandshakeError>,
    /// A withheld message ends all sending.
    mute: bool,
}

impl Common {
    pub(super) fn new(options: &NullTlsOptions, side: Side) -> Self {
        Self {
            options: options.clone(),
            side,
            inbox: Inbox::default(),
            summary: HandshakeSummary::default(),
            events: VecDeque::new(),
            transcript: KeyedHash::new(0),
            master: KeyedHash::new(0),
            exporter: None,
            held: None,
            failed: None,
            mute: false,
        }
    }

    pub(super) fn event(&mut self, event: HandshakeEvent) {
        self.events.push_back(event);
    }

    /// Sends a message and adds it to the transcript, with whatever fault is ordered for it.
    pub(super) fn send(&mut self, level: Level, kind: MessageKind, mut message: Vec<u8>) {
        self.transcript.field(&message);
        let fault = self.options.fault.as_ref().filter(|fault| fault.message == kind);
        let mut level = level;
        match fault.map(|fault| fault.what.clone()) {
            None | Some(Misbehaviour::Refuse(_)) => {}
            Some(Misbehaviour::Withhold) => self.mute = true,
            Some(Misbehaviour::Garble) => {
                if let Some(byte) = message.last_mut() {
                    *byte ^= 1;
                }
            }
            Some(Misbehaviour::At(other)) => level = other,
            Some(Misbehaviour::Flood(len)) => {
                // The header announces the longest message that is still taken.
                message = frame(kind, &vec![0; (1 << 17) - 4]);
                message.truncate(len);
            }
            Some(Misbehaviour::Before(other)) => {
                message = [frame(other, &[0]), message].concat();
            }
        }
        if !self.mute {
            self.event(HandshakeEvent::Send(level, message));
        }
    }

    /// Takes note of a received message, and refuses it if that is ordered.
    pub(super) fn received(
        &mut self,
        kind: MessageKind,
        message: &[u8],
    ) -> Result<(), HandshakeError> {
        self.transcript.field(message);
        let fault = self.options.fault.as_ref().filter(|fault| fault.message == kind);
        match fault.map(|fault| &fault.what) {
            Some(Misbehaviour::Refuse(alert)) => Err(error(*alert, "refused as ordered")),
            _ => Ok(()),
        }
    }

    /// Our transport parameters as they are to be sent.
    pub(super) fn parameters_to_send(&self, parameters: &[u8]) -> Option<Vec<u8>> {
        match &self.options.parameters {
            ParameterFault::None => Some(parameters.to_vec()),
            ParameterFault::Omit => None,
            ParameterFault::Replace(bytes) => Some(bytes.clone()),
        }
    }

    fn traffic(&self, label: &str, base: &KeyedHash) -> KeyedHash {
        let mut hash = KeyedHash::labelled(label, &base.digest::<32>());
        hash.field(&self.transcript.digest::<32>());
        hash
    }

    fn give_secret(&mut self, level: Level, sender: Side, hash: &KeyedHash, aead: Aead) {
        let direction = if sender == self.side { Direction::Send } else { Direction::Receive };
        self.event(HandshakeEvent::Secret(level, direction, secret(aead, hash)));
    }

    /// Gives the 0-RTT secret: of the session's key and the transcript so far.
    pub(super) fn give_early_secret(&mut self, psk: &[u8; 32]) {
        let base = KeyedHash::labelled("early", psk);
        let hash = self.traffic("c e traffic", &base);
        self.give_secret(Level::EarlyData, Side::Client, &hash, self.options.aead);
    }

    /// Gives the Handshake secrets once the transcript holds both hellos.
    pub(super) fn give_handshake_secrets(
        &mut self,
        client_random: &[u8; 32],
        server_random: &[u8; 32],
        psk: Option<&[u8; 32]>,
    ) {
        let mut master = KeyedHash::labelled("master", client_random);
        master.field(server_random);
        master.field(psk.map_or(&[], |psk| psk));
        self.master = master;
        let aead = self.options.aead;
        for (sender, label) in [(Side::Server, "s hs traffic"), (Side::Client, "c hs traffic")] {
            let hash = self.traffic(label, &self.master);
            self.give_secret(Level::Handshake, sender, &hash, aead);
        }
    }

    /// Gives the 1-RTT secrets once the transcript reaches to the server's Finished; a server gets
    /// the client's with [`Common::complete`].
    pub(super) fn give_application_secrets(&mut self) {
        let client = self.traffic("c ap traffic", &self.master);
        let server = self.traffic("s ap traffic", &self.master);
        let aead = self.options.aead;
        self.give_secret(Level::OneRtt, Side::Server, &server, aead);
        if self.side.is_client() {
            self.give_secret(Level::OneRtt, Side::Client, &client, aead);
        } else {
            self.held = Some(client);
        }
        self.exporter = Some(self.traffic("exporter", &self.master));
    }

    /// The key of the session that a ticket resumes; the transcript must be complete.
    pub(super) fn resumption_psk(&self, nonce: u64) -> [u8; 32] {
        let mut hash = self.traffic("resumption", &self.master);
        hash.word(nonce);
        hash.digest()
    }

    fn finished_of(&self, sender: Side) -> [u8; 32] {
        let label = if sender.is_client() { "c finished" } else { "s finished" };
        self.traffic(label, &self.master).digest()
    }

    pub(super) fn send_finished(&mut self) {
        let message = frame(MessageKind::Finished, &self.finished_of(self.side));
        self.send(Level::Handshake, MessageKind::Finished, message);
    }

    /// Verifies the peer's Finished, before it is added to the transcript.
    pub(super) fn verify_finished(&self, message: &[u8]) -> Result<(), HandshakeError> {
        if message.get(4..) == Some(&self.finished_of(self.side.peer())[..]) {
            return Ok(());
        }
        Err(error(DECRYPT_ERROR, "Finished does not match the handshake"))
    }

    fn signature(&self, signer: Side) -> [u8; SIGNATURE_LEN] {
        let label = if signer.is_client() { "c signature" } else { "s signature" };
        self.traffic(label, &self.master).digest()
    }

    /// Sends certificates of `len` bytes in all and the signature.
    pub(super) fn send_certificate(&mut self, len: usize) {
        let certificate = (0..len).map(|i| i as u8).collect::<Vec<u8>>();
        let message = frame(MessageKind::Certificate, &certificate);
        self.send(Level::Handshake, MessageKind::Certificate, message);
        if len > 0 {
            let message = frame(MessageKind::CertificateVerify, &self.signature(self.side));
            self.send(Level::Handshake, MessageKind::CertificateVerify, message);
        }
    }

    pub(super) fn verify_signature(&self, message: &[u8]) -> Result<(), HandshakeError> {
        if message.get(4..) == Some(&self.signature(self.side.peer())[..]) {
            return Ok(());
        }
        Err(error(DECRYPT_ERROR, "the signature does not match the handshake"))
    }

    pub(super) fn complete(&mut self) {
        if let Some(client) = self.held.take() {
            self.give_secret(Level::OneRtt, Side::Client, &client, self.options.aead);
        }
        self.summary.cipher_suite = self.options.aead.cipher_suite();
        let summary = Box::new(self.summary.clone());
        self.event(HandshakeEvent::Complete(summary));
    }
}

/// One side of the handshake: what differs between client and server.
pub(super) trait Role: Send {
    fn common(&self) -> &Common;
    fn common_mut(&mut self) -> &mut Common;
    /// The level at which the next message must come (RFC 9001, Section 4.1.3).
    fn expected_level(&self) -> Level;
    /// Takes one whole message.
    fn take(&mut self, kind: MessageKind, message: &[u8]) -> Result<(), HandshakeError>;

    fn read_messages(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        if level != self.expected_level() {
            let reason = format!("CRYPTO data at {level:?} level");
            return Err(error(Alert::UNEXPECTED_MESSAGE, reason));
        }
        self.common_mut().inbox.push(level, data)?;
        while let Some((kind, message)) = self.common_mut().inbox.next()? {
            self.take(kind, &message)?;
            // RFC 8446, Section 5.1: no message on both sides of a key change.
            if level != self.expected_level() && !self.common().inbox.is_empty() {
                let reason = format!("bytes behind {kind:?}, where the keys change");
                return Err(error(Alert::UNEXPECTED_MESSAGE, reason));
            }
        }
        Ok(())
    }
}

/// A handshake in progress on either side.
pub(super) struct Running<R>(pub(super) R);

impl<R: Role> Handshake for Running<R> {
    fn read(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        if let Some(error) = &self.0.common().failed {
            return Err(error.clone());
        }
        let result = self.0.read_messages(level, data);
        self.0.common_mut().failed = result.clone().err();
        result
    }

    fn poll(&mut self) -> Result<Option<HandshakeEvent>, HandshakeError> {
        let common = self.0.common_mut();
        match common.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None => common.failed.clone().map_or(Ok(None), Err),
        }
    }

    fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        let Some(mut hash) = self.0.common().exporter.clone() else {
            return Err(error(Alert::INTERNAL_ERROR, "the handshake is not complete"));
        };
        hash.field(label);
        hash.field(context);
        hash.fill(out);
        Ok(())
    }
}
