//! Packets that wait to leave: small ones of the same outer headers and the same socket leave together.
//!
//! A call for a datagram costs as much as one for sixty, so what a device has ready is read first and
//! sent then. Packets of one flow keep their order; flows with sockets of their own may overtake each other, as on
//! any path with several queues.

use std::ops::Range;

use quicket_gue::vnet::Vnet;

use crate::outbound::{Context, Length, Outbound, Piece, Sending, Verdict};
use crate::path::MAX_SEGMENTS;

/// A socket by which datagrams may leave together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane(pub(crate) usize);

/// A packet whose datagrams are made.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    /// Where it is in the buffer.
    pub(crate) place: Range<usize>,
    pub(crate) pieces: Range<usize>,
    pub(crate) sending: Sending,
    /// None if it leaves alone, and nothing overtakes it.
    lane: Option<Lane>,
    gone: bool,
}

impl Departure {
    pub(crate) fn lane(&self) -> Option<Lane> {
        self.lane
    }
}

/// Those that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    outbound: Outbound,
    waiting: Vec<Departure>,
    /// What leaves next: which ones, and their datagrams.
    members: Vec<usize>,
    together: Vec<Piece>,
}

/// What leaves next: one packet, or datagrams of several in one call.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) members: &'a [usize],
    pub(crate) pieces: &'a [Piece],
    pub(crate) all: &'a [Departure],
}

impl Departures {
    /// Makes datagrams of the packet at `place` in the buffer; with `lane`, which says what may leave
    /// together.
    pub(crate) fn add(
        &mut self,
        context: Context<'_>,
        (vnet, buffer, place): (Vnet, &[u8], Range<usize>),
        lane: impl FnOnce(&Sending) -> Option<Lane>,
    ) -> Verdict {
        let first = self.outbound.pieces().len();
        let verdict = self.outbound.build(context, vnet, buffer, place.clone());
        if let Verdict::Send(sending) = verdict {
            let pieces = first..self.outbound.pieces().len();
            let lane = lane(&sending);
            self.waiting.push(Departure { place, pieces, sending, lane, gone: false });
        }
        verdict
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.outbound.clear();
        self.waiting.clear();
    }

