//! What an implementation does for a client, and what is measured of it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Failure, Latencies, Session, Summary, Transfer, Usage};

/// That an implementation, or its interface, cannot do what a load needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unsupported {}

/// What an implementation does for a client.
///
/// Calls block until the operation is complete. Each request is made on a new stream, or on the
/// one connection for TCP.
pub trait Client: Sized {
    /// An open connection, its handshake complete.
    type Connection;

    /// How many sockets a client with so many connections has open.
    fn sockets(_connections: usize) -> usize {
        1
    }

    /// Opens a connection.
    ///
    /// # Errors
    ///
    /// When the handshake fails.
    fn connect(&mut self) -> Result<Self::Connection, Failure>;

    /// Closes the last connection in order and waits until nothing is left to be said.
    ///
    /// # Errors
    ///
    /// When it cannot be closed.
    fn close(&mut self, connection: Self::Connection) -> Result<(), Failure>;

    /// What the implementation tells of the connection by now.
    fn link(&mut self, connection: &Self::Connection) -> Link;

    /// Uploads, until the server has confirmed the number of bytes.
    ///
    /// # Errors
    ///
    /// When the connection fails or the number is wrong.
    fn upload(
        &mut self,
        connection: &mut Self::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure>;

    /// Downloads and checks.
    ///
    /// # Errors
    ///
    /// When the connection fails, or number or bytes are wrong.
    fn download(
        &mut self,
        connection: &mut Self::Connection,
        transfer: Transfer,
    ) -> Result<(), Failure>;

    /// Exchanges one request and its answer after the other as long as `more` says so, given the
    /// number of those made, and records each.
    ///
    /// # Errors
    ///
    /// When the connection fails or an answer is another one than the request.
    fn exchange_while(
        &mut self,
        connection: &mut Self::Connection,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure>;

    /// Makes handshakes, `concurrency` at a time, each followed by a close, as long as `more` says
    /// so, given the number of those begun.
    ///
    /// # Errors
    ///
    /// When a handshake fails.
    fn handshake_while(
        &mut self,
        concurrency: usize,
        more: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Latencies, Failure>;

    /// Opens a connection, exchanges one request on it, and closes it, one after the other, as long
    /// as `more` says so, given the number of those begun. Records the time from the beginning to
    /// the answer's first byte.
    ///
    /// # Errors
    ///
    /// When a handshake fails, or the server does not accept the session that is given to it.
    fn first_byte_while(
        &mut self,
        session: Session,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure>;

    /// Downloads on streams of their own, `concurrency` at a time, as long as `more` says so,
    /// given the number of those begun, and records each.
    ///
    /// # Errors
    ///
    /// When the connection fails, or number or bytes are wrong.
    fn streams_while(
        &mut self,
        connection: &mut Self::Connection,
        concurrency: usize,
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure>;

    /// Downloads on all connections at once, again and again, as long as `more` says so, given the
    /// number of those begun, and records each.
    ///
    /// # Errors
    ///
    /// When a connection fails, or number or bytes are wrong.
    fn connections_while(
        &mut self,
        connections: &mut [Self::Connection],
        transfer: Transfer,
        more: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Latencies, Failure>;

    /// Downloads without end; gives `more` the number of bytes as they come, as long as it says
    /// so. The connection is of no use afterwards.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn flow(
        &mut self,
        connection: &mut Self::Connection,
        more: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), Failure>;

    /// Asks for the server's usage.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn usage(&mut self, connection: &mut Self::Connection) -> Result<Usage, Failure>;

    /// Has the server hold the connection open.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    fn hold(&mut self, connection: &mut Self::Connection) -> Result<(), Failure>;

    /// Keeps connections alive for a while without using them.
    fn rest(&mut self, duration: Duration);
}

/// What an implementation tells of a connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The negotiated cipher suite by its IANA name, if the implementation tells.
    pub cipher: Option<String>,
    /// Mean length in bytes of the UDP payloads sent, if the implementation counts them.
    pub mean_udp_payload: Option<f64>,
    /// ... and of those received.
    pub mean_udp_payload_received: Option<f64>,
    /// Packets declared lost by the client.
    pub lost_packets: Option<u64>,
}

/// The outcome of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub result: Outcome,
    /// CPU time of the client while the clock ran, in nanoseconds.
    pub client_cpu_ns: u64,
    /// CPU time of the server while the clock ran, in nanoseconds.
    pub server_cpu_ns: u64,
    /// What the implementation tells of the connection.
    pub link: Link,
}

/// What was measured, by the kind of load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A bulk transfer.
    Bulk {
        /// Bytes moved.
        bytes: u64,
        /// How long it took.
        nanoseconds: u64,
    },
    /// Exchanges or handshakes.
    Operations(Summary),
    /// Downloads, many at once.
    Transfers {
        /// How many, how often and how long.
        summary: Summary,
        /// Bytes of each.
        bytes: u64,
    },
    /// A download without end.
    Flow(Flow),
    /// Two downloads without end at once, over one link.
    Shared {
        /// That of the implementation.
        own: Flow,
        /// That of its rival.
        rival: Flow,
    },
    /// Idle connections.
    Idle {
        /// How many.
        connections: u64,
        /// Growth of the server's resident memory in bytes.
        server_bytes: u64,
        /// Growth of the client's resident memory in bytes.
        client_bytes: u64,
    },
    /// Files, each fetched by a program of its own.
    Files {
        /// Bytes of the large one.
        bytes: u64,
        /// How long it took, from the start of the program that fetches it to its end.
        nanoseconds: u64,
        /// The small ones, one after the other, likewise.
        small: Summary,
    },
    /// Datagrams that a balancer forwarded.
    Forwarded {
        /// How many.
        packets: u64,
        /// How long it took.
        nanoseconds: u64,
        /// CPU time of the process that forwards.
        cpu_ns: u64,
        /// System calls that received and sent them; none are made in the kernel.
        calls: u64,
    },
    /// TCP through a tunnel.
    Tunnelled {
        /// What came of it for TCP.
        load: Box<Outcome>,
        /// CPU time of both ends of the tunnel.
        tunnel_cpu_ns: u64,
    },
    /// Frames through the switch for packets.
    Switched {
        /// Each way that was measured.
        ways: Vec<Switched>,
    },
    /// Fetches over HTTP/1.1, a connection for each.
    Fetched {
        /// Each way that was measured.
        ways: Vec<Fetched>,
    },
    /// Nothing to measure; what had to happen has happened.
    Passed,
}

/// What was fetched over one kind of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Over which.
    pub way: FetchWay,
    /// Answers that came, whole.
    pub fetches: u64,
    /// Octets of all, their heads included.
    pub octets: u64,
    /// How long it took.
    pub nanoseconds: u64,
    /// Processor time of the whole machine meanwhile.
    pub cpu_ns: u64,
}

/// Which server and which TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchWay {
    /// The system's, between two network namespaces.
    System,
    /// The same without segmentation and receive offload at both ends.
    WithoutOffload,
    /// nginx over the first.
    Nginx,
    /// A stack in user space, with the device of its end (AF_XDP); the other end is the system's.
    Device,
    /// The same without segmentation and receive offload at both ends.
    DeviceWithoutOffload,
    /// Stacks in user space at both ends, by a switch in memory.
    Memory,
}

