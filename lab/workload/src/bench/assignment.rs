//! What a benchmarked process is told.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything a benchmarked process needs to know, given as one JSON argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// The core to run on.
    pub core: usize,
    /// What both ends are configured with.
    pub conditions: Conditions,
    /// Which end to be.
    pub role: Role,
}

/// What both ends of a connection are configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// The only cipher suite to offer or accept.
    pub cipher: Cipher,
    /// The size of UDP payloads. Without meaning for TCP.
    pub payload: Payload,
    /// The congestion controller.
    pub congestion: Congestion,
    /// Whether packets are encrypted after the handshake.
    pub encryption: bool,
    /// Whether servers give tickets, and clients come back with them.
    pub tickets: bool,
    /// Connections that are busy at once, for servers with a thread for each.
    pub busy: usize,
    /// Whether both ends may run on all cores, rather than on one each.
    #[serde(default)]
    pub all_cores: bool,
}

impl Default for Conditions {
    /// AES-128-GCM, payloads as Ethernet carries them, CUBIC; no tickets, few connections, a core each.
    fn default() -> Self {
        Self {
            cipher: Cipher::Aes128Gcm,
            payload: Payload::Fixed(1472),
            congestion: Congestion::Cubic,
            encryption: true,
            tickets: false,
            busy: 50,
            all_cores: false,
        }
    }
}

/// The size of UDP payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// So many bytes at most, without path MTU discovery.
    Fixed(u16),
    /// From 1,200 bytes on as many as path MTU discovery finds, up to this bound.
    Discovered(u16),
}

impl Payload {
    /// The size that full packets end up with, in bytes.
    #[must_use]
    pub fn target(self) -> u16 {
        match self {
            Self::Fixed(size) | Self::Discovered(size) => size,
        }
    }
}

/// A congestion controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Congestion {
    /// CUBIC.
    Cubic,
    /// BBR, in the version that the implementation has.
    Bbr,
}

