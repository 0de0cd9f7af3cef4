use super::*;
use crate::cid::test_support::TestRandom;
use crate::random::Random;

const LINGER: Duration = Duration::from_millis(300);
const START: Time = Time::from_nanos(50_000_000_000);
const TOKEN: StatelessResetToken = StatelessResetToken([9; 16]);

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

/// Issues what is wanted; connection IDs are numbered as their sequence numbers are.
fn supply(cids: &mut LocalCids, now: Time) -> usize {
    let wanted = cids.wanted(now);
    for _ in 0..wanted {
        let sequence = cids.next_sequence;
        assert_eq!(cids.issue(cid(sequence), TOKEN), sequence);
    }
    wanted
}

fn with_limit(limit: u64) -> LocalCids {
    let mut cids = LocalCids::new(cid(0));
    cids.set_peer_limit(limit);
    cids
}

fn retire(cids: &mut LocalCids, now: Time, sequence: u64) -> Result<(), TransportError> {
    // In a packet to a connection ID that is not the retired one.
    let used = cid(u64::MAX);
    cids.on_retire(now, &RetireConnectionId { sequence_number: sequence }, &used, LINGER)
}

fn send_all(cids: &mut LocalCids) -> Vec<NewConnectionId> {
    core::iter::from_fn(|| {
        let frame = cids.next_frame()?;
        cids.on_frame_sent(frame.sequence_number);
        Some(frame)
    })
    .collect()
}

fn events(cids: &mut LocalCids, now: Time) -> Vec<CidEvent> {
    core::iter::from_fn(|| cids.poll_event(now)).collect()
}

/// RFC 9000, Section 5.1.1.
#[test]
fn the_peer_is_kept_supplied_up_to_its_limit() {
    let mut cids = LocalCids::new(cid(0));
    assert_eq!(cids.wanted(START), 0, "its limit is not known yet");
    cids.set_peer_limit(4);
    assert_eq!(supply(&mut cids, START), 3);
    assert_eq!(cids.wanted(START), 0);
    let sequences: Vec<u64> = send_all(&mut cids).iter().map(|f| f.sequence_number).collect();
    assert_eq!(sequences, [1, 2, 3]);
    assert_eq!(
        events(&mut cids, START),
        [CidEvent::Added(cid(1)), CidEvent::Added(cid(2)), CidEvent::Added(cid(3))]
    );
    retire(&mut cids, START, 0).unwrap();
    assert_eq!(supply(&mut cids, START), 1);
}

#[test]
fn our_own_cap_holds_whatever_the_peer_accepts() {
    let mut cids = with_limit(u64::MAX);
    supply(&mut cids, START);
    assert_eq!(cids.issued.len(), MAX_LOCAL_CIDS);
}

#[test]
fn connection_ids_of_zero_length_are_all_there_is() {
    let mut cids = LocalCids::new(ConnectionId::EMPTY);
    cids.set_peer_limit(8);
    assert_eq!(cids.wanted(START), 0);
    assert!(!cids.rotate() && cids.timeout().is_none());
    // RFC 9000, Section 19.16.
    let error = retire(&mut cids, START, 0).unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
}

/// RFC 9000, Section 5.1.1: the preferred address has sequence number 1.
#[test]
fn the_preferred_address_takes_sequence_number_one() {
    let mut cids = LocalCids::new(cid(0));
    cids.add_preferred(cid(1), TOKEN);
    assert_eq!(events(&mut cids, START), [CidEvent::Added(cid(1))]);
    assert!(cids.next_frame().is_none(), "it goes in the transport parameters");
    cids.set_peer_limit(2);
    assert_eq!(cids.wanted(START), 0);
    retire(&mut cids, START, 0).unwrap();
    supply(&mut cids, START);
    assert_eq!(cids.next_frame().unwrap().sequence_number, 2);
}

/// RFC 9000, Section 19.16.
#[test]
fn retiring_what_was_never_issued_or_what_the_packet_used_is_a_violation() {
    let mut cids = with_limit(2);
    supply(&mut cids, START);
    let error = retire(&mut cids, START, 2).unwrap_err();
    assert_eq!((error.code, error.frame_type), (TransportErrorCode::PROTOCOL_VIOLATION, 0x19));
    let frame = RetireConnectionId { sequence_number: 1 };
    let error = cids.on_retire(START, &frame, &cid(1), LINGER).unwrap_err();
    assert_eq!(error.code, TransportErrorCode::PROTOCOL_VIOLATION);
    cids.on_retire(START, &frame, &cid(0), LINGER).unwrap();
    cids.on_retire(START, &frame, &cid(0), LINGER).expect("repeated frames are harmless");
}

#[test]
fn a_retired_connection_id_leads_here_a_little_longer() {
    let mut cids = with_limit(2);
    supply(&mut cids, START);
    events(&mut cids, START);
    retire(&mut cids, START, 0).unwrap();
    assert_eq!(cids.sequence_of(&cid(0)), Some(0));
    assert_eq!(cids.timeout(), Some(START + LINGER));
    assert_eq!(events(&mut cids, START + LINGER - Duration::from_nanos(1)), []);
    assert_eq!(events(&mut cids, START + LINGER), [CidEvent::Retired(cid(0))]);
    assert_eq!(cids.sequence_of(&cid(0)), None);
    assert_eq!(cids.timeout(), None);
    retire(&mut cids, START, 0).expect("retired long ago");
}

