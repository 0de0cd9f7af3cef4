//! A UDP datagram on its way.

use std::net::SocketAddr;

use quicket_wire::EcnCodepoint;

/// One UDP datagram with what the network sees of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it came from, as the receiver sees it.
    pub src: SocketAddr,
    /// Where it goes.
    pub dst: SocketAddr,
    /// The ECN field of its IP header (RFC 3168).
    pub ecn: EcnCodepoint,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// Length of the IP packet in bytes: the payload with its UDP (8 bytes) and IP header (20 or
    /// 40 bytes, without options). Rates, queues and MTUs count these bytes.
    pub fn ip_len(&self) -> usize {
        self.payload.len() + ip_overhead(&self.dst)
    }
}

/// Bytes of IP and UDP header before the payload.
pub fn ip_overhead(dst: &SocketAddr) -> usize {
    if dst.is_ipv4() { 28 } else { 48 }
}
