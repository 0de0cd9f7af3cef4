//! Handshake messages of [`NullTls`](super::NullTls): the framing of TLS 1.3 (RFC 8446,
//! Section 4), a ClientHello that any parser takes for one, and simpler bodies for the rest.

use quicket_engine::crypto::{Alert, HandshakeError, Level};
use quicket_wire::Reader;

/// Types of handshake messages (RFC 8446, Section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// client_hello
    ClientHello,
    /// server_hello
    ServerHello,
    /// new_session_ticket
    NewSessionTicket,
    /// encrypted_extensions
    EncryptedExtensions,
    /// certificate
    Certificate,
    /// certificate_request
    CertificateRequest,
    /// certificate_verify
    CertificateVerify,
    /// finished
    Finished,
    /// key_update, which QUIC forbids (RFC 9001, Section 6)
    KeyUpdate,
}

const KINDS: &[(MessageKind, u8)] = &[
    (MessageKind::ClientHello, 1),
    (MessageKind::ServerHello, 2),
    (MessageKind::NewSessionTicket, 4),
    (MessageKind::EncryptedExtensions, 8),
    (MessageKind::Certificate, 11),
    (MessageKind::CertificateRequest, 13),
    (MessageKind::CertificateVerify, 15),
    (MessageKind::Finished, 20),
    (MessageKind::KeyUpdate, 24),
];

/// The longest message that is taken, in bytes.
const MAX_MESSAGE: usize = 1 << 17;

const SERVER_NAME: u16 = 0;
const SUPPORTED_GROUPS: u16 = 10;
const ALPN: u16 = 16;
const PADDING: u16 = 21;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const COOKIE: u16 = 44;
const QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;

pub(super) const DECODE_ERROR: Alert = Alert(50);
pub(super) const DECRYPT_ERROR: Alert = Alert(51);
pub(super) const CERTIFICATE_REQUIRED: Alert = Alert(116);

pub(super) fn error(alert: Alert, reason: impl Into<String>) -> HandshakeError {
    HandshakeError { alert, reason: reason.into() }
}

fn malformed<E>(_: E) -> HandshakeError {
    error(DECODE_ERROR, "a handshake message is malformed")
}

/// A message with its four bytes of header.
pub(super) fn frame(kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let code = KINDS.iter().find(|(k, _)| *k == kind).map_or(255, |(_, code)| *code);
    let len = (body.len() as u32).to_be_bytes();
    let mut message = vec![code, len[1], len[2], len[3]];
    message.extend_from_slice(body);
    message
}

/// Received bytes of each level, cut into messages.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    level: Option<Level>,
    bytes: Vec<u8>,
}

impl Inbox {
    /// Adds bytes. A message must not continue at another level.
    pub(super) fn push(&mut self, level: Level, data: &[u8]) -> Result<(), HandshakeError> {
        if !self.bytes.is_empty() && self.level != Some(level) {
            return Err(error(Alert::UNEXPECTED_MESSAGE, "a message spans two levels"));
        }
        self.level = Some(level);
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes the next whole message, header included.
    pub(super) fn next(&mut self) -> Result<Option<(MessageKind, Vec<u8>)>, HandshakeError> {
        let [code, a, b, c, ..] = *self.bytes.as_slice() else { return Ok(None) };
        let len = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((kind, _)) = KINDS.iter().find(|(_, known)| *known == code) else {
            return Err(error(Alert::UNEXPECTED_MESSAGE, format!("unknown message type {code}")));
        };
        if len > MAX_MESSAGE {
            return Err(error(DECODE_ERROR, "a handshake message is too long"));
        }
        if self.bytes.len() < len {
            return Ok(None);
        }
        let rest = self.bytes.split_off(len);
        Ok(Some((*kind, std::mem::replace(&mut self.bytes, rest))))
    }
}

/// What a ClientHello says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello {
    pub(super) random: [u8; 32],
    pub(super) server_name: String,
    pub(super) alpn: Vec<Vec<u8>>,
    pub(super) transport_parameters: Option<Vec<u8>>,
    pub(super) ticket: Option<Vec<u8>>,
    pub(super) early_data: bool,
    /// True in the second ClientHello, after a HelloRetryRequest.
    pub(super) cookie: bool,
}

fn put_u16(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u16).to_be_bytes());
}

fn put_extension(out: &mut Vec<u8>, kind: u16, body: &[u8]) {
    put_u16(out, usize::from(kind));
    put_u16(out, body.len());
    out.extend_from_slice(body);
}

/// A vector with a two-byte length before it.
fn long_vec(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 2);
    put_u16(&mut out, body.len());
    out.extend_from_slice(body);
    out
}

impl ClientHello {
    /// The message, padded to at least `min_len` bytes (RFC 7685).
    pub(super) fn encode(&self, min_len: usize) -> Vec<u8> {
        let bare = self.encode_padded(None);
        match min_len.checked_sub(bare.len()) {
            Some(missing) if missing > 0 => self.encode_padded(Some(missing.saturating_sub(4))),
            _ => bare,
        }
    }

