//! Where the keys come from, to be read again.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use quicket_keyd::{Key, Keys, Token};

use crate::args::Keyd;
use crate::exit::{Failure, Kind};

/// Files, and a token.
#[derive(Clone)]
pub(super) struct Source {
    files: Vec<PathBuf>,
    token: Option<TokenSource>,
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

impl Source {
    pub(super) fn of(args: &Keyd) -> Result<Self, Failure> {
        let token = match (&args.pkcs11, &args.token, &args.pin_file) {
            (Some(library), Some(label), Some(pin_file)) => Some(TokenSource {
                token: Token::open(library, label).map_err(unusable)?,
                pin_file: pin_file.clone(),
                labels: args.token_key.clone(),
            }),
            _ => None,
        };
        Ok(Self { files: args.key.clone(), token })
    }

    pub(super) fn read(&self) -> Result<Keys, Failure> {
        let mut keys = Vec::new();
        for path in &self.files {
            for file in files(path)? {
                keys.push(Key::of_file(&file).map_err(unusable)?);
            }
        }
        if let Some(TokenSource { token, pin_file, labels }) = &self.token {
            let found = token.keys(pin_file, labels).map_err(unusable)?;
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