impl FetchWay {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::System,
        Self::WithoutOffload,
        Self::Nginx,
        Self::Device,
        Self::DeviceWithoutOffload,
        Self::Memory,
    ];
}

/// What came through the switch for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// From where to where.
    pub way: Way,
    /// Frames that came.
    pub frames: u64,
    /// Frames that did not.
    pub lost: u64,
    /// How long it took.
    pub nanoseconds: u64,
}

/// From where to where frames go through the switch for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Ports and switch are one thread.
    Within,
    /// The same with IPv6.
    #[serde(rename = "within_v6")]
    WithinV6,
    /// Ports are a process on one core, the switch is one on another.
    Between,
    /// The same with IPv6.
    #[serde(rename = "between_v6")]
    BetweenV6,
    /// From ports on the switch's core to a port that takes what a wire of 10 Gbit/s would carry.
    ToCard,
    /// The same with IPv6.
    #[serde(rename = "to_card_v6")]
    ToCardV6,
    /// From ports on a core of theirs to such a port, which shares one with the switch.
    ToCardApart,
    /// The same with IPv6.
    #[serde(rename = "to_card_apart_v6")]
    ToCardApartV6,
    /// From such a port to ports on the switch's core.
    FromCard,
    /// The same with IPv6.
    #[serde(rename = "from_card_v6")]
    FromCardV6,
    /// From such a port, which shares a core with the switch, to ports on one of theirs.
    FromCardApart,
    /// The same with IPv6.
    #[serde(rename = "from_card_apart_v6")]
    FromCardApartV6,
    /// Out by a bare socket of AF_XDP.
    OutBare,
    /// Out from a port, by the switch and a device (AF_XDP).
    Out,
    /// In to a bare socket of AF_XDP.
    InBare,
    /// In by a device (AF_XDP) and the switch, to a port.
    In,
    /// Through the program of a device whose table has one tuple, to a port.
    #[serde(rename = "program_1")]
    Program1,
    /// ... 1,000 of them.
    #[serde(rename = "program_1000")]
    Program1000,
    /// ... 100,000 of them.
    #[serde(rename = "program_100000")]
    Program100000,
}

