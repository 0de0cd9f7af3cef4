use alloc::collections::BTreeSet;

use super::*;
use crate::cid::test_support::{TestCrypto, TestRandom};
use crate::random::Random;

const FIRST: PathKey = PathKey(0);
const SECOND: PathKey = PathKey(1);

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

fn token(n: u64) -> StatelessResetToken {
    StatelessResetToken([n as u8 ^ 0x5a; 16])
}

fn frame(sequence: u64, retire_prior_to: u64) -> NewConnectionId {
    NewConnectionId {
        sequence_number: sequence,
        retire_prior_to,
        connection_id: cid(sequence),
        stateless_reset_token: token(sequence),
    }
}

fn with(limit: u64, given: impl IntoIterator<Item = u64>) -> RemoteCids {
    let mut cids = RemoteCids::new(cid(0), FIRST, limit);
    given.into_iter().for_each(|n| cids.on_new_connection_id(&frame(n, 0)).unwrap());
    cids
}

fn code(result: Result<(), TransportError>) -> Option<TransportErrorCode> {
    result.err().map(|e| e.code)
}

fn send_retirements(cids: &mut RemoteCids) -> Vec<u64> {
    core::iter::from_fn(|| {
        let sequence = cids.next_frame()?.sequence_number;
        cids.on_frame_sent(sequence);
        Some(sequence)
    })
    .collect()
}

/// RFC 9000, Section 9.5.
#[test]
fn each_path_gets_a_connection_id_of_its_own() {
    let mut cids = with(4, 1..4);
    assert_eq!(cids.get(FIRST), Some(cid(0)));
    assert_eq!(cids.get(SECOND), None);
    assert_eq!(cids.unused(), 3);
    assert_eq!(cids.take_unused(SECOND), Some(cid(1)));
    assert_eq!(cids.take_unused(SECOND), Some(cid(1)), "a path keeps what it has");
    assert_eq!(cids.get(SECOND), Some(cid(1)));
    assert_eq!(cids.take_unused(PathKey(2)), Some(cid(2)));
    assert_eq!(cids.take_unused(PathKey(3)), Some(cid(3)));
    assert_eq!(cids.take_unused(PathKey(4)), None);
}

#[test]
fn a_path_that_ends_retires_its_connection_id() {
    let mut cids = with(4, 1..3);
    cids.take_unused(SECOND);
    cids.release(FIRST).unwrap();
    assert_eq!(cids.get(FIRST), None);
    assert_eq!(send_retirements(&mut cids), [0]);
    cids.release(FIRST).expect("nothing left to release");
    assert_eq!(send_retirements(&mut cids), []);
}

/// RFC 9000, Section 9.5: after a NAT rebinding both addresses use the same connection ID.
#[test]
fn a_shared_connection_id_is_retired_by_its_last_path() {
    let mut cids = with(4, 1..3);
    assert_eq!(cids.share(FIRST, SECOND), Some(cid(0)));
    cids.release(FIRST).unwrap();
    assert_eq!(cids.get(SECOND), Some(cid(0)));
    assert_eq!(send_retirements(&mut cids), []);
    cids.release(SECOND).unwrap();
    assert_eq!(send_retirements(&mut cids), [0]);
    assert_eq!(cids.share(FIRST, PathKey(3)), None);
}

#[test]
fn rotation_takes_an_unused_connection_id_if_there_is_one() {
    let mut cids = with(4, []);
    assert_eq!(cids.rotate(FIRST), Ok(false));
    assert_eq!(cids.get(FIRST), Some(cid(0)));
    cids.on_new_connection_id(&frame(1, 0)).unwrap();
    assert_eq!(cids.rotate(FIRST), Ok(true));
    assert_eq!(cids.get(FIRST), Some(cid(1)));
    assert_eq!(send_retirements(&mut cids), [0]);
}

#[test]
fn the_servers_choice_replaces_the_first_connection_id() {
    let mut cids = with(4, []);
    cids.set_initial(cid(77));
    assert_eq!(cids.get(FIRST), Some(cid(77)));
}

