//! Calls while somebody else leads, and does not leave.

use std::net::UdpSocket;
use std::sync::{Arc, mpsc};
use std::task::{Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::lead::Rank;
use super::receive::Origin;
use super::{CoreRef, Waiter, WaiterId};
use crate::config::EndpointConfig;
use crate::{ClientConfig, ClientTls, ops};

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

/// A waker that wants the seat.
struct Greedy(CoreRef, mpsc::Sender<bool>);

impl Wake for Greedy {
    fn wake(self: Arc<Self>) {
        let seat = self.0.lead.try_enter(Rank::Eager, self.0.clock().now());
        self.1.send(seat.is_some()).unwrap();
    }
}

#[test]
fn tasks_are_woken_for_a_closed_port_when_the_seat_is_left() {
    let core = ops::endpoint("127.0.0.1:0".parse().unwrap(), EndpointConfig::default()).unwrap();
    let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let tls = ClientTls::builder().dangerous_no_verification().alpn(["test"]).build().unwrap();
    let conn = core.connect(closed, "localhost", &ClientConfig::new(tls), false).unwrap();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Greedy(core.clone(), tell)));
    let waiter = Waiter::task(WaiterId::unique(), &waker);
    assert!(conn.poll_established(Some(waiter)).is_pending());
    let start = Instant::now();
    let free = loop {
        let mut seat = core.lead.try_enter(Rank::Eager, core.clock().now()).unwrap();
        let links = core.links();
        core.receive_from(
            &links.current().unwrap().socket,
            Origin::Socket,
            seat.scratch().unwrap(),
        );
        drop(seat);
        if let Ok(free) = told.try_recv() {
            break free;
        }
        assert!(start.elapsed() < PATIENCE, "nothing is heard of the port");
        thread::sleep(Duration::from_millis(1));
    };
    assert!(free, "somebody else's code runs in the seat");
}
