//! From flags to the configuration of connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quicket::{CongestionAlgorithm, KeyLog, KeyLogFile, Qlog, TransportConfig};

use crate::args::{Congestion, Transport};
use crate::exit::{Failure, Kind};
use crate::out::tell;

/// The window of a stream and of all of them that a connection begins with, in bytes: a file
/// transfer should not wait for the first window updates.
const STREAM_WINDOW: u64 = 1 << 20;
const RECEIVE_WINDOW: u64 = 4 << 20;

/// What both sides' connections have in common.
pub(crate) fn config(args: &Transport) -> TransportConfig {
    TransportConfig {
        max_idle_timeout: Duration::from_secs(args.idle_timeout),
        initial_stream_window: STREAM_WINDOW,
        initial_receive_window: RECEIVE_WINDOW,
        // HTTP needs no datagrams here.
        datagram_receive_buffer: 0,
        congestion: match args.congestion {
            Congestion::Newreno => CongestionAlgorithm::NewReno,
            Congestion::Cubic => CongestionAlgorithm::Cubic,
            Congestion::Bbr => CongestionAlgorithm::Bbr,
        },
        disable_1rtt_encryption: args.disable_1rtt_encryption,
        ..TransportConfig::default()
    }
}

/// Says loudly what the flags make dangerous.
pub(crate) fn warn(args: &Transport) {
    if args.disable_1rtt_encryption {
        tell!(
            "WARNING: --disable-1rtt-encryption: if the peer agrees, everybody on the path can \
             read and change what is sent"
        );
    }
    if let Some(path) = &args.keylog {
        let path = path.display();
        tell!("WARNING: TLS secrets go to {path}; whoever reads it can read the connections");
    }
}

/// Where connections are logged, if that is wanted.
pub(crate) fn qlog(args: &Transport) -> Result<Option<Qlog>, Failure> {
    let Some(dir) = &args.qlog else { return Ok(None) };
    Qlog::new(dir).map(Some).map_err(|error| {
        Failure::environment(format!("cannot write qlog files to {}", dir.display()), error)
    })
}

/// Where TLS secrets go, if they are wanted.
pub(crate) fn key_log(path: Option<&Path>) -> Result<Option<Arc<dyn KeyLog>>, Failure> {
    let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else { return Ok(None) };
    let file = KeyLogFile::open(path)
        .map_err(|error| Failure::new(Kind::Environment, error.to_string()))?;
    Ok(Some(Arc::new(file)))
}
