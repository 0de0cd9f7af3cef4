//! Datagrams on their way: what decides whose they are, and those of which it is not known yet.

use std::borrow::Cow;

use quicket_engine::time::Time;
use quicket_udp::{Arrival, ReceiveBuffers};

use super::park::Parked;
use crate::channel::{HEAD, encode};
use crate::first_packet::HeldDatagram;
use crate::registry::{AddressId, ListenerId, Place, Registry};
use crate::router::{Decision, Piece, Router, Train, Way};

/// A train on its way.
type Parcel<'a> = ([u8; HEAD], Cow<'a, [u8]>);

/// Trains by where they go.
#[derive(Default)]
pub(super) struct Outbox<'a> {
    pub(super) places: Vec<(Place, Vec<Parcel<'a>>)>,
    /// Something was for nobody, or its connection ID does not say whose it is.
    others: bool,
}

impl<'a> Outbox<'a> {
    fn add(&mut self, place: Place, head: [u8; HEAD], bytes: Cow<'a, [u8]>) {
        match self.places.iter_mut().find(|(to, _)| *to == place) {
            Some((_, parcels)) => parcels.push((head, bytes)),
            None => self.places.push((place, vec![(head, bytes)])),
        }
    }

    /// Where all of it goes, if that is one worker and its connection IDs say so.
    pub(super) fn destination(&self) -> Option<Place> {
        match &*self.places {
            [(place, _)] if !self.others => Some(*place),
            _ => None,
        }
    }
}

/// What decides about datagrams.
pub(super) struct Traffic {
    pub(super) router: Router,
    pieces: Vec<Piece>,
    /// First packets that wait until it is known who gets them.
    pub(super) parked: Parked,
    /// None while they are in use.
    buffers: Option<ReceiveBuffers>,
    /// What was sent to see where it comes.
    probe: Option<Vec<u8>>,
}

impl Traffic {
    pub(super) fn new(router: Router) -> Self {
        let buffers = Some(ReceiveBuffers::new());
        Self { router, pieces: Vec::new(), parked: Parked::default(), buffers, probe: None }
    }

    /// What is received into; none while somebody has it.
    pub(super) fn take_buffers(&mut self) -> Option<ReceiveBuffers> {
        self.buffers.take()
    }

    pub(super) fn return_buffers(&mut self, buffers: ReceiveBuffers) {
        self.buffers = Some(buffers);
    }

    /// This datagram is on its way to see where it comes.
    pub(super) fn expect(&mut self, probe: Vec<u8>) {
        self.probe = Some(probe);
    }

    /// Whether it has yet to come.
    pub(super) const fn is_expecting(&self) -> bool {
        self.probe.is_some()
    }

    /// Whether it is this one, which has come then.
    pub(super) fn has_come(&mut self, bytes: &[u8]) -> bool {
        self.probe.take_if(|probe| probe == bytes).is_some()
    }

    /// Whether nothing leads first packets to others than a listener.
    pub(super) fn is_clear_for(&self, listener: ListenerId) -> bool {
        self.router.is_clear_for(listener) && !self.parked.has_any(listener.address())
    }

    /// Gives up what has waited for too long.
    pub(super) fn expire(&mut self, now: Time) {
        self.parked.expire(now);
        self.router.expire(now);
    }

    /// Divides a train, which has waited since then, by where its datagrams go. What is to be answered in place of
    /// programs goes to `answer`.
    pub(super) fn sort<'a>(
        &mut self,
        registry: &mut Registry,
        (now, since): (Time, Time),
        train: &Train<'a>,
        outbox: &mut Outbox<'a>,
        mut answer: impl FnMut(&Registry, &[u8], &Decision),
    ) {
        let mut pieces = std::mem::take(&mut self.pieces);
        self.router.route(registry, now, train, &mut pieces);
        let Train { remote, local, ecn, segment_size: stride, .. } = *train;
        let head = encode(&Arrival { remote, local, ecn, stride, len: 0 });
        for Piece { range, decision } in pieces.drain(..) {
            let bytes = train.bytes.get(range).unwrap_or_default();
            outbox.others |= !matches!(decision, Decision::Deliver { way: Way::Owner, .. });
            match decision {
                Decision::Deliver { place, .. } => outbox.add(place, head, Cow::Borrowed(bytes)),
                Decision::Release { place, held } => {
                    for HeldDatagram { remote, local, ecn, bytes } in held {
                        let (stride, len) = (bytes.len(), bytes.len());
                        let head = encode(&Arrival { remote, local, ecn, stride, len });
                        outbox.add(place, head, Cow::Owned(bytes));
                    }
                    outbox.add(place, head, Cow::Borrowed(bytes));
                }
                Decision::Wait { held } => {
                    let bytes = bytes.to_vec();
                    let last = HeldDatagram { remote, local, ecn, bytes };
                    self.park(since, train.address, held.into_iter().chain([last]));
                }
                Decision::Held | Decision::Drop(_) => {}
                answered => answer(registry, bytes, &answered),
            }
        }
        self.pieces = pieces;
    }

    /// Has datagrams wait until it is known who gets them. They have waited since then.
    fn park(
        &mut self,
        since: Time,
        id: AddressId,
        datagrams: impl IntoIterator<Item = HeldDatagram>,
    ) {
        datagrams.into_iter().for_each(|datagram| self.parked.add(since, id, datagram));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quicket_engine::ReplyRates;
    use quicket_sim::test_crypto::TestCrypto;

    use super::*;

    #[test]
    fn a_probe_comes_once_and_is_nothing_else() {
        let router = Router::new(Arc::new(TestCrypto), [3; 16], ReplyRates::default());
        let mut traffic = Traffic::new(router);
        assert!(!traffic.has_come(b"probe") && !traffic.is_expecting());
        traffic.expect(b"probe".to_vec());
        assert!(!traffic.has_come(b"other") && traffic.is_expecting());
        assert!(traffic.has_come(b"probe") && !traffic.is_expecting());
        assert!(!traffic.has_come(b"probe"));
        let buffers = traffic.take_buffers().unwrap();
        assert!(traffic.take_buffers().is_none(), "they are in use");
        traffic.return_buffers(buffers);
        assert!(traffic.take_buffers().is_some());
    }

    #[test]
    fn where_all_goes_is_known_if_it_is_one_worker() {
        let place = |worker| Place { listener: ListenerId::for_test(0), worker };
        let mut outbox = Outbox::default();
        assert_eq!(outbox.destination(), None);
        outbox.add(place(1), [0; HEAD], Cow::Borrowed(b"one"));
        outbox.add(place(1), [0; HEAD], Cow::Borrowed(b"two"));
        assert_eq!(outbox.destination(), Some(place(1)));
        assert_eq!(outbox.places.len(), 1);
        outbox.others = true;
        assert_eq!(outbox.destination(), None);
        outbox.others = false;
        outbox.add(place(2), [0; HEAD], Cow::Borrowed(b"three"));
        assert_eq!(outbox.destination(), None);
    }
}
