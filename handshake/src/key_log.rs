//! Traffic secrets as rustls reports them, for the engine and for debugging.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quicket_engine::crypto::Deferred;

use crate::{ConfigError, environment};

/// Where secrets go for debugging with tools that decrypt captured traffic. Whoever reads them can
/// read the connections.
pub trait KeyLog: Send + Sync {
    /// Takes one line of the SSLKEYLOGFILE format (RFC 9850), without its line break.
    ///
    /// It is called by a thread that serves connections, with nothing locked: it may use them. It must
    /// not wait for the one whose secret it is, which is established once all its lines are taken. A
    /// panic goes no further than this call.
    fn line(&self, line: &str);

    /// Who takes the lines of a handshake that starts: this log by default. One whose lines nobody takes costs
    /// nothing. `peer` is the other end's address, as far as it is known: over TCP it is not, and the question is asked
    /// once for all connections of a configuration.
    ///
    /// It is asked under a connection's lock: it must not wait, nor use connections.
    fn taker(&self, peer: Option<SocketAddr>) -> LinesTaker {
        let _ = peer;
        LinesTaker::This
    }
}

/// Who takes the lines of a connection.
#[derive(Clone)]
pub enum LinesTaker {
    /// The log that was asked.
    This,
    /// Another one.
    Other(Arc<dyn KeyLog>),
    /// Nobody.
    Nobody,
}

impl fmt::Debug for LinesTaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::This => "This",
            Self::Other(_) => "Other",
            Self::Nobody => "Nobody",
        })
    }
}

/// The log that takes the lines of a connection.
pub(crate) fn log_of(
    log: Option<&Arc<dyn KeyLog>>,
    peer: Option<SocketAddr>,
) -> Option<Arc<dyn KeyLog>> {
    let log = log?;
    match log.taker(peer) {
        LinesTaker::This => Some(Arc::clone(log)),
        LinesTaker::Other(other) => Some(other),
        LinesTaker::Nobody => None,
    }
}

/// How the secrets of connections over TCP get into the log.
pub(crate) fn over_tcp(log: Option<&Arc<dyn KeyLog>>) -> Arc<dyn rustls::KeyLog> {
    match log_of(log, None) {
        Some(log) => Arc::new(Straight(log)),
        None => Arc::new(rustls::NoKeyLog),
    }
}

/// A [`KeyLog`] that appends to a file. Lines that cannot be written are lost; the first of them is told as a warning
/// (crate `log`).
#[derive(Debug)]
pub struct KeyLogFile {
    file: File,
    path: PathBuf,
    /// It was told that lines are lost.
    told: AtomicBool,
}

impl KeyLogFile {
    /// Opens a file for appending; creates it, readable by its owner only, if it is not there.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let path = path.to_owned();
        match options.open(&path) {
            Ok(file) => Ok(Self { file, path, told: AtomicBool::new(false) }),
            Err(source) => Err(ConfigError::KeyLog { path, source }),
        }
    }

    /// Opens the file that the environment variable `SSLKEYLOGFILE` names; `None` if it is not set. A program with
    /// more rights than its caller (set-user-ID, file capabilities) does not look there.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn from_env() -> Result<Option<Self>, ConfigError> {
        match environment::variable("SSLKEYLOGFILE") {
            Some(path) if !path.is_empty() => Self::open(path).map(Some),
            _ => Ok(None),
        }
    }
}

impl KeyLog for KeyLogFile {
    fn line(&self, line: &str) {
        // One write per line, so that lines of several processes do not mix. A full disk must not
        // end connections.
        let written = (&self.file).write_all(format!("{line}\n").as_bytes());
        if let Err(error) = written
            && !self.told.swap(true, Ordering::Relaxed)
        {
            let path = self.path.display();
            log::warn!("TLS secrets are lost: cannot write to {path}: {error}");
        }
    }
}

/// The secrets of one connection that the engine wants, or that outlive the handshake; each is
/// overwritten when taken or dropped.
#[derive(Default)]
pub(crate) struct Secrets {
    pub(crate) early: Option<SecretBytes>,
    pub(crate) client_handshake: Option<SecretBytes>,
    pub(crate) server_handshake: Option<SecretBytes>,
    pub(crate) client_traffic: Option<SecretBytes>,
    pub(crate) server_traffic: Option<SecretBytes>,
    pub(crate) exporter: Option<SecretBytes>,
}

/// The bytes of a secret; overwritten when dropped.
pub(crate) struct SecretBytes(Vec<u8>);

impl SecretBytes {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.fill(0);
        std::hint::black_box(&self.0);
    }
}

/// Takes the secrets of one connection from rustls, and keeps lines for a [`KeyLog`] until it may be
/// called.
pub(crate) struct SecretTap {
    secrets: Mutex<Secrets>,
    sink: Option<Sink>,
}

struct Sink {
    log: Arc<dyn KeyLog>,
    lines: Mutex<Vec<String>>,
}

impl SecretTap {
    pub(crate) fn new(log: Option<Arc<dyn KeyLog>>) -> Arc<Self> {
        let sink = log.map(|log| Sink { log, lines: Mutex::default() });
        Arc::new(Self { secrets: Mutex::default(), sink })
    }

    /// Hands the lines that have come to the log.
    pub(crate) fn take_lines(&self) -> Option<Deferred> {
        let Sink { log, lines } = self.sink.as_ref()?;
        let lines = std::mem::take(&mut *lines.lock().unwrap_or_else(PoisonError::into_inner));
        let log = (!lines.is_empty()).then(|| Arc::clone(log))?;
        Some(Box::new(move |_| {
            for line in lines {
                // The thread serves others too. Its hook has told of a panic.
                let _ = catch_unwind(AssertUnwindSafe(|| log.line(&line)));
            }
        }))
    }

    /// Forgets what has come: the handshake begins again.
    pub(crate) fn forget(&self) {
        *self.secrets() = Secrets::default();
        if let Some(Sink { lines, .. }) = &self.sink {
            lines.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    pub(crate) fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines of connections over TCP, for which nobody else needs the secrets: they go to the log at once.
struct Straight(Arc<dyn KeyLog>);

impl fmt::Debug for Straight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Straight").finish_non_exhaustive()
    }
}

impl rustls::KeyLog for Straight {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let line = line(label, client_random, secret);
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.line(&line)));
    }
}

impl fmt::Debug for SecretTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretTap").finish_non_exhaustive()
    }
}

impl rustls::KeyLog for SecretTap {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        {
            let mut secrets = self.secrets();
            let slot = match label {
                "CLIENT_EARLY_TRAFFIC_SECRET" => Some(&mut secrets.early),
                "CLIENT_HANDSHAKE_TRAFFIC_SECRET" => Some(&mut secrets.client_handshake),
                "SERVER_HANDSHAKE_TRAFFIC_SECRET" => Some(&mut secrets.server_handshake),
                "CLIENT_TRAFFIC_SECRET_0" => Some(&mut secrets.client_traffic),
                "SERVER_TRAFFIC_SECRET_0" => Some(&mut secrets.server_traffic),
                "EXPORTER_SECRET" => Some(&mut secrets.exporter),
                _ => None,
            };
            if let Some(slot) = slot {
                *slot = Some(SecretBytes(secret.to_vec()));
            }
        }
        if let Some(Sink { lines, .. }) = &self.sink {
            let line = line(label, client_random, secret);
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}

fn line(label: &str, client_random: &[u8], secret: &[u8]) -> String {
    let mut line = format!("{label} ");
    push_hex(&mut line, client_random);
    line.push(' ');
    push_hex(&mut line, secret);
    line
}

fn push_hex(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
}
