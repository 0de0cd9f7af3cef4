use super::*;

const PTO: Duration = Duration::from_millis(100);
const NOW: Time = Time::from_nanos(1_000_000_000);

fn counts(ect0: u64, ect1: u64, ce: u64) -> Option<EcnCounts> {
    Some(EcnCounts { ect0, ect1, ce })
}

/// Sends `packets` with whatever mark the path asks for; returns how many were marked.
fn send(ecn: &mut EcnValidation, space: &mut EcnSpace, packets: usize) -> u64 {
    let mut marked = 0;
    for _ in 0..packets {
        let codepoint = ecn.codepoint();
        space.on_sent(codepoint);
        ecn.on_sent(NOW, codepoint, PTO);
        marked += u64::from(codepoint == EcnCodepoint::Ect0);
    }
    marked
}

/// A path that was found capable by its first packet.
fn capable() -> (EcnValidation, EcnSpace) {
    let (mut ecn, mut space) = (EcnValidation::new(true), EcnSpace::default());
    assert_eq!(send(&mut ecn, &mut space, 1), 1);
    assert_eq!(ecn.on_ack(&mut space, 1, counts(1, 0, 0)), EcnOutcome::Unchanged);
    assert!(ecn.is_capable());
    (ecn, space)
}

/// RFC 9000, Appendix A.4.
#[test]
fn the_first_ten_packets_are_marked_and_then_none_until_validated() {
    let (mut ecn, mut space) = (EcnValidation::new(true), EcnSpace::default());
    assert_eq!(send(&mut ecn, &mut space, 30), 10);
    assert_eq!(ecn.on_ack(&mut space, 3, counts(3, 0, 0)), EcnOutcome::Unchanged);
    assert_eq!(send(&mut ecn, &mut space, 30), 30);
}

/// RFC 9000, Appendix A.4: or for three PTOs.
#[test]
fn testing_ends_after_three_ptos_or_with_a_probe_timeout() {
    let mut ecn = EcnValidation::new(true);
    ecn.on_sent(NOW, EcnCodepoint::Ect0, PTO);
    ecn.on_sent(NOW + PTO.times(3), EcnCodepoint::Ect0, PTO);
    assert_eq!(ecn.codepoint(), EcnCodepoint::NotEct);
    let mut ecn = EcnValidation::new(true);
    ecn.on_pto();
    assert_eq!(ecn.codepoint(), EcnCodepoint::Ect0, "nothing was marked yet");
    ecn.on_sent(NOW, EcnCodepoint::Ect0, PTO);
    ecn.on_pto();
    assert_eq!(ecn.codepoint(), EcnCodepoint::NotEct);
    let (mut ecn, _) = capable();
    ecn.on_pto();
    assert!(ecn.is_capable());
}

#[test]
fn nothing_is_marked_when_turned_off() {
    let (mut ecn, mut space) = (EcnValidation::new(false), EcnSpace::default());
    assert_eq!(send(&mut ecn, &mut space, 5), 0);
    assert_eq!(ecn.on_ack(&mut space, 0, counts(0, 0, 9)), EcnOutcome::Unchanged);
}

/// RFC 9000, Section 13.4.2.1.
#[test]
fn an_ack_without_counts_for_marked_packets_fails_validation() {
    let (mut ecn, mut space) = capable();
    assert_eq!(ecn.on_ack(&mut space, 0, None), EcnOutcome::Unchanged);
    assert_eq!(ecn.on_ack(&mut space, 1, None), EcnOutcome::Failed);
    assert_eq!(ecn.codepoint(), EcnCodepoint::NotEct);
    assert_eq!(ecn.on_ack(&mut space, 1, counts(2, 0, 0)), EcnOutcome::Unchanged, "for good");
    assert!(!ecn.is_capable());
}

