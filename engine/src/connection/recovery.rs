//! Where loss recovery stands: probe timeouts, the loss detection timer, and what a probe carries
//! (RFC 9002, Section 6.2). What becomes of frames is in `loss`.

use alloc::boxed::Box;

use super::space::{Space, SpaceId, Spaces};
use crate::ack::{AckFrequencySender, AckScheduler};
use crate::crypto::Level;
use crate::recovery::{LossTimer, RttEstimator, SpaceTimes, TimerInputs, loss_detection_timer};
use crate::time::{Duration, Earliest, Time};

/// Probe packets sent per timeout (RFC 9002, Section 6.2.4).
pub(super) const PROBES_PER_PTO: u8 = 2;
/// How often handshake data is sent again before its probe timeout (RFC 9002, Section 6.2.3).
const MAX_HURRIED: u8 = 8;

/// The packet number spaces, and the timer that all of them share.
pub(super) struct Recovery {
    pub(super) spaces: Spaces,
    /// How long the peer delays its ACKs, and what it is asked for.
    pub(super) ack_frequency: AckFrequencySender,
    /// Probe timeouts in a row without an ACK (RFC 9002, Section 6.2.1).
    pto_count: u32,
    /// How often handshake data was sent again before its time.
    hurried: u8,
    timer: Option<LossTimer>,
    /// When recovery last got on: the base of a client's anti-deadlock timer.
    last_progress: Time,
    /// The peer is known to have validated our address (RFC 9002, Section 6.2.2.1): servers take
    /// that for granted.
    peer_validated_us: bool,
}

/// What the loss detection timer depends on besides.
pub(super) struct TimerContext<'a> {
    /// Of the active path.
    pub(super) rtt: &'a RttEstimator,
    /// The anti-amplification limit leaves no room for a packet.
    pub(super) amplification_limited: bool,
    pub(super) has_handshake_keys: bool,
    pub(super) handshake_complete: bool,
    pub(super) handshake_confirmed: bool,
}

impl Recovery {
    /// The recovery of a new connection. `data` schedules the ACKs of application data,
    /// `crypto_buffer` is as in [`Space::new`].
    pub(super) fn new(
        now: Time,
        is_client: bool,
        data: AckScheduler,
        crypto_buffer: usize,
    ) -> Self {
        Self {
            spaces: Spaces::new(data, crypto_buffer),
            ack_frequency: AckFrequencySender::new(),
            pto_count: 0,
            hurried: 0,
            timer: None,
            last_progress: now,
            peer_validated_us: !is_client,
        }
    }

    /// The probe timeout without back-off (RFC 9002, Section 6.2.1).
    pub(super) fn pto(&self, rtt: &RttEstimator) -> Duration {
        rtt.pto(self.ack_frequency.max_ack_delay())
    }

    /// Probe timeouts in a row without an ACK.
    pub(super) fn pto_count(&self) -> u32 {
        self.pto_count
    }

    /// The back-off starts over.
    pub(super) fn reset_backoff(&mut self) {
        self.pto_count = 0;
    }

    /// A packet of a space was acknowledged for the first time. Who acknowledges a Handshake packet
    /// has validated our address, as has who acknowledges a 1-RTT packet.
    pub(super) fn on_acknowledged(&mut self, id: SpaceId, handshake_complete: bool) {
        if id == SpaceId::Handshake || (id == SpaceId::Data && handshake_complete) {
            self.peer_validated_us = true;
        }
    }

    /// The losses that an ACK shows are found. RFC 9002, Section 6.2.1: a client does not reset the
    /// back-off while it does not know whether the server has validated its address.
    pub(super) fn on_progress(&mut self, now: Time) {
        if self.peer_validated_us {
            self.pto_count = 0;
        }
        self.last_progress = now;
    }

    /// The handshake is confirmed (RFC 9001, Section 4.1.2).
    pub(super) fn on_handshake_confirmed(&mut self) {
        self.peer_validated_us = true;
        self.pto_count = 0;
    }

    /// A probe timeout has passed; returns how many there were in a row.
    pub(super) fn on_pto(&mut self, now: Time) -> u32 {
        self.pto_count = self.pto_count.saturating_add(1);
        self.last_progress = now;
        self.pto_count
    }

    /// Ends a space; returns what it was. RFC 9002, Section 6.2.2: the back-off starts over.
    pub(super) fn discard_space(&mut self, id: SpaceId) -> Option<Box<Space>> {
        let space = self.spaces.discard(id)?;
        self.pto_count = 0;
        Some(space)
    }

    /// How many probes go out as 1-RTT packets, and how many as Handshake packets, to a server whose
    /// HANDSHAKE_DONE was lost: it has no keys but those of 1-RTT packets left, and sees by no other
    /// packets where the client is (RFC 9002, Section 6.2.4). They share the first datagram with a
    /// Handshake packet; every second time the other datagram is theirs alone, for servers that drop
    /// what follows a packet that they cannot open (against RFC 9000, Section 12.2).
    pub(super) fn probes_unconfirmed(&self) -> (u8, u8) {
        if self.pto_count.is_multiple_of(2) { (PROBES_PER_PTO, 1) } else { (1, PROBES_PER_PTO) }
    }

