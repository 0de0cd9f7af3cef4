//! How a client connects, as C says it.

use std::ffi::{OsStr, c_char};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use quicket::{ClientTls, ConfigError, Fingerprint, Identity, Qlog};
use quicket_client::Config;

use crate::error::Failure;

/// `QUICKET_HTTP_NO_SESSIONS`.
const NO_SESSIONS: u64 = 1;
/// `QUICKET_HTTP_NO_EARLY_DATA`.
const NO_EARLY_DATA: u64 = 2;
/// `QUICKET_HTTP_STAY`.
const STAY: u64 = 4;
/// Pins, and hosts, that one client knows.
const MAX_NAMED: usize = 1024;

/// The options by their names in C.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "its name in C")]
pub struct quicket_http_options {
    pub(crate) size: usize,
    pub(crate) ca_file: *const c_char,
    pub(crate) pins: *const c_char,
    pub(crate) cert_file: *const c_char,
    pub(crate) key_file: *const c_char,
    pub(crate) sessions: *const c_char,
    pub(crate) qlog: *const c_char,
    pub(crate) hosts: *const c_char,
    pub(crate) flags: u64,
}

/// The same with texts that are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) ca_file: Option<Vec<u8>>,
    pub(crate) pins: Option<Vec<u8>>,
    pub(crate) cert_file: Option<Vec<u8>>,
    pub(crate) key_file: Option<Vec<u8>>,
    pub(crate) sessions: Option<Vec<u8>>,
    pub(crate) qlog: Option<Vec<u8>>,
    pub(crate) hosts: Option<Vec<u8>>,
    pub(crate) flags: u64,
}

fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| Failure::invalid("pins and hosts are text in UTF-8"))
}

impl Options {
    /// What the client is to do.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let unknown = self.flags & !(NO_SESSIONS | NO_EARLY_DATA | STAY);
        if unknown != 0 {
            return Err(Failure::invalid(format_args!("flags that are not known: {unknown:#x}")));
        }
        let has = |flag: u64| self.flags & flag != 0;
        let mut config = self.trust()?.early_data(!has(NO_EARLY_DATA)).follow_network(!has(STAY));
        if let Some(folder) = &self.sessions {
            if has(NO_SESSIONS) {
                return Err(Failure::invalid(
                    "a folder for sessions, and QUICKET_HTTP_NO_SESSIONS",
                ));
            }
            config = config.sessions_in(path(folder)).map_err(|error| Failure::from(&error))?;
        }
        if has(NO_SESSIONS) {
            config = config.no_sessions();
        }
        if let Some(folder) = &self.qlog {
            config = config.qlog(Qlog::new(path(folder))?);
        }
        for (name, addresses) in self.hosts()? {
            config = config.host(&name, addresses);
        }
        Ok(config)
    }

    /// Whom the client trusts, and as whom it appears. What is wrong with files is told at once, and not by the first
    /// request.
    fn trust(&self) -> Result<Config, Failure> {
        let pins = self.pins()?;
        let identity = match (&self.cert_file, &self.key_file) {
            (None, None) => None,
            (Some(chain), Some(key)) => {
                let identity = Identity::from_pem_files(path(chain), path(key));
                Some(identity.map_err(Failure::invalid)?)
            }
            _ => {
                return Err(Failure::invalid("a client has a certificate and its key, or neither"));
            }
        };
        let ca_file = self.ca_file.as_deref().map(path);
        let tls = move |protocol: &[u8]| -> Result<ClientTls, ConfigError> {
            let mut tls = ClientTls::builder().alpn([protocol]);
            if let Some(file) = &ca_file {
                tls = tls.ca_file(file.clone());
            }
            if !pins.is_empty() {
                tls = tls.pinned(pins.iter().copied());
            }
            if let Some(identity) = &identity {
                tls = tls.client_certificate(identity.clone());
            }
            tls.build()
        };
        let tls = Arc::new(tls);
        tls(b"h3").map_err(Failure::invalid)?;
        Ok(Config::new().tls(move |protocol| tls(protocol)))
    }

    fn pins(&self) -> Result<Vec<Fingerprint>, Failure> {
        let Some(list) = &self.pins else { return Ok(Vec::new()) };
        let words = text(list)?.split(',').map(str::trim).filter(|word| !word.is_empty());
        let pins: Result<Vec<Fingerprint>, _> = words.take(MAX_NAMED + 1).map(str::parse).collect();
        let pins = pins.map_err(Failure::invalid)?;
        match pins.len() {
            // Nobody would be trusted, or everybody whom the system does: neither is what was meant.
            0 => Err(Failure::invalid("there is no pin in the list of pins")),
            1..=MAX_NAMED => Ok(pins),
            _ => Err(Failure::invalid(format_args!("more than {MAX_NAMED} pins"))),
        }
    }

    fn hosts(&self) -> Result<Vec<(String, Vec<IpAddr>)>, Failure> {
        let Some(list) = &self.hosts else { return Ok(Vec::new()) };
        let words = text(list)?.split_ascii_whitespace().take(MAX_NAMED + 1);
        let hosts: Result<Vec<_>, Failure> = words.map(host).collect();
        let hosts = hosts?;
        if hosts.len() > MAX_NAMED {
            return Err(Failure::invalid(format_args!("more than {MAX_NAMED} hosts")));
        }
        Ok(hosts)
    }
}

