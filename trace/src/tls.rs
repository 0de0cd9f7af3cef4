//! TLS handshake messages, as far as they tell of QUIC.

use quicket_wire::{Reader, Side, TransportParameters};

/// A handshake message (RFC 8446, Section 4), and the extension of RFC 9001, Section 8.2.
const ENCRYPTED_EXTENSIONS: u8 = 8;
const TRANSPORT_PARAMETERS: u16 = 0x39;
/// The extension of RFC 7301.
const ALPN: u16 = 16;

/// TLS handshake messages with their types.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut reader = Reader::new(bytes);
    std::iter::from_fn(move || {
        let [kind, high, middle, low] = *reader.array::<4>().ok()?;
        let length = u32::from_be_bytes([0, high, middle, low]);
        Some((kind, reader.bytes(length as usize).ok()?))
    })
}

/// What a server declares, by its CRYPTO data in Handshake packets.
#[must_use]
pub fn server_parameters(bytes: &[u8]) -> Option<TransportParameters> {
    let data = encrypted_extension(bytes, TRANSPORT_PARAMETERS)?;
    TransportParameters::decode(data, Side::Server).ok()
}

/// The application protocol that a server has chosen (RFC 7301), by its CRYPTO data in Handshake packets.
#[must_use]
pub fn chosen_alpn(bytes: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(encrypted_extension(bytes, ALPN)?);
    reader.u16().ok()?;
    let length = reader.u8().ok()?;
    reader.bytes(length.into()).ok()
}

/// An extension of the message EncryptedExtensions (RFC 8446, Section 4.3.1).
fn encrypted_extension(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    // The first of what Handshake packets hold: no other is looked at.
    let (_, body) = messages(bytes).next().filter(|(kind, _)| *kind == ENCRYPTED_EXTENSIONS)?;
    let mut reader = Reader::new(body);
    reader.u16().ok()?;
    loop {
        let kind = reader.u16().ok()?;
        let length = reader.u16().ok()?;
        let data = reader.bytes(length.into()).ok()?;
        if kind == wanted {
            return Some(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_are_found_and_what_is_cut_is_none() {
        let extensions = [&[0, 5, 0, 1, 9][..], &[0, 16, 0, 5, 0, 3, 2, b'h', b'3']].concat();
        let length = extensions.len() as u8;
        let message = [&[8, 0, 0, length + 2, 0, length][..], &extensions].concat();
        assert_eq!(chosen_alpn(&message), Some(&b"h3"[..]));
        for end in 0..message.len() {
            assert_eq!(chosen_alpn(&message[..end]), None, "{end}");
        }
        assert!(server_parameters(&message).is_none());
    }
}
