use alloc::vec::Vec;

use super::*;

const MS: Duration = Duration::from_millis(1);
const START: Time = Time::from_nanos(1_000_000_000);

const POLICY: AckPolicy = AckPolicy {
    threshold: 2,
    train_threshold: 10,
    max_ack_delay: Duration::from_millis(25),
    min_ack_delay: Some(Duration::from_millis(1)),
};

/// A receiver: what was received, and the schedule of its ACKs.
struct Receiver {
    received: ReceivedPackets,
    acks: AckScheduler,
    now: Time,
}

impl Receiver {
    fn new() -> Self {
        Self::with(AckScheduler::new(POLICY))
    }

    fn with(acks: AckScheduler) -> Self {
        Self { received: ReceivedPackets::new(), acks, now: START }
    }

    /// After an ACK_FREQUENCY frame.
    fn asked(threshold: u64, reordering: u64) -> Self {
        let mut this = Self::new();
        this.acks.on_ack_frequency(&frequency(0, threshold, 20_000, reordering)).unwrap();
        this
    }

    fn packet(&mut self, pn: u64, eliciting: bool, ecn: EcnCodepoint) {
        assert!(self.received.record(pn, self.now, ecn));
        self.acks.on_packet(self.now, pn, eliciting, ecn, &self.received);
    }

    /// Receives an ack-eliciting packet; sends the ACK and returns true if it is due.
    fn acks(&mut self, pn: u64) -> bool {
        self.packet(pn, true, EcnCodepoint::NotEct);
        self.send_if_due()
    }

    fn send_if_due(&mut self) -> bool {
        let due = self.acks.should_send_ack(self.now);
        if due {
            self.acks.on_ack_sent(self.now);
        }
        due
    }
}

fn frequency(sequence: u64, threshold: u64, delay_us: u64, reordering: u64) -> AckFrequency {
    AckFrequency {
        sequence_number: sequence,
        ack_eliciting_threshold: threshold,
        requested_max_ack_delay: delay_us,
        reordering_threshold: reordering,
    }
}

/// RFC 9000, Section 13.2.2.
#[test]
fn every_second_ack_eliciting_packet_in_order_is_acknowledged_at_once() {
    let mut r = Receiver::new();
    let acked: Vec<bool> = (0..6).map(|pn| r.acks(pn)).collect();
    assert_eq!(acked, [false, true, false, true, false, true]);
}

/// RFC 9000, Section 13.2.1.
#[test]
fn a_single_packet_is_acknowledged_within_max_ack_delay() {
    let mut r = Receiver::new();
    assert!(!r.acks(0));
    assert!(r.acks.should_bundle_ack());
    assert_eq!(r.acks.ack_deadline(), Some(START + MS.times(25)));
    assert!(!r.acks.should_send_ack(START + MS.times(24)));
    assert!(r.acks.should_send_ack(START + MS.times(25)));
    r.acks.on_ack_sent(START + MS.times(25));
    assert!(!r.acks.should_bundle_ack() && r.acks.ack_deadline().is_none());
    assert!(!r.acks.should_send_ack(START + MS.times(1000)));
}

/// RFC 9000, Section 13.2.1.
#[test]
fn initial_and_handshake_packets_are_acknowledged_at_once() {
    let mut r = Receiver::with(AckScheduler::immediate());
    for pn in 0..5 {
        assert!(r.acks(pn));
    }
    assert!(r.acks.on_immediate_ack().is_err());
}

/// RFC 9000, Section 13.2.1: or two endpoints would acknowledge each other's ACKs forever.
#[test]
fn packets_that_elicit_no_ack_get_none_by_themselves() {
    let mut r = Receiver::new();
    for pn in 0..20 {
        r.packet(pn, false, EcnCodepoint::Ce);
        assert!(!r.acks.should_bundle_ack() && r.acks.ack_deadline().is_none());
    }
    r.packet(90, false, EcnCodepoint::NotEct);
    assert!(!r.acks.should_send_ack(START + MS.times(1000)));
}

/// RFC 9000, Section 13.2.1.
#[test]
fn packets_out_of_order_are_acknowledged_at_once() {
    let mut r = Receiver::new();
    assert!(!r.acks(0));
    assert!(r.acks(2), "packet 1 is missing");
    assert!(!r.acks(3), "the hole was reported");
    assert!(r.acks(1), "smaller than another received one");
    assert!(!r.acks(4));
    let mut r = Receiver::new();
    assert!(r.acks(1), "packet 0 is missing");
}

#[test]
fn holes_filled_by_packets_that_elicit_no_ack_are_no_holes() {
    let mut r = Receiver::new();
    assert!(!r.acks(0));
    r.packet(1, false, EcnCodepoint::NotEct);
    r.packet(2, false, EcnCodepoint::NotEct);
    r.acks.on_ack_sent(START);
    assert!(!r.acks(3));
}

