//! Transport parameters: whatever decodes can be encoded to the same, and no handshake or
//! connection is upset by any.

use std::sync::Arc;

use quicket_engine::Side;
use quicket_engine::crypto::Level;
use quicket_engine::time::Duration;
use quicket_wire::{TransportParameters, frame};

use crate::attack::{Duel, DuelOptions, Payload, Stage};
use crate::null_tls::{NullTls, NullTlsOptions, ParameterFault};

pub(super) fn run(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else { return };
    let sender = if first & 1 == 0 { Side::Client } else { Side::Server };
    if let Ok(decoded) = TransportParameters::decode(bytes, sender) {
        let mut encoded = Vec::new();
        decoded.encode(sender, &mut encoded, None);
        let again = TransportParameters::decode(&encoded, sender).ok();
        assert_eq!(again.as_ref(), Some(&decoded));
    }
    let mut options = DuelOptions::new(sender);
    let tls = NullTlsOptions {
        parameters: ParameterFault::Replace(bytes.to_vec()),
        ..NullTlsOptions::default()
    };
    match sender {
        Side::Client => options.client.tls = Arc::new(NullTls::new(1, tls)),
        Side::Server => options.server.tls = Arc::new(NullTls::new(2, tls)),
    }
    // The connection IDs in them are rarely right: most handshakes end here.
    let Some(mut duel) = Duel::attempt(options, Stage::Confirmed) else { return };
    duel.attack(Level::OneRtt, &Payload::of(&frame::Ping));
    drop(duel.pass(Duration::from_secs(3_600)));
    assert!(duel.connection().is_drained(), "the connection has not ended");
}
