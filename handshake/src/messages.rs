//! The few handshake messages that this crate looks into itself (RFC 8446, Section 4).

use quicket_wire::Reader;

/// Length of a handshake message's header: type and 24-bit length.
const HEADER_LEN: usize = 4;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
/// pre_shared_key (RFC 8446, Section 4.2.11)
const PRE_SHARED_KEY_EXTENSION: u16 = 41;
/// early_data, in ClientHello and NewSessionTicket (RFC 8446, Section 4.2.10)
const EARLY_DATA_EXTENSION: u16 = 42;
/// The longest message that is collected; rustls refuses longer ones as well.
pub(crate) const MAX_MESSAGE_LEN: usize = 0xffff;

/// Cuts the bytes of one encryption level into messages.
///
/// Collects bodies only while asked to, so that long certificate chains are not held twice.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    header: [u8; HEADER_LEN],
    header_len: usize,
    body_left: usize,
    message: Vec<u8>,
    /// Messages that are complete.
    pub(crate) complete: u64,
}

impl Framing {
    /// Takes the next bytes. Calls `whole` with every message that they complete, header included,
    /// if `collect` is true. Messages longer than [`MAX_MESSAGE_LEN`] are counted, not collected.
    pub(crate) fn read(&mut self, mut data: &[u8], collect: bool, mut whole: impl FnMut(&[u8])) {
        while !data.is_empty() || (self.header_len == HEADER_LEN && self.body_left == 0) {
            if self.header_len < HEADER_LEN {
                data = self.read_header(data);
                continue;
            }
            let (body, rest) = data.split_at(self.body_left.min(data.len()));
            if collect && body_len(self.header) <= MAX_MESSAGE_LEN {
                if self.message.is_empty() {
                    self.message.extend_from_slice(&self.header);
                }
                self.message.extend_from_slice(body);
            }
            data = rest;
            self.body_left -= body.len();
            if self.body_left == 0 {
                if self.message.len() == HEADER_LEN + body_len(self.header) {
                    whole(&self.message);
                }
                self.message.clear();
                self.header_len = 0;
                self.complete += 1;
            }
        }
    }

    /// Whether a part of a message has been read.
    pub(crate) const fn is_within_message(&self) -> bool {
        self.header_len > 0
    }

    fn read_header<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = data.split_at(data.len().min(HEADER_LEN - self.header_len));
        self.header[self.header_len..self.header_len + taken.len()].copy_from_slice(taken);
        self.header_len += taken.len();
        if self.header_len == HEADER_LEN {
            self.body_left = body_len(self.header);
        }
        rest
    }
}

fn body_len([_, a, b, c]: [u8; HEADER_LEN]) -> usize {
    u32::from_be_bytes([0, a, b, c]) as usize
}

/// True if `message` is a ClientHello that offers early data.
pub(crate) fn offers_early_data(message: &[u8]) -> bool {
    client_hello_extensions(message)
        .is_some_and(|extensions| find_extension(extensions, EARLY_DATA_EXTENSION).is_some())
}

/// The first ticket in a ClientHello.
pub(crate) fn first_ticket(message: &[u8]) -> Option<&[u8]> {
    let offered = find_extension(client_hello_extensions(message)?, PRE_SHARED_KEY_EXTENSION)?;
    vector_16(&mut Reader::new(vector_16(&mut Reader::new(offered))?))
}

/// The transport parameters in a ClientHello (RFC 9001, Section 8.2).
pub(crate) fn transport_parameters(message: &[u8]) -> Option<&[u8]> {
    quicket_wire::ClientHello::parse(message).ok()?.quic_transport_parameters()
}

/// The extensions of a ClientHello (RFC 8446, Section 4.1.2).
fn client_hello_extensions(message: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(message);
    if reader.u8().ok()? != CLIENT_HELLO {
        return None;
    }
    reader.bytes(3 + 2 + 32).ok()?;
    vector_8(&mut reader)?;
    vector_16(&mut reader)?;
    vector_8(&mut reader)?;
    vector_16(&mut reader)
}

fn find_extension(extensions: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut reader = Reader::new(extensions);
    loop {
        let kind = reader.u16().ok()?;
        let content = vector_16(&mut reader)?;
        if kind == wanted {
            return Some(content);
        }
    }
}

pub(crate) fn vector_8<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.u8().ok()?;
    reader.bytes(usize::from(len)).ok()
}

pub(crate) fn vector_16<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.u16().ok()?;
    reader.bytes(usize::from(len)).ok()
}

/// A NewSessionTicket message (RFC 8446, Section 4.6.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewSessionTicket<'a> {
    /// How long the ticket may be used, in seconds.
    pub(crate) lifetime: u32,
    pub(crate) age_add: u32,
    pub(crate) nonce: &'a [u8],
    pub(crate) ticket: &'a [u8],
    /// The encoded extensions.
    pub(crate) extensions: &'a [u8],
}

impl<'a> NewSessionTicket<'a> {
    /// Decodes a whole message; `None` if it is of another type or malformed.
    pub(crate) fn decode(message: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        if reader.u8().ok()? != NEW_SESSION_TICKET {
            return None;
        }
        reader.bytes(3).ok()?;
        let this = Self {
            lifetime: reader.u32().ok()?,
            age_add: reader.u32().ok()?,
            nonce: vector_8(&mut reader)?,
            ticket: vector_16(&mut reader)?,
            extensions: vector_16(&mut reader)?,
        };
        reader.is_empty().then_some(this)
    }