impl Way {
    /// Those in memory.
    pub const ALL: [Self; 12] = [
        Self::Within,
        Self::WithinV6,
        Self::Between,
        Self::BetweenV6,
        Self::ToCard,
        Self::ToCardV6,
        Self::ToCardApart,
        Self::ToCardApartV6,
        Self::FromCard,
        Self::FromCardV6,
        Self::FromCardApart,
        Self::FromCardApartV6,
    ];
    /// Those over devices.
    pub const DEVICES: [Self; 7] = [
        Self::OutBare,
        Self::Out,
        Self::InBare,
        Self::In,
        Self::Program1,
        Self::Program1000,
        Self::Program100000,
    ];

    /// Whether frames are of IPv6.
    #[must_use]
    pub const fn is_v6(self) -> bool {
        matches!(
            self,
            Self::WithinV6
                | Self::BetweenV6
                | Self::ToCardV6
                | Self::ToCardApartV6
                | Self::FromCardV6
                | Self::FromCardApartV6
        )
    }
}

/// Bytes of a download without end, as they came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes in each interval of [`Flow::INTERVAL`], the last one complete.
    pub intervals: Vec<u64>,
}

impl Flow {
    /// Length of an interval.
    pub const INTERVAL: Duration = Duration::from_millis(100);

    /// Counts `bytes` that came so long after the beginning.
    pub fn count(&mut self, after: Duration, bytes: u64) {
        let index = (after.as_nanos() / Self::INTERVAL.as_nanos()) as usize;
        if self.intervals.len() <= index {
            self.intervals.resize(index + 1, 0);
        }
        self.intervals[index] += bytes;
    }

    /// Cuts off what came after the end.
    #[must_use]
    pub fn until(mut self, end: Duration) -> Self {
        self.intervals.resize((end.as_nanos() / Self::INTERVAL.as_nanos()) as usize, 0);
        self
    }

    /// Bits per second from the interval numbered `from` on.
    #[must_use]
    pub fn bits_per_second(&self, from: usize) -> f64 {
        let intervals = self.intervals.get(from..).unwrap_or_default();
        let seconds = Self::INTERVAL.as_secs_f64() * intervals.len().max(1) as f64;
        intervals.iter().sum::<u64>() as f64 * 8.0 / seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_counts_by_intervals_and_ends_when_it_is_told_to() {
        let mut flow = Flow::default();
        flow.count(Duration::from_millis(50), 100);
        flow.count(Duration::from_millis(99), 25);
        flow.count(Duration::from_millis(310), 1000);
        assert_eq!(flow.intervals, [125, 0, 0, 1000]);
        assert_eq!(flow.bits_per_second(2), 1000.0 * 8.0 / 0.2);
        let flow = flow.until(Duration::from_millis(250));
        assert_eq!(flow.intervals, [125, 0]);
        assert_eq!(flow.bits_per_second(0), 125.0 * 8.0 / 0.2);
        assert_eq!(flow.bits_per_second(9), 0.0);
        assert_eq!(Flow::default().until(Duration::from_secs(1)).intervals, [0; 10]);
    }
}
