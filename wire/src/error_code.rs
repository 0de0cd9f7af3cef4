//! Error codes of the transport (RFC 9000, Section 20.1).

use core::fmt;

/// The code of a CONNECTION_CLOSE frame of type 0x1c.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportErrorCode(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl TransportErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// The name in the RFC; `None` for CRYPTO_ERROR codes and unknown ones.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection ends without an error.
    NO_ERROR = 0x00;
    /// The endpoint cannot continue because of a fault of its own.
    INTERNAL_ERROR = 0x01;
    /// The server does not accept the connection.
    CONNECTION_REFUSED = 0x02;
    /// More data arrived than flow control allows.
    FLOW_CONTROL_ERROR = 0x03;
    /// A stream was opened beyond the advertised limit.
    STREAM_LIMIT_ERROR = 0x04;
    /// A frame does not suit the state of its stream.
    STREAM_STATE_ERROR = 0x05;
    /// The final size of a stream changed or was exceeded.
    FINAL_SIZE_ERROR = 0x06;
    /// A frame is malformed.
    FRAME_ENCODING_ERROR = 0x07;
    /// The transport parameters are malformed, invalid or incomplete.
    TRANSPORT_PARAMETER_ERROR = 0x08;
    /// More connection IDs were issued than active_connection_id_limit allows.
    CONNECTION_ID_LIMIT_ERROR = 0x09;
    /// A violation of the protocol that no other code describes.
    PROTOCOL_VIOLATION = 0x0a;
    /// A server got an invalid token in a client Initial.
    INVALID_TOKEN = 0x0b;
    /// The application closed the connection during the handshake.
    APPLICATION_ERROR = 0x0c;
    /// More CRYPTO data arrived than can be buffered.
    CRYPTO_BUFFER_EXCEEDED = 0x0d;
    /// A key update went wrong.
    KEY_UPDATE_ERROR = 0x0e;
    /// The confidentiality or integrity limit of the AEAD is reached.
    AEAD_LIMIT_REACHED = 0x0f;
    /// No network path supports QUIC.
    NO_VIABLE_PATH = 0x10;
    /// The version was not negotiated correctly (RFC 9368, Section 10.2).
    VERSION_NEGOTIATION_ERROR = 0x11;
}

impl TransportErrorCode {
    const CRYPTO_ERROR: u64 = 0x0100;

    /// CRYPTO_ERROR: the TLS `alert` ended the handshake (RFC 9001, Section 4.8).
    #[must_use]
    pub const fn crypto(alert: u8) -> Self {
        Self(Self::CRYPTO_ERROR | alert as u64)
    }

    /// The TLS alert of a CRYPTO_ERROR code, 0x0100 to 0x01ff.
    #[must_use]
    pub const fn crypto_alert(self) -> Option<u8> {
        if self.0 & !0xff == Self::CRYPTO_ERROR { Some(self.0 as u8) } else { None }
    }
}

impl From<TransportErrorCode> for u64 {
    fn from(code: TransportErrorCode) -> Self {
        code.0
    }
}

/// The name of a TLS alert (RFC 8446, Section 6), for people.
const fn alert_name(alert: u8) -> Option<&'static str> {
    Some(match alert {
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => return None,
    })
}

impl fmt::Display for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.crypto_alert()) {
            (Some(name), _) => f.write_str(name),
            (None, Some(alert)) => match alert_name(alert) {
                Some(name) => write!(f, "CRYPTO_ERROR (TLS alert {alert}, {name})"),
                None => write!(f, "CRYPTO_ERROR (TLS alert {alert})"),
            },
            (None, None) => write!(f, "unknown transport error 0x{:x}", self.0),
        }
    }
}

impl fmt::Debug for TransportErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransportErrorCode(0x{:x}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn displays_the_names_of_the_rfc() {
        assert_eq!(TransportErrorCode::NO_ERROR.to_string(), "NO_ERROR");
        assert_eq!(TransportErrorCode(0x10).to_string(), "NO_VIABLE_PATH");
        assert_eq!(TransportErrorCode(0x11).to_string(), "VERSION_NEGOTIATION_ERROR");
        assert_eq!(TransportErrorCode(0x1234).to_string(), "unknown transport error 0x1234");
        assert_eq!(
            TransportErrorCode::crypto(120).to_string(),
            "CRYPTO_ERROR (TLS alert 120, no_application_protocol)"
        );
        assert_eq!(TransportErrorCode::crypto(1).to_string(), "CRYPTO_ERROR (TLS alert 1)");
    }

    /// RFC 9001, Section 4.8: the alert is added to 0x0100.
    #[test]
    fn crypto_errors_carry_the_alert() {
        assert_eq!(TransportErrorCode::crypto(0x28), TransportErrorCode(0x128));
        assert_eq!(TransportErrorCode(0x1ff).crypto_alert(), Some(0xff));
        assert_eq!(TransportErrorCode(0x200).crypto_alert(), None);
        assert_eq!(TransportErrorCode(0xff).crypto_alert(), None);
    }
}
