//! Certificates of clients: what a site asks for, what a connection has shown, and what the origin is told.
//!
//! TLS asks by the name in the ClientHello ([`Asking`]). A connection may bring requests for other names (RFC 9113,
//! Section 9.1.1; RFC 9114, Section 3.3), and a reload may ask for more than TLS did: so what counts is whether the
//! certificate meets the rule of the request's own site, which [`Credentials::meet`] says.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use quicket::{ChooseClientPolicy, ClientPolicy, Fingerprint};

use crate::front::Shared;
use crate::headers::remove_look_alikes;
use crate::metrics::Metrics;
use crate::snapshot::Snapshot;

/// RFC 9440, Section 2.2.
pub(crate) const CLIENT_CERT: HeaderName = HeaderName::from_static("client-cert");
/// RFC 9440, Section 2.3.
pub(crate) const CLIENT_CERT_CHAIN: HeaderName = HeaderName::from_static("client-cert-chain");
/// How many rules a connection remembers to have met, or not.
const MAX_VERDICTS: usize = 8;
/// Why a request or a connection has no place where a certificate is due.
pub(crate) const NOT_MET: &str =
    "this connection has no client certificate that is taken for this name";

/// What a site, or a private protocol, asks of its clients.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) policy: ClientPolicy,
    pub(crate) fields: Fields,
}

/// The fields in which an origin is told of a client's certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// The certificate (RFC 9440).
    pub(crate) certificate: Option<HeaderName>,
    /// Those that lead to an authority (RFC 9440).
    pub(crate) chain: Option<HeaderName>,
    /// SHA-256 of the certificate, in hexadecimal.
    pub(crate) fingerprint: Option<HeaderName>,
}

impl Fields {
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.certificate, &self.chain, &self.fingerprint].into_iter().flatten()
    }
}

/// Removes what clients say in the fields of any rule, in any spelling. Servers may stand behind several sites: so it
/// is removed for all of them.
pub(crate) fn remove_forged(headers: &mut HeaderMap, names: &[HeaderName]) {
    if names.is_empty() {
        return;
    }
    for name in names {
        headers.remove(name);
    }
    remove_look_alikes(headers, |meant| names.iter().any(|name| name == meant));
}

/// A client's certificate with those that lead to an authority, in DER; its own is the first.
pub(crate) struct Shown {
    server_name: Option<String>,
    chain: Vec<Vec<u8>>,
    /// As fields of a request.
    values: OnceLock<Values>,
}

#[derive(Clone)]
struct Values {
    certificate: HeaderValue,
    chain: Option<HeaderValue>,
    fingerprint: HeaderValue,
}

impl Shown {
    fn new(server_name: Option<String>, chain: Vec<Vec<u8>>) -> Self {
        Self { server_name, chain, values: OnceLock::new() }
    }

