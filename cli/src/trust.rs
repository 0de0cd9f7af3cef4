//! Whom to trust, from flags.

use std::sync::Arc;

use quicket::{ClientTls, Identity, KeyLog};

use crate::args::Trust;
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// certificate_expired (RFC 8446, Section 6.2); also for a certificate that is not valid yet.
const CERTIFICATE_EXPIRED: u8 = 45;

/// Says loudly what the flags make dangerous.
pub(crate) fn warn(trust: &Trust) {
    if trust.insecure_no_verify {
        tell!("WARNING: --insecure-no-verify: whoever answers is taken for the server");
    }
}

/// The TLS configuration of clients that speak one protocol, with their own certificate if they have one.
pub(crate) fn tls(
    trust: &Trust,
    alpn: &str,
    identity: Option<Identity>,
    key_log: Option<Arc<dyn KeyLog>>,
) -> Result<ClientTls, Failure> {
    let mut tls = ClientTls::builder().alpn([alpn]);
    if let Some(ca) = &trust.ca {
        tls = tls.ca_file(ca);
    } else if !trust.pin.is_empty() {
        tls = tls.pinned(trust.pin.iter().copied());
    } else if trust.insecure_no_verify {
        tls = tls.dangerous_no_verification();
    }
    if let Some(identity) = identity {
        tls = tls.client_certificate(identity);
    }
    if let Some(log) = key_log {
        tls = tls.key_log(log);
    }
    tls.build().map_err(|error| Failure::new(Kind::Environment, error.to_string()))
}

/// What can be done about a certificate that is not trusted; `None` if the alert says something else.
pub(crate) const fn hint(alert: u8) -> Option<&'static str> {
    match alert {
        CERTIFICATE_EXPIRED => Some(hint_of(true)),
        // bad_certificate to certificate_unknown, unknown_ca, access_denied, decrypt_error: that is also for a
        // certificate that another key has signed (RFC 8446, Section 6.2).
        42..=46 | 48 | 49 | 51 => Some(hint_of(false)),
        _ => None,
    }
}

/// What can be done about a certificate that is not trusted.
pub(crate) const fn hint_of(is_about_dates: bool) -> &'static str {
    if is_about_dates {
        "; --pin trusts a certificate whatever its dates"
    } else {
        "; if you know this server, name its CA with --ca, or its own certificate with --pin"
    }
}
