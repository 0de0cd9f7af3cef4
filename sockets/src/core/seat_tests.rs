//! Calls while somebody else leads, and does not leave.

use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use super::lead::Rank;
use crate::config::EndpointConfig;
use crate::ops;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// What calls do that must not wait, such as `try_write`, when much has come together.
#[test]
fn who_looks_for_acknowledgments_waits_for_nobody() {
    let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), EndpointConfig::default()).unwrap();
    let now = core.clock().now();
    for rank in [Rank::Background, Rank::Patient, Rank::Eager] {
        let seat = core.lead.try_enter(rank, now);
        assert!(seat.is_some());
        let (tell, done) = mpsc::channel();
        let core = core.clone();
        let glances = thread::spawn(move || {
            core.glance(now);
            tell.send(()).unwrap();
        });
        done.recv_timeout(PATIENCE).expect("it waits for the seat");
        glances.join().unwrap();
        drop(seat);
    }
}

#[test]
fn a_caller_gives_up_in_time_though_a_leader_of_lower_rank_does_not_leave() {
    let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), EndpointConfig::default()).unwrap();
    let _seat = core.lead.try_enter(Rank::Background, core.clock().now()).unwrap();
    let (tell, done) = mpsc::channel();
    let waits = core.clone();
    thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_millis(5);
        let answer = waits.block_on(Rank::Eager, Some(deadline), |_| Poll::<()>::Pending);
        tell.send((answer, Instant::now() >= deadline)).unwrap();
    });
    assert_eq!(done.recv_timeout(PATIENCE), Ok((None, true)));
}
