//! Captures of UDP datagrams in the format that tcpdump wrote first and Wireshark reads:
//! nanosecond pcap with raw IP packets.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use quicket_trace::headers;
use quicket_wire::{EcnCodepoint, Reader};

use super::Datagram;

/// Begins a file whose times are in nanoseconds, in the byte order of this number.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Version 2.4, no time zone, no accuracy, packets of 65,535 bytes at most, raw IP.
const REST_OF_HEADER: [u32; 5] = [2 << 16 | 4, 0, 0, 65_535, 101];

/// A capture that is being written.
#[derive(Debug)]
pub(crate) struct Capture {
    file: BufWriter<File>,
    packet: Vec<u8>,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [MAGIC].into_iter().chain(REST_OF_HEADER) {
            file.write_all(&word.to_be_bytes())?;
        }
        Ok(Self { file, packet: Vec::new() })
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
        let kept = payload.get(..keep).unwrap_or(payload);
        let whole = headers::write(&mut self.packet, (from, to), ecn, kept, payload.len());
        for word in [at.as_secs() as u32, at.subsec_nanos(), self.packet.len() as u32, whole as u32]
        {
            self.file.write_all(&word.to_be_bytes())?;
        }
        self.file.write_all(&self.packet)
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
        all.push(headers::read(at, reader.bytes(length as usize).ok()?)?);
    }
    Some(all)
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
}
