//! The connection IDs of both sides of a connection, and their frames.

use quicket_wire::{ConnectionId, StatelessResetToken};

use super::{LocalCids, RemoteCids};
use crate::frame_sink::FrameSink;
use crate::recovery::PathKey;
use crate::sent_frame::SentFrame;
use crate::time::Time;

/// The connection IDs of a connection (RFC 9000, Section 5.1).
pub(crate) struct ConnectionIds {
    /// Those that we issued.
    pub(crate) local: LocalCids,
    /// Those that the peer gave us.
    pub(crate) remote: RemoteCids,
}

impl ConnectionIds {
    /// Gives back memory without connection IDs.
    pub(crate) fn trim(&mut self) {
        self.local.trim();
        self.remote.trim();
    }

    /// True if NEW_CONNECTION_ID or RETIRE_CONNECTION_ID is to be sent.
    pub(crate) fn has_frames(&self) -> bool {
        self.local.next_frame().is_some() || self.remote.next_frame().is_some()
    }

    /// Writes NEW_CONNECTION_ID and RETIRE_CONNECTION_ID as far as there is room.
    pub(crate) fn write_frames(&mut self, sink: &mut impl FrameSink) {
        while let Some(frame) = self.local.next_frame() {
            let sent = SentFrame::NewConnectionId { sequence: frame.sequence_number };
            if sink.frame(&frame, Some(sent)).is_err() {
                break;
            }
            self.local.on_frame_sent(frame.sequence_number);
        }
        while let Some(frame) = self.remote.next_frame() {
            let sent = SentFrame::RetireConnectionId { sequence: frame.sequence_number };
            if sink.frame(&frame, Some(sent)).is_err() {
                break;
            }
            self.remote.on_frame_sent(frame.sequence_number);
        }
    }

    /// Issues what `generate` makes, as far as the peer wants more (RFC 9000, Section 5.1.1).
    pub(crate) fn issue(
        &mut self,
        now: Time,
        mut generate: impl FnMut() -> (ConnectionId, StatelessResetToken),
    ) {
        for _ in 0..self.local.wanted(now) {
            let (cid, token) = generate();
            self.local.issue(cid, token);
        }
    }

    /// Finds one of the peer's for a path: that of path `shared`, which the peer uses from another
    /// address, or else an unused one (RFC 9000, Section 9.5). False if there is none.
    pub(crate) fn give(&mut self, path: PathKey, shared: Option<PathKey>) -> bool {
        shared.and_then(|other| self.remote.share(other, path)).is_some()
            || self.remote.take_unused(path).is_some()
    }

    /// True if there is one of the peer's for another path.
    pub(crate) fn allow_another_path(&self) -> bool {
        self.remote.unused() > 0 || self.remote.is_zero_length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPacket;
    use quicket_wire::frame::NewConnectionId;

    fn cid(n: u8) -> ConnectionId {
        ConnectionId::new(&[n; 8]).unwrap()
    }

    /// Both sides' first ones, one of ours that the peer has not heard of, and one of the peer's
    /// that is to be retired.
    fn with_frames() -> ConnectionIds {
        let mut cids = ConnectionIds {
            local: LocalCids::new(cid(1)),
            remote: RemoteCids::new(cid(2), PathKey(0), 2),
        };
        cids.local.set_peer_limit(2);
        cids.issue(Time::ZERO, || (cid(3), StatelessResetToken([3; 16])));
        let given = NewConnectionId {
            sequence_number: 1,
            retire_prior_to: 1,
            connection_id: cid(4),
            stateless_reset_token: StatelessResetToken([4; 16]),
        };
        cids.remote.on_new_connection_id(&given).unwrap();
        cids
    }

    #[test]
    fn frames_of_both_sides_are_sent_until_they_arrive() {
        let mut cids = with_frames();
        for _ in 0..2 {
            assert!(cids.has_frames());
            let mut packet = TestPacket::new(1200);
            cids.write_frames(&mut packet);
            assert_eq!(packet.frames().len(), 2);
            assert!(!cids.has_frames());
            cids.local.on_frame_lost(1);
            cids.remote.on_frame_lost(0);
        }
        cids.write_frames(&mut TestPacket::new(1200));
        cids.local.on_frame_acked(1);
        cids.remote.on_frame_acked(0);
        assert!(!cids.has_frames());
    }

    #[test]
    fn what_does_not_fit_waits() {
        let mut cids = with_frames();
        cids.write_frames(&mut TestPacket::new(3));
        assert!(cids.has_frames());
    }

    #[test]
    fn a_path_gets_what_another_had_or_what_is_unused() {
        let mut cids = with_frames();
        let [first, second, third] = [0, 1, 2].map(PathKey);
        assert!(!cids.allow_another_path());
        assert!(!cids.give(second, None));
        assert!(cids.give(third, Some(first)));
        assert_eq!(cids.remote.get(third), cids.remote.get(first));
    }
}