    /// Calls `each` with all that waits, in groups.
    pub(crate) fn leave(&mut self, mut each: impl FnMut(Group<'_>)) {
        for first in 0..self.waiting.len() {
            if self.waiting[first].gone {
                continue;
            }
            self.gather(first);
            let pieces = match self.members[..] {
                [only] => &self.outbound.pieces()[self.waiting[only].pieces.clone()],
                _ => &self.together[..],
            };
            let (outbound, members) = (&self.outbound, &self.members[..]);
            each(Group { outbound, members, pieces, all: &self.waiting });
        }
        self.clear();
    }

    /// Finds what can leave together with a packet: what follows it in its lane, up to the first that does not
    /// fit, which must not be overtaken.
    fn gather(&mut self, first: usize) {
        self.members.clear();
        self.members.push(first);
        let (head, others) = self.waiting[first..].split_at_mut(1);
        let head = &head[0];
        // Super-packets are bursts already.
        let (Some(lane), [piece]) = (head.lane, &self.outbound.pieces()[head.pieces.clone()])
        else {
            return;
        };
        let mut length = Length::of(piece.len());
        self.together.clear();
        self.together.push(piece.clone());
        for (index, other) in others.iter_mut().enumerate() {
            match other.lane {
                Some(other) if other != lane => continue,
                Some(_) if other.gone => continue,
                Some(_) => {}
                None => break,
            }
            let [piece] = &self.outbound.pieces()[other.pieces.clone()] else { break };
            let fits = head.sending.has_headers_of(&other.sending)
                && self.members.len() < MAX_SEGMENTS
                && length.take(piece.len());
            if !fits {
                break;
            }
            other.gone = true;
            self.members.push(first + 1 + index);
            self.together.push(piece.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use quicket_gue::vnet::{Offload, Partial};

    use super::*;
    use crate::config::Tunnel;
    use crate::testing::{ip, tcp, tunnel, udp};

    /// A buffer with packets in it, and what becomes of them.
    struct Rig {
        tunnel: Tunnel,
        buffer: Vec<u8>,
        departures: Departures,
    }

    impl Rig {
        fn new() -> Self {
            let tunnel = tunnel("a type ipip remote 192.0.2.2 local 192.0.2.1 encap gue");
            Self { tunnel, buffer: Vec::new(), departures: Departures::default() }
        }

        fn add(&mut self, vnet: Vnet, packet: &[u8], lane: Option<usize>) {
            let place = self.buffer.len()..self.buffer.len() + packet.len();
            self.buffer.extend_from_slice(packet);
            let context = Context {
                tunnel: &self.tunnel,
                secret: 1,
                sequence: &AtomicU32::new(0),
                mtu: 1468,
                limit: None,
                peers: None,
            };
            let packet = (vnet, &self.buffer[..], place);
            let verdict = self.departures.add(context, packet, |_| lane.map(Lane));
            assert!(matches!(verdict, Verdict::Send(_)), "{verdict:?}");
        }

        fn datagram(&mut self, lane: usize, len: usize) {
            self.add(Vnet::default(), &udp(true, &vec![7; len]), Some(lane));
        }

        /// The groups that leave. The datagrams of each carry the bytes of its packets, in order.
        fn leave(&mut self) -> Vec<Vec<usize>> {
            let mut groups = Vec::new();
            let buffer = &self.buffer;
            self.departures.leave(|group| {
                if let [first, _, ..] = *group.members {
                    for (piece, member) in group.pieces.iter().zip(group.members) {
                        let mut sent = group.outbound.arena()[piece.header.clone()].to_vec();
                        sent.extend_from_slice(&buffer[piece.payload.clone()]);
                        assert!(sent.ends_with(&buffer[group.all[*member].place.clone()]));
                    }
                    let headers = &group.all[first].sending;
                    let mut members = group.members.iter().map(|member| &group.all[*member]);
                    assert!(members.all(|other| headers.has_headers_of(&other.sending)));
                    assert_eq!(group.pieces.len(), group.members.len());
                }
                groups.push(group.members.to_vec());
            });
            assert!(self.departures.is_empty());
            groups
        }
    }

    #[test]
    fn packets_of_one_lane_leave_together_and_in_order() {
        let mut rig = Rig::new();
        for lane in [0, 1, 0, 2, 1, 0] {
            rig.datagram(lane, 10);
        }
        assert_eq!(rig.leave(), [vec![0, 2, 5], vec![1, 4], vec![3]]);
        assert_eq!(rig.leave(), [[0; 0]; 0]);
    }

    #[test]
    fn behind_a_shorter_one_comes_none_and_none_is_longer_than_the_first() {
        let mut rig = Rig::new();
        for len in [50, 50, 20, 20, 60] {
            rig.datagram(0, len);
        }
        assert_eq!(rig.leave(), [vec![0, 1, 2], vec![3], vec![4]]);
    }

    #[test]
    fn nothing_overtakes_what_does_not_fit_or_leaves_alone() {
        let mut rig = Rig::new();
        let offload = Some((Offload::Tcp, 1400));
        let vnet = Vnet { partial: Some(Partial { start: 20, offset: 16 }), offload };
        rig.datagram(0, 10);
        rig.datagram(1, 10);
        rig.add(vnet, &tcp(true, 1, 0x10, &[1; 5000]), Some(0));
        rig.datagram(0, 10);
        rig.datagram(1, 10);
        rig.add(Vnet::default(), &udp(true, &[7; 10]), None);
        rig.datagram(1, 10);
        assert_eq!(rig.leave(), [vec![0], vec![1, 4], vec![2], vec![3], vec![5], vec![6]]);
    }

    #[test]
    fn other_outer_headers_are_another_call() {
        let mut rig = Rig::new();
        // ECT(0), which is copied outside.
        let marked = ip(true, 17, 2, &udp(true, &[7; 10])[20..]);
        rig.datagram(0, 10);
        rig.add(Vnet::default(), &marked, Some(0));
        rig.add(Vnet::default(), &marked, Some(0));
        rig.datagram(0, 10);
        assert_eq!(rig.leave(), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn no_call_has_more_than_the_system_takes() {
        let mut rig = Rig::new();
        for _ in 0..MAX_SEGMENTS + 2 {
            rig.datagram(0, 10);
        }
        let groups: Vec<usize> = rig.leave().iter().map(Vec::len).collect();
        assert_eq!(groups, [MAX_SEGMENTS, 2]);
        for _ in 0..60 {
            rig.datagram(0, 1400);
        }
        let groups: Vec<usize> = rig.leave().iter().map(Vec::len).collect();
        assert_eq!(groups.len(), 2, "{groups:?}");
    }
}
