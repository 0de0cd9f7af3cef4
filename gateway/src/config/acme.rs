//! Certificates that the gateway gets by itself (ACME, RFC 8555).

use std::collections::HashSet;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use serde::Deserialize;

use super::check::Problems;
use super::{File, read_bytes, site};
use crate::acme::{External, Plan, Wanted};
use crate::origin::{Tls, TlsRules};
use crate::route::Sites;
use crate::snapshot::Certificates;

/// The most certificates that one gateway orders.
const MAX_CERTIFICATES: usize = 100;
/// The most names of one certificate: public authorities take no more.
const MAX_NAMES: usize = 100;
/// The most addresses of people that an authority is told.
const MAX_CONTACTS: usize = 10;
/// The longest file with the key of an external account, in bytes.
const MAX_KEY: u64 = 1 << 20;
/// The shortest key of an external account, in bytes: what is shorter could be guessed.
const MIN_KEY: usize = 16;

/// Certificates that the gateway gets by itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acme {
    /// The URL of the authority's directory (RFC 8555, Section 7.1.1).
    #[serde(default = "lets_encrypt")]
    pub directory: String,
    /// Addresses of mail by which the authority reaches people.
    #[serde(default)]
    pub contact: Vec<String>,
    /// Its terms of service were read, and are agreed to.
    #[serde(default)]
    pub agree_to_terms: bool,
    /// The certificates: each entry is one, with this name or these names.
    pub names: Vec<Names>,
    /// The directory where the account and certificates are kept.
    pub state: PathBuf,
    /// How the authority sees that the names lead here.
    pub challenge: Option<Challenge>,
    /// Who vouches for the directory's own certificate; the system's roots if it is not said.
    pub ca: Option<PathBuf>,
    /// An account that the authority has given beforehand.
    pub external_account: Option<ExternalAccount>,
    /// The keys of certificates.
    #[serde(default)]
    pub key_type: OrderedKey,
    /// The kind of certificate, by the name that the authority has for it.
    pub profile: Option<String>,
}

fn lets_encrypt() -> String {
    "https://acme-v02.api.letsencrypt.org/directory".to_owned()
}

/// The names of one certificate.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl Names {
    fn all(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        }
    }
}

/// How the authority sees that names lead to the gateway.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Challenge {
    /// By TLS with the application protocol `acme-tls/1` (RFC 8737).
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
    /// By plain HTTP (RFC 8555, Section 8.3).
    #[serde(rename = "http-01")]
    Http01,
}

/// The keys of certificates that are ordered.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub enum OrderedKey {
    /// ECDSA with P-256.
    #[default]
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// ECDSA with P-384.
    #[serde(rename = "ecdsa-p384")]
    EcdsaP384,
    /// RSA of 2048 bits.
    #[serde(rename = "rsa-2048")]
    Rsa2048,
    /// RSA of 4096 bits.
    #[serde(rename = "rsa-4096")]
    Rsa4096,
}

/// An account that the authority has given beforehand (RFC 8555, Section 7.3.4).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalAccount {
    /// The name of its key.
    pub key_id: String,
    /// A file with the key, in base64url, as authorities give it.
    pub key_file: PathBuf,
}

