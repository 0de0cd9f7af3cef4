//! Captures of UDP datagrams in the format that tcpdump wrote first and Wireshark reads:
//! nanosecond pcap with raw IP packets.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use quicket_wire::{EcnCodepoint, Reader};

/// Begins a file whose times are in nanoseconds, in the byte order of this number.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Version 2.4, no time zone, no accuracy, packets of 65,535 bytes at most, raw IP.
const REST_OF_HEADER: [u32; 5] = [2 << 16 | 4, 0, 0, 65_535, 101];
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const HOP_LIMIT: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// A datagram on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Datagram {
    /// When it was seen, since 1970.
    pub(crate) at: Duration,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: EcnCodepoint,
    /// Bytes that it had.
    pub(crate) len: usize,
    /// As many of them as were kept.
    pub(crate) payload: Vec<u8>,
}

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct Capture {
    file: BufWriter<File>,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [MAGIC].into_iter().chain(REST_OF_HEADER) {
            file.write_all(&word.to_be_bytes())?;
        }
        Ok(Self { file })
    }

    /// Adds a datagram, of which the first `keep` bytes are written. Both addresses are of one
    /// family.
    pub(crate) fn add(
        &mut self,
        at: Duration,
        (from, to): (SocketAddr, SocketAddr),
        ecn: EcnCodepoint,
        payload: &[u8],
        keep: usize,
    ) -> io::Result<()> {
        let udp = udp_header(from, to, payload);
        let ip = ip_header(from.ip(), to.ip(), ecn, udp.len() + payload.len());
        let kept = payload.get(..keep).unwrap_or(payload);
        let len = |payload: &[u8]| (ip.len() + udp.len() + payload.len()) as u32;
        for word in [at.as_secs() as u32, at.subsec_nanos(), len(kept), len(payload)] {
            self.file.write_all(&word.to_be_bytes())?;
        }
        self.file.write_all(&ip)?;
        self.file.write_all(&udp)?;
        self.file.write_all(kept)
    }

    /// Writes what is still in memory.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads what a [`Capture`] has written.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Datagram>> {
    let bytes = std::fs::read(path)?;
    parse(&bytes).ok_or_else(|| {
        let problem = format!("{} is no capture of this program", path.display());
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

fn parse(bytes: &[u8]) -> Option<Vec<Datagram>> {
    let mut reader = Reader::new(bytes);
    if reader.u32().ok()? != MAGIC {
        return None;
    }
    reader.bytes(4 * REST_OF_HEADER.len()).ok()?;
    let mut all = Vec::new();
    while !reader.is_empty() {
        let [seconds, nanoseconds, length, _] = {
            let mut word = || reader.u32().ok();
            [word()?, word()?, word()?, word()?]
        };
        let at = Duration::new(seconds.into(), nanoseconds);
        all.push(datagram(at, reader.bytes(length as usize).ok()?)?);
    }
    Some(all)
}

fn datagram(at: Duration, packet: &[u8]) -> Option<Datagram> {
    let (class, from, to, udp): (u8, IpAddr, IpAddr, &[u8]) = if packet.first()? >> 4 == 4 {
        let (header, udp) = packet.split_first_chunk::<IPV4_HEADER>()?;
        let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
        (header[1], address(12)?.into(), address(16)?.into(), udp)
    } else {
        let (header, udp) = packet.split_first_chunk::<IPV6_HEADER>()?;
        let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
        (header[0] << 4 | header[1] >> 4, address(8)?.into(), address(24)?.into(), udp)
    };
    let (header, payload) = udp.split_first_chunk::<UDP_HEADER>()?;
    // The length is as wide as a port, and follows them.
    let port = |at: usize| Some(u16::from_be_bytes(*header.get(at..)?.first_chunk::<2>()?));
    Some(Datagram {
        at,
        from: SocketAddr::new(from, port(0)?),
        to: SocketAddr::new(to, port(2)?),
        ecn: EcnCodepoint::from_bits(class),
        len: usize::from(port(4)?).checked_sub(UDP_HEADER)?,
        payload: payload.to_vec(),
    })
}

fn udp_header(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> [u8; UDP_HEADER] {
    let length = (UDP_HEADER + payload.len()) as u16;
    let mut sum = Checksum::default();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => sum.add(&[from.octets(), to.octets()].concat()),
        (IpAddr::V6(from), IpAddr::V6(to)) => sum.add(&[from.octets(), to.octets()].concat()),
        _ => {}
    }
    let [from, to] = [from.port(), to.port()];
    for word in [u16::from(UDP), length, from, to, length] {
        sum.add(&word.to_be_bytes());
    }
    sum.add(payload);
    // RFC 768: a sum of zero is sent as all ones, zero stands for none.
    let sum = match sum.finish() {
        0 => u16::MAX,
        sum => sum,
    };
    let mut header = [0; UDP_HEADER];
    for (place, word) in header.chunks_exact_mut(2).zip([from, to, length, sum]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    header
}

fn ip_header(from: IpAddr, to: IpAddr, ecn: EcnCodepoint, length: usize) -> Vec<u8> {
    let ecn = ecn.bits();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = ((IPV4_HEADER + length) as u16).to_be_bytes();
            let mut header = vec![0x45, ecn, high, low, 0, 0];
            header.extend(DO_NOT_FRAGMENT.to_be_bytes());
            header.extend([HOP_LIMIT, UDP, 0, 0]);
            header.extend([from.octets(), to.octets()].concat());
            let mut sum = Checksum::default();
            sum.add(&header);
            let sum = sum.finish().to_be_bytes();
            header.splice(10..12, sum);
            header
        }
        (from, to) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            let [high, low] = (length as u16).to_be_bytes();
            let mut header = vec![0x60, ecn << 4, 0, 0, high, low, UDP, HOP_LIMIT];
            header.extend([octets(from), octets(to)].concat());
            header
        }
    }
}

