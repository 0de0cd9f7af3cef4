//! Where a datagram goes, and why.

use quicket_wire::PacketKind;
use quicket_wire::header::{Header, InvariantHeader};

use crate::flows::{Flow, Flows};
use crate::snapshot::Snapshot;

/// The shortest packet with a short header: one octet, a packet number of one and a tag of 16 leave
/// three for the sample of header protection (RFC 9001, Section 5.4.2).
const MIN_SHORT: usize = 21;

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It goes to a server of the snapshot, by its index.
    Forward {
        /// Which one.
        server: usize,
        /// How it was found.
        way: Way,
    },
    /// It is dropped.
    Refuse(Refusal),
}

/// How the server was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The connection ID names it.
    Named,
    /// The flow went there before.
    Kept(Cause),
    /// The consistent hash says so.
    Hashed(Cause),
}

/// Why the connection ID names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It follows no configuration: a client chose it, or a server without configuration.
    Unroutable,
    /// It names a server that there is not, in a packet whose connection ID a server should have issued.
    UnknownServer,
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Shorter than any packet of QUIC.
    TooShort,
    /// A long header that is not whole (RFC 8999, Section 5.1).
    Malformed,
    /// Version Negotiation, which only servers send.
    VersionNegotiation,
    /// Nobody takes connections.
    NoServer,
}

/// What a datagram's first packet says for all to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look<'a> {
    pub(crate) kind: PacketKind,
    /// With a short header: as many octets as connection IDs of the site have.
    pub(crate) dcid: &'a [u8],
}

impl Snapshot {
    /// Reads what routing needs. Nothing depends on the version but what is counted
    /// (draft-ietf-quic-load-balancers-21, Section 4).
    pub(crate) fn look<'a>(&self, payload: &'a [u8]) -> Result<Look<'a>, Refusal> {
        let first = *payload.first().ok_or(Refusal::TooShort)?;
        if first & 0x80 == 0 {
            if payload.len() < MIN_SHORT {
                return Err(Refusal::TooShort);
            }
            let len = self.reader.as_ref().map_or(0, |reader| reader.id_len());
            // Connection IDs have at most 20 octets.
            let header = Header::parse(payload, len).map_err(|_| Refusal::TooShort)?;
            let dcid = payload.get(1..header.pn_offset).unwrap_or_default();
            return Ok(Look { kind: header.kind, dcid });
        }
        let header = InvariantHeader::parse(payload).map_err(|_| Refusal::Malformed)?;
        match header.kind() {
            PacketKind::VersionNegotiation => Err(Refusal::VersionNegotiation),
            kind => Ok(Look { kind, dcid: header.dcid }),
        }
    }

    /// Decides about a datagram. `now` is in seconds.
    pub fn decide(&self, flows: &mut Flows, flow: &Flow, payload: &[u8], now: u32) -> Decision {
        match self.look(payload) {
            Ok(look) => self.route(flows, flow, &look, now),
            Err(refusal) => Decision::Refuse(refusal),
        }
    }

    pub(crate) fn route(
        &self,
        flows: &mut Flows,
        flow: &Flow,
        look: &Look<'_>,
        now: u32,
    ) -> Decision {
        let cause = match self.named(look) {
            Ok(server) => return Decision::Forward { server, way: Way::Named },
            Err(cause) => cause,
        };
        // A client that connects anew and anew from one port would keep a draining server for ever.
        let first = matches!(look.kind, PacketKind::Initial | PacketKind::ZeroRtt);
        let renews = |number| !first || self.takes_new(number);
        if let Some(server) = flows.get(flow, now, renews).and_then(|number| self.keeper(number)) {
            return Decision::Forward { server, way: Way::Kept(cause) };
        }
        let Some(server) = self.pick(flow) else { return Decision::Refuse(Refusal::NoServer) };
        if let Some(member) = self.members().get(server) {
            flows.put(flow, member.number, now);
        }
        Decision::Forward { server, way: Way::Hashed(cause) }
    }

    /// The server that the connection ID names. It gets what is its own even when it drains, and
    /// when it is said to be down: nobody else has the connection.
    fn named(&self, look: &Look<'_>) -> Result<usize, Cause> {
        let reader = self.reader.as_ref().ok_or(Cause::Unroutable)?;
        // With a long header, another length is not one of ours.
        if look.dcid.len() != reader.id_len() {
            return Err(Cause::Unroutable);
        }
        let codec = reader.of(look.dcid).ok_or(Cause::Unroutable)?;
        let id = codec.server_id(look.dcid).ok_or(Cause::Unroutable)?;
        self.by_id(&id).ok_or(match look.kind {
            // These carry what a server has issued (RFC 9000, Section 7.2), but for stateless resets by clients, which
            // are random (Section 10.3). What a client chose for its first packets may look like it.
            PacketKind::Handshake | PacketKind::OneRtt => Cause::UnknownServer,
            _ => Cause::Unroutable,
        })
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