/// RFC 9000, Section 13.2.1.
#[test]
fn every_congestion_mark_is_reported_at_once_at_the_usual_rate() {
    let mut r = Receiver::new();
    for pn in 0..4 {
        r.packet(pn, true, EcnCodepoint::Ce);
        assert!(r.send_if_due());
    }
}

/// draft-ietf-quic-ack-frequency, Section 6.3.
#[test]
fn with_few_acks_only_the_first_congestion_mark_of_a_row_is_reported_at_once() {
    let mut r = Receiver::asked(20, 1);
    let mut due = |pn, ecn| {
        r.packet(pn, true, ecn);
        r.send_if_due()
    };
    assert!(!due(0, EcnCodepoint::Ect0));
    assert!(due(1, EcnCodepoint::Ce));
    assert!(!due(2, EcnCodepoint::Ce));
    assert!(!due(3, EcnCodepoint::Ect0));
    assert!(due(4, EcnCodepoint::Ce));
}

/// draft-ietf-quic-ack-frequency, Section 4: one ACK for more than the threshold.
#[test]
fn the_peer_chooses_threshold_and_delay() {
    let mut r = Receiver::asked(4, 1);
    let acked: Vec<bool> = (0..10).map(|pn| r.acks(pn)).collect();
    assert_eq!(acked.iter().filter(|a| **a).count(), 2);
    assert!(acked[4] && acked[9]);
    assert!(!r.acks(10));
    assert_eq!(r.acks.ack_deadline(), Some(START + MS.times(20)));
    assert_eq!(r.acks.max_ack_delay, MS.times(20));
    let mut r = Receiver::asked(0, 1);
    assert!(r.acks(0) && r.acks(1), "0 asks for an ACK of every packet");
}

/// draft-ietf-quic-ack-frequency, Section 4.
#[test]
fn only_a_larger_sequence_number_replaces_a_request() {
    let mut r = Receiver::new();
    r.acks.on_ack_frequency(&frequency(3, 10, 5_000, 1)).unwrap();
    r.acks.on_ack_frequency(&frequency(3, 1, 9_000, 1)).unwrap();
    r.acks.on_ack_frequency(&frequency(2, 1, 9_000, 1)).unwrap();
    assert_eq!(r.acks.max_ack_delay, MS.times(5));
    r.acks.on_ack_frequency(&frequency(4, 1, 9_000, 1)).unwrap();
    assert_eq!(r.acks.max_ack_delay, MS.times(9));
    r.acks.on_ack_frequency(&frequency(5, u64::MAX, 9_000, u64::MAX)).unwrap();
    assert!((0..500).all(|pn| !r.acks(pn * 3)));
}

/// draft-ietf-quic-ack-frequency, Section 4: invalid values are PROTOCOL_VIOLATION.
#[test]
fn requests_out_of_range_are_violations() {
    let limit_us = (1 << 14) * 1000;
    for (delay_us, fine) in
        [(999, false), (1_000, true), (limit_us - 1, true), (limit_us, false), (u64::MAX, false)]
    {
        let result = Receiver::new().acks.on_ack_frequency(&frequency(0, 1, delay_us, 1));
        let code = result.err().map(|e| (e.code, e.frame_type));
        let violation = Some((TransportErrorCode::PROTOCOL_VIOLATION, 0xaf));
        assert_eq!(code, if fine { None } else { violation }, "{delay_us}");
    }
    // Even an obsolete one.
    let mut r = Receiver::asked(1, 1);
    assert!(r.acks.on_ack_frequency(&frequency(0, 1, 5, 1)).is_err());
}

#[test]
fn frames_of_an_extension_that_was_not_offered_are_violations() {
    let mut acks = AckScheduler::new(AckPolicy { min_ack_delay: None, ..POLICY });
    assert!(acks.on_ack_frequency(&frequency(0, 1, 5_000, 1)).is_err());
    assert!(acks.on_immediate_ack().is_err());
}

/// draft-ietf-quic-ack-frequency, Section 5.
#[test]
fn immediate_ack_is_obeyed() {
    let mut r = Receiver::asked(50, 0);
    assert!(!r.acks(0));
    r.acks.on_immediate_ack().unwrap();
    assert!(r.acks(1));
    assert!(!r.acks(2));
}

/// Receives packets in order of the table; panics where the ACKs differ from its last column.
fn follow_table(reordering: u64, rows: &[(u64, bool)]) {
    let mut r = Receiver::asked(1000, reordering);
    for &(pn, expected) in rows {
        assert_eq!(r.acks(pn), expected, "reordering threshold {reordering}, packet {pn}");
    }
}

