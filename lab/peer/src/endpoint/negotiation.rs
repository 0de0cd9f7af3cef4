//! A client that starts with a version that no server has (RFC 9000, Section 6).
//!
//! The case ends with the server's answer, where Quicket's own client would go on with another
//! version. All that an attempt needs is what no version changes (RFC 8999): a long header in a
//! large datagram, and what comes back.

use std::net::SocketAddr;
use std::time::Duration;

use quicket::Version;
use quicket_wire::VersionNegotiation;
use quicket_workload::bench::Failure;
use tokio::net::UdpSocket;

/// Reserved to exercise version negotiation (RFC 9000, Section 15).
const VERSION: Version = Version(0x1a2a_3a4a);
/// Length of each connection ID.
const CID_LEN: usize = 8;
/// A server answers no smaller datagram (RFC 9000, Section 14.1).
const DATAGRAM: usize = 1200;
/// How long to wait for an answer, and how often.
const PATIENCE: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 20;

/// Connects with an unknown version and gives up once a Version Negotiation packet answers.
pub(crate) async fn provoke(server: SocketAddr) -> Result<(), Failure> {
    let local = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    let mut ids = [0; 2 * CID_LEN];
    aws_lc_rs::rand::fill(&mut ids).map_err(|_| "the system has no random bytes")?;
    let (destination, source) = ids.split_at(CID_LEN);
    let packet = attempt(destination, source);
    let mut buffer = [0; 2048];
    for _ in 0..ATTEMPTS {
        socket.send(&packet).await?;
        let Ok(received) = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await else {
            continue;
        };
        let answer = buffer.get(..received?).unwrap_or_default();
        if is_answer(answer, destination, source) {
            return Ok(());
        }
    }
    Err(format!("the server did not answer {VERSION} with Version Negotiation").into())
}

fn attempt(destination: &[u8], source: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0];
    packet.extend_from_slice(&VERSION.0.to_be_bytes());
    for id in [destination, source] {
        packet.push(id.len() as u8);
        packet.extend_from_slice(id);
    }
    packet.resize(DATAGRAM, 0);
    packet
}

/// Whether it is a Version Negotiation packet with our connection IDs mirrored, which does not
/// offer the version that was tried (RFC 9000, Sections 6.2 and 17.2.1).
fn is_answer(packet: &[u8], destination: &[u8], source: &[u8]) -> bool {
    let long_header_of_version_0 =
        packet.first().is_some_and(|first| first & 0x80 != 0) && packet.get(1..5) == Some(&[0; 4]);
    long_header_of_version_0
        && VersionNegotiation::parse(packet).is_ok_and(|offer| {
            offer.dcid == source
                && offer.scid == destination
                && offer.versions().next().is_some()
                && offer.versions().all(|version| version != VERSION)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 8] = [1; 8];
    const THEIRS: [u8; 8] = [2; 8];

    fn answer(dcid: &[u8], scid: &[u8], versions: &[u32]) -> Vec<u8> {
        let mut packet = vec![0x80, 0, 0, 0, 0];
        for id in [dcid, scid] {
            packet.push(id.len() as u8);
            packet.extend_from_slice(id);
        }
        packet.extend(versions.iter().flat_map(|version| version.to_be_bytes()));
        packet
    }

    #[test]
    fn only_a_mirrored_offer_of_other_versions_is_an_answer() {
        let is_answer = |packet: &[u8]| is_answer(packet, &THEIRS, &OURS);
        assert!(is_answer(&answer(&OURS, &THEIRS, &[1])));
        assert!(!is_answer(&answer(&THEIRS, &OURS, &[1])), "not mirrored");
        assert!(!is_answer(&answer(&OURS, &THEIRS, &[1, VERSION.0])), "offers what was tried");
        assert!(!is_answer(&answer(&OURS, &THEIRS, &[])), "offers nothing");
        assert!(!is_answer(&attempt(&OURS, &THEIRS)), "is not of version 0");
        assert!(!is_answer(&[]));
    }
}
