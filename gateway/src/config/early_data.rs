//! What gateways of a cluster have in common for clients that come back: secrets, and a register of used tickets.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quicket::{Identity, SiteSecrets};
use serde::Deserialize;

use super::check::Problems;
use super::{Problem, read_bytes};
use crate::early::{Address, Place, Secured};

/// The longest file with a password, in bytes.
const MAX_PASSWORD: u64 = 1 << 20;
/// How long the store may take, in milliseconds. The handshake waits for it, and for no answer at all for 250 ms.
const DEADLINES: std::ops::RangeInclusive<u64> = 1..=200;
/// The most replicas that may be asked for.
const MAX_REPLICAS: usize = 16;
/// The longest name, in bytes.
const MAX_NAME: usize = 200;

/// The register of tickets that brought early data, in common with other gateways.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EarlyDataRegister {
    /// A store that speaks the Redis protocol: `redis://HOST:PORT`, with `/N` for the database of that number,
    /// `rediss://HOST:PORT` for the same over TLS, or `unix:/PATH`.
    pub register: String,
    /// What the register is called in tickets, which bring early data in only where it has the same name and is in the
    /// same store; `register` unless given. For gateways that reach one store by several addresses.
    pub name: Option<String>,
    /// Whom the store knows the gateway as.
    pub username: Option<String>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// Whom a store over TLS is trusted by; the system's roots unless given.
    pub ca: Option<PathBuf>,
    /// The gateway's own certificate, for a store over TLS that asks for one.
    pub client_chain: Option<PathBuf>,
    /// Its key, in a file.
    pub client_key: Option<PathBuf>,
    /// How long an answer may take, in milliseconds, from 1 to 200.
    #[serde(default = "deadline")]
    pub deadline_ms: u64,
    /// Replicas of the store that must keep up, from 0 to 16: as many as there are, where one may become the master.
    #[serde(default)]
    pub replicas: usize,
}

const fn deadline() -> u64 {
    5
}

impl EarlyDataRegister {
    /// Checks it.
    pub(super) fn check(
        &self,
        has_secrets: bool,
        directory: &Path,
        problems: &mut Problems,
    ) -> Option<Place> {
        if !has_secrets {
            let what = "has no effect without secrets = \"FILE\" at the file's top: no other gateway could read a ticket \
                        (quicket switch secrets new makes that file)";
            problems.add("early_data.register", what);
        }
        let address = problems.take("early_data.register", Address::parse(&self.register));
        if !DEADLINES.contains(&self.deadline_ms) {
            let (least, most) = DEADLINES.into_inner();
            problems.add("early_data.deadline_ms", format!("is not within {least} and {most}"));
        }
        if self.replicas > MAX_REPLICAS {
            problems.add("early_data.replicas", format!("is more than {MAX_REPLICAS}"));
        }
        let name = self.name.as_ref().unwrap_or(&self.register);
        if name.is_empty() || name.len() > MAX_NAME {
            problems.add("early_data.name", format!("is not of 1 to {MAX_NAME} bytes"));
        }
        let field = "early_data.password_file";
        let password = self.password_file.as_ref().and_then(|path| {
            let read = problems.take(field, read_password(&directory.join(path)))?;
            let password = String::from_utf8(read).ok().map(|text| text.trim().to_owned());
            let password = password.filter(|password| !password.is_empty());
            if password.is_none() {
                problems.add(field, "has no password: it is to be one line of text");
            }
            password
        });
        if self.username.is_some() && self.password_file.is_none() {
            problems.add("early_data.username", "has no effect without password_file");
        }
        let secured = self.secured(address.as_ref(), directory, problems);
        Some(Place {
            address: address?,
            name: name.clone(),
            username: self.username.clone(),
            password,
            secured,
            deadline: Duration::from_millis(self.deadline_ms),
            replicas: self.replicas,
        })
    }
}

impl EarlyDataRegister {
    /// The files that are read for it.
    pub(super) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { password_file, ca, client_chain, client_key, .. } = self;
        [password_file, ca, client_chain, client_key].into_iter().flatten()
    }

    /// How the store is reached over TLS, if it is.
    fn secured(
        &self,
        address: Option<&Address>,
        directory: &Path,
        problems: &mut Problems,
    ) -> Option<Secured> {
        let Some(Address::Tls(..)) = address else {
            let files = [
                ("ca", &self.ca),
                ("client_chain", &self.client_chain),
                ("client_key", &self.client_key),
            ];
            for (field, _) in
                files.into_iter().filter(|(_, path)| address.is_some() && path.is_some())
            {
                let what = "has no effect: the store is not rediss://";
                problems.add(format!("early_data.{field}"), what);
            }
            return None;
        };
        let identity = match (&self.client_chain, &self.client_key) {
            (Some(chain), Some(key)) => {
                let read = Identity::from_pem_files(directory.join(chain), directory.join(key));
                Some(problems.take("early_data.client_chain", read)?)
            }
            (None, None) => None,
            _ => {
                let what = "client_chain and client_key go together: one is missing";
                problems.add("early_data", what);
                return None;
            }
        };
        let ca = self.ca.as_ref().map(|path| directory.join(path));
        problems.take("early_data.ca", Secured::new(ca, identity))
    }
}