impl Acme {
    /// The files that are read with the configuration.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let external = self.external_account.iter().map(|external| &external.key_file);
        self.ca.iter().chain(external)
    }

    /// Checks it, without a word to the network. `redirect` and sites say which challenges can be met.
    pub(super) fn check(
        &self,
        file: &File,
        sites: &Sites,
        others: &Certificates,
        directory: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<Plan>> {
        if !self.agree_to_terms {
            problems.add(
                "acme.agree_to_terms",
                format!(
                    "is not true: read the terms of service of the authority ({}), and write agree_to_terms = true if \
                     you agree",
                    self.directory
                ),
            );
        }
        let uri = self.directory.parse::<Uri>().ok();
        if !uri.is_some_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some()) {
            let what = format!("{:?} is no URL of the form https://HOST/PATH", self.directory);
            problems.add("acme.directory", what);
        }
        let contact = self.contacts(problems);
        let wanted = self.wanted(file, sites, others, problems);
        let challenge = self.challenge(file, sites, problems);
        let state = directory.join(&self.state);
        if let Some(what) = unfit(&state) {
            problems.add("acme.state", what);
        }
        let rules = TlsRules {
            ca: self.ca.as_ref().map(|path| directory.join(path)),
            ..TlsRules::default()
        };
        let tls = problems.take("acme.ca", Tls::new(rules).map(Arc::new));
        let external = self.external(directory, problems);
        if self.profile.as_ref().is_some_and(String::is_empty) {
            problems.add("acme.profile", "is empty: leave it out for the authority's default");
        }
        Some(Arc::new(Plan {
            directory: self.directory.clone(),
            contact,
            wanted,
            state,
            challenge,
            tls: tls?,
            external,
            profile: self.profile.clone(),
        }))
    }

    fn contacts(&self, problems: &mut Problems) -> Vec<String> {
        if self.contact.len() > MAX_CONTACTS {
            problems.add("acme.contact", format!("has more than {MAX_CONTACTS} addresses"));
        }
        let mut all = Vec::new();
        for contact in &self.contact {
            let address = contact.strip_prefix("mailto:").unwrap_or(contact);
            let is_one = |text: &str| {
                text.bytes().all(|byte| byte.is_ascii_graphic())
                    && !text.contains([',', '?', ':'])
                    && text
                        .split_once('@')
                        .is_some_and(|(user, host)| !user.is_empty() && site::is_dns_name(host))
            };
            if !is_one(address) {
                let what =
                    format!("{contact:?} is no address such as \"mailto:admin@example.org\"");
                problems.add("acme.contact", what);
            }
            all.push(format!("mailto:{address}"));
        }
        all
    }

    /// Each certificate with its names. Each name has one certificate.
    fn wanted(
        &self,
        file: &File,
        sites: &Sites,
        others: &Certificates,
        problems: &mut Problems,
    ) -> Vec<Arc<Wanted>> {
        if self.names.is_empty() || self.names.len() > MAX_CERTIFICATES {
            let what =
                format!("has no entry, or more than {MAX_CERTIFICATES}: each is a certificate");
            problems.add("acme.names", what);
        }
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        for entry in &self.names {
            let names: Vec<String> =
                entry.all().iter().map(|name| name.to_ascii_lowercase()).collect();
            if names.is_empty() || names.len() > MAX_NAMES {
                let what = format!("an entry has no name, or more than {MAX_NAMES}");
                problems.add("acme.names", what);
                continue;
            }
            for name in &names {
                let is_served = !file.protocol.is_empty() || sites.find(name).is_ok();
                let has_other = others.iter().any(|(of, _)| of.contains(name));
                let what = if name.starts_with("*.") || name == "*" {
                    "is a wildcard, which takes the challenge dns-01, and that is not spoken: list the names"
                } else if name.parse::<IpAddr>().is_ok()
                    || !site::is_dns_name(name)
                    || name.starts_with('[')
                {
                    "is no DNS name"
                } else if !seen.insert(name.clone()) {
                    "is there twice"
                } else if has_other {
                    "has a [[certificate]] already: remove one of them"
                } else if !is_served {
                    "is served by no [[site]]"
                } else {
                    continue;
                };
                problems.add("acme.names", format!("{name:?} {what}"));
            }
            all.push(Arc::new(Wanted::new(names, self.key_type, &self.directory)));
        }
        all
    }

    /// As the file says, or else as its listeners allow.
    fn challenge(&self, file: &File, sites: &Sites, problems: &mut Problems) -> Challenge {
        let default = if sites.is_empty() { Challenge::Http01 } else { Challenge::TlsAlpn01 };
        let challenge = self.challenge.unwrap_or(default);
        match challenge {
            Challenge::Http01 if file.redirect.is_empty() => problems.add(
                "acme.challenge",
                "http-01 is answered at the addresses of redirect, and there is none: redirect = [\"[::]:80\"]",
            ),
            Challenge::TlsAlpn01 if sites.is_empty() => problems.add(
                "acme.challenge",
                "tls-alpn-01 is answered over TCP, where nothing listens without a [[site]]: take http-01, with redirect = \
                 [\"[::]:80\"]",
            ),
            _ => {}
        }
        challenge
    }

    fn external(&self, directory: &Path, problems: &mut Problems) -> Option<External> {
        let external = self.external_account.as_ref()?;
        let field = "acme.external_account";
        if external.key_id.is_empty() {
            problems.add(format!("{field}.key_id"), "is empty");
        }
        let field = format!("{field}.key_file");
        let path = directory.join(&external.key_file);
        let text = problems.take(&field, read_bytes(&path, MAX_KEY))?;
        let text = String::from_utf8_lossy(&text).trim().trim_end_matches('=').to_owned();
        // Some authorities give the other alphabet.
        let text = text.replace('+', "-").replace('/', "_");
        match URL_SAFE_NO_PAD.decode(text) {
            Ok(key) if key.len() >= MIN_KEY => {
                Some(External { key_id: external.key_id.clone(), key })
            }
            _ => {
                let what = format!("is no key of {MIN_KEY} bytes at least in base64url");
                problems.add(field, what);
                None
            }
        }
    }
}

