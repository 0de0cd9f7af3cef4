use super::*;

const MS: Duration = Duration::from_millis(1);
const START: Time = Time::from_nanos(1_000_000_000);

fn target(rtt_ms: u64, packets: u64) -> AckFrequencyTarget {
    AckFrequencyTarget {
        smoothed_rtt: MS.times(rtt_ms),
        congestion_window: packets * 1200,
        packet_size: 1200,
        reordering_threshold: 3,
    }
}

fn available() -> AckFrequencySender {
    let mut sender = AckFrequencySender::new();
    sender.on_peer_parameters(Some(MS), MS.times(25));
    sender
}

fn send(sender: &mut AckFrequencySender, now: Time) -> AckFrequency {
    let frame = sender.next_frame().expect("a frame is due");
    sender.on_frame_sent(now);
    assert!(sender.next_frame().is_none());
    frame
}

/// draft-ietf-quic-ack-frequency, Section 3.
#[test]
fn nothing_is_asked_of_a_peer_without_min_ack_delay() {
    let mut sender = AckFrequencySender::new();
    sender.update(START, &target(100, 100));
    assert!(sender.next_frame().is_none() && !sender.is_available());
    sender.on_peer_parameters(None, MS.times(40));
    sender.update(START, &target(100, 100));
    assert!(sender.next_frame().is_none());
    assert_eq!(sender.max_ack_delay(), MS.times(40));
}

/// draft-ietf-quic-ack-frequency, Section 8.1.
#[test]
fn several_acks_per_round_trip_and_window_are_asked_for() {
    let mut sender = available();
    sender.update(START, &target(100, 100));
    let frame = send(&mut sender, START);
    assert_eq!(frame.sequence_number, 0);
    assert_eq!(frame.ack_eliciting_threshold, 25);
    assert_eq!(frame.requested_max_ack_delay, 25_000);
    assert_eq!(frame.reordering_threshold, 3);
}

#[test]
fn requests_stay_within_the_peers_minimum_and_our_bounds() {
    let mut sender = available();
    sender.update(START, &target(1, 1));
    let frame = send(&mut sender, START);
    assert_eq!((frame.ack_eliciting_threshold, frame.requested_max_ack_delay), (1, 1_000));
    let mut sender = available();
    sender.update(START, &target(1 << 40, 1 << 40));
    let frame = send(&mut sender, START);
    assert_eq!((frame.ack_eliciting_threshold, frame.requested_max_ack_delay), (255, 250_000));
}

#[test]
fn small_changes_and_changes_within_a_round_trip_are_not_worth_a_frame() {
    let mut sender = available();
    sender.update(START, &target(100, 100));
    send(&mut sender, START);
    sender.on_frame_acked(0);
    sender.update(START + MS.times(200), &target(110, 150));
    assert!(sender.next_frame().is_none(), "less than a factor of two");
    sender.update(START + MS.times(50), &target(100, 400));
    assert!(sender.next_frame().is_none(), "less than a round trip ago");
    sender.on_path_changed();
    sender.update(START + MS.times(50), &target(100, 400));
    assert_eq!(send(&mut sender, START + MS.times(50)).sequence_number, 1);
}

#[test]
fn only_one_request_is_in_flight() {
    let mut sender = available();
    sender.update(START, &target(100, 100));
    send(&mut sender, START);
    sender.update(START + MS.times(1000), &target(100, 1000));
    assert!(sender.next_frame().is_none());
    sender.on_frame_acked(7);
    sender.update(START + MS.times(1000), &target(100, 1000));
    assert!(sender.next_frame().is_none(), "an ACK of another frame changes nothing");
    sender.on_frame_acked(0);
    sender.update(START + MS.times(1000), &target(100, 1000));
    assert!(sender.next_frame().is_some());
}

/// draft-ietf-quic-ack-frequency, Section 4.
#[test]
fn a_lost_request_is_repeated_under_a_new_sequence_number() {
    let mut sender = available();
    sender.update(START, &target(100, 100));
    let first = send(&mut sender, START);
    sender.on_frame_lost(0);
    let again = send(&mut sender, START + MS.times(300));
    assert_eq!(again, AckFrequency { sequence_number: 1, ..first });
    sender.on_frame_lost(0);
    assert!(sender.next_frame().is_none(), "the loss of the old one is old news");
}

/// draft-ietf-quic-ack-frequency, Section 7: MUST use the greater of current and in flight.
#[test]
fn the_pto_uses_the_largest_delay_that_the_peer_may_use() {
    let mut sender = available();
    sender.update(START, &target(20, 100));
    send(&mut sender, START);
    assert_eq!(sender.max_ack_delay(), MS.times(25), "the peer may not have the request of 5 ms");
    sender.on_frame_acked(0);
    assert_eq!(sender.max_ack_delay(), MS.times(5));
    let later = START + MS.times(1000);
    sender.update(later, &target(400, 100));
    assert_eq!(sender.max_ack_delay(), MS.times(5), "not sent yet");
    send(&mut sender, later);
    assert_eq!(sender.max_ack_delay(), MS.times(100), "the peer may have it already");
    sender.on_frame_lost(1);
    assert_eq!(sender.max_ack_delay(), MS.times(100), "even if it counts as lost");
    send(&mut sender, later + MS.times(500));
    sender.on_frame_acked(2);
    assert_eq!(sender.max_ack_delay(), MS.times(100));
}