impl Congestion {
    /// The name by which Linux knows it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

/// Which end of the connection a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Serve until standard input ends.
    Server {
        /// Address to listen on; port 0 takes a free one.
        listen: SocketAddr,
        /// Certificate chain, PEM.
        certificate: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
    },
    /// Put a load on the server and report.
    Client {
        /// The server's address.
        connect: SocketAddr,
        /// Certificates to trust, PEM.
        roots: PathBuf,
        /// The load.
        scenario: Scenario,
    },
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Move bytes over one stream of one connection.
    Bulk {
        /// Who sends.
        direction: Direction,
        /// Bytes moved before the clock starts.
        warm_up: u64,
        /// Bytes moved while the clock runs.
        bytes: u64,
        /// Bytes that the sender writes at once: 1 to 65,536.
        write: u32,
    },
    /// As `Bulk`, without a clock: every byte sent is another one and every byte is compared.
    Verify {
        /// Who sends.
        direction: Direction,
        /// Bytes moved.
        bytes: u64,
    },
    /// One request of 1 KiB and its answer of 1 KiB after the other, each on a new stream.
    Exchanges {
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Full handshakes, each on a new connection that is closed at once.
    Handshakes {
        /// Handshakes under way at any time.
        concurrency: usize,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Connections with one request of 1 KiB each, one after the other, timed until the answer's
    /// first byte.
    FirstBytes {
        /// What is used of the connection before.
        session: Session,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Downloads on many streams of one connection at once, again and again.
    Streams {
        /// Streams under way at any time.
        concurrency: usize,
        /// Bytes of each.
        bytes: u64,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Downloads on many connections at once, again and again.
    Connections {
        /// How many.
        connections: usize,
        /// Bytes of each download.
        bytes: u64,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// One download without end, counted as it comes.
    Flow {
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Connections that do nothing, held open until standard input ends.
    Idle {
        /// How many.
        connections: usize,
    },
    /// A large file, and small files one after the other, each fetched by a program of its own.
    /// The benchmark starts those programs itself: no benchmarked process has this load.
    Files {
        /// Bytes of the large one.
        bytes: u64,
        /// How long small ones are fetched, in milliseconds.
        milliseconds: u64,
    },
    /// Datagrams of QUIC through a balancer. The benchmark starts the processes for it itself.
    Forward {
        /// How their connection IDs are written.
        ids: Ids,
        /// Servers behind the balancer.
        servers: u32,
        /// Client addresses that take turns.
        flows: u32,
        /// Datagrams of a client that come together.
        train: u16,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// TCP through a tunnel. The benchmark starts the ends of the tunnel itself.
    Tunnel {
        /// Requests and answers of a few bytes on so many connections at once; none: in bulk.
        streams: Option<u32>,
        /// What is between the outer header and TCP's, where the tunnel leaves a choice.
        carried: Carried,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Requests through a gateway. The benchmark starts the processes for it itself.
    Gateway {
        /// What is asked for.
        asked: Asked,
        /// How long in milliseconds.
        milliseconds: u64,
    },
    /// Frames through the switch for packets. The benchmark starts the processes for it itself.
    Switch {
        /// Ports that send, or receive.
        ports: u32,
        /// Octets of a frame.
        octets: u16,
        /// How long each way is measured, in milliseconds.
        milliseconds: u64,
    },
    /// The same over a pair of virtual devices, and what the switch's program takes for a frame.
    SwitchDevices {
        /// How long each way is measured, in milliseconds.
        milliseconds: u64,
    },
    /// Fetches over HTTP/1.1, a connection for each, over TCP of the system and in user space. The benchmark starts the
    /// processes for it itself.
    Fetches {
        /// Octets of a body.
        bytes: u64,
        /// Fetches at once.
        concurrency: usize,
        /// How long each way is measured, in milliseconds.
        milliseconds: u64,
    },
    /// One handshake that the server must refuse, because of the cipher suite.
    Refusal,
}

/// What is asked of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// Answers of 1 KiB, 64 under way at any time.
    Small,
    /// Answers of 10 MB, 4 under way at any time.
    Large {
        /// Whether the device between gateway and client segments what TCP sends.
        segmentation: bool,
    },
    /// Connections with one request each, which then do nothing.
    Idle {
        /// How many.
        connections: usize,
    },
}

/// What a tunnel carries, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carried {
    /// IPv4 as it is.
    Ipip,
    /// IPv4 in GRE.
    Gre,
    /// IPv6 as it is.
    Sit,
}

/// How connection IDs say which server they lead to (draft-ietf-quic-load-balancers-21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// They do not: first packets of clients.
    First,
    /// In plain text.
    Plain,
    /// Enciphered in a single pass.
    OnePass,
    /// Enciphered in four passes.
    FourPasses,
}

/// What a new connection uses of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Session {
    /// Nothing: a full handshake.
    None,
    /// Its ticket: no certificate is sent and verified.
    Resumed,
    /// Its ticket, and the request goes out with the first packets (0-RTT).
    Early,
}

/// Who sends the bytes of a bulk transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Client to server.
    Upload,
    /// Server to client.
    Download,
}

/// A TLS 1.3 cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256
    Chacha20Poly1305,
}

impl Cipher {
    /// The name in the IANA registry.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "TLS_AES_128_GCM_SHA256",
            Self::Aes256Gcm => "TLS_AES_256_GCM_SHA384",
            Self::Chacha20Poly1305 => "TLS_CHACHA20_POLY1305_SHA256",
        }
    }

    /// A suite that is not this one.
    #[must_use]
    pub fn another(self) -> Self {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => Self::Chacha20Poly1305,
            Self::Chacha20Poly1305 => Self::Aes256Gcm,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_survives_its_json() {
        let assignment = Assignment {
            core: 1,
            conditions: Conditions {
                cipher: Cipher::Chacha20Poly1305,
                payload: Payload::Discovered(8972),
                congestion: Congestion::Bbr,
                ..Conditions::default()
            },
            role: Role::Client {
                connect: "127.0.0.1:1".parse().unwrap(),
                roots: "ca.pem".into(),
                scenario: Scenario::Idle { connections: 5 },
            },
        };
        let text = serde_json::to_string(&assignment).unwrap();
        assert!(text.contains("chacha20-poly1305"), "{text}");
        let back: Assignment = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}