/// Why keys cannot be kept there, if so.
fn unfit(state: &Path) -> Option<String> {
    let found = std::fs::metadata(state).ok()?;
    let path = state.display();
    if !found.is_dir() {
        return Some(format!("{path} is no directory"));
    }
    let is_open = found.mode() & 0o022 != 0;
    is_open.then(|| format!("others may write to {path}, where keys are kept: chmod 700 {path}"))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use std::fs;

    const SITE: &str =
        "[[site]]\nnames = [\"a.example\", \"b.example\"]\n[[site.route]]\nrespond = {}\n";

    fn problems(top: &str, lines: &str, dir: &Path) -> String {
        let text = format!("listen = [\"127.0.0.1:1\"]\n{top}{SITE}[acme]\n{lines}");
        match parse(&text, dir) {
            Ok(_) => String::new(),
            Err(problems) => problems.iter().map(|problem| format!("{problem}\n")).collect(),
        }
    }

    #[test]
    fn each_mistake_is_told_with_its_field() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("short", "YWJj");
        write("file", "");
        let base = "agree_to_terms = true\nstate = \"state\"\n";
        let names = "names = [\"a.example\"]\n";
        let told = |lines: &str| problems("", lines, dir.path());
        assert_eq!(told(&format!("{base}{names}")), "");
        assert_eq!(told(&format!("{base}names = [[\"a.example\", \"b.example\"]]\n")), "");
        for (lines, what) in [
            (
                format!("state = \"state\"\n{names}"),
                "acme.agree_to_terms: is not true: read the terms",
            ),
            (format!("agree_to_terms = true\n{names}"), "missing field `state`"),
            (base.to_owned(), "missing field `names`"),
            (format!("{base}names = []\n"), "acme.names: has no entry"),
            (format!("{base}names = [[]]\n"), "acme.names: an entry has no name"),
            (format!("{base}names = [\"*.a.example\"]\n"), "\"*.a.example\" is a wildcard"),
            (format!("{base}names = [\"127.0.0.1\"]\n"), "\"127.0.0.1\" is no DNS name"),
            (format!("{base}names = [\"a b\"]\n"), "\"a b\" is no DNS name"),
            (format!("{base}names = [\"c.example\"]\n"), "\"c.example\" is served by no [[site]]"),
            (
                format!("{base}names = [\"a.example\", [\"A.example\"]]\n"),
                "\"a.example\" is there twice",
            ),
            (
                format!("{base}{names}directory = \"http://ca.example/\"\n"),
                "acme.directory: \"http://ca.example/\" is no URL",
            ),
            (format!("{base}{names}contact = [\"admin\"]\n"), "acme.contact: \"admin\""),
            (format!("{base}{names}ca = \"none\"\n"), "acme.ca: cannot read "),
            (
                format!("{base}{names}challenge = \"http-01\"\n"),
                "acme.challenge: http-01 is answered at the addresses of redirect",
            ),
            (format!("{base}{names}challenge = \"dns-01\"\n"), "unknown variant `dns-01`"),
            (format!("{base}{names}key_type = \"rsa\"\n"), "unknown variant `rsa`"),
            (format!("{base}{names}profile = \"\"\n"), "acme.profile: is empty"),
            (
                format!(
                    "{base}{names}external_account = {{ key_id = \"1\", key_file = \"short\" }}\n"
                ),
                "acme.external_account.key_file: is no key",
            ),
            (format!("agree_to_terms = true\nstate = \"file\"\n{names}"), "acme.state: "),
            (format!("{base}{names}retry = 1\n"), "unknown field `retry`"),
        ] {
            let told = told(&lines);
            assert!(told.contains(what), "{what:?} is not in\n{told}");
        }
    }

    #[test]
    fn without_a_site_the_challenge_is_http_01() {
        let dir = tempfile::tempdir().unwrap();
        let parse = |top: &str| {
            let text = format!(
                "listen = [\"127.0.0.1:1\"]\n{top}[[protocol]]\nalpn = [\"x\"]\nstreams = \"tcp://127.0.0.1:1\"\n\
                 [acme]\nagree_to_terms = true\nstate = \"state\"\nnames = [\"a.example\"]\n"
            );
            parse(&text, dir.path())
        };
        let with = parse("redirect = [\"127.0.0.1:2\"]\n").unwrap();
        assert_eq!(with.acme.unwrap().challenge, Challenge::Http01);
        let told = parse("").unwrap_err();
        assert!(told.iter().any(|problem| problem.to_string().contains("http-01")), "{told:?}");
    }

    #[test]
    fn keys_are_kept_where_nobody_else_writes() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let lines = "agree_to_terms = true\nstate = \"state\"\nnames = [\"a.example\"]\n";
        assert!(problems("", lines, dir.path()).contains("chmod 700"));
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(problems("", lines, dir.path()), "");
    }
}
