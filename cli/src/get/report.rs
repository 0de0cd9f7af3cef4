//! What is said when all is done.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::download::{Fetched, Job};
use super::place::Place;
use crate::digest::Sha256;
use crate::exit::Failure;
use crate::units::{Bytes, Rate, Time};

/// What was negotiated with a server, and how the connection fared. The field names are those of
/// the JSON output.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ConnectionReport {
    pub(crate) server: String,
    pub(crate) remote: String,
    /// `quic` or `tcp`; what is said of packets and paths is empty or 0 for TCP.
    pub(crate) transport: &'static str,
    pub(crate) quic_version: String,
    pub(crate) alpn: String,
    pub(crate) cipher_suite: &'static str,
    pub(crate) key_exchange: &'static str,
    /// A session of an earlier connection was resumed.
    pub(crate) resumed: bool,
    pub(crate) early_data: EarlyData,
    pub(crate) encrypted: bool,
    /// From the first packet to the end of the handshake.
    #[serde(serialize_with = "seconds")]
    pub(crate) handshake_seconds: Duration,
    #[serde(serialize_with = "seconds")]
    pub(crate) rtt_seconds: Duration,
    pub(crate) mtu: u16,
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_lost: u64,
    /// How often the connection moved to another path.
    pub(crate) path_changes: u64,
    pub(crate) congestion_controller: &'static str,
}

/// What became of 0-RTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EarlyData {
    /// It was not tried: no session, or not wanted.
    NotOffered,
    /// The server read it.
    Accepted,
    /// The server did not read it; it was sent again.
    Rejected,
}

/// What became of one file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FileReport {
    pub(crate) url: String,
    pub(crate) path: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) received: u64,
    pub(crate) kept: u64,
    pub(crate) sha256: Option<Sha256>,
    /// It was compared with a hash that was given.
    pub(crate) verified: bool,
    #[serde(serialize_with = "seconds")]
    pub(crate) seconds: Duration,
    pub(crate) error: Option<String>,
}

impl FileReport {
    /// A file that is still to come.
    pub(crate) fn of(job: &Job) -> Self {
        let path = match &job.place {
            Place::Stdout => None,
            Place::File(path) | Place::Device(path) => Some(path.display().to_string()),
        };
        Self {
            url: job.target.url.to_string(),
            path,
            status: None,
            received: 0,
            kept: 0,
            sha256: None,
            verified: false,
            seconds: Duration::ZERO,
            error: None,
        }
    }

    /// Fills in what came out.
    pub(crate) fn complete(&mut self, outcome: &Result<Fetched, Failure>, expected: bool) {
        match outcome {
            Ok(fetched) => {
                self.status = fetched.status;
                self.received = fetched.received;
                self.kept = fetched.kept;
                self.sha256 = fetched.sha256;
                self.verified = expected;
                self.seconds = fetched.took;
            }
            Err(failure) => self.error = Some(failure.message.clone()),
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) connections: Vec<ConnectionReport>,
    pub(crate) files: Vec<FileReport>,
    pub(crate) received: u64,
    #[serde(serialize_with = "seconds")]
    pub(crate) seconds: Duration,
    pub(crate) bits_per_second: u64,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

impl Report {
    /// There is nothing to say that the failure does not say.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.iter().all(|file| file.error.is_some()) && self.received == 0
    }

    /// Adds up.
    pub(crate) fn finish(&mut self, took: Duration) {
        self.received = self.files.iter().map(|file| file.received).sum();
        self.seconds = took;
        self.bits_per_second = Rate::of(self.received, took).bits_per_second();
    }
}

impl fmt::Display for EarlyData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotOffered => "no 0-RTT",
            Self::Accepted => "0-RTT accepted",
            Self::Rejected => "0-RTT refused",
        })
    }
}

impl fmt::Display for ConnectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, remote, quic_version, alpn, cipher_suite, key_exchange, .. } = self;
        f.write_str(server)?;
        if server != remote {
            write!(f, " ({remote})")?;
        }
        let is_tcp = self.transport == "tcp";
        let below = if is_tcp { "TCP" } else { quic_version };
        write!(f, ": {below}, {alpn}, {cipher_suite}")?;
        if !key_exchange.is_empty() {
            write!(f, ", {key_exchange}")?;
        }
        if !self.encrypted {
            f.write_str(", NOT ENCRYPTED after the handshake")?;
        }
        if is_tcp {
            return write!(f, ", handshake {}", Time(self.handshake_seconds));
        }
        let session = if self.resumed { "session resumed" } else { "new session" };
        writeln!(f, ", {session}, {}", self.early_data)?;
        write!(
            f,
            "  handshake {}, round trip {}, packets of up to {}, {} received, {} sent, {}",
            Time(self.handshake_seconds),
            Time(self.rtt_seconds),
            Bytes(self.mtu.into()),
            self.packets_received,
            self.packets_sent,
            Lost(self.packets_lost),
        )
    }
}

/// How many packets were lost, in words.
pub(crate) struct Lost(pub(crate) u64);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none lost"),
            lost => write!(f, "{lost} lost and their content sent again"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for connection in &self.connections {
            writeln!(f, "{connection}")?;
        }
        let good = self.files.iter().filter(|file| file.error.is_none()).count();
        let verified = self.files.iter().filter(|file| file.verified).count();
        match (&self.files[..], good) {
            ([FileReport { path: Some(path), .. }], 1) => f.write_str(path)?,
            ([_], _) => f.write_str("1 file")?,
            (all, _) if good == all.len() => write!(f, "{good} files")?,
            (all, _) => write!(f, "{good} of {} files", all.len())?,
        }
        let kept: u64 = self.files.iter().map(|file| file.kept).sum();
        if self.received == 0 && kept > 0 && good == self.files.len() {
            return write!(f, ": complete already, {}, as long as on the server", Bytes(kept));
        }
        write!(f, ": {}", Bytes(self.received))?;
        write!(f, " in {}, {}", Time(self.seconds), Rate::of(self.received, self.seconds))?;
        if kept > 0 {
            write!(f, ", {} kept from before", Bytes(kept))?;
        }
        if verified > 0 {
            write!(f, ", {verified} verified by SHA-256")?;
        }
        Ok(())
    }
}