    /// Has `count` probes of a space carry the flights that are not acknowledged; false if there
    /// are none.
    pub(super) fn probe_with_flights(&mut self, id: SpaceId, count: u8) -> bool {
        let found = self.resend_flights();
        if found && let Some(space) = self.spaces.get_mut(id) {
            space.probes = count;
        }
        found
    }

    /// Handshake flights are short: all that is not acknowledged goes out again, of both levels
    /// so that they share a datagram (RFC 9002, Section 6.2.4). False if there is nothing.
    fn resend_flights(&mut self) -> bool {
        let mut found = false;
        for id in [SpaceId::Initial, SpaceId::Handshake] {
            if let Some(space) = self.spaces.get_mut(id)
                && space.crypto.has_unacked()
            {
                space.crypto.resend_all();
                // The other level too, although the window may be full of what the peer cannot
                // open before it has this.
                space.probes = space.probes.max(1);
                found = true;
            }
        }
        found
    }

    /// An ack-eliciting packet came at a level at which our whole flight is out and not
    /// acknowledged: the peer waits for it. It goes out again without a timeout
    /// (RFC 9002, Section 6.2.3), a limited number of times.
    pub(super) fn hurry_handshake(&mut self, level: Level) {
        if !matches!(level, Level::Initial | Level::Handshake) || self.hurried >= MAX_HURRIED {
            return;
        }
        let Some(space) = self.spaces.of_level_mut(level) else { return };
        if space.crypto.has_pending() || !space.crypto.has_unacked() {
            return;
        }
        space.probes = space.probes.max(1);
        self.hurried = self.hurried.saturating_add(1);
        self.resend_flights();
    }

    /// A PING is to be sent, so that the peer answers.
    pub(super) fn ping(&mut self) {
        self.spaces.data.ping = true;
    }

    /// The peer is to answer: by a PING, unless what is in flight elicits an answer already.
    pub(super) fn elicit_answer(&mut self) {
        let data = &mut self.spaces.data;
        data.ping |= !data.recovery.has_ack_eliciting_in_flight();
    }

    /// When to look for lost packets or to probe.
    pub(super) fn timer(&self) -> Option<LossTimer> {
        self.timer
    }

    /// What the timer was set for, if it fires at `now`.
    pub(super) fn due(&self, now: Time) -> Option<LossTimer> {
        self.timer.filter(|timer| timer.at() <= now)
    }

    /// Chooses the next moment for loss detection (RFC 9002, Section A.8).
    pub(super) fn set_timer(&mut self, context: &TimerContext<'_>) {
        // 0-RTT may fill the window, and has no timer before the handshake is confirmed: handshake
        // data that waits behind it goes out as a probe.
        let waits =
            |id: SpaceId| self.spaces.get(id).is_some_and(|space| space.crypto.has_pending());
        let handshake_waits = waits(SpaceId::Initial) || waits(SpaceId::Handshake);
        let complete = context.handshake_complete;
        let inputs = TimerInputs {
            last_progress: self.last_progress,
            spaces: SpaceId::ALL.map(|id| self.space_times(id, complete)),
            rtt: context.rtt,
            max_ack_delay: self.ack_frequency.max_ack_delay(),
            pto_count: self.pto_count,
            amplification_limited: context.amplification_limited,
            peer_validated_address: self.peer_validated_us && !handshake_waits,
            has_handshake_keys: context.has_handshake_keys,
            handshake_confirmed: context.handshake_confirmed,
        };
        self.timer = loss_detection_timer(&inputs);
    }

    /// What the timer depends on in one packet number space.
    #[inline(never)] // Inlined, it becomes a thousand instructions that take single bits apart.
    fn space_times(&self, id: SpaceId, handshake_complete: bool) -> SpaceTimes {
        let Some(space) = self.spaces.get(id) else { return SpaceTimes::default() };
        let usable = id != SpaceId::Data || handshake_complete;
        SpaceTimes {
            loss_time: space.recovery.loss_time(),
            // RFC 9002, Section 6.2.1: no probe timer for application data before the handshake
            // is confirmed, 0-RTT included: `loss_detection_timer` sees to it. Without 1-RTT keys
            // there is not even a moment to count from.
            pto_base: space.recovery.pto_base().filter(|_| usable),
        }
    }

