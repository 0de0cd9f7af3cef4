//! What goes into a packet, in order of urgency. Each owner writes its own frames through the
//! one [`FrameSink`].

use quicket_wire::frame;

use super::packet_builder::PacketBuilder;
use crate::ack::{AckFrequencySender, AckScheduler, ReceivedPackets};
use crate::cid::ConnectionIds;
use crate::crypto::Level;
use crate::crypto_stream::CryptoStream;
use crate::datagrams::Datagrams;
use crate::frame_sink::FrameSink;
use crate::path::Paths;
use crate::pending::Pending;
use crate::random::Random;
use crate::recovery::PathKey;
use crate::sent_frame::SentFrame;
use crate::streams::Streams;
use crate::time::Time;

/// Writes an ACK if one is due, or if anything else goes out anyway. Always first: an ACK is
/// small, and the peer waits for it.
pub(super) fn write_ack(
    now: Time,
    (received, acks): (&mut ReceivedPackets, &mut AckScheduler),
    exponent: u8,
    packet: &mut PacketBuilder<'_>,
) {
    if received.is_empty() || !acks.should_bundle_ack() {
        return;
    }
    let Some(largest) = received.largest() else { return };
    let counts = received.ecn_counts();
    let marked = counts.ect0 != 0 || counts.ect1 != 0 || counts.ce != 0;
    let delay = received.ack_delay(now, exponent);
    let ranges = received.ranges_descending();
    if packet.ack(delay, ranges, marked.then_some(counts), SentFrame::Ack { largest }).is_ok() {
        acks.on_ack_sent(now);
        // RFC 9000, Section 13.2.4: an ACK that is acknowledged lets old ranges be forgotten.
        if received.take_ping_wish() {
            let _ = packet.frame(&frame::Ping, Some(SentFrame::Ping));
        }
    }
}

/// What a packet number space contributes.
pub(super) struct SpaceContent<'a> {
    pub(super) received: &'a mut ReceivedPackets,
    pub(super) acks: &'a mut AckScheduler,
    pub(super) crypto: &'a mut CryptoStream,
    pub(super) probes: &'a mut u8,
    pub(super) ping: &'a mut bool,
}

/// The owners of frames in the application data space.
pub(super) struct Owners<'a> {
    pub(super) now: Time,
    pub(super) path: PathKey,
    pub(super) ack_delay_exponent: u8,
    pub(super) pending: &'a mut Pending,
    pub(super) cids: &'a mut ConnectionIds,
    pub(super) paths: &'a mut Paths,
    pub(super) ack_frequency: &'a mut AckFrequencySender,
    pub(super) datagrams: &'a mut Datagrams,
    pub(super) streams: &'a mut Streams,
    pub(super) rng: &'a mut dyn Random,
}

impl Owners<'_> {
    /// Everything that 0-RTT and 1-RTT packets carry besides ACK and CRYPTO.
    pub(super) fn write(&mut self, level: Level, packet: &mut PacketBuilder<'_>) {
        if level == Level::OneRtt {
            self.write_control(packet);
        }
        self.datagrams.write_frames(packet);
        let rtt = self.paths.active().rtt.smoothed();
        self.streams.write_frames(self.now, rtt, packet);
    }

    /// True if a PATH_CHALLENGE is due on the packet's path.
    pub(super) fn is_challenge_due(&self) -> bool {
        self.paths.get(self.path).is_some_and(|path| path.validation.is_challenge_due(self.now))
    }

    /// PATH_RESPONSE and PATH_CHALLENGE; true if there were any. Ahead of everything else: what the
    /// anti-amplification limit leaves room for may be little.
    pub(super) fn write_path(&mut self, packet: &mut PacketBuilder<'_>) -> bool {
        self.paths.write_frames(self.now, self.path, &mut *self.rng, packet)
    }

    /// Frames that 0-RTT packets must not carry (RFC 9000, Section 12.5), or need not.
    fn write_control(&mut self, packet: &mut PacketBuilder<'_>) {
        self.pending.write(packet);
        self.cids.write_frames(packet);
        if let Some(frame) = self.ack_frequency.next_frame() {
            let sent = SentFrame::AckFrequency { sequence: frame.sequence_number };
            if packet.frame(&frame, Some(sent)).is_ok() {
                self.ack_frequency.on_frame_sent(self.now);
            }
        }
    }
}

/// A probe must elicit an ACK, if only by a PING (RFC 9002, Section 6.2.4).
pub(super) fn write_ping(packet: &mut PacketBuilder<'_>) -> bool {
    packet.frame(&frame::Ping, Some(SentFrame::Ping)).is_ok()
}