/// RFC 9000, Section 13.3.
#[test]
fn lost_frames_are_repeated_as_they_were_until_acknowledged_or_retired() {
    let mut cids = with_limit(3);
    supply(&mut cids, START);
    let sent = send_all(&mut cids);
    cids.on_frame_lost(1);
    assert_eq!(send_all(&mut cids), sent[..1]);
    cids.on_frame_acked(1);
    cids.on_frame_lost(1);
    assert!(cids.next_frame().is_none(), "a late loss of the first copy");
    retire(&mut cids, START, 2).unwrap();
    cids.on_frame_lost(2);
    assert!(cids.next_frame().is_none(), "the peer has it, or it could not have retired it");
}

/// RFC 9000, Sections 5.1.2 and 19.15.
#[test]
fn rotation_asks_for_retirement_of_all_and_gives_as_many_anew() {
    let mut cids = with_limit(3);
    supply(&mut cids, START);
    send_all(&mut cids);
    cids.on_frame_lost(2);
    assert!(cids.rotate());
    assert_eq!(supply(&mut cids, START), 3);
    let frames = send_all(&mut cids);
    let prior: Vec<(u64, u64)> =
        frames.iter().map(|f| (f.sequence_number, f.retire_prior_to)).collect();
    assert_eq!(prior, [(2, 2), (3, 3), (4, 3), (5, 3)], "never above the frame's own number");
    assert!(!cids.rotate(), "one rotation at a time");
    for sequence in 0..3 {
        retire(&mut cids, START, sequence).unwrap();
    }
    assert_eq!(cids.wanted(START), 0);
    assert!(cids.rotate());
}

/// RFC 9000, Section 21.9.
#[test]
fn a_peer_that_retires_without_end_is_slowed_down_and_costs_bounded_memory() {
    let mut cids = with_limit(8);
    supply(&mut cids, START);
    let mut issued = 0;
    let mut now = START;
    for n in 0..10_000u64 {
        now += Duration::from_millis(1);
        let oldest = cids.issued.iter().find(|i| i.lingers_until.is_none()).map(|i| i.sequence);
        if let Some(sequence) = oldest {
            retire(&mut cids, now, sequence).unwrap();
        }
        issued += supply(&mut cids, now);
        assert!(cids.issued.len() <= MAX_HELD, "{n}");
        events(&mut cids, now);
    }
    // 10 s at one per 100 ms, and the burst.
    assert!((100..=140).contains(&issued), "{issued}");
    assert!(cids.timeout().is_some_and(|t| t > now), "the refill is waited for");
}

#[test]
fn routes_end_by_themselves_even_if_nobody_asks_for_a_while() {
    let mut cids = with_limit(8);
    for _ in 0..200 {
        supply(&mut cids, START);
        let held: Vec<u64> = cids.issued.iter().map(|i| i.sequence).collect();
        held.iter().for_each(|s| retire(&mut cids, START, *s).unwrap());
        assert!(cids.issued.len() <= MAX_HELD);
    }
}

#[test]
fn the_endpoint_hears_of_every_route_exactly_once() {
    for seed in 0..100 {
        let mut random = TestRandom::new(seed);
        let mut cids = with_limit(2 + random.below(8));
        let mut routes = alloc::collections::BTreeSet::from([cid(0)]);
        let mut now = START;
        for _ in 0..300 {
            now += Duration::from_millis(random.below(80));
            match random.below(5) {
                0 => {
                    let sequence = random.below(cids.next_sequence);
                    retire(&mut cids, now, sequence).unwrap();
                }
                1 => {
                    cids.rotate();
                }
                2 => drop(send_all(&mut cids)),
                3 => cids.on_frame_lost(random.below(cids.next_sequence)),
                _ => {
                    supply(&mut cids, now);
                }
            }
            for event in events(&mut cids, now) {
                match event {
                    CidEvent::Added(cid) => assert!(routes.insert(cid), "seed {seed}"),
                    CidEvent::Retired(cid) => assert!(routes.remove(&cid), "seed {seed}"),
                }
            }
            assert!(cids.active_count() <= cids.limit, "seed {seed}");
            assert_eq!(cids.issued.iter().map(|i| i.cid).collect::<Vec<_>>(), {
                let mut held: Vec<ConnectionId> = routes.iter().copied().collect();
                held.sort();
                held
            });
        }
    }
}

/// RFC 9000, Section 5.1.2.
#[test]
fn the_peer_is_asked_to_retire_those_below_a_number() {
    let mut cids = with_limit(4);
    supply(&mut cids, START);
    send_all(&mut cids);
    let numbers = |first, last| CidNumbers { first, last, active: None };
    assert_eq!(cids.numbers(), numbers(0, 3));
    assert!(!cids.retire_prior_to(4), "never issued");
    assert!(cids.retire_prior_to(2));
    assert_eq!(supply(&mut cids, START), 2);
    let frames = send_all(&mut cids);
    assert!(frames.iter().all(|frame| frame.retire_prior_to == 2));
    assert!(!cids.retire_prior_to(3), "the last request is not answered");
    retire(&mut cids, START, 0).unwrap();
    retire(&mut cids, START, 1).unwrap();
    assert_eq!(cids.numbers(), numbers(2, 5));
    assert!(!cids.retire_prior_to(2), "done already");
    assert!(cids.retire_prior_to(3));
}
