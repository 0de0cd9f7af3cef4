//! What ICMP messages say of an attempt to connect (RFC 9000, Sections 14.2.1 and 21.1.1.1).
//!
//! Nobody vouches for them. So they count only before the first packet of the server, and one that
//! does not quote our connection ID is but a hint: several flights must have met the same.

use quicket_wire::{Reader, Side};

use super::Connection;
use crate::error::ConnectionError;
use crate::time::Time;

/// After how many flights hints of a closed port are believed.
const PORT_HINTS: u8 = 2;
/// After how many flights messages are believed that a host or a network cannot be reached: routes
/// come and go.
const HOST_HINTS: u8 = 3;

/// What could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The port: the host is there, and nobody listens.
    Port,
    /// The host, its network, or either of them by order of an administrator.
    Host,
}

/// How many flights have come to nothing, as ICMP says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    count: u8,
    /// The flight that was counted last, by the number of probe timeouts.
    flight: Option<u32>,
}

impl Hints {
    /// Counts a flight once.
    pub(super) fn count(&mut self, flight: u32) -> u8 {
        if self.flight.replace(flight) != Some(flight) {
            self.count = self.count.saturating_add(1);
        }
        self.count
    }
}

impl Connection {
    /// An ICMP message came that concerns a datagram to the peer's address, of which `quoted` is the
    /// beginning, as far as the message has it. Ends a client's attempt that has heard nothing of the
    /// server; all others are unharmed.
    ///
    /// A closed port is believed at once if the datagram's connection ID is quoted, which only those
    /// can know who see the packets; else when two flights have met it. That a host cannot be
    /// reached is believed when three have.
    pub fn on_unreachable(&mut self, now: Time, what: Unreachable, quoted: &[u8]) {
        let attempt = self.role.side() == Side::Client && !self.reporting.has_received();
        if !self.termination.is_open() || !attempt || self.handshake.cids.retry_scid.is_some() {
            return;
        }
        let ours = match destination(quoted) {
            Some(cid) if cid == self.handshake.cids.initial_dcid.as_slice() => true,
            Some(_) => return,
            None => false,
        };
        let hints = self.role.on_unreachable(self.recovery.pto_count());
        match what {
            Unreachable::Port if ours || hints >= PORT_HINTS => {
                self.end(now, ConnectionError::PortUnreachable);
            }
            Unreachable::Host if hints >= HOST_HINTS => {
                self.end(now, ConnectionError::HostUnreachable);
            }
            _ => {}
        }
    }
}

/// The Destination Connection ID of a long header (RFC 8999, Section 5.1), if all of it is there.
fn destination(quoted: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(quoted);
    reader.u8().ok()?;
    reader.u32().ok()?;
    let len = reader.u8().ok()?;
    reader.bytes(usize::from(len)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flight_counts_once() {
        let mut hints = Hints::default();
        assert_eq!([0, 0, 1, 1, 2].map(|flight| hints.count(flight)), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn the_connection_id_is_read_if_all_of_it_is_there() {
        let header = [0xc0, 0, 0, 0, 1, 3, 7, 8, 9];
        assert_eq!(destination(&header), Some(&[7, 8, 9][..]));
        for len in 0..header.len() {
            assert_eq!(destination(&header[..len]), None);
        }
    }
}