/// NAME=ADDRESS[,ADDRESS…].
fn host(word: &str) -> Result<(String, Vec<IpAddr>), Failure> {
    let wrong = || Failure::invalid(format_args!("{word}: write a host as NAME=ADDRESS,ADDRESS"));
    let (name, addresses) =
        word.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    let addresses: Result<Vec<IpAddr>, _> = addresses.split(',').map(str::parse).collect();
    Ok((name.to_owned(), addresses.map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &Options) -> String {
        let Failure { number, words } = options.config().unwrap_err();
        assert_eq!(number, libc::EINVAL, "{words}");
        words
    }

    #[test]
    fn what_is_wrong_is_told_before_the_first_request() {
        let folder = tempfile::tempdir().unwrap();
        let none = Some(folder.path().join("none").as_os_str().as_bytes().to_vec());
        let of = |list: &str| Some(list.as_bytes().to_vec());
        let default = Options::default;
        assert!(refused(&Options { flags: 8, ..default() }).contains("0x8"));
        assert!(refused(&Options { ca_file: none.clone(), ..default() }).contains("none"));
        let half = Options { cert_file: none.clone(), ..default() };
        assert!(refused(&half).contains("key"));
        refused(&Options { key_file: none.clone(), ..half });
        for list in ["", ",", "sha256:0", &"ä".repeat(64)] {
            refused(&Options { pins: of(list), ..default() });
        }
        refused(&Options { pins: Some(vec![0xff]), ..default() });
        for list in ["a", "=192.0.2.1", "a=", "a=192.0.2.1,b", "a=192.0.2.1:443"] {
            assert!(refused(&Options { hosts: of(list), ..default() }).contains(list), "{list}");
        }
        let both = Options { sessions: none, flags: NO_SESSIONS, ..default() };
        assert!(refused(&both).contains("NO_SESSIONS"));
        refused(&Options { hosts: of(&"a=192.0.2.1 ".repeat(MAX_NAMED + 1)), ..default() });
    }

    #[test]
    fn hosts_have_addresses_of_both_families() {
        let hosts = Some(b" a.example=192.0.2.1,2001:db8::1 b=::1 ".to_vec());
        let options = Options { hosts, ..Options::default() };
        let [a, b] = <[_; 2]>::try_from(options.hosts().unwrap()).unwrap();
        let addresses = ["192.0.2.1", "2001:db8::1"].map(|it| it.parse().unwrap());
        assert_eq!(a, ("a.example".to_owned(), addresses.to_vec()));
        assert_eq!(b, ("b".to_owned(), vec!["::1".parse().unwrap()]));
    }
}
