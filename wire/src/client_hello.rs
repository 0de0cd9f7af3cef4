//! What a server needs from a ClientHello before TLS starts (RFC 8446, Section 4.1.2).

use crate::{DecodeError, Reader};

const HANDSHAKE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ALPN: u16 = 16;
/// RFC 9001, Section 8.2.
const EXTENSION_QUIC_TRANSPORT_PARAMETERS: u16 = 0x39;
/// RFC 6066, Section 3.
const NAME_TYPE_HOST: u8 = 0;
/// The handshake type and the 24-bit length.
const HANDSHAKE_HEADER_LEN: usize = 4;

/// A parsed ClientHello message: just enough to choose the version and the listener. TLS
/// validates the message when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientHello<'a> {
    server_name: Option<&'a str>,
    /// The list in the ALPN extension, which has been validated.
    alpn: Option<&'a [u8]>,
    transport_parameters: Option<&'a [u8]>,
}

impl<'a> ClientHello<'a> {
    /// The length in bytes of the ClientHello that starts with `prefix`, its 4-byte header
    /// included; `None` as long as `prefix` is too short to tell. The message is complete once
    /// that many bytes are there.
    ///
    /// # Errors
    /// The message is not a ClientHello.
    pub fn message_len(prefix: &[u8]) -> Result<Option<usize>, DecodeError> {
        match prefix {
            [] => Ok(None),
            [HANDSHAKE_CLIENT_HELLO, high, middle, low, ..] => {
                let len = u32::from_be_bytes([0, *high, *middle, *low]);
                let len = usize::try_from(len).map_err(|_| DecodeError::Truncated)?;
                Ok(Some(len.saturating_add(HANDSHAKE_HEADER_LEN)))
            }
            [HANDSHAKE_CLIENT_HELLO, ..] => Ok(None),
            _ => Err(DecodeError::InvalidValue("handshake message is not a ClientHello")),
        }
    }

    /// Parses the ClientHello at the front of `bytes`; what follows it is not looked at.
    ///
    /// # Errors
    /// Another message, truncation, lengths that contradict each other, one of the extensions
    /// used here repeated or malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let len = Self::message_len(bytes)?.ok_or(DecodeError::Truncated)?;
        let body = bytes.get(HANDSHAKE_HEADER_LEN..len).ok_or(DecodeError::Truncated)?;
        let mut reader = Reader::new(body);
        // legacy_version and random.
        reader.bytes(2 + 32)?;
        let session_id_len = reader.u8()?;
        reader.bytes(usize::from(session_id_len))?;
        bytes_with_u16_len(&mut reader)?; // cipher_suites
        let compression_methods_len = reader.u8()?;
        reader.bytes(usize::from(compression_methods_len))?;
        let mut extensions = Reader::new(bytes_with_u16_len(&mut reader)?);
        at_end(&reader)?;
        let mut hello = Self::default();
        while !extensions.is_empty() {
            let extension_type = extensions.u16()?;
            let data = bytes_with_u16_len(&mut extensions)?;
            hello.add_extension(extension_type, data)?;
        }
        Ok(hello)
    }

    fn add_extension(&mut self, extension_type: u16, data: &'a [u8]) -> Result<(), DecodeError> {
        // RFC 8446, Section 4.2: an extension comes at most once.
        let repeated = match extension_type {
            EXTENSION_SERVER_NAME => self.server_name.replace(host_name(data)?).is_some(),
            EXTENSION_ALPN => self.alpn.replace(protocol_list(data)?).is_some(),
            EXTENSION_QUIC_TRANSPORT_PARAMETERS => {
                self.transport_parameters.replace(data).is_some()
            }
            _ => false,
        };
        if repeated {
            return Err(DecodeError::InvalidValue("ClientHello with a repeated extension"));
        }
        Ok(())
    }

    /// The host name of the server_name extension (RFC 6066, Section 3).
    #[must_use]
    pub const fn server_name(&self) -> Option<&'a str> {
        self.server_name
    }

    /// The protocols the client offers, most wanted first (RFC 7301, Section 3.1).
    pub fn alpn(&self) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let mut reader = Reader::new(self.alpn.unwrap_or_default());
        core::iter::from_fn(move || {
            let len = reader.u8().ok()?;
            reader.bytes(usize::from(len)).ok()
        })
    }

    /// The content of the quic_transport_parameters extension (RFC 9001, Section 8.2).
    #[must_use]
    pub const fn quic_transport_parameters(&self) -> Option<&'a [u8]> {
        self.transport_parameters
    }
}

fn bytes_with_u16_len<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let len = reader.u16()?;
    reader.bytes(usize::from(len))
}

fn at_end(reader: &Reader<'_>) -> Result<(), DecodeError> {
    if reader.is_empty() {
        return Ok(());
    }
    Err(DecodeError::InvalidValue("ClientHello with bytes after the end of a list"))
}

/// RFC 6066, Section 3: one name of type host_name, in ASCII.
fn host_name(data: &[u8]) -> Result<&str, DecodeError> {
    let mut reader = Reader::new(data);
    let mut names = Reader::new(bytes_with_u16_len(&mut reader)?);
    at_end(&reader)?;
    let name_type = names.u8()?;
    let name = bytes_with_u16_len(&mut names)?;
    at_end(&names)?;
    let valid = name_type == NAME_TYPE_HOST && !name.is_empty() && name.is_ascii();
    core::str::from_utf8(name)
        .ok()
        .filter(|_| valid)
        .ok_or(DecodeError::InvalidValue("ClientHello with an invalid server_name"))
}

