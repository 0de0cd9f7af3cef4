//! Session tickets as a client keeps them: bytes that can be stored and resumed from later, by
//! another process too.

use std::collections::VecDeque;
use std::sync::Arc;

use aws_lc_rs::digest;
use quicket_engine::crypto::{Aead, HandshakeSummary};
use quicket_wire::Reader;
use rustls::NamedGroup;
use rustls::pki_types::UnixTime;

use super::sessions::{ConnectionSessions, Sessions};
use crate::Fingerprint;
use crate::messages::{NewSessionTicket, push_vector_16, vector_8, vector_16};
use crate::psk::Psk;

/// The first byte of every encoded ticket: the layout that follows.
const LAYOUT: u8 = 2;
/// Length of the hash at the end, in bytes. It finds out what storage has damaged; who may write
/// there can do worse anyway.
const CHECKSUM_LEN: usize = 16;

/// That hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Checksum([u8; CHECKSUM_LEN]);

/// The longest life of a ticket, in seconds (RFC 8446, Section 4.6.1).
pub(crate) const MAX_LIFETIME: u32 = 7 * 24 * 60 * 60;
/// Tickets of one connection that are passed on; a server that sends more is not thanked.
const MAX_TICKETS: u32 = 16;
/// The longest chain with which a ticket is kept.
const MAX_CERTIFICATES: usize = 16;

/// What a session must have in common with the connection that resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionBinding {
    pub(crate) server_name: String,
    /// The certificate that the client presents if asked: the server may have tied the session
    /// to it.
    pub(crate) identity: Option<Fingerprint>,
}

/// A ticket with all that a resumption needs.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) aead: Aead,
    /// The key exchange group that the server chose.
    pub(crate) group: NamedGroup,
    pub(crate) psk: Psk,
    /// When it came, in seconds since 1970.
    pub(crate) received: u64,
    /// In seconds.
    pub(crate) lifetime: u32,
    pub(crate) age_add: u32,
    pub(crate) early_data: bool,
    pub(crate) ticket: Vec<u8>,
    pub(crate) alpn: Vec<u8>,
    pub(crate) binding: SessionBinding,
    /// The server's certificates, its own first.
    pub(crate) certificates: Vec<Vec<u8>>,
}

impl Checksum {
    /// The one at the end of an encoded ticket.
    pub(super) fn of(encoded: &[u8]) -> Option<Self> {
        encoded.last_chunk().copied().map(Self)
    }
}

impl Ticket {
    /// Encodes the ticket; `None` if something in it is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = vec![LAYOUT, aead_code(self.aead), u8::from(self.early_data)];
        out.extend_from_slice(&u16::from(self.group).to_be_bytes());
        out.extend_from_slice(&self.received.to_be_bytes());
        out.extend_from_slice(&self.lifetime.to_be_bytes());
        out.extend_from_slice(&self.age_add.to_be_bytes());
        push_vector_8(&mut out, self.psk.as_bytes())?;
        push_vector_16(&mut out, &self.ticket)?;
        push_vector_8(&mut out, &self.alpn)?;
        push_vector_16(&mut out, self.binding.server_name.as_bytes())?;
        push_vector_8(&mut out, self.binding.identity.as_ref().map_or(&[][..], |hash| &hash.0))?;
        if self.certificates.len() > MAX_CERTIFICATES {
            return None;
        }
        out.push(self.certificates.len() as u8);
        for certificate in &self.certificates {
            push_vector_16(&mut out, certificate)?;
        }
        out.extend_from_slice(&checksum(&out));
        Some(out)
    }

    /// Decodes a ticket; `None` if the bytes are not exactly one of the layout known here.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
        if checksum(content) != *sum {
            return None;
        }
        let mut reader = Reader::new(content);
        if reader.u8().ok()? != LAYOUT {
            return None;
        }
        let aead = aead_from_code(reader.u8().ok()?)?;
        let early_data = match reader.u8().ok()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let this = Self {
            aead,
            early_data,
            group: NamedGroup::from(reader.u16().ok()?),
            received: reader.u64().ok()?,
            lifetime: reader.u32().ok()?,
            age_add: reader.u32().ok()?,
            psk: Psk::new(vector_8(&mut reader)?),
            ticket: vector_16(&mut reader)?.to_vec(),
            alpn: vector_8(&mut reader)?.to_vec(),
            binding: decode_binding(&mut reader)?,
            certificates: decode_certificates(&mut reader)?,
        };
        let sound = reader.is_empty()
            && this.psk.as_bytes().len() == aead.secret_len()
            && !this.ticket.is_empty()
            && this.lifetime <= MAX_LIFETIME;
        sound.then_some(this)
    }

    /// True if a connection with this binding that offers these suites and application protocols
    /// may resume the session now.
    pub(crate) fn fits(&self, binding: &SessionBinding, suites: &[Aead], alpn: &[Vec<u8>]) -> bool {
        let now = UnixTime::now().as_secs();
        let age = now.checked_sub(self.received);
        let protocol =
            if self.alpn.is_empty() { alpn.is_empty() } else { alpn.contains(&self.alpn) };
        protocol
            && suites.contains(&self.aead)
            && self.binding == *binding
            && age.is_some_and(|age| age <= u64::from(self.lifetime))
    }
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut sum = [0; CHECKSUM_LEN];
    sum.copy_from_slice(&digest::digest(&digest::SHA256, content).as_ref()[..CHECKSUM_LEN]);
    sum
}

