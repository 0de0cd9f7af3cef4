//! The command line that all peers share.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Command line of a peer.
///
/// Both roles append TLS secrets to the file that the environment variable SSLKEYLOGFILE names, and
/// write qlog files into the folder that QLOGDIR names, if the implementation can.
#[derive(Debug, Clone, Parser)]
#[command(about = "An interoperability peer driven by quicket-lab")]
pub struct Arguments {
    /// Which end of the connection to be.
    #[command(subcommand)]
    pub role: Role,
}

/// Which end of the connection a peer is.
#[derive(Debug, Clone, Subcommand)]
pub enum Role {
    /// Accept connections until standard input ends.
    Server(ServerArguments),
    /// Connect, do what is asked, report and exit.
    Client(ClientArguments),
}

/// What a server is told.
///
/// It accepts early data, offers datagrams, and lets a client have about 100 streams open at once,
/// so that a client which opens thousands depends on MAX_STREAMS frames.
#[derive(Debug, Clone, Args)]
pub struct ServerArguments {
    /// Address to listen on; port 0 takes a free one, which the `listening` event names.
    #[arg(long)]
    pub listen: SocketAddr,
    /// Certificate chain, PEM.
    #[arg(long)]
    pub cert: PathBuf,
    /// Private key, PEM (PKCS #8).
    #[arg(long)]
    pub key: PathBuf,
    /// Application protocol to offer; may be given several times.
    #[arg(long, required = true)]
    pub alpn: Vec<String>,
    /// Demand address validation by a Retry packet of every client (RFC 9000, Section 8.1.2).
    #[arg(long)]
    pub retry: bool,
    /// Choose version 2 where the client has it (RFC 9368, Section 2.3).
    #[arg(long)]
    pub v2: bool,
    /// Demand certificates of clients that lead to these, PEM.
    #[arg(long)]
    pub client_ca: Option<PathBuf>,
    /// Tell clients to go on at this address, which leads to the same socket (RFC 9000,
    /// Section 9.6).
    #[arg(long)]
    pub preferred: Option<SocketAddr>,
    /// What stateless reset tokens are made with, the same after a restart.
    #[arg(long)]
    pub reset_key: Option<String>,
    /// Ask clients for fewer acknowledgements (draft-ietf-quic-ack-frequency).
    #[arg(long)]
    pub ack_frequency: bool,
    /// Folder served by `hq-interop` and `h3`.
    #[arg(long)]
    pub www: Option<PathBuf>,
}

/// What a client is told.
#[derive(Debug, Clone, Args)]
pub struct ClientArguments {
    /// Address of the server.
    #[arg(long)]
    pub connect: SocketAddr,
    /// Certificates to trust, PEM.
    #[arg(long)]
    pub ca: PathBuf,
    /// Name to ask for and to verify.
    #[arg(long)]
    pub server_name: String,
    /// Application protocol to speak.
    #[arg(long)]
    pub alpn: String,
    /// Connect twice: download the first file, then resume the session for everything else.
    #[arg(long)]
    pub resume: bool,
    /// As `--resume`, and send the first requests of the second connection as early data.
    #[arg(long = "0rtt")]
    pub early_data: bool,
    /// Download one file after the other, and update the packet protection keys in each.
    #[arg(long)]
    pub key_update: bool,
    /// Move to this local address half a second into the download.
    #[arg(long)]
    pub migrate: Option<IpAddr>,
    /// Download each file over a connection of its own, without resuming a session.
    #[arg(long)]
    pub one_by_one: bool,
    /// Download each file over a connection of its own, all at once.
    #[arg(long)]
    pub parallel: bool,
    /// Certificate to present, PEM.
    #[arg(long, requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its private key, PEM (PKCS #8).
    #[arg(long, requires = "cert")]
    pub key: Option<PathBuf>,
    /// Offer ChaCha20-Poly1305 and no other cipher.
    #[arg(long)]
    pub chacha20: bool,
    /// Start with version 1 and let the server choose version 2 (RFC 9368, Section 2.3).
    #[arg(long)]
    pub v2: bool,
    /// Start with a version that no server has, and end when Version Negotiation answers.
    #[arg(long)]
    pub unknown_version: bool,
    /// Echo this many bidirectional streams (`echo` only).
    #[arg(long, default_value_t = 0)]
    pub streams: u32,
    /// Give up this many bidirectional streams when a part of the echo has come, by RESET_STREAM and
    /// STOP_SENDING, before those of `--streams` (`echo` only).
    #[arg(long, default_value_t = 0)]
    pub resets: u32,
    /// Echo this many datagrams (`echo` only).
    #[arg(long, default_value_t = 0)]
    pub datagrams: u32,
    /// Path to download; may be given several times (`hq-interop` and `h3`).
    #[arg(long)]
    pub download: Vec<String>,
    /// Folder for what was downloaded.
    #[arg(long)]
    pub out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_command_line_is_understood() {
        let arguments = Arguments::try_parse_from([
            "peer",
            "client",
            "--connect",
            "127.0.0.1:4433",
            "--ca",
            "ca.pem",
            "--server-name",
            "localhost",
            "--alpn",
            "hq-interop",
            "--0rtt",
            "--download",
            "/a",
            "--download",
            "/b",
        ])
        .unwrap();
        let Role::Client(client) = arguments.role else { panic!("not a client") };
        assert!(client.early_data && !client.resume);
        assert_eq!(client.download, ["/a", "/b"]);
    }

    #[test]
    fn a_server_without_a_protocol_is_refused() {
        let arguments =
            ["peer", "server", "--listen", "127.0.0.1:0", "--cert", "c.pem", "--key", "k.pem"];
        assert!(Arguments::try_parse_from(arguments).is_err());
    }
}