/// RFC 9000, Section 13.4.2.1: every way that counts can be wrong.
#[test]
fn implausible_counts_fail_validation() {
    for (what, newly_acked, reported) in [
        ("fewer marks than packets: bleached", 5, counts(3, 0, 0)),
        ("ECT(1), which was never sent", 5, counts(1, 5, 0)),
        ("one ECT(1) among the rest", 5, counts(6, 1, 0)),
        ("more marks than packets sent", 5, counts(100, 0, 0)),
        ("more CE than packets sent", 5, counts(0, 0, 100)),
        ("a count that went down", 0, counts(0, 0, 1)),
    ] {
        let (mut ecn, mut space) = capable();
        send(&mut ecn, &mut space, 10);
        assert_eq!(ecn.on_ack(&mut space, newly_acked, reported), EcnOutcome::Failed, "{what}");
    }
}

/// RFC 9002, Section 7.1.
#[test]
fn each_increase_of_ce_is_congestion_once() {
    let (mut ecn, mut space) = capable();
    send(&mut ecn, &mut space, 20);
    assert_eq!(ecn.on_ack(&mut space, 5, counts(4, 0, 2)), EcnOutcome::Congestion(2));
    assert_eq!(ecn.on_ack(&mut space, 5, counts(9, 0, 2)), EcnOutcome::Unchanged);
    assert_eq!(ecn.on_ack(&mut space, 1, counts(9, 0, 3)), EcnOutcome::Congestion(1));
}

/// RFC 9000, Section 13.4.2.1: ACK frames get lost, so counts may run ahead.
#[test]
fn counts_of_packets_acknowledged_before_are_accepted() {
    let (mut ecn, mut space) = capable();
    send(&mut ecn, &mut space, 20);
    assert_eq!(ecn.on_ack(&mut space, 2, counts(15, 0, 0)), EcnOutcome::Unchanged);
    assert!(ecn.is_capable());
}

#[test]
fn all_packets_marked_by_the_network_are_still_a_capable_path() {
    let (mut ecn, mut space) = (EcnValidation::new(true), EcnSpace::default());
    send(&mut ecn, &mut space, 10);
    assert_eq!(ecn.on_ack(&mut space, 10, counts(0, 0, 10)), EcnOutcome::Congestion(10));
    assert!(ecn.is_capable());
}

/// RFC 9000, Appendix A.4.
#[test]
fn a_path_that_loses_all_marked_packets_fails() {
    let (mut ecn, mut space) = (EcnValidation::new(true), EcnSpace::default());
    send(&mut ecn, &mut space, 12);
    ecn.on_marked_lost(9);
    assert_eq!(ecn.state, State::Unknown);
    ecn.on_marked_lost(1);
    assert_eq!(ecn.state, State::Failed);
    let (mut ecn, _) = capable();
    ecn.on_marked_lost(1000);
    assert!(ecn.is_capable(), "losses later on are congestion");
}

/// RFC 9000, Section 13.4.2: counts go on, validation starts over.
#[test]
fn a_new_path_is_tested_anew_against_the_counts_of_its_space() {
    let (mut old, mut space) = capable();
    send(&mut old, &mut space, 50);
    assert_eq!(old.on_ack(&mut space, 50, counts(51, 0, 0)), EcnOutcome::Unchanged);
    let mut ecn = EcnValidation::new(true);
    assert_eq!(send(&mut ecn, &mut space, 3), 3);
    assert_eq!(ecn.on_ack(&mut space, 3, counts(54, 0, 0)), EcnOutcome::Unchanged);
    assert!(ecn.is_capable());
    let mut bleached = EcnValidation::new(true);
    send(&mut bleached, &mut space, 3);
    assert_eq!(bleached.on_ack(&mut space, 3, counts(54, 0, 0)), EcnOutcome::Failed);
}

#[test]
fn extreme_counts_do_no_harm() {
    let (mut ecn, mut space) = capable();
    let all = counts(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(ecn.on_ack(&mut space, u64::MAX, all), EcnOutcome::Failed);
}
