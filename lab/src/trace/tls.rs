//! TLS handshake messages, as far as they tell of QUIC.

use quicket_wire::{Reader, Side, TransportParameters};

/// A handshake message (RFC 8446, Section 4), and the extension of RFC 9001, Section 8.2.
const ENCRYPTED_EXTENSIONS: u8 = 8;
const TRANSPORT_PARAMETERS: u16 = 0x39;

/// TLS handshake messages with their types.
pub(crate) fn messages(bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut reader = Reader::new(bytes);
    let mut next = || {
        let [kind, high, middle, low] = *reader.array::<4>().ok()?;
        let length = u32::from_be_bytes([0, high, middle, low]);
        Some((kind, reader.bytes(length as usize).ok()?))
    };
    std::iter::from_fn(&mut next).collect()
}

/// What a server declares, by its CRYPTO data in Handshake packets.
pub(crate) fn server_parameters(bytes: &[u8]) -> Option<TransportParameters> {
    let (_, body) = messages(bytes).into_iter().find(|(kind, _)| *kind == ENCRYPTED_EXTENSIONS)?;
    let mut reader = Reader::new(body);
    reader.u16().ok()?;
    loop {
        let kind = reader.u16().ok()?;
        let length = reader.u16().ok()?;
        let data = reader.bytes(length.into()).ok()?;
        if kind == TRANSPORT_PARAMETERS {
            return TransportParameters::decode(data, Side::Server).ok();
        }
    }
}