    /// The client's own certificate.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.chain.first().map(Vec::as_slice)
    }

    pub(crate) fn fingerprint(&self) -> Option<String> {
        self.certificate().map(|certificate| Fingerprint::of(certificate).to_string())
    }

    fn values(&self) -> Option<&Values> {
        let (own, others) = self.chain.split_first()?;
        Some(self.values.get_or_init(|| {
            // RFC 8941, Section 3.3.5. What is base64 is a value of a field.
            let binary = |der: &Vec<u8>| format!(":{}:", STANDARD.encode(der));
            let value = |text: String| HeaderValue::from_str(&text).ok();
            let empty = HeaderValue::from_static("");
            let chain: Vec<String> = others.iter().map(binary).collect();
            let hex = Fingerprint::of(own).to_string();
            let hex = hex.strip_prefix("sha256:").unwrap_or(&hex).to_owned();
            Values {
                certificate: value(binary(own)).unwrap_or(empty.clone()),
                chain: value(chain.join(", ")).filter(|_| !others.is_empty()),
                fingerprint: value(hex).unwrap_or(empty),
            }
        }))
    }

    /// Tells an origin of the certificate.
    pub(crate) fn tell(&self, fields: &Fields, headers: &mut HeaderMap) {
        let Some(Values { certificate, chain, fingerprint }) = self.values() else { return };
        for (name, value) in [
            (&fields.certificate, Some(certificate)),
            (&fields.chain, chain.as_ref()),
            (&fields.fingerprint, Some(fingerprint)),
        ] {
            if let (Some(name), Some(value)) = (name, value) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Whether a connection meets a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Verified,
    /// The client has none, and may do without.
    Absent,
    Refused,
}

/// What the client of one connection has shown. Clones are the same.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<Inner>);

struct Inner {
    source: Source,
    /// By the rule's policy; the latest last.
    verdicts: Mutex<VecDeque<([u8; 32], Verdict)>>,
}

enum Source {
    /// What is shown is known once the handshake is complete.
    /// Few rules ask for it: what they find is in a box.
    Quic(quicket::tokio::Connection, OnceLock<Box<Shown>>),
    Tcp(Box<Shown>),
}

impl Credentials {
    /// Of a connection over QUIC.
    pub(crate) fn of_quic(connection: &quicket::tokio::Connection) -> Self {
        Self::new(Source::Quic(connection.clone(), OnceLock::new()))
    }

    /// Of a connection over TCP, once its handshake is complete.
    pub(crate) fn of_tcp(tls: &tokio_rustls::rustls::ServerConnection) -> Self {
        let chain = tls.peer_certificates().unwrap_or_default();
        let chain = chain.iter().map(|certificate| certificate.to_vec()).collect();
        let shown = Shown::new(tls.server_name().map(ToOwned::to_owned), chain);
        Self::new(Source::Tcp(Box::new(shown)))
    }

    fn new(source: Source) -> Self {
        Self(Arc::new(Inner { source, verdicts: Mutex::default() }))
    }

    /// What was shown, if the handshake is complete.
    fn shown(&self) -> Option<&Shown> {
        match &self.0.source {
            Source::Tcp(shown) => Some(shown),
            Source::Quic(connection, shown) => {
                if shown.get().is_none() {
                    let handshake = connection.handshake()?;
                    let found = Shown::new(handshake.server_name, handshake.peer_certificates);
                    let _ = shown.set(Box::new(found));
                }
                shown.get().map(Box::as_ref)
            }
        }
    }

    /// What the connection has shown, if it meets the rule; `own` is the rule by which TLS has asked, by the name in
    /// the handshake. Without a certificate the client may go on only where it was asked just so and need not have one.
    ///
    /// # Errors
    ///
    /// If it does not: the client may have a certificate for another connection.
    pub(crate) fn meet<'a>(
        &self,
        rule: &Rule,
        own: impl FnOnce(Option<&str>) -> Option<&'a Rule>,
        metrics: &Metrics,
    ) -> Result<&Shown, &'static str> {
        let shown = self.shown().ok_or(NOT_MET)?;
        let id = rule.policy.id();
        let mut verdicts = self.0.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = verdicts.iter().find(|(known, _)| known == id).map(|&(_, verdict)| verdict);
        let verdict = known.unwrap_or_else(|| {
            let verdict = if shown.chain.is_empty() {
                let asked = own(shown.server_name.as_deref());
                let was_asked = asked.is_some_and(|asked| asked.policy.id() == id);
                let may = was_asked && !rule.policy.requires();
                if may { Verdict::Absent } else { Verdict::Refused }
            } else {
                let verified = rule.policy.verify(&shown.chain);
                if verified.is_ok() { Verdict::Verified } else { Verdict::Refused }
            };
            metrics.client_certificate(match verdict {
                Verdict::Verified => "verified",
                Verdict::Absent => "none",
                Verdict::Refused => "refused",
            });
            if verdicts.len() == MAX_VERDICTS {
                verdicts.pop_front();
            }
            verdicts.push_back((*id, verdict));
            verdict
        });
        if verdict == Verdict::Refused { Err(NOT_MET) } else { Ok(shown) }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Asks clients by the snapshot that counts when they come.
pub(crate) struct Asking(pub(crate) Arc<Shared>);

impl ChooseClientPolicy for Asking {
    fn choose(&self, server_name: Option<&str>, offered: &[&[u8]]) -> ClientPolicy {
        let snapshot = self.0.current().0;
        let rule = snapshot.rule(server_name, offered);
        rule.map_or_else(ClientPolicy::none, |rule| rule.policy.clone())
    }
}

impl Snapshot {
    /// What clients that ask for a name by these protocols are asked for. HTTP goes first, as it does in ALPN.
    fn rule(&self, server_name: Option<&str>, offered: &[&[u8]]) -> Option<&Rule> {
        const HTTP: [&[u8]; 3] = [b"h3", b"h2", b"http/1.1"];
        let is_http = offered.is_empty() || offered.iter().any(|alpn| HTTP.contains(alpn));
        if self.has_sites() && is_http {
            return self.rule_of_site(server_name);
        }
        let private = |alpn: &&String| offered.contains(&alpn.as_bytes());
        let alpn = self.protocols.alpn().iter().find(private)?;
        self.protocols.find(alpn.as_bytes(), server_name)?.rule.as_ref()
    }

    /// What clients are asked for that connect to a site.
    pub(crate) fn rule_of_site(&self, server_name: Option<&str>) -> Option<&Rule> {
        // No site has an empty name but the one of all others.
        let name = server_name.unwrap_or_default().to_ascii_lowercase();
        self.sites.find(&name).ok()?.rule.as_ref()
    }
}
