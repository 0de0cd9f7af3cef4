//! What is known of a connection, enough to open its packets.

use std::collections::{BTreeSet, HashMap};

use quicket_engine::crypto::Aead;
use quicket_wire::frame::Frames;
use quicket_wire::{ConnectionId, Frame, Header, PacketKind, Version};

use crate::crypto_data::CryptoData;
use crate::key_log::{KeyLog, Secrets};
use crate::keys::{Keys, Opened};
use crate::tls;

/// Handshake type, length, legacy version: what comes before the random of a ClientHello.
const BEFORE_RANDOM: usize = 6;
/// Connection IDs of a side that are known at once.
const MAX_CIDS: usize = 1024;
/// What a client has called the server before it knew better: more than Retry packets say.
const MAX_FIRST_DCIDS: usize = 8;

/// A connection, seen from beside.
#[derive(Default)]
pub(crate) struct Connection {
    /// What the client has called the server before it knew better: keys of Initial packets come
    /// from that (RFC 9001, Section 5.2), or from what a Retry said.
    first_dcids: Vec<ConnectionId>,
    client_cids: BTreeSet<ConnectionId>,
    server_cids: BTreeSet<ConnectionId>,
    client_hello: CryptoData,
    /// What the server has sent in Handshake packets, until its preferred address is known.
    server_flight: CryptoData,
    server_parameters_known: bool,
    secrets: Option<Secrets>,
    keys: HashMap<Slot, Vec<Keys>>,
    /// The cipher of the session, as soon as it is known.
    pub(crate) aead: Option<Aead>,
}

/// What keys are for. 1-RTT packets do not tell the version.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Slot {
    from_client: bool,
    kind: PacketKind,
    version: Version,
}

impl Connection {
    /// One that starts with an Initial packet of the client.
    pub(crate) fn started(header: &Header) -> Self {
        let first_dcids = vec![header.dcid];
        let client_cids = BTreeSet::from([header.scid]);
        Self { first_dcids, client_cids, ..Self::default() }
    }

    /// Forgets which packets came, not what they told.
    pub(crate) fn rewind(&mut self) {
        self.keys.values_mut().flatten().for_each(Keys::rewind);
    }

    /// Whether a packet with a long header may be of this connection.
    pub(crate) fn may_own(&self, from_client: bool, dcid: &ConnectionId) -> bool {
        if from_client {
            self.server_cids.contains(dcid) || self.first_dcids.contains(dcid)
        } else {
            self.client_cids.contains(dcid)
        }
    }

    /// The length of the connection ID in a short header, if the packet may be of this connection.
    pub(crate) fn short_dcid_len(&self, from_client: bool, packet: &[u8]) -> Option<usize> {
        let known = if from_client { &self.server_cids } else { &self.client_cids };
        let rest = packet.get(1..)?;
        known.iter().map(ConnectionId::as_slice).find(|cid| rest.starts_with(cid)).map(<[u8]>::len)
    }

    /// Notes what a Retry packet says of the server.
    pub(crate) fn retried(&mut self, header: &Header) {
        if self.first_dcids.len() < MAX_FIRST_DCIDS && !self.first_dcids.contains(&header.scid) {
            self.first_dcids.push(header.scid);
        }
    }

    /// Looks at the header of a packet that is not all there.
    pub(crate) fn peek(
        &mut self,
        from_client: bool,
        packet: &[u8],
        header: &Header,
    ) -> Option<Opened> {
        let slot = Slot { from_client, kind: header.kind, version: header.version };
        if !self.keys.contains_key(&slot) {
            let keys = self.make_keys(slot)?;
            self.keys.insert(slot, keys);
        }
        // What the packet holds cannot tell which cipher is right.
        let aead = self.aead?;
        let mut keys = self.keys.get_mut(&slot)?.iter_mut();
        keys.find(|keys| keys.aead() == aead)?.peek(packet, header)
    }