/// The Internet checksum (RFC 1071) of pieces of which all but the last have an even length.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks(2) {
            let word = match pair {
                [high, low] => u16::from_be_bytes([*high, *low]),
                [high] => u16::from_be_bytes([*high, 0]),
                _ => 0,
            };
            self.0 += u64::from(word);
        }
    }

    fn finish(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back_in_both_families() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.pcap");
        let mut capture = Capture::create(&path).unwrap();
        let mut all = Vec::new();
        for (from, to) in [("127.0.0.1:5", "127.64.0.1:6"), ("[::1]:7", "[2001:db8::1]:8")] {
            for ecn in [EcnCodepoint::NotEct, EcnCodepoint::Ect1, EcnCodepoint::Ce] {
                let datagram = Datagram {
                    at: Duration::new(1_800_000_000, 123_456_789),
                    from: from.parse().unwrap(),
                    to: to.parse().unwrap(),
                    ecn,
                    len: all.len(),
                    payload: vec![ecn.bits(); all.len()],
                };
                let Datagram { at, from, to, ecn, payload, .. } = &datagram;
                capture.add(*at, (*from, *to), *ecn, payload, usize::MAX).unwrap();
                all.push(datagram);
            }
        }
        // One of which only the beginning is kept.
        let mut last = Datagram { len: 100, payload: vec![7; 100], ..all[0].clone() };
        capture.add(last.at, (last.from, last.to), last.ecn, &last.payload, 30).unwrap();
        last.payload.truncate(30);
        all.push(last);
        capture.finish().unwrap();
        assert_eq!(read(&path).unwrap(), all);
    }

    #[test]
    fn what_is_no_capture_or_ends_too_early_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.pcap");
        let addresses = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        let mut capture = Capture::create(&path).unwrap();
        capture.add(Duration::ZERO, addresses, EcnCodepoint::NotEct, &[1; 10], 10).unwrap();
        capture.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("some.pcap"));
        std::fs::write(&path, b"text").unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn checksums_are_those_of_the_internet() {
        // The example of RFC 1071, Section 3.
        let mut sum = Checksum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.finish(), !0xddf2);
        // A receiver that adds the header to its checksum gets zero.
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let mut sum = Checksum::default();
        sum.add(&ip_header(loopback, loopback, EcnCodepoint::Ect0, 100));
        assert_eq!(sum.finish(), 0);
    }
}