    /// When an ACK is due at a level at which it can be sent; without a timer while as many packets
    /// are remembered as can be, which what comes next ends.
    pub(super) fn ack_deadline(&self, can_send: impl Fn(Level) -> bool) -> Option<Time> {
        let mut first = Earliest::NEVER;
        for level in [Level::Initial, Level::Handshake, Level::OneRtt] {
            if can_send(level)
                && let Some(space) = self.spaces.get(SpaceId::of(level))
                && !space.recovery.is_full()
            {
                first = first.or(space.acks.ack_deadline());
            }
        }
        first.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestPacket;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn recovery(is_client: bool) -> Recovery {
        Recovery::new(at(0), is_client, AckScheduler::immediate(), 4096)
    }

    /// Has a flight on its way.
    fn send_flight(recovery: &mut Recovery, level: Level) {
        let crypto = &mut recovery.spaces.of_level_mut(level).unwrap().crypto;
        crypto.write(&[7; 100]).unwrap();
        crypto.write_frames(&mut TestPacket::new(1200));
        assert!(crypto.has_unacked() && !crypto.has_pending());
    }

    fn timer(recovery: &mut Recovery, handshake_complete: bool) -> Option<LossTimer> {
        let context = TimerContext {
            rtt: &RttEstimator::new(Duration::from_millis(100)),
            amplification_limited: false,
            has_handshake_keys: false,
            handshake_complete,
            handshake_confirmed: handshake_complete,
        };
        recovery.set_timer(&context);
        recovery.timer()
    }

    /// RFC 9002, Section 6.2.1.
    #[test]
    fn a_client_keeps_its_back_off_until_the_server_has_validated_its_address() {
        let mut client = recovery(true);
        assert_eq!([client.on_pto(at(1)), client.on_pto(at(2))], [1, 2]);
        client.on_acknowledged(SpaceId::Initial, false);
        client.on_progress(at(3));
        assert_eq!(client.pto_count(), 2);
        client.on_acknowledged(SpaceId::Handshake, false);
        client.on_progress(at(4));
        assert_eq!(client.pto_count(), 0);

        let mut server = recovery(false);
        server.on_pto(at(1));
        server.on_acknowledged(SpaceId::Initial, false);
        server.on_progress(at(2));
        assert_eq!(server.pto_count(), 0);
    }

    /// RFC 9002, Section 6.2.2.1.
    #[test]
    fn a_client_that_may_not_be_validated_has_a_timer_with_nothing_in_flight() {
        let mut client = recovery(true);
        client.on_progress(at(5));
        let probe = timer(&mut client, false).unwrap();
        assert_eq!(probe, LossTimer::Pto { space: SpaceId::Initial, at: at(5 + 300) });
        assert_eq!(client.due(at(304)), None);
        assert_eq!(client.due(at(305)), Some(probe));
        client.on_handshake_confirmed();
        assert_eq!(timer(&mut client, true), None);
        assert_eq!(timer(&mut recovery(false), false), None);
    }

    /// RFC 9002, Section 6.2.2.
    #[test]
    fn the_back_off_starts_over_with_the_end_of_a_space() {
        let mut recovery = recovery(true);
        recovery.on_pto(at(1));
        assert!(recovery.discard_space(SpaceId::Initial).is_some());
        assert_eq!(recovery.pto_count(), 0);
        recovery.on_pto(at(2));
        assert!(recovery.discard_space(SpaceId::Initial).is_none());
        assert_eq!(recovery.pto_count(), 1);
    }

    /// RFC 9002, Section 6.2.3.
    #[test]
    fn a_flight_is_hurried_a_limited_number_of_times() {
        let mut recovery = recovery(false);
        recovery.hurry_handshake(Level::Handshake);
        assert_eq!(recovery.spaces.of_level_mut(Level::Handshake).unwrap().probes, 0);
        send_flight(&mut recovery, Level::Handshake);
        for n in 1..=MAX_HURRIED + 1 {
            recovery.hurry_handshake(Level::Handshake);
            let space = recovery.spaces.of_level_mut(Level::Handshake).unwrap();
            let again = core::mem::take(&mut space.probes) > 0;
            assert_eq!(again, n <= MAX_HURRIED);
            space.crypto.write_frames(&mut TestPacket::new(1200));
        }
    }

    /// RFC 9002, Section 6.2.4.
    #[test]
    fn a_probe_carries_the_flights_of_both_levels() {
        let mut recovery = recovery(false);
        assert!(!recovery.probe_with_flights(SpaceId::Initial, 2));
        send_flight(&mut recovery, Level::Initial);
        send_flight(&mut recovery, Level::Handshake);
        assert!(recovery.probe_with_flights(SpaceId::Initial, 2));
        for (level, probes) in [(Level::Initial, 2), (Level::Handshake, 1)] {
            let space = recovery.spaces.of_level_mut(level).unwrap();
            assert!(space.crypto.has_pending());
            assert_eq!(space.probes, probes);
        }
    }

    #[test]
    fn every_second_time_a_datagram_is_of_1rtt_packets_alone() {
        let mut recovery = recovery(false);
        for probes in [(1, 2), (2, 1), (1, 2)] {
            recovery.on_pto(at(1));
            assert_eq!(recovery.probes_unconfirmed(), probes);
        }
    }
}