    /// Encodes the message; `None` if a field is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        body.extend_from_slice(&self.lifetime.to_be_bytes());
        body.extend_from_slice(&self.age_add.to_be_bytes());
        body.push(u8::try_from(self.nonce.len()).ok()?);
        body.extend_from_slice(self.nonce);
        push_vector_16(&mut body, self.ticket)?;
        push_vector_16(&mut body, self.extensions)?;
        let [_, len @ ..] = u32::try_from(body.len()).ok()?.to_be_bytes();
        let mut message = vec![NEW_SESSION_TICKET];
        message.extend_from_slice(&len);
        message.append(&mut body);
        Some(message)
    }

    /// True if early data may be sent with the ticket: QUIC knows only none and all of it
    /// (RFC 9001, Section 4.6.1).
    pub(crate) fn allows_early_data(&self) -> bool {
        find_extension(self.extensions, EARLY_DATA_EXTENSION) == Some(&[0xff; 4])
    }
}

/// The encoded extensions of a ticket that allows early data (RFC 9001, Section 4.6.1), or not.
pub(crate) fn ticket_extensions(early_data: bool) -> &'static [u8] {
    if early_data { &[0, 42, 0, 4, 0xff, 0xff, 0xff, 0xff] } else { &[] }
}

pub(crate) fn push_vector_16(out: &mut Vec<u8>, content: &[u8]) -> Option<()> {
    out.extend_from_slice(&u16::try_from(content.len()).ok()?.to_be_bytes());
    out.extend_from_slice(content);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(framing: &mut Framing, data: &[u8]) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        framing.read(data, true, |message| messages.push(message.to_vec()));
        messages
    }

    #[test]
    fn messages_are_cut_wherever_the_bytes_are_split() {
        let stream = [&[20, 0, 0, 3, 1, 2, 3][..], &[5, 0, 0, 0], &[4, 0, 0, 1, 9]].concat();
        let want = vec![vec![20, 0, 0, 3, 1, 2, 3], vec![5, 0, 0, 0], vec![4, 0, 0, 1, 9]];
        for split in 0..stream.len() {
            let mut framing = Framing::default();
            let mut messages = collect(&mut framing, &stream[..split]);
            messages.extend(collect(&mut framing, &stream[split..]));
            assert_eq!(messages, want, "split at {split}");
            assert_eq!(framing.complete, 3);
            assert!(!framing.is_within_message());
            framing.read(&stream[..2], true, |_| {});
            assert!(framing.is_within_message());
        }
    }

    #[test]
    fn an_endless_message_is_not_collected() {
        let mut framing = Framing::default();
        assert!(collect(&mut framing, &[1, 0xff, 0xff, 0xff]).is_empty());
        for _ in 0..100 {
            assert!(collect(&mut framing, &[0; 4_096]).is_empty());
        }
        assert!(framing.message.len() <= MAX_MESSAGE_LEN);
        assert_eq!(framing.complete, 0);
    }

    #[test]
    fn tickets_round_trip() {
        let ticket = NewSessionTicket {
            lifetime: 7,
            age_add: 0x0102_0304,
            nonce: b"nonce",
            ticket: b"ticket",
            extensions: ticket_extensions(true),
        };
        let message = ticket.encode().unwrap();
        assert_eq!(NewSessionTicket::decode(&message), Some(ticket.clone()));
        assert!(ticket.allows_early_data());
        for len in 0..message.len() {
            assert_eq!(NewSessionTicket::decode(&message[..len]), None);
        }
        let without = NewSessionTicket { extensions: ticket_extensions(false), ..ticket };
        assert!(!without.allows_early_data());
        let limited = NewSessionTicket { extensions: &[0, 42, 0, 4, 0, 0, 1, 0], ..without };
        assert!(!limited.allows_early_data());
    }

    #[test]
    fn early_data_is_found_among_extensions_and_garbage_is_none() {
        let hello = |extensions: &[u8]| {
            let mut body = vec![0x03, 0x03];
            body.extend_from_slice(&[0; 32]);
            body.push(0);
            push_vector_16(&mut body, &[0x13, 0x01]).unwrap();
            body.extend_from_slice(&[1, 0]);
            push_vector_16(&mut body, extensions).unwrap();
            [&[1, 0, 0, body.len() as u8][..], &body].concat()
        };
        assert!(offers_early_data(&hello(&[0, 43, 0, 1, 9, 0, 42, 0, 0])));
        assert!(!offers_early_data(&hello(&[0, 43, 0, 1, 9])));
        assert!(!offers_early_data(&hello(&[0, 43, 0, 9, 9])));
        let whole = hello(&[0, 42, 0, 0]);
        for len in 0..whole.len() {
            assert!(!offers_early_data(&whole[..len]));
        }
        let whole = hello(&[0, 42, 0, 0, 0, 41, 0, 12, 0, 9, 0, 3, 7, 8, 9, 0, 0, 0, 1, 0]);
        assert_eq!(first_ticket(&whole), Some(&[7, 8, 9][..]));
        for len in 0..whole.len() {
            assert_eq!(first_ticket(&whole[..len]), None);
        }
        assert_eq!(first_ticket(&hello(&[0, 41, 0, 4, 0, 9, 0, 3])), None);
        assert_eq!(first_ticket(&hello(&[0, 42, 0, 0])), None);
    }
}