/// draft-ietf-quic-ack-frequency, Section 6.2.1, Table 1.
#[test]
fn a_reordering_threshold_of_three_works_as_in_the_drafts_example() {
    follow_table(
        3,
        &[
            (0, false),
            (1, false),
            (3, false),
            (4, false),
            (5, true),
            (8, false),
            (9, true),
            (10, true),
        ],
    );
}

/// draft-ietf-quic-ack-frequency, Section 6.2.1, Table 2.
#[test]
fn a_reordering_threshold_of_five_works_as_in_the_drafts_example() {
    follow_table(
        5,
        &[
            (0, false),
            (1, false),
            (3, false),
            (5, false),
            (6, false),
            (7, true),
            (8, false),
            (9, true),
        ],
    );
}

/// draft-ietf-quic-ack-frequency, Section 6.2: the second condition.
#[test]
fn a_packet_that_the_peer_takes_for_lost_is_acknowledged_at_once() {
    follow_table(3, &[(0, false), (2, false), (3, false), (4, true), (1, true), (5, false)]);
}

#[test]
fn little_reordering_within_the_threshold_goes_unreported() {
    follow_table(3, &[(0, false), (2, false), (1, false), (4, false), (3, false), (5, false)]);
}

/// draft-ietf-quic-ack-frequency, Section 4.
#[test]
fn a_reordering_threshold_of_zero_ignores_order() {
    follow_table(0, &[(0, false), (9, false), (4, false), (90, false), (1, false)]);
}

/// Receives a bulk in trains of `train` packets, 1 ms apart; returns how many ACKs were sent when
/// they are sent at the end of each train.
fn bulk(r: &mut Receiver, first: u64, trains: u64, train: u64) -> usize {
    let mut sent = 0;
    for n in 0..trains {
        for pn in 0..train {
            r.packet(first + n * train + pn, true, EcnCodepoint::NotEct);
        }
        sent += usize::from(r.send_if_due());
        r.now += MS;
    }
    sent
}

#[test]
fn bulk_in_trains_is_acknowledged_less_often_and_by_round_trip() {
    let mut r = Receiver::new();
    r.acks.set_smoothed_rtt(MS.times(40));
    assert_eq!(bulk(&mut r, 0, 25, 4), 25, "the usual rate to begin with");
    let sent = bulk(&mut r, 100, 100, 4);
    assert!((30..=40).contains(&sent), "{sent}");
    while r.acks.should_bundle_ack() {
        r.acks.on_ack_sent(r.now);
    }
    r.packet(501, true, EcnCodepoint::NotEct);
    assert!(r.send_if_due(), "a hole is reported at once");
    r.packet(502, true, EcnCodepoint::NotEct);
    assert!(!r.send_if_due());
    r.packet(503, true, EcnCodepoint::NotEct);
    assert!(r.send_if_due(), "and ends the leniency");
}

#[test]
fn in_bulk_an_ack_waits_a_quarter_round_trip_at_most() {
    let mut r = Receiver::new();
    r.acks.set_smoothed_rtt(MS.times(40));
    bulk(&mut r, 0, 40, 4);
    r.acks.on_ack_sent(r.now);
    r.packet(160, true, EcnCodepoint::NotEct);
    assert_eq!(r.acks.ack_deadline(), Some(r.now + MS.times(10)));
}

#[test]
fn single_packets_are_acknowledged_at_the_usual_rate_however_many_they_are() {
    let mut r = Receiver::new();
    r.acks.set_smoothed_rtt(MS.times(40));
    assert_eq!(bulk(&mut r, 0, 1000, 1), 500);
    let mut plain = Receiver::with(AckScheduler::new(AckPolicy { train_threshold: 2, ..POLICY }));
    assert_eq!(bulk(&mut plain, 0, 300, 4), 300, "equal thresholds turn the difference off");
}

/// draft-ietf-quic-ack-frequency, Section 6.1.
#[test]
fn after_a_pause_the_first_packet_is_acknowledged_soon() {
    let mut r = Receiver::asked(20, 1);
    r.acks.set_smoothed_rtt(MS.times(30));
    assert!((0..20).all(|pn| !r.acks(pn)));
    assert!(r.acks(20));
    assert!(!r.acks(21));
    r.acks.on_ack_sent(r.now);
    r.now += MS.times(100);
    assert!(!r.acks(22), "an answer may take the ACK along");
    assert_eq!(r.acks.ack_deadline(), Some(r.now + Duration::from_micros(7500)));
    let due = r.acks.ack_deadline();
    r.now += MS;
    assert!(!r.acks(23));
    assert_eq!(r.acks.ack_deadline(), due, "the delay began with the first");
    r.acks.set_smoothed_rtt(Duration::from_micros(100));
    r.acks.on_ack_sent(r.now);
    r.now += MS.times(100);
    assert!(!r.acks(24));
    assert_eq!(r.acks.ack_deadline(), Some(r.now + MS), "timers are no finer");
}