/// RFC 9000, Section 5.1.1: CONNECTION_ID_LIMIT_ERROR.
#[test]
fn more_than_the_limit_at_a_time_is_an_error() {
    let mut cids = with(3, 1..3);
    let result = cids.on_new_connection_id(&frame(3, 0));
    assert_eq!(code(result), Some(TransportErrorCode::CONNECTION_ID_LIMIT_ERROR));
    let mut cids = with(3, 1..3);
    cids.on_new_connection_id(&frame(3, 1)).expect("one more against one retired");
    assert_eq!(code(cids.on_new_connection_id(&frame(2, 0))), None, "repeated");
}

/// RFC 9000, Section 19.15.
#[test]
fn contradictions_are_protocol_violations() {
    let violation = Some(TransportErrorCode::PROTOCOL_VIOLATION);
    let other_cid = NewConnectionId { connection_id: cid(50), ..frame(1, 0) };
    let other_sequence = NewConnectionId { sequence_number: 2, ..frame(1, 0) };
    let other_token = NewConnectionId { stateless_reset_token: token(50), ..frame(1, 0) };
    let initial_again = NewConnectionId { connection_id: cid(0), ..frame(5, 0) };
    for contradiction in [other_cid, other_sequence, other_token, initial_again] {
        let mut cids = with(4, [1]);
        let result = cids.on_new_connection_id(&contradiction);
        assert_eq!(code(result), violation, "{contradiction:?}");
    }
    let result = with(4, [1]).on_new_connection_id(&frame(1, 0));
    assert_eq!(code(result), None, "the same again is fine");
}

/// RFC 9000, Section 19.15.
#[test]
fn malformed_frames_and_zero_length_peers_are_refused() {
    let encoding = Some(TransportErrorCode::FRAME_ENCODING_ERROR);
    assert_eq!(code(with(4, []).on_new_connection_id(&frame(1, 2))), encoding);
    let empty = NewConnectionId { connection_id: ConnectionId::EMPTY, ..frame(1, 0) };
    assert_eq!(code(with(4, []).on_new_connection_id(&empty)), encoding);
    let mut cids = RemoteCids::new(ConnectionId::EMPTY, FIRST, 4);
    let result = cids.on_new_connection_id(&frame(1, 0));
    assert_eq!(code(result), Some(TransportErrorCode::PROTOCOL_VIOLATION));
}

/// RFC 9000, Section 5.1.2.
#[test]
fn retire_prior_to_moves_paths_to_new_connection_ids_at_once() {
    let mut cids = with(4, 1..3);
    cids.take_unused(SECOND);
    cids.on_new_connection_id(&frame(5, 2)).unwrap();
    let used = BTreeSet::from([cids.get(FIRST).unwrap(), cids.get(SECOND).unwrap()]);
    assert_eq!(used, BTreeSet::from([cid(2), cid(5)]));
    assert_eq!(send_retirements(&mut cids), [0, 1]);
}

#[test]
fn a_path_without_connection_id_gets_the_next_one_that_comes() {
    let mut cids = with(4, [1]);
    cids.take_unused(SECOND);
    cids.on_new_connection_id(&frame(4, 4)).unwrap();
    let served = [FIRST, SECOND].iter().filter(|p| cids.get(**p).is_some()).count();
    assert_eq!(served, 1);
    cids.on_new_connection_id(&frame(5, 4)).unwrap();
    assert!(cids.get(FIRST).is_some() && cids.get(SECOND).is_some());
    assert_eq!(cids.unused(), 0);
}

/// RFC 9000, Section 19.15: retired at once, though only once.
#[test]
fn a_connection_id_that_comes_after_its_retirement_is_retired_unused() {
    let mut cids = with(4, []);
    cids.on_new_connection_id(&frame(5, 5)).unwrap();
    assert_eq!(send_retirements(&mut cids), [0]);
    cids.on_new_connection_id(&frame(3, 0)).unwrap();
    assert_eq!(send_retirements(&mut cids), [3]);
    cids.on_frame_acked(3);
    cids.on_new_connection_id(&frame(3, 0)).unwrap();
    assert_eq!(send_retirements(&mut cids), []);
    assert_eq!(cids.get(FIRST), Some(cid(5)));
}

