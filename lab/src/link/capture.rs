//! Captures of both sides of a link.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quicket_wire::EcnCodepoint;

use super::LinkError;
use crate::trace::pcap::Capture;

/// Set in the first byte of long headers (RFC 8999, Section 5.1).
const LONG_HEADER: u8 = 0x80;

/// What the client and what the server would capture; nothing unless it is wanted.
#[derive(Debug, Default)]
pub(super) struct Captures {
    pub(super) client: Side,
    pub(super) server: Side,
}

/// One side.
#[derive(Debug, Default)]
pub(super) struct Side {
    file: Option<Capture>,
    snap: Option<usize>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl Captures {
    /// Captures of whole datagrams, but those with short headers of which `snap` bytes are enough.
    pub(super) fn new(folder: Option<&Path>, snap: Option<usize>) -> Result<Self, LinkError> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        let side = |name| {
            let path = folder.join(name);
            let file = Capture::create(&path).map_err(|error| {
                LinkError::system(format!("cannot write {}", path.display()), error)
            })?;
            Ok(Side { file: Some(file), snap, failed: None })
        };
        Ok(Self { client: side("client.pcap")?, server: side("server.pcap")? })
    }

    /// Writes what is still in memory.
    pub(super) fn finish(&mut self) -> Result<(), LinkError> {
        for side in [&mut self.client, &mut self.server] {
            side.keep(Capture::finish);
            if let Some(error) = side.failed.take() {
                return Err(LinkError::system("cannot write a capture", error));
            }
        }
        Ok(())
    }
}

impl Side {
    /// Notes a datagram that passed `age` ago.
    pub(super) fn add(
        &mut self,
        age: Duration,
        addresses: (SocketAddr, SocketAddr),
        ecn: EcnCodepoint,
        payload: &[u8],
    ) {
        if self.file.is_some() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let is_short = payload.first().is_some_and(|first| first & LONG_HEADER == 0);
            let keep = self.snap.filter(|_| is_short).unwrap_or(payload.len());
            self.keep(|file| file.add(now.saturating_sub(age), addresses, ecn, payload, keep));
        }
    }

    /// Notes datagrams of `segment` bytes, the last perhaps shorter, that leave now.
    pub(super) fn add_burst(
        &mut self,
        addresses: (SocketAddr, SocketAddr),
        ecn: EcnCodepoint,
        segment: usize,
        bytes: &[u8],
    ) {
        if bytes.is_empty() {
            return self.add(Duration::ZERO, addresses, ecn, bytes);
        }
        for datagram in bytes.chunks(segment.max(1)) {
            self.add(Duration::ZERO, addresses, ecn, datagram);
        }
    }

    fn keep(&mut self, write: impl FnOnce(&mut Capture) -> io::Result<()>) {
        if let Some(file) = &mut self.file
            && let Err(error) = write(file)
        {
            self.file = None;
            self.failed = Some(error);
        }
    }
}