/// Reads a file that only the gateway's user, and perhaps its group, may read.
fn read_password(path: &Path) -> Result<Vec<u8>, Problem> {
    let failed = |error: std::io::Error| Problem::file(path, &error);
    let mode = quicket_member::open_to_others(&File::open(path).map_err(failed)?);
    match mode.map_err(failed)? {
        Some(mode) => {
            let path = path.display();
            let what = format!("{path}: others may read or change it (mode {mode:03o}): chmod 600");
            Err(Problem::new("", what))
        }
        None => read_bytes(path, MAX_PASSWORD),
    }
}

/// Reads the secrets of a site.
pub(super) fn secrets(
    path: Option<&PathBuf>,
    directory: &Path,
    problems: &mut Problems,
) -> Option<SiteSecrets> {
    let path = directory.join(path?);
    let file = File::open(&path).map_err(|error| Problem::file(&path, &error));
    let file = problems.take("secrets", file)?;
    let read = quicket_member::read_secrets(file, true);
    problems.take("secrets", read.map_err(|fault| format!("{}: {fault}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn told(dir: &std::path::Path, text: &str) -> String {
        let problems = parse(text, dir).unwrap_err();
        problems.iter().map(|problem| format!("{problem}\n")).collect()
    }

    #[test]
    fn each_mistake_is_told_with_its_field() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("empty", 0o600), ("open", 0o644)] {
            fs::write(dir.path().join(name), "\n").unwrap();
            let path = dir.path().join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let table = |lines: &str| told(dir.path(), &format!("[early_data]\n{lines}\n"));
        let right = "register = \"redis://10.0.0.5\"\n";
        for (lines, what) in [
            (right.to_owned(), "early_data.register: has no effect without secrets"),
            ("register = \"http://a\"".to_owned(), "early_data.register: \"http://a\" is neither"),
            (format!("{right}ca = \"a.pem\""), "early_data.ca: has no effect"),
            ("register = \"rediss://a\"\nca = \"no.pem\"".to_owned(), "early_data.ca: "),
            (
                "register = \"rediss://a\"\nclient_key = \"no.key\"".to_owned(),
                "early_data: client_chain and client_key go together",
            ),
            ("register = \"redis://a:b@c\"".to_owned(), "username and password_file"),
            ("register = \"redis://a/b\"".to_owned(), "is the number of a database"),
            ("register = \"unix:run\"".to_owned(), "early_data.register: \"unix:run\""),
            (format!("{right}deadline_ms = 0"), "early_data.deadline_ms: is not within 1 and 200"),
            (format!("{right}replicas = 17"), "early_data.replicas: is more than 16"),
            (format!("{right}name = \"\""), "early_data.name: is not of 1 to 200"),
            (format!("{right}username = \"a\""), "early_data.username: has no effect"),
            (format!("{right}password_file = \"no\""), "early_data.password_file: cannot read"),
            (
                format!("{right}password_file = \"empty\""),
                "early_data.password_file: has no password",
            ),
            (format!("{right}password_file = \"open\""), "mode 644): chmod 600"),
            (format!("{right}password = \"a\""), "unknown field `password`"),
            (String::new(), "missing field `register`"),
        ] {
            let told = table(&lines);
            assert!(told.contains(what), "{what:?} is not in\n{told}");
        }
    }

    #[test]
    fn secrets_are_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets");
        let text = "secrets = \"secrets\"\n";
        assert!(told(dir.path(), text).contains("secrets: cannot read "));
        fs::write(&path, "nothing").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(told(dir.path(), text).contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(told(dir.path(), text).contains("quicket switch secrets new"));
        let mut octet = 0;
        let drawn = quicket::SiteSecrets::draw(0, &mut |out| {
            octet += 1;
            out.fill(octet);
        });
        fs::write(&path, drawn.to_file()).unwrap();
        let told = told(dir.path(), &format!("{text}[early_data]\nregister = \"unix:/run/a\"\n"));
        assert!(!told.contains("secrets") && !told.contains("early_data"), "{told}");
    }
}