fn decode_binding(reader: &mut Reader<'_>) -> Option<SessionBinding> {
    let server_name = String::from_utf8(vector_16(reader)?.to_vec()).ok()?;
    let identity = match vector_8(reader)? {
        [] => None,
        hash => Some(Fingerprint(hash.try_into().ok()?)),
    };
    Some(SessionBinding { server_name, identity })
}

fn decode_certificates(reader: &mut Reader<'_>) -> Option<Vec<Vec<u8>>> {
    let count = usize::from(reader.u8().ok()?);
    if count > MAX_CERTIFICATES {
        return None;
    }
    (0..count).map(|_| vector_16(reader).map(<[u8]>::to_vec)).collect()
}

fn push_vector_8(out: &mut Vec<u8>, content: &[u8]) -> Option<()> {
    out.push(u8::try_from(content.len()).ok()?);
    out.extend_from_slice(content);
    Some(())
}

fn aead_code(aead: Aead) -> u8 {
    match aead {
        Aead::Aes128Gcm => 1,
        Aead::Aes256Gcm => 2,
        Aead::ChaCha20Poly1305 => 3,
        Aead::Aes128Ccm => 4,
    }
}

fn aead_from_code(code: u8) -> Option<Aead> {
    Aead::ALL.into_iter().find(|aead| aead_code(*aead) == code)
}

/// Makes tickets of the NewSessionTicket messages of one connection.
pub(crate) struct TicketReceiver {
    binding: SessionBinding,
    alpn: Vec<u8>,
    certificates: Vec<Vec<u8>>,
    suite: Option<(Aead, NamedGroup)>,
    received: u32,
    ready: VecDeque<Vec<u8>>,
    /// What TLS makes of the tickets that come.
    received_sessions: Arc<ConnectionSessions>,
    /// Where that is kept for the next connections of this process; not for those that cannot
    /// resume it.
    sessions: Option<Arc<Sessions>>,
}

impl TicketReceiver {
    pub(crate) fn new(
        binding: SessionBinding,
        received_sessions: Arc<ConnectionSessions>,
        sessions: Option<Arc<Sessions>>,
    ) -> Self {
        Self {
            binding,
            received_sessions,
            sessions,
            alpn: Vec::new(),
            certificates: Vec::new(),
            suite: None,
            received: 0,
            ready: VecDeque::new(),
        }
    }

    pub(crate) fn set_session(
        &mut self,
        summary: &HandshakeSummary,
        suite: Option<(Aead, NamedGroup)>,
    ) {
        self.alpn.clone_from(&summary.alpn);
        self.certificates.clone_from(&summary.peer_certificates);
        self.suite = suite;
    }

