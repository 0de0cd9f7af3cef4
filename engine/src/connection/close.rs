//! Sends CONNECTION_CLOSE (RFC 9000, Section 10.2).

use quicket_wire::frame::ConnectionClose;

use super::Connection;
use super::packet_builder::PacketBuilder;
use super::sealing::Draft;
use super::state::CloseReason;
use super::transmit::{Outgoing, Purpose, Transmit};
use crate::crypto::Level;
use crate::frame_sink::FrameSink;
use crate::time::{Duration, Time};

/// Longest reason that is sent, in bytes: a close fits any packet.
pub(super) const MAX_REASON: usize = 256;

impl Connection {
    /// Writes a datagram with CONNECTION_CLOSE, if one is to be sent.
    #[inline(never)] // keeps its datagram out of the frame of `poll_transmit`
    pub(super) fn transmit_close(&mut self, now: Time, buf: &mut [u8]) -> Option<Draft<Transmit>> {
        let reason = self.termination.due_close()?.clone();
        let rtt = &self.paths.active().rtt;
        let min_rtt = rtt.first_sample().map_or(Duration::ZERO, |_| rtt.min());
        self.termination.on_close_sent(now, min_rtt);
        let route = self.active_route();
        let limit = buf
            .len()
            .min(usize::from(self.paths.active().max_datagram()))
            .min(self.paths.active().sendable());
        let mut out = Outgoing::new(now, buf, route, limit, Purpose::Close);
        for level in self.close_levels().into_iter().flatten() {
            self.build_packet(&mut out, level, |_, _, packet| write_reason(level, &reason, packet));
        }
        let len = self.finish_datagram(&mut out)?;
        Some(route.transmit(len, len))
    }

    /// The levels at which the peer may be able to read (RFC 9000, Section 10.2.3).
    fn close_levels(&self) -> [Option<Level>; 4] {
        let available = |level: Level| self.keys.can_send(level).then_some(level);
        if self.handshake.confirmed {
            return [available(Level::OneRtt), None, None, None];
        }
        [Level::Initial, Level::EarlyData, Level::Handshake, Level::OneRtt].map(available)
    }
}

fn write_reason(level: Level, reason: &CloseReason, packet: &mut PacketBuilder<'_>) {
    let error;
    let close = match (level, reason) {
        (Level::EarlyData | Level::OneRtt, CloseReason::Application { code, reason }) => {
            ConnectionClose::Application { error_code: *code, reason }
        }
        _ => {
            error = reason.for_handshake();
            ConnectionClose::Transport {
                error_code: error.code,
                frame_type: error.frame_type,
                reason: error.reason.as_bytes(),
            }
        }
    };
    let room = packet.remaining().min(MAX_REASON);
    let close = close.shortened_to(room);
    // Without room the packet stays empty and is not sent.
    let _ = packet.frame(&close, None);
}