#[test]
fn a_repeated_frame_does_not_bring_back_what_we_retired_ourselves() {
    let mut cids = with(4, 1..4);
    cids.rotate(FIRST).unwrap();
    cids.rotate(FIRST).unwrap();
    assert_eq!(send_retirements(&mut cids), [0, 1]);
    cids.on_frame_acked(0);
    cids.on_frame_acked(1);
    cids.on_new_connection_id(&frame(1, 0)).unwrap();
    assert_eq!((cids.unused(), send_retirements(&mut cids)), (1, [].into()));
}

#[test]
fn retirements_are_repeated_until_acknowledged() {
    let mut cids = with(4, 1..3);
    cids.rotate(FIRST).unwrap();
    assert_eq!(send_retirements(&mut cids), [0]);
    cids.on_frame_lost(0);
    assert_eq!(send_retirements(&mut cids), [0]);
    cids.on_frame_acked(0);
    cids.on_frame_lost(0);
    assert_eq!(send_retirements(&mut cids), []);
}

/// RFC 9000, Section 5.1.2: a peer that sends Retire Prior To without end while it withholds
/// acknowledgments cannot make the queue of retirements grow without end.
#[test]
fn the_queue_of_retirements_is_bounded() {
    let mut cids = with(8, []);
    let mut accepted = 0;
    let error = loop {
        let n = accepted + 1;
        match cids.on_new_connection_id(&frame(n, n)) {
            Ok(()) => accepted = n,
            Err(error) => break error,
        }
        send_retirements(&mut cids);
        assert!(cids.retiring.len() <= 8 * RETIRING_PER_ACTIVE);
    };
    assert_eq!(error.code, TransportErrorCode::CONNECTION_ID_LIMIT_ERROR);
    assert!(accepted >= 2 * 8, "RFC 9000 asks for at least twice the limit: {accepted}");
}

#[test]
fn late_frames_cannot_flood_the_queue_of_retirements_either() {
    let mut cids = with(2, []);
    cids.on_new_connection_id(&frame(1000, 1000)).unwrap();
    let error = (0..1000).rev().find_map(|n| cids.on_new_connection_id(&frame(n, 0)).err());
    assert_eq!(error.unwrap().code, TransportErrorCode::CONNECTION_ID_LIMIT_ERROR);
    assert!(cids.retiring.len() <= 2 * RETIRING_PER_ACTIVE);
}

/// RFC 9000, Section 10.3.1.
#[test]
fn only_tokens_of_connection_ids_in_use_reset_the_connection() {
    let mut cids = with(4, 1..3);
    let resets = |cids: &RemoteCids, n| cids.is_reset_token(&TestCrypto, &token(n).0);
    assert!(!resets(&cids, 0) && !resets(&cids, 1));
    let before = cids.generation();
    cids.set_initial_token(token(0));
    assert_ne!(cids.generation(), before);
    assert!(resets(&cids, 0) && !resets(&cids, 1));
    cids.take_unused(SECOND);
    assert!(resets(&cids, 0) && resets(&cids, 1) && !resets(&cids, 2));
    let before = cids.generation();
    cids.release(FIRST).unwrap();
    assert_ne!(cids.generation(), before);
    assert!(!resets(&cids, 0) && resets(&cids, 1));
    assert_eq!(cids.reset_tokens().count(), 1);
}

#[test]
fn the_preferred_address_has_sequence_number_one() {
    let mut cids = with(4, []);
    cids.add_preferred(cid(1), token(1));
    assert_eq!(cids.take_unused(SECOND), Some(cid(1)));
    let result =
        cids.on_new_connection_id(&NewConnectionId { connection_id: cid(9), ..frame(1, 0) });
    assert_eq!(code(result), Some(TransportErrorCode::PROTOCOL_VIOLATION));
}