    /// Takes a post-handshake message; the keys of tickets come in the tickets' order.
    pub(crate) fn receive(&mut self, message: &[u8], psks: &mut impl Iterator<Item = Psk>) {
        let Some(message) = NewSessionTicket::decode(message) else { return };
        let Some(psk) = psks.next() else { return };
        let session = self.received_sessions.next();
        self.received = self.received.saturating_add(1);
        if self.received > MAX_TICKETS || message.ticket.is_empty() || message.lifetime == 0 {
            return;
        }
        if let Some(ticket) = self.ticket(&message, psk).and_then(|ticket| ticket.encode()) {
            if let (Some(sessions), Some(session)) = (&self.sessions, session)
                && let Some(checksum) = Checksum::of(&ticket)
            {
                sessions.insert(checksum, session);
            }
            self.ready.push_back(ticket);
        }
    }

    fn ticket(&self, message: &NewSessionTicket<'_>, psk: Psk) -> Option<Ticket> {
        let (aead, group) = self.suite?;
        Some(Ticket {
            aead,
            group,
            psk,
            received: UnixTime::now().as_secs(),
            lifetime: message.lifetime.min(MAX_LIFETIME),
            age_add: message.age_add,
            early_data: message.allows_early_data(),
            ticket: message.ticket.to_vec(),
            alpn: self.alpn.clone(),
            binding: self.binding.clone(),
            certificates: self.certificates.clone(),
        })
    }

    /// The next encoded ticket.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITES: &[Aead] = &[Aead::Aes128Gcm, Aead::Aes256Gcm];

    fn ticket() -> Ticket {
        Ticket {
            aead: Aead::Aes256Gcm,
            group: NamedGroup::X25519MLKEM768,
            psk: Psk::new(&[3; 48]),
            received: UnixTime::now().as_secs(),
            lifetime: 100,
            age_add: 5,
            early_data: true,
            ticket: b"ticket".to_vec(),
            alpn: b"h3".to_vec(),
            binding: SessionBinding {
                server_name: "example.org".to_owned(),
                identity: Some(Fingerprint([8; 32])),
            },
            certificates: vec![vec![1; 700], vec![2; 900]],
        }
    }

    #[test]
    fn tickets_round_trip_and_partial_ones_are_refused() {
        let bytes = ticket().encode().unwrap();
        assert!(Ticket::decode(&bytes) == Some(ticket()));
        for len in 0..bytes.len() {
            assert!(Ticket::decode(&bytes[..len]).is_none(), "{len} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(Ticket::decode(&longer).is_none());
    }

    #[test]
    fn damaged_tickets_are_refused() {
        let bytes = ticket().encode().unwrap();
        for at in 0..bytes.len() {
            let mut garbled = bytes.clone();
            garbled[at] ^= 1 << (at % 8);
            assert!(Ticket::decode(&garbled).is_none(), "byte {at}");
        }
    }

    #[test]
    fn any_content_with_a_right_checksum_decodes_without_a_panic() {
        let bytes = ticket().encode().unwrap();
        let content = &bytes[..bytes.len() - CHECKSUM_LEN];
        for at in 0..content.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = content.to_vec();
                other[at] = value;
                other.extend_from_slice(&checksum(&other));
                if let Some(ticket) = Ticket::decode(&other) {
                    assert!(ticket.encode() == Some(other), "byte {at}");
                }
            }
        }
    }

    #[test]
    fn a_session_is_only_resumed_where_it_belongs() {
        let ticket = ticket();
        let alpn = [b"hq".to_vec(), b"h3".to_vec()];
        assert!(ticket.fits(&ticket.binding, SUITES, &alpn));
        assert!(!ticket.fits(&ticket.binding, SUITES, &alpn[..1]));
        assert!(!ticket.fits(&ticket.binding, SUITES, &[]));
        let elsewhere =
            SessionBinding { server_name: "example.net".into(), ..ticket.binding.clone() };
        assert!(!ticket.fits(&elsewhere, SUITES, &alpn));
        let anonymous = SessionBinding { identity: None, ..ticket.binding.clone() };
        assert!(!ticket.fits(&anonymous, SUITES, &alpn));
        assert!(!ticket.fits(&ticket.binding, &[Aead::Aes128Gcm], &alpn));
    }

    #[test]
    fn tickets_expire_and_do_not_come_from_the_future() {
        let alpn = [b"h3".to_vec()];
        let mut old = ticket();
        old.received -= 101;
        assert!(!old.fits(&old.binding, SUITES, &alpn));
        let mut future = ticket();
        future.received += 1_000;
        assert!(!future.fits(&future.binding, SUITES, &alpn));
    }
}
