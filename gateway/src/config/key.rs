//! Where the private key of a certificate is.

use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use quicket::Identity;
use quicket_keyd::{Address, Client, ClientOptions, KeyId, MutualTls, SignError, key_id};
use serde::Deserialize;

use super::Certificate;
use super::check::Problems;
use crate::elsewhere::KeyOfProcess;

/// The most threads that wait for signatures of a process.
const MAX_THREADS: usize = 256;
/// The most handshakes that wait for one of them.
const MAX_QUEUE: usize = 65_536;
/// The longest that a handshake waits: clients give up then.
const MAX_TIMEOUT_MS: u64 = 10_000;

/// Where a private key is.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a file of PEM, or { keyd = \"unix:/PATH\" }")]
pub enum KeyPlace {
    /// In a file of PEM.
    File(PathBuf),
    /// In a key process.
    Elsewhere(KeyElsewhere),
}

impl KeyPlace {
    /// The files that are read for it.
    pub(super) fn files<'a>(&'a self) -> impl Iterator<Item = &'a PathBuf> {
        let (file, other) = match self {
            Self::File(path) => (Some(path), None),
            Self::Elsewhere(place) => (None, Some(place)),
        };
        let of_tls = |place: &'a KeyElsewhere| {
            let KeyElsewhere { client_chain, client_key, ca, .. } = place;
            [client_chain, client_key, ca].into_iter().flatten()
        };
        file.into_iter().chain(other.into_iter().flat_map(of_tls))
    }
}

/// A private key in a key process, which finds it by the certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyElsewhere {
    /// Where the process is: `unix:/PATH` or `tcp:HOST:PORT`.
    pub keyd: String,
    /// The gateway's own certificate for a process over TCP.
    pub client_chain: Option<PathBuf>,
    /// Its key, in a file.
    pub client_key: Option<PathBuf>,
    /// Whom a process over TCP is trusted by.
    pub ca: Option<PathBuf>,
    /// How long a handshake waits for its signature.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Signatures that are waited for at once.
    #[serde(default = "threads")]
    pub threads: usize,
    /// Handshakes that wait for their turn.
    #[serde(default = "queue")]
    pub queue: usize,
}

fn timeout_ms() -> u64 {
    1000
}

fn threads() -> usize {
    ClientOptions::default().threads
}

fn queue() -> usize {
    ClientOptions::default().queue
}

impl KeyElsewhere {
    /// How the process is reached. Nothing is connected yet.
    fn client(&self, directory: &Path) -> Result<Client, String> {
        let address: Address = self.keyd.parse().map_err(|why| format!("key.keyd: {why}"))?;
        let within = |name: &str, value: usize, most: usize| match (1..=most).contains(&value) {
            true => Ok(value),
            false => Err(format!("key.{name}: {value} is not within 1 and {most}")),
        };
        let longest = MAX_TIMEOUT_MS as usize;
        let timeout = within("timeout_ms", usize::try_from(self.timeout_ms).unwrap_or(0), longest)?;
        let options = ClientOptions {
            threads: within("threads", self.threads, MAX_THREADS)?,
            queue: within("queue", self.queue, MAX_QUEUE)?,
            timeout: Duration::from_millis(timeout as u64),
        };
        let files = [&self.client_chain, &self.client_key, &self.ca];
        let tls = match (&address, files) {
            (Address::Unix(_), [None, None, None]) => None,
            (Address::Unix(_), _) => {
                let why = "client_chain, client_key and ca are for a process over TCP";
                return Err(format!("key: {why}: the system says who is at a Unix socket"));
            }
            (Address::Tcp { .. }, [Some(chain), Some(key), Some(ca)]) => {
                let [chain, key, ca] = [chain, key, ca].map(|path| directory.join(path));
                let tls = MutualTls::of_files(&chain, &key, &ca);
                Some(tls.map_err(|why| format!("key: {why}"))?)
            }
            (Address::Tcp { .. }, _) => {
                return Err("key: a process over TCP needs client_chain, client_key and ca".into());
            }
        };
        Client::new(address, tls, &options)
    }
}

/// The processes of a file: certificates that say the same of theirs have it in common.
#[derive(Default)]
pub(super) struct Places {
    clients: Vec<Known>,
    away: Vec<String>,
}

struct Known {
    place: KeyElsewhere,
    client: Client,
    /// Why it does not answer: it is asked no more then, as each question takes its time.
    silent: Option<SignError>,
}

impl Known {
    fn find(&mut self, id: KeyId) -> Result<Option<Vec<u8>>, SignError> {
        if let Some(why) = &self.silent {
            return Err(why.clone());
        }
        let found = self.client.find(id);
        if let Err(why @ (SignError::Away(_) | SignError::Slow)) = &found {
            self.silent = Some(why.clone());
        }
        found
    }
}

impl Places {
    /// Those that could not be asked, and why.
    pub(super) fn away(self) -> Vec<String> {
        self.away
    }

    fn known(&mut self, place: &KeyElsewhere, directory: &Path) -> Result<&mut Known, String> {
        let at = self.clients.iter().position(|known| known.place == *place);
        let at = match at {
            Some(at) => at,
            None => {
                let client = place.client(directory)?;
                self.clients.push(Known { place: place.clone(), client, silent: None });
                self.clients.len() - 1
            }
        };
        Ok(&mut self.clients[at])
    }
}

/// A certificate with its key, wherever that is. A process that is there must have the key; of one that is away that is
/// told, and it is no reason not to serve all else.
pub(super) fn identity(
    certificate: &Certificate,
    directory: &Path,
    place: &str,
    places: &mut Places,
    problems: &mut Problems,
) -> Option<Identity> {
    let chain = directory.join(&certificate.chain);
    let elsewhere = match &certificate.key {
        KeyPlace::File(key) => {
            return problems.take(place, Identity::from_pem_files(chain, directory.join(key)));
        }
        KeyPlace::Elsewhere(elsewhere) => elsewhere,
    };
    let known = problems.take(place, places.known(elsewhere, directory))?;
    let client = known.client.clone();
    let mut wanted = (KeyId([0; 32]), Vec::new());
    let identity = Identity::with_key_elsewhere(&chain, |spki| {
        wanted = (key_id(spki), spki.to_vec());
        Arc::new(KeyOfProcess { client: client.clone(), id: wanted.0 })
    });
    let identity = problems.take(place, identity)?;
    let (id, spki) = wanted;
    match known.find(id) {
        Ok(Some(found)) if found == spki => {}
        Ok(found) => {
            let what = if found.is_some() { "another key than" } else { "no key for" };
            let why = format!(
                "{} has {what} the certificate of {}: its public key is {id}",
                client.address(),
                chain.display()
            );
            problems.add(place, why);
        }
        Err(error) => {
            let text = format!(
                "{}: {error}; handshakes that need the key of {} fail until it answers",
                client.address(),
                chain.display()
            );
            places.away.extend(iter::once(text));
        }
    }
    Some(identity)
}
