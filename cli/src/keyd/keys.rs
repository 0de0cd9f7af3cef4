//! Where the keys come from, to be read again.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use quicket_keyd::{Address, Key, KeyError, Keys, ServerTls, Token};

use crate::args::Keyd;
use crate::exit::{Failure, Kind};

/// Files, and a token; and those by which gateways over TCP know this process.
#[derive(Clone)]
pub(super) struct Source {
    files: Vec<PathBuf>,
    token: Option<TokenSource>,
    /// The own certificate, its key, and the authorities of gateways.
    tls: Option<[PathBuf; 3]>,
}

/// What was read of it.
pub(super) struct Read {
    pub(super) keys: Keys,
    pub(super) tls: Option<ServerTls>,
}

/// A token whose library is loaded once.
#[derive(Clone)]
struct TokenSource {
    token: Token,
    pin_file: PathBuf,
    labels: Vec<String>,
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Kind::Usage, error.to_string())
}

/// A token that is not there may come: that is no fault of the command line.
fn of_token(error: KeyError) -> Failure {
    let kind = if matches!(error, KeyError::Token(_)) { Kind::Environment } else { Kind::Usage };
    Failure::new(kind, error.to_string())
}

/// Neither is a file that cannot be read.
fn of_file(error: KeyError) -> Failure {
    match error {
        KeyError::File(path, error) => {
            Failure::file(format!("cannot read {}", path.display()), &error)
        }
        other => unusable(other),
    }
}

/// Refuses what has no effect at the places given, or is missing there.
fn check_places(args: &Keyd) -> Result<(), Failure> {
    let has_unix = args.listen.iter().any(|place| matches!(place, Address::Unix(_)));
    let tcp = args.listen.iter().find(|place| matches!(place, Address::Tcp { .. }));
    let is_for_unix = !args.user.is_empty() || !args.group.is_empty() || args.mode.is_some();
    if is_for_unix && !has_unix {
        let why = "--user, --group and --mode are for Unix sockets: --listen unix:/PATH is one";
        return Err(unusable(why));
    }
    match (tcp, args.cert.is_some()) {
        (Some(place), false) => {
            Err(unusable(format!("{place} needs --cert, --cert-key and --client-ca")))
        }
        (None, true) => {
            let why = "--cert, --cert-key and --client-ca are for TCP: --listen tcp:ADDRESS:PORT";
            Err(unusable(why))
        }
        _ => Ok(()),
    }
}

impl Source {
    pub(super) fn of(args: &Keyd) -> Result<Self, Failure> {
        check_places(args)?;
        let token = match (&args.pkcs11, &args.token, &args.pin_file) {
            (Some(library), Some(label), Some(pin_file)) => Some(TokenSource {
                token: Token::open(library, label).map_err(of_token)?,
                pin_file: pin_file.clone(),
                labels: args.token_key.clone(),
            }),
            _ => None,
        };
        let tls = match (&args.cert, &args.cert_key, &args.client_ca) {
            (Some(chain), Some(key), Some(ca)) => Some([chain, key, ca].map(Clone::clone)),
            _ => None,
        };
        Ok(Self { files: args.key.clone(), token, tls })
    }

    /// Whether keys of a token may be among them.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(super) fn read(&self) -> Result<Read, Failure> {
        let tls = self.tls.as_ref().map(|[chain, key, ca]| ServerTls::of_files(chain, key, ca));
        let tls = tls.transpose().map_err(unusable)?;
        let keys = self.keys()?;
        match tls.as_ref().and_then(|tls| keys.get(&tls.key())) {
            // Whoever may have handshakes signed by it could be this process.
            Some(key) => Err(unusable(format!(
                "{} is the key of --cert, too: gateways would play keyd with it; take another for one of them",
                key.name()
            ))),
            None => Ok(Read { keys, tls }),
        }
    }

    fn keys(&self) -> Result<Keys, Failure> {
        let mut keys = Vec::new();
        for path in &self.files {
            for file in files(path)? {
                keys.push(Key::of_file(&file).map_err(of_file)?);
            }
        }
        if let Some(TokenSource { token, pin_file, labels }) = &self.token {
            let found = token.keys(pin_file, labels).map_err(of_token)?;
            keys.extend(found);
        }
        Keys::new(keys).map_err(unusable)
    }
}

/// A file, or those of a directory with names of keys.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot = |error| Failure::file(format!("cannot read {}", path.display()), &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_some_and(|ending| ending == "key" || ending == "pem") {
            files.push(file);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// How many there are.
pub(super) fn summary(keys: &Keys) -> String {
    match keys.iter().len() {
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    }
}

/// All of them, a line each.
pub(super) fn list(keys: &Keys) -> String {
    let mut all: Vec<_> = keys.iter().collect();
    all.sort_unstable_by_key(|key| key.name());
    let mut out = String::new();
    for key in all {
        let _ = writeln!(out, "{}  {:<11}  {}", key.id(), key.kind().name(), key.name());
    }
    out.trim_end().to_owned()
}