/// RFC 7301, Section 3.1: a list of names, neither it nor they being empty.
fn protocol_list(data: &[u8]) -> Result<&[u8], DecodeError> {
    let mut reader = Reader::new(data);
    let list = bytes_with_u16_len(&mut reader)?;
    at_end(&reader)?;
    let mut names = Reader::new(list);
    if list.is_empty() {
        return Err(DecodeError::InvalidValue("ClientHello with an empty list of protocols"));
    }
    while !names.is_empty() {
        let len = names.u8()?;
        if len == 0 {
            return Err(DecodeError::InvalidValue("ClientHello with an empty protocol name"));
        }
        names.bytes(usize::from(len))?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use quicket_testing::Rng;

    fn with_u16_len(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(extension_type: u16, data: &[u8]) -> Vec<u8> {
        [&extension_type.to_be_bytes()[..], &with_u16_len(data)].concat()
    }

    fn sni(name_type: u8, name: &[u8]) -> Vec<u8> {
        let entry = [&[name_type][..], &with_u16_len(name)].concat();
        extension(0, &with_u16_len(&entry))
    }

    fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
        let mut body = [0x03, 0x03].to_vec();
        body.extend([0x55; 32]);
        body.extend([4, 1, 2, 3, 4]);
        body.extend(with_u16_len(&[0x13, 0x01, 0x13, 0x02]));
        body.extend([1, 0]);
        body.extend(with_u16_len(&extensions.concat()));
        let len = (body.len() as u32).to_be_bytes();
        [&[1, len[1], len[2], len[3]][..], &body].concat()
    }

    fn sample() -> Vec<u8> {
        hello(&[
            extension(0x2a2a, &[]),
            sni(0, b"example.org"),
            extension(16, &with_u16_len(b"\x02h3\x05hq-29")),
            extension(0x39, &[4, 1, 5]),
            extension(43, &[2, 3, 4]),
        ])
    }

    #[test]
    fn name_protocols_and_parameters_are_found() {
        let message = sample();
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello.server_name(), Some("example.org"));
        assert_eq!(hello.alpn().collect::<Vec<_>>(), [&b"h3"[..], b"hq-29"]);
        assert_eq!(hello.quic_transport_parameters(), Some(&[4, 1, 5][..]));
        let more = [&message[..], b"next message"].concat();
        assert_eq!(ClientHello::parse(&more), Ok(hello));
    }

    #[test]
    fn all_of_them_can_be_absent() {
        let message = hello(&[]);
        let hello = ClientHello::parse(&message).unwrap();
        assert_eq!(hello, ClientHello::default());
        assert_eq!(hello.alpn().count(), 0);
    }

    #[test]
    fn the_length_is_known_from_four_bytes_on() {
        let message = sample();
        for len in 0..=message.len() {
            let expected = (len >= 4).then_some(message.len());
            assert_eq!(ClientHello::message_len(&message[..len]), Ok(expected));
        }
        assert!(matches!(ClientHello::message_len(&[2]), Err(DecodeError::InvalidValue(_))));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let message = sample();
        for len in 0..message.len() {
            assert_eq!(ClientHello::parse(&message[..len]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    fn malformed_extensions_are_refused() {
        let two_names = [&[0][..], &with_u16_len(b"a"), &[0], &with_u16_len(b"b")].concat();
        let malformed = [
            hello(&[sni(0, b"a"), sni(0, b"a")]),
            hello(&[extension(0x39, &[]), extension(0x39, &[])]),
            hello(&[sni(1, b"a")]),
            hello(&[sni(0, b"")]),
            hello(&[sni(0, "é".as_bytes())]),
            hello(&[sni(0, &[0xff])]),
            hello(&[extension(0, &with_u16_len(&two_names))]),
            hello(&[extension(0, &[0, 4, 0, 0, 1, b'a', 9])]),
            hello(&[extension(16, &with_u16_len(b""))]),
            hello(&[extension(16, &with_u16_len(b"\x00"))]),
            hello(&[extension(16, b"\x00\x02\x01a\x00")]),
        ];
        for message in malformed {
            let result = ClientHello::parse(&message);
            assert!(matches!(result, Err(DecodeError::InvalidValue(_))), "{message:?}");
        }
        let overlong = hello(&[extension(16, &with_u16_len(b"\x05ab"))]);
        assert_eq!(ClientHello::parse(&overlong), Err(DecodeError::Truncated));
    }

    #[test]
    fn bytes_after_the_extensions_are_refused() {
        let mut message = hello(&[]);
        message.push(0);
        message[3] += 1;
        assert!(matches!(ClientHello::parse(&message), Err(DecodeError::InvalidValue(_))));
    }

    #[test]
    fn damaged_messages_never_panic() {
        let mut rng = Rng::new(40);
        let original = sample();
        let mut parsed = 0;
        for _ in 0..40_000 {
            let mut message = original.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(message.len() as u64) as usize;
                message[at] = rng.next() as u8;
            }
            if let Ok(hello) = ClientHello::parse(&message) {
                parsed += usize::from(hello.alpn().count() <= original.len());
            }
        }
        assert!((1000..40_000).contains(&parsed), "{parsed} parsed: the test lost its point");
    }
}
