//! An endpoint of the QUIC interop runner.
//!
//! The runner starts a container for each end and tells it by environment variables what to do;
//! see <https://github.com/quic-interop/quic-interop-runner>. Here each of them is an option too.

mod case;
mod client;
pub(crate) mod negotiation;
mod server;
mod url;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use quicket::{Aead, KeyLog, Qlog, TransportConfig};
use quicket_peer_common::tasks::block_on;
use quicket_workload::bench::Failure;

use case::Case;

use crate::{HANDSHAKE_TIMEOUT, logs};

/// The exit code for a test case that an endpoint does not know.
pub const UNSUPPORTED: u8 = 127;

/// The windows of transfers, in bytes: small, so that they must grow.
const STREAM_WINDOW: u64 = 128 << 10;
const RECEIVE_WINDOW: u64 = 256 << 10;

const EXAMPLES: &str = "\
Examples:
  ROLE=server TESTCASE=transfer quicket lab endpoint
  quicket lab endpoint --role server --testcase retry --listen 127.0.0.1:4433 \\
    --certs certs --www files
  quicket lab endpoint --role client --testcase retry --certs certs --downloads got \\
    --requests https://127.0.0.1:4433/file

The exit code is 0 if all went well, 127 if the test case is not known, and another one if anything
failed. A server runs until it gets SIGTERM or SIGINT.";

/// What an endpoint of the interop runner is told.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct EndpointArguments {
    /// Which end to be
    #[arg(long, env = "ROLE", value_enum)]
    role: EndpointRole,
    /// The test case, by the runner's name for it
    #[arg(long, env = "TESTCASE", value_name = "NAME")]
    testcase: String,
    /// Client: URLs to download, separated by spaces
    #[arg(
        long,
        env = "REQUESTS",
        value_name = "URLS",
        default_value = "",
        hide_default_value = true
    )]
    requests: String,
    /// Folder with the server's certificate chain, cert.pem, and its key, priv.key; the client
    /// accepts the first certificate of the chain and no other
    #[arg(long, env = "CERTS", value_name = "DIR", default_value = "/certs")]
    certs: PathBuf,
    /// Server: folder to serve
    #[arg(long, env = "WWW", value_name = "DIR", default_value = "/www")]
    www: PathBuf,
    /// Client: folder for what was downloaded
    #[arg(long, env = "DOWNLOADS", value_name = "DIR", default_value = "/downloads")]
    downloads: PathBuf,
    /// Server: where to listen
    #[arg(long, env = "LISTEN", value_name = "ADDRESS:PORT", default_value = "[::]:443")]
    listen: SocketAddr,
    /// Server, connectionmigration: addresses to move clients to; without, those that the names
    /// server4 and server6 have, port 4443
    #[arg(long, env = "PREFERRED", value_name = "ADDRESS:PORT", value_delimiter = ',')]
    preferred: Vec<SocketAddr>,
    /// Append TLS secrets to this file
    #[arg(long, env = "SSLKEYLOGFILE", value_name = "FILE", value_parser = path())]
    keylog: Option<PathBuf>,
    /// Write qlog files into this folder
    #[arg(long, env = "QLOGDIR", value_name = "DIR", value_parser = path())]
    qlog: Option<PathBuf>,
}

/// Which end an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EndpointRole {
    /// Downloads what REQUESTS names.
    Client,
    /// Serves.
    Server,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked for.
    Done,
    /// The test case is not known.
    Unsupported,
}

/// Does what an endpoint is told.
///
/// # Errors
///
/// When anything fails, in a sentence.
pub fn run(arguments: &EndpointArguments) -> Result<Verdict, Failure> {
    let Some(case) = Case::named(&arguments.testcase) else {
        return Ok(Verdict::Unsupported);
    };
    block_on(async {
        match arguments.role {
            EndpointRole::Client => client::run(arguments, case).await,
            EndpointRole::Server => server::run(arguments, case).await,
        }
    })?;
    Ok(Verdict::Done)
}

impl EndpointArguments {
    fn certificate(&self) -> PathBuf {
        self.certs.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.certs.join("priv.key")
    }

    fn key_log(&self) -> Result<Option<Arc<dyn KeyLog>>, Failure> {
        logs::key_log(self.keylog.as_deref())
    }

    fn qlog(&self) -> Result<Option<Qlog>, Failure> {
        logs::qlog(self.qlog.as_deref())
    }
}

/// Takes any path, an empty one too: who sets variables has a value for some of them only.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Case {
    fn transport(&self) -> TransportConfig {
        let mut transport =
            TransportConfig { handshake_timeout: HANDSHAKE_TIMEOUT, ..Default::default() };
        if self.second == case::Second::Early {
            // What the client sends late is counted, padding of probes too.
            transport.mtu_discovery = None;
        }
        if self.small_windows {
            transport.initial_stream_window = STREAM_WINDOW;
            transport.initial_receive_window = RECEIVE_WINDOW;
        }
        transport
    }

    fn cipher_suites(&self) -> Option<&'static [Aead]> {
        self.chacha20.then_some(&[Aead::ChaCha20Poly1305])
    }
}

#[cfg(test)]
mod tests;