    fn encode_padded(&self, padding: Option<usize>) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend_from_slice(&self.random);
        body.push(0); // legacy_session_id: empty in QUIC (RFC 9001, Section 8.4)
        body.extend_from_slice(&[0, 2, 0x13, 0x01]); // TLS_AES_128_GCM_SHA256
        body.extend_from_slice(&[1, 0]); // no compression
        body.extend_from_slice(&long_vec(&self.extensions(padding)));
        frame(MessageKind::ClientHello, &body)
    }

    fn extensions(&self, padding: Option<usize>) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.server_name.is_empty() {
            let mut name = vec![0];
            name.extend_from_slice(&long_vec(self.server_name.as_bytes()));
            put_extension(&mut out, SERVER_NAME, &long_vec(&name));
        }
        put_extension(&mut out, SUPPORTED_GROUPS, &[0, 2, 0, 0x1d]);
        put_extension(&mut out, SUPPORTED_VERSIONS, &[2, 3, 4]);
        if !self.alpn.is_empty() {
            let mut names = Vec::new();
            for name in &self.alpn {
                names.push(name.len() as u8);
                names.extend_from_slice(name);
            }
            put_extension(&mut out, ALPN, &long_vec(&names));
        }
        if let Some(parameters) = &self.transport_parameters {
            put_extension(&mut out, QUIC_TRANSPORT_PARAMETERS, parameters);
        }
        if self.cookie {
            put_extension(&mut out, COOKIE, &long_vec(b"cookie"));
        }
        if let Some(padding) = padding {
            put_extension(&mut out, PADDING, &vec![0; padding]);
        }
        if self.early_data {
            put_extension(&mut out, EARLY_DATA, &[]);
        }
        if let Some(ticket) = &self.ticket {
            put_extension(&mut out, PRE_SHARED_KEY, ticket);
        }
        out
    }

    pub(super) fn parse(message: &[u8]) -> Result<Self, HandshakeError> {
        let mut hello = Self::default();
        let mut r = Reader::new(message);
        r.bytes(6).map_err(malformed)?;
        hello.random = r.bytes(32).map_err(malformed)?.try_into().map_err(malformed)?;
        let session_id = r.u8().map_err(malformed)?;
        r.bytes(usize::from(session_id)).map_err(malformed)?;
        let suites = r.u16().map_err(malformed)?;
        r.bytes(usize::from(suites)).map_err(malformed)?;
        let compressions = r.u8().map_err(malformed)?;
        r.bytes(usize::from(compressions)).map_err(malformed)?;
        r.u16().map_err(malformed)?;
        while !r.is_empty() {
            let kind = r.u16().map_err(malformed)?;
            let len = r.u16().map_err(malformed)?;
            hello.take_extension(kind, r.bytes(usize::from(len)).map_err(malformed)?)?;
        }
        Ok(hello)
    }

    fn take_extension(&mut self, kind: u16, body: &[u8]) -> Result<(), HandshakeError> {
        match kind {
            SERVER_NAME => {
                let name = body.get(5..).ok_or_else(|| malformed(()))?;
                self.server_name = String::from_utf8(name.to_vec()).map_err(malformed)?;
            }
            ALPN => {
                let mut r = Reader::new(body);
                r.u16().map_err(malformed)?;
                while !r.is_empty() {
                    let len = r.u8().map_err(malformed)?;
                    self.alpn.push(r.bytes(usize::from(len)).map_err(malformed)?.to_vec());
                }
            }
            QUIC_TRANSPORT_PARAMETERS => self.transport_parameters = Some(body.to_vec()),
            COOKIE => self.cookie = true,
            EARLY_DATA => self.early_data = true,
            PRE_SHARED_KEY => self.ticket = Some(body.to_vec()),
            _ => {}
        }
        Ok(())
    }
}

/// What a ServerHello says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) random: [u8; 32],
    /// It is a HelloRetryRequest.
    pub(super) retry: bool,
    pub(super) resumed: bool,
}

impl ServerHello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = self.random.to_vec();
        body.push(u8::from(self.retry) | u8::from(self.resumed) << 1);
        // As long as a real one with a key share.
        body.resize(86, 0);
        frame(MessageKind::ServerHello, &body)
    }

    pub(super) fn parse(message: &[u8]) -> Result<Self, HandshakeError> {
        let mut r = Reader::new(message);
        r.bytes(4).map_err(malformed)?;
        let random = r.bytes(32).map_err(malformed)?.try_into().map_err(malformed)?;
        let flags = r.u8().map_err(malformed)?;
        Ok(Self { random, retry: flags & 1 != 0, resumed: flags & 2 != 0 })
    }
}

/// What EncryptedExtensions say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EncryptedExtensions {
    pub(super) alpn: Vec<u8>,
    pub(super) transport_parameters: Option<Vec<u8>>,
    pub(super) early_data: bool,
}

