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
    /// Writes the path's frames that are due; true if there were any. The datagram is expanded to
    /// 1200 bytes then, wherever the path's limits allow it (RFC 9000, Sections 8.2.1 and 8.2.2).
    pub(crate) fn write_frames(
        &mut self,
        now: Time,
        key: PathKey,
        random: &mut dyn Random,
        sink: &mut impl FrameSink,
    ) -> bool {
        let Some(path) = self.get_mut(key) else { return false };
        let mut written = false;
        while sink.remaining() >= FRAME_LEN {
            let Some(data) = path.responses.pop() else { break };
            if sink.frame(&PathResponse { data }, None).is_err() {
                return written;
            }
            written = true;
        }
        if path.validation.is_challenge_due(now) && sink.remaining() >= FRAME_LEN {
            let expanded = path.sendable_data() >= usize::from(crate::config::MIN_UDP_PAYLOAD);
            let data = path.validation.challenge(now, expanded, random);
            let sent = SentFrame::PathChallenge { data: u64::from_be_bytes(data) };
            written |= sink.frame(&PathChallenge { data }, Some(sent)).is_ok();
        }
        written
    }
}
