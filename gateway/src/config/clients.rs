//! Certificates of clients in the file, and their check.

use std::path::{Path, PathBuf};

use http::header::HeaderName;
use quicket::ClientPolicy;
use serde::Deserialize;

use super::check::Problems;
use super::read_bytes;
use crate::credentials::{CLIENT_CERT, CLIENT_CERT_CHAIN, Fields, Rule};
use crate::edits;
use crate::headers::is_ours;

/// The largest file with authorities or revoked certificates, in bytes.
const MAX_LIST: u64 = 16 << 20;

/// Whose certificates clients show.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCertificates {
    /// Files of PEM with the authorities that a client's certificate must lead to.
    pub ca: Vec<PathBuf>,
    /// Files with lists of revoked certificates (CRL), PEM or DER. If there are any, each authority needs one.
    #[serde(default)]
    pub crl: Vec<PathBuf>,
    /// Clients without a certificate are turned away.
    #[serde(default = "yes")]
    pub required: bool,
    /// The fields in which the origin is told; `client-cert` (RFC 9440) with the certificate unless this is there.
    #[serde(default)]
    pub headers: Option<CertificateHeaders>,
}

/// Names of fields in which an origin is told of a client's certificate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CertificateHeaders {
    /// The certificate, as RFC 9440 writes it.
    pub certificate: Option<String>,
    /// The certificates that lead to an authority, as RFC 9440 writes them.
    pub chain: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: Option<String>,
}

const fn yes() -> bool {
    true
}

impl ClientCertificates {
    /// Checks it; `place` is what it belongs to.
    pub(super) fn check(
        &self,
        place: &str,
        directory: &Path,
        problems: &mut Problems,
    ) -> Option<Rule> {
        let place = format!("{place}.client_certificates");
        let mut read = |field: &str, paths: &[PathBuf]| -> Option<Vec<(String, Vec<u8>)>> {
            let place = format!("{place}.{field}");
            let each = paths.iter().map(|path| {
                let path = directory.join(path);
                let content = problems.take(&place, read_bytes(&path, MAX_LIST))?;
                Some((path.display().to_string(), content))
            });
            // All that is missing is told of.
            let all: Vec<_> = each.collect();
            all.into_iter().collect()
        };
        let (authorities, revoked) = (read("ca", &self.ca), read("crl", &self.crl));
        if self.ca.is_empty() {
            problems.add(format!("{place}.ca"), "there is none: ca = [\"clients-ca.pem\"]");
        }
        let fields = self.fields(&place, problems);
        let (authorities, revoked) = (authorities?, revoked?);
        if authorities.is_empty() {
            return None;
        }
        let policy = ClientPolicy::from_files(self.required, &authorities, &revoked);
        Some(Rule { policy: problems.take(&place, policy)?, fields })
    }

    fn fields(&self, place: &str, problems: &mut Problems) -> Fields {
        let Some(headers) = &self.headers else {
            return Fields { certificate: Some(CLIENT_CERT), ..Fields::default() };
        };
        let place = format!("{place}.headers");
        let mut name = |field: &str, text: &Option<String>| -> Option<HeaderName> {
            let text = text.as_ref()?;
            let place = format!("{place}.{field}");
            let name = HeaderName::from_bytes(text.as_bytes());
            let name = problems
                .take(&place, name.map_err(|_| format!("{text:?} is no name of a field")))?;
            let is_rfc = [CLIENT_CERT, CLIENT_CERT_CHAIN].contains(&name);
            if !is_rfc && (is_ours(name.as_str()) || !edits::may_change(&name)) {
                problems.add(&place, format!("{name} says something else: name another field"));
            }
            Some(name)
        };
        let fields = Fields {
            certificate: name("certificate", &headers.certificate),
            chain: name("chain", &headers.chain),
            fingerprint: name("fingerprint", &headers.fingerprint),
        };
        let names: Vec<_> = fields.names().collect();
        if (1..names.len()).any(|at| names[..at].contains(&names[at])) {
            problems.add(&place, "two of the fields have the same name");
        }
        if fields.chain.is_some() && fields.certificate.is_none() {
            // RFC 9440, Section 2.3.
            problems.add(format!("{place}.chain"), "goes with certificate only");
        }
        fields
    }
}
