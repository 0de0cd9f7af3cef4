//! What went wrong in a handshake, in words for the one who has to do something about it.

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error};

/// Makes a certificate for a server that is not one of a certificate authority.
const OPENSSL: &str = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
                       -days 365 -keyout key.pem -out cert.pem -subj /CN=NAME -addext \
                       subjectAltName=DNS:NAME -addext basicConstraints=critical,CA:FALSE";

/// Says what is wrong and what can be done. `server` is the name that a client wanted; `None` on
/// servers.
pub(crate) fn of(error: &Error, server: Option<&str>) -> String {
    let Error::InvalidCertificate(error) = error else { return error.to_string() };
    let whose = server.map_or_else(|| "the client".to_owned(), str::to_owned);
    certificate(error, &format!("the certificate of {whose}"))
}

fn certificate(error: &CertificateError, subject: &str) -> String {
    match error {
        CertificateError::Other(other) => match other.0.downcast_ref() {
            Some(webpki::Error::CaUsedAsEndEntity) => format!(
                "{subject} is one of a certificate authority (CA:TRUE, as openssl req -x509 makes \
                 them by default) and is not itself trusted: trust this very certificate, or make \
                 one for a server: {OPENSSL}"
            ),
            _ => other.0.to_string(),
        },
        CertificateError::UnknownIssuer => {
            format!(
                "{subject} was issued by nobody who is trusted: trust its issuer's certificate, or \
                 this very one"
            )
        }
        CertificateError::BadSignature => format!(
            "{subject} is not valid (BadSignature): the trusted certificate with its issuer's name \
             has another key, as an older one has, or one of another server; or the server does \
             not have the key of its own. Trust the certificate that the server has now"
        ),
        CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "{subject} is not valid: it is signed in a way that does not go with the key of the trusted certificate \
             with its issuer's name, which is an older one, or one of another server. Trust the certificate that the \
             server has now"
        ),
        CertificateError::UnsupportedSignatureAlgorithmContext { .. } => format!(
            "{subject} is not valid: it, or one that it depends on, is signed in a way that is not taken any more, such \
             as with SHA-1: have it issued anew"
        ),
        CertificateError::Expired => format!("{subject} has expired: its owner must renew it"),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "{subject}, or one that it depends on, expired on {}: its owner must renew it (this \
             machine's clock says {}; set it if that is wrong)",
            Utc(*not_after),
            Utc(*time)
        ),
        CertificateError::NotValidYet => format!("{subject} is not valid yet"),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "{subject}, or one that it depends on, is not valid before {}: wait until then, or set \
             the clock of this machine, which says {}",
            Utc(*not_before),
            Utc(*time)
        ),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("{subject} names no server (it has no subjectAltName): make one with {OPENSSL}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented: Vec<String> = presented.iter().map(|name| plain(name)).collect();
            format!(
                "{subject} is not for that name, but for {}: connect by a name that it is for, or \
                 have one made for this name",
                presented.join(", ")
            )
        }
        other => format!("{subject} is not valid: {other}"),
    }
}

/// `DnsName("a.test")` is how the verifier shows a name; people know it as `a.test`.
fn plain(name: &str) -> String {
    let quoted = name.split_once("(\"").and_then(|(_, rest)| rest.strip_suffix("\")"));
    quoted.unwrap_or(name).escape_debug().to_string()
}

/// A moment as a date and time of the Gregorian calendar in UTC.
struct Utc(UnixTime);

impl std::fmt::Display for Utc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// Year, month and day, so many days after 1970-01-01. Years are counted from March: the leap day
/// comes last then, and the lengths of months follow one rule.
const fn date(days: u64) -> (u64, u64, u64) {
    /// From 0000-03-01 to 1970-01-01.
    const OFFSET: u64 = 719_468;
    /// Days in 400, 100 and 4 years and in one.
    const ERA: u64 = 146_097;
    let days = days.saturating_add(OFFSET);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let in_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, in_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_dates_in_utc() {
        let shown =
            |seconds| Utc(UnixTime::since_unix_epoch(Duration::from_secs(seconds))).to_string();
        assert_eq!(shown(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(shown(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(shown(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(shown(1_704_067_199), "2023-12-31 23:59:59 UTC");
        assert_eq!(shown(1_709_210_096), "2024-02-29 12:34:56 UTC");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(shown(253_402_300_799), "9999-12-31 23:59:59 UTC");
        // However far: no panic.
        let _ = shown(u64::MAX);
    }

    #[test]
    fn errors_of_certificates_say_whose_it_is_and_what_to_do() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let expired = CertificateError::ExpiredContext { time: at(86_400), not_after: at(1) };
        let words = of(&Error::InvalidCertificate(expired), Some("a.test"));
        assert!(
            words.contains("a.test") && words.contains("on 1970-01-01 00:00:01 UTC"),
            "{words}"
        );
        assert!(words.contains("renew") && words.contains("1970-01-02"), "{words}");
        let early = CertificateError::NotValidYetContext { time: at(1), not_before: at(86_400) };
        let words = of(&Error::InvalidCertificate(early), None);
        assert!(words.contains("the client") && words.contains("before 1970-01-02"), "{words}");
        let other_key = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![1],
            public_key_algorithm_id: vec![2],
        };
        for error in [CertificateError::UnknownIssuer, CertificateError::BadSignature, other_key] {
            let words = of(&Error::InvalidCertificate(error), Some("a.test"));
            assert!(words.contains("a.test") && words.to_lowercase().contains("trust "), "{words}");
        }
    }
}
