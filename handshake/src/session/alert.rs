//! What rustls' errors are to the peer (RFC 8446, Section 6).

use quicket_engine::crypto::Alert;

/// The alert for errors to which rustls attaches none.
pub(super) fn default_alert(error: &rustls::Error) -> Alert {
    use rustls::Error;
    const ILLEGAL_PARAMETER: Alert = Alert(47);
    const DECODE_ERROR: Alert = Alert(50);
    match error {
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            Alert::UNEXPECTED_MESSAGE
        }
        Error::InvalidMessage(_) => DECODE_ERROR,
        Error::PeerMisbehaved(_) => ILLEGAL_PARAMETER,
        Error::PeerIncompatible(_) => Alert::HANDSHAKE_FAILURE,
        Error::NoApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
        _ => Alert::INTERNAL_ERROR,
    }
}