    /// Opens a packet and learns from it.
    pub(crate) fn open(
        &mut self,
        from_client: bool,
        packet: &[u8],
        header: &Header,
        log: &KeyLog,
    ) -> Option<Opened> {
        let slot = Slot { from_client, kind: header.kind, version: header.version };
        if !self.keys.contains_key(&slot) {
            let keys = self.make_keys(slot)?;
            self.keys.insert(slot, keys);
        }
        let keys = self.keys.get_mut(&slot)?;
        let (index, opened) = keys
            .iter_mut()
            .enumerate()
            .find_map(|(index, keys)| Some((index, keys.open(packet, header)?)))?;
        if matches!(header.kind, PacketKind::Handshake | PacketKind::OneRtt) {
            // The others were guesses.
            let right = keys.swap_remove(index);
            self.aead = Some(right.aead());
            *keys = vec![right];
        }
        self.learn(from_client, header, &opened.payload, log);
        Some(opened)
    }

    fn make_keys(&self, slot: Slot) -> Option<Vec<Keys>> {
        if slot.kind == PacketKind::Initial {
            let of = |dcid| {
                let [client, server] = Keys::initial(slot.version, dcid);
                if slot.from_client { client } else { server }
            };
            return Some(self.first_dcids.iter().map(of).collect());
        }
        let secrets = self.secrets.as_ref()?;
        let secret = match (slot.kind, slot.from_client) {
            (PacketKind::ZeroRtt, true) => &secrets.client_early,
            (PacketKind::Handshake, true) => &secrets.client_handshake,
            (PacketKind::Handshake, false) => &secrets.server_handshake,
            (PacketKind::OneRtt, true) => &secrets.client_application,
            (PacketKind::OneRtt, false) => &secrets.server_application,
            _ => return None,
        };
        let secret = secret.as_deref()?;
        let versions = match slot.kind {
            PacketKind::OneRtt => Version::SUPPORTED,
            _ => std::slice::from_ref(&slot.version),
        };
        Some(versions.iter().flat_map(|&version| Keys::candidates(version, secret)).collect())
    }

    fn learn(&mut self, from_client: bool, header: &Header, payload: &[u8], log: &KeyLog) {
        let own_cids = if from_client { &mut self.client_cids } else { &mut self.server_cids };
        let mut learn_cid = |cid| {
            if own_cids.len() < MAX_CIDS {
                own_cids.insert(cid);
            }
        };
        if header.is_long() {
            learn_cid(header.scid);
        }
        let (mut more_of_hello, mut more_of_flight) = (false, false);
        for frame in Frames::new(payload).map_while(Result::ok) {
            match frame {
                Frame::NewConnectionId(new) => {
                    learn_cid(new.connection_id);
                }
                Frame::Crypto(crypto)
                    if from_client
                        && header.kind == PacketKind::Initial
                        && self.secrets.is_none() =>
                {
                    more_of_hello |= self.client_hello.add(crypto.offset, crypto.data);
                }
                Frame::Crypto(crypto)
                    if !from_client
                        && header.kind == PacketKind::Handshake
                        && !self.server_parameters_known =>
                {
                    more_of_flight |= self.server_flight.add(crypto.offset, crypto.data);
                }
                _ => {}
            }
        }
        if more_of_flight {
            let parameters = tls::server_parameters(self.server_flight.contiguous());
            self.server_parameters_known = parameters.is_some();
            // A connection ID that no frame tells (RFC 9000, Section 5.1.1).
            if let Some(address) = parameters.and_then(|known| known.preferred_address) {
                learn_cid(address.connection_id);
            }
        }
        if more_of_hello {
            let message = self.client_hello.contiguous();
            let random = message.get(BEFORE_RANDOM..).and_then(|rest| rest.first_chunk::<32>());
            self.secrets = random.and_then(|random| log.get(random)).cloned();
        }
    }

    /// Adds keys that what a Retry said makes possible.
    pub(crate) fn keys_are_stale(&mut self) {
        self.keys.retain(|slot, _| slot.kind != PacketKind::Initial);
    }
}
