//! Logs of what connections do, in the qlog format: one `.sqlog` file for each.
//!
//! The files are JSON text sequences (RFC 7464) after draft-ietf-quic-qlog-main-schema and
//! draft-ietf-quic-qlog-quic-events-12. qvis knows older names: for it, the first record has
//! `qlog_version` and `qlog_format` too, events have a `category`, some data their older names
//! besides, and what is `quic:recovery_metrics_updated` now is repeated as
//! `recovery:metrics_updated`.
//!
//! Engine calls go through [`translate`] into the records of [`event`], [`frame`] and
//! [`parameters`], which are written as JSON into the memory of a log ([`writer`]); one thread
//! for all logs brings them to their files.

mod event;
mod frame;
mod json;
mod metrics;
mod observer;
mod parameters;
mod translate;
mod writer;

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use quicket_engine::time::Time;
use quicket_engine::{NewConnection, Observer, Observers};

use crate::core::Clock;
use observer::ConnectionLog;
pub use writer::QlogPlace;
use writer::{Folder, Writer};

/// How much of all logs waits in memory to be written by default, in bytes.
const MEMORY: usize = 64 << 20;

/// Writes qlog files of connections into a folder.
///
/// Give it to [`ClientConfig::qlog`](crate::ClientConfig::qlog) or
/// [`ServerConfig::qlog`](crate::ServerConfig::qlog). Each connection gets a file that is named
/// after the Destination Connection ID of its first packet and its side, such as
/// `0a1b2c3d4e5f6071_client.sqlog`; a file that exists is left alone, and the connection not
/// logged. The files load in [qvis](https://qvis.quictools.info).
///
/// A thread of its own writes to the files. When it does not keep up, events are left out and
/// counted: `quicket:events_dropped` tells in the file how many are missing before it. Packets'
/// lengths, addresses and connection IDs are logged; payloads, keys and tokens are not.
///
/// Clones write to the same folder by the same thread, which ends with the last of them and of
/// the connections that are logged.
#[derive(Clone)]
pub struct Qlog {
    writer: Arc<Writer>,
    epoch: Epoch,
    /// Addresses are left out.
    anonymous: bool,
}

/// One moment by both clocks, so that logs of one process agree about the time.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    instant: Instant,
    /// Nanoseconds since 1970 at `instant`.
    unix_nanos: u64,
}

impl Qlog {
    /// Writes into `folder`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// If the folder or the thread cannot be made.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        Self::with_memory(folder, MEMORY)
    }

    /// Like [`Qlog::new`], with a limit other than 64 MiB to the bytes of all logs together that
    /// wait in memory to be written.
    ///
    /// # Errors
    ///
    /// Like [`Qlog::new`].
    pub fn with_memory(folder: impl Into<PathBuf>, bytes: usize) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        Self::to(Box::new(Folder(folder)), bytes)
    }

    /// Writes to another place than a folder. `bytes` limits what of all logs together waits in memory.
    ///
    /// # Errors
    ///
    /// If the thread cannot be made.
    pub fn to(place: Box<dyn QlogPlace>, bytes: usize) -> io::Result<Self> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_nanos = u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX);
        let epoch = Epoch { instant: Instant::now(), unix_nanos };
        Ok(Self { writer: Arc::new(Writer::start(place, bytes)?), epoch, anonymous: false })
    }

    /// Writes into the folder that the environment variable `QLOGDIR` names; `None` if it is not
    /// set. A program with more rights than its caller (set-user-ID, file capabilities) does not look there.
    ///
    /// # Errors
    ///
    /// Like [`Qlog::new`].
    pub fn from_env() -> io::Result<Option<Self>> {
        match quicket_switch::environment::variable("QLOGDIR") {
            Some(folder) if !folder.is_empty() => Self::new(folder).map(Some),
            _ => Ok(None),
        }
    }

    /// Leaves addresses out.
    #[must_use]
    pub fn without_addresses(self) -> Self {
        Self { anonymous: true, ..self }
    }

    /// Waits until everything logged so far is in the files. Call it before the process ends;
    /// after [`Endpoint::wait_idle`](crate::Endpoint::wait_idle), the logs are complete.
    pub fn flush(&self) {
        self.writer.flush();
    }

    /// Logs connections of an endpoint with this clock.
    pub(crate) fn observers(&self, clock: &Clock) -> Arc<dyn Observers> {
        let origin = clock.instant_of(Time::ZERO);
        let Epoch { instant, unix_nanos } = self.epoch;
        let nanos =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let unix_origin = match origin.checked_duration_since(instant) {
            Some(later) => unix_nanos.saturating_add(nanos(later)),
            None => unix_nanos.saturating_sub(nanos(instant.duration_since(origin))),
        };
        let (writer, anonymous) = (Arc::clone(&self.writer), self.anonymous);
        Arc::new(Logger { writer, unix_origin, anonymous })
    }
}

impl fmt::Debug for Qlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qlog").field("anonymous", &self.anonymous).finish_non_exhaustive()
    }
}

/// Logs the connections of one endpoint.
struct Logger {
    writer: Arc<Writer>,
    /// Nanoseconds since 1970 at the origin of the endpoint's time.
    unix_origin: u64,
    anonymous: bool,
}

impl Observers for Logger {
    fn observer(&self, connection: &NewConnection) -> Option<Box<dyn Observer>> {
        let NewConnection { now, side, original_dcid, .. } = *connection;
        let begin = (now, side, original_dcid);
        let log = ConnectionLog::begin(&self.writer, self.unix_origin, begin);
        Some(Box::new(ConnectionLog { anonymous: self.anonymous, ..log }))
    }
}