#[test]
fn connection_ids_of_zero_length_serve_every_path_and_are_never_retired() {
    let mut cids = RemoteCids::new(ConnectionId::EMPTY, FIRST, 4);
    assert_eq!(cids.take_unused(SECOND), Some(ConnectionId::EMPTY));
    cids.release(FIRST).unwrap();
    cids.release(SECOND).unwrap();
    assert_eq!(send_retirements(&mut cids), []);
    assert_eq!(cids.take_unused(PathKey(2)), Some(ConnectionId::EMPTY));
}

/// A peer that follows the rules, some loss and repetition: never an error, never more held than
/// announced, no connection ID on two paths, none used after its retirement.
#[test]
fn an_honest_peer_is_never_refused() {
    for seed in 0..200 {
        let mut random = TestRandom::new(seed);
        let limit = 2 + random.below(7);
        let mut cids = RemoteCids::new(cid(0), FIRST, limit);
        let (mut next, mut prior, mut active) = (1, 0, BTreeSet::from([0]));
        let mut sent = Vec::new();
        for _ in 0..200 {
            match random.below(8) {
                0..=2 if (active.len() as u64) < limit => {
                    sent.push(frame(next, prior));
                    active.insert(next);
                    next += 1;
                    cids.on_new_connection_id(sent.last().unwrap()).unwrap();
                }
                3 if !sent.is_empty() => {
                    let again = sent[random.below(sent.len() as u64) as usize];
                    cids.on_new_connection_id(&again).unwrap();
                }
                4 if random.below(4) == 0 && active.iter().all(|s| *s >= prior) => {
                    prior = next;
                    sent.push(frame(next, prior));
                    active.insert(next);
                    next += 1;
                    cids.on_new_connection_id(sent.last().unwrap()).unwrap();
                }
                5 => drop(cids.rotate(FIRST).unwrap()),
                6 => drop(cids.take_unused(PathKey(random.below(4) as u8))),
                _ => cids.release(PathKey(1 + random.below(3) as u8)).unwrap(),
            }
            for sequence in send_retirements(&mut cids) {
                if random.below(3) == 0 {
                    cids.on_frame_lost(sequence);
                } else {
                    assert!(active.remove(&sequence), "seed {seed}: retired twice");
                    cids.on_frame_acked(sequence);
                }
            }
            assert!(cids.given.len() as u64 <= limit, "seed {seed}");
            let paths: Vec<_> = (0..4).filter_map(|p| cids.get(PathKey(p))).collect();
            assert_eq!(paths.iter().collect::<BTreeSet<_>>().len(), paths.len(), "seed {seed}");
            assert!(cids.given.iter().all(|g| active.contains(&g.sequence)), "seed {seed}");
        }
    }
}

#[test]
fn a_chosen_connection_id_leaves_lower_ones_behind_unretired() {
    let mut cids = with(6, 1..6);
    assert!(cids.switch_to(FIRST, 3));
    let numbers = CidNumbers { first: 0, last: 5, active: Some(3) };
    assert_eq!((cids.get(FIRST), cids.numbers(FIRST)), (Some(cid(3)), numbers));
    assert_eq!(cids.next_frame(), None);
    assert_eq!(cids.unused(), 2, "what was passed over is not used again");
    for refused in [0, 2, 3, 6] {
        assert!(!cids.switch_to(FIRST, refused), "{refused}");
    }
    assert_eq!(cids.take_unused(SECOND), Some(cid(4)));
    cids.release(SECOND).unwrap();
    assert_eq!(send_retirements(&mut cids), [4]);
    let tokens: Vec<_> = cids.reset_tokens().copied().collect();
    assert!(tokens.contains(&token(1)), "the peer may still know the connection by it");
}

/// RFC 9000, Section 5.1.2.
#[test]
fn connection_ids_below_a_number_are_retired_on_request() {
    let mut cids = with(6, 1..6);
    cids.retire_prior_to(3).unwrap();
    assert_eq!(send_retirements(&mut cids), [0, 1, 2]);
    assert_eq!(cids.get(FIRST), Some(cid(3)), "its path takes another");
    assert_eq!(cids.numbers(FIRST), CidNumbers { first: 3, last: 5, active: Some(3) });
    cids.retire_prior_to(2).unwrap();
    assert_eq!(send_retirements(&mut cids), []);
}