impl EncryptedExtensions {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = vec![u8::from(self.early_data)];
        body.extend_from_slice(&long_vec(&self.alpn));
        if let Some(parameters) = &self.transport_parameters {
            body.extend_from_slice(&long_vec(parameters));
        }
        frame(MessageKind::EncryptedExtensions, &body)
    }

    pub(super) fn parse(message: &[u8]) -> Result<Self, HandshakeError> {
        let mut r = Reader::new(message);
        r.bytes(4).map_err(malformed)?;
        let early_data = r.u8().map_err(malformed)? == 1;
        let len = r.u16().map_err(malformed)?;
        let alpn = r.bytes(usize::from(len)).map_err(malformed)?.to_vec();
        let transport_parameters = if r.is_empty() {
            None
        } else {
            let len = r.u16().map_err(malformed)?;
            Some(r.bytes(usize::from(len)).map_err(malformed)?.to_vec())
        };
        Ok(Self { alpn, transport_parameters, early_data })
    }
}

/// What a client keeps of a session: the ticket for the server, the key, and what the session was
/// for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) psk: [u8; 32],
    pub(super) early_data: bool,
    pub(super) alpn: Vec<u8>,
    pub(super) ticket: Vec<u8>,
}

impl Session {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.psk.to_vec();
        out.push(u8::from(self.early_data));
        out.extend_from_slice(&long_vec(&self.alpn));
        out.extend_from_slice(&self.ticket);
        out
    }

    /// `None` if the bytes are no session: it may come from a disk.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let psk = r.bytes(32).ok()?.try_into().ok()?;
        let early_data = r.u8().ok()? == 1;
        let len = r.u16().ok()?;
        let alpn = r.bytes(usize::from(len)).ok()?.to_vec();
        let ticket = r.bytes(r.remaining()).ok()?.to_vec();
        Some(Self { psk, early_data, alpn, ticket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> ClientHello {
        ClientHello {
            random: [7; 32],
            server_name: "quic.example".into(),
            alpn: vec![b"h3".to_vec(), b"hq-interop".to_vec()],
            transport_parameters: Some(vec![1, 2, 3]),
            ticket: Some(vec![9; 50]),
            early_data: true,
            cookie: false,
        }
    }

    #[test]
    fn messages_parse_to_what_was_encoded() {
        let hello = hello();
        assert_eq!(ClientHello::parse(&hello.encode(0)).unwrap(), hello.clone());
        assert_eq!(ClientHello::parse(&hello.encode(2_000)).unwrap(), hello.clone());
        assert_eq!(hello.encode(2_000).len(), 2_000);
        let server = ServerHello { random: [1; 32], retry: false, resumed: true };
        assert_eq!(ServerHello::parse(&server.encode()).unwrap(), server);
        let extensions = EncryptedExtensions {
            alpn: b"h3".to_vec(),
            transport_parameters: Some(vec![4; 40]),
            early_data: true,
        };
        assert_eq!(EncryptedExtensions::parse(&extensions.encode()).unwrap(), extensions);
        let session =
            Session { psk: [2; 32], early_data: true, alpn: b"h3".to_vec(), ticket: vec![1; 9] };
        assert_eq!(Session::parse(&session.encode()), Some(session));
        assert_eq!(Session::parse(&[1; 20]), None);
    }

    #[test]
    fn client_hello_is_one_for_the_wire_crate() {
        let message = hello().encode(600);
        let seen = quicket_wire::ClientHello::parse(&message).unwrap();
        assert_eq!(seen.server_name(), Some("quic.example"));
        assert_eq!(seen.alpn().collect::<Vec<_>>(), [&b"h3"[..], b"hq-interop"]);
        assert_eq!(seen.quic_transport_parameters(), Some(&[1, 2, 3][..]));
        assert_eq!(quicket_wire::ClientHello::message_len(&message[..10]), Ok(Some(600)));
    }

    #[test]
    fn inbox_cuts_messages_whatever_the_pieces() {
        let stream =
            [frame(MessageKind::Finished, &[1; 40]), frame(MessageKind::Certificate, &[])].concat();
        let mut inbox = Inbox::default();
        let mut kinds = Vec::new();
        for byte in &stream {
            inbox.push(Level::Handshake, &[*byte]).unwrap();
            while let Some((kind, message)) = inbox.next().unwrap() {
                kinds.push((kind, message.len()));
            }
        }
        assert_eq!(kinds, [(MessageKind::Finished, 44), (MessageKind::Certificate, 4)]);
        inbox.push(Level::Handshake, &[20]).unwrap();
        assert!(inbox.push(Level::OneRtt, &[0]).is_err());
    }

    #[test]
    fn garbage_is_an_error() {
        for garbage in [&[99, 0, 0, 0][..], &[1, 255, 0, 0]] {
            let mut inbox = Inbox::default();
            inbox.push(Level::Initial, garbage).unwrap();
            assert!(inbox.next().is_err());
        }
        let whole = hello().encode(0);
        for len in 4..whole.len() {
            // Cut in the middle of an extension or not, it must not panic.
            let _ = ClientHello::parse(&whole[..len]);
        }
    }
}
