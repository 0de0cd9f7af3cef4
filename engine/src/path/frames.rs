//! PATH_CHALLENGE and PATH_RESPONSE (RFC 9000, Section 8.2).

use quicket_wire::frame::{PathChallenge, PathResponse};

use super::{PathKey, Paths};
use crate::frame_sink::FrameSink;
use crate::random::Random;
use crate::sent_frame::SentFrame;
use crate::time::Time;

/// Frame type and data of both frames, in bytes.
const FRAME_LEN: usize = 9;

impl Paths {
    /// Writes the path's frames that are due. The datagram is expanded to 1200 bytes wherever the
    /// path's limits allow it (RFC 9000, Section 8.2.1).
    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        key: PathKey,
        random: &mut dyn Random,
        sink: &mut impl FrameSink,
    ) {
        let Some(path) = self.get_mut(key) else { return };
        while sink.remaining() >= FRAME_LEN {
            let Some(data) = path.responses.pop() else { break };
            if sink.frame(&PathResponse { data }, None).is_err() {
                return;
            }
        }
        if path.validation.is_challenge_due(now) && sink.remaining() >= FRAME_LEN {
            let expanded = path.amplification.allows(usize::from(crate::config::MIN_UDP_PAYLOAD));
            let data = path.validation.challenge(now, expanded, random);
            let sent = SentFrame::PathChallenge { data: u64::from_be_bytes(data) };
            let _ = sink.frame(&PathChallenge { data }, Some(sent));
        }
    }
}
