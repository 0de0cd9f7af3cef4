use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;

use super::kick::Kick;
use super::parker::{CurrentThread, Roused};

/// Wakes the calling thread from another one.
fn wake(current: &CurrentThread) {
    let parker = Arc::clone(current.parker());
    thread::spawn(move || parker.wake_now()).join().unwrap();
}

#[test]
fn a_wake_before_parking_is_not_lost() {
    for bed in [None, Some(Arc::new(Kick::new().unwrap()))] {
        let current = CurrentThread::get();
        current.reset();
        wake(&current);
        assert_eq!(current.park(None, bed.as_ref()), Roused::Woken);
        assert!(current.is_woken());
    }
}

#[test]
fn a_summons_is_told_from_a_wake() {
    let current = CurrentThread::get();
    current.reset();
    let parker = Arc::clone(current.parker());
    thread::spawn(move || parker.summon()).join().unwrap();
    assert_eq!(current.park(None, None), Roused::Summoned);
    current.reset_summons();
    wake(&current);
    assert_eq!(current.park(None, Some(&Arc::new(Kick::new().unwrap()))), Roused::Woken);
}

#[test]
fn parking_ends_at_the_deadline() {
    for bed in [None, Some(Arc::new(Kick::new().unwrap()))] {
        let current = CurrentThread::get();
        current.reset();
        let deadline = Instant::now() + Duration::from_millis(5);
        assert_eq!(current.park(Some(deadline), bed.as_ref()), Roused::Late);
        assert!(!current.is_woken() && Instant::now() >= deadline);
    }
}

#[test]
fn a_leader_is_kicked_out_of_its_poll() {
    let kick = Arc::new(Kick::new().unwrap());
    let current = CurrentThread::get();
    current.reset();
    current.set_polling(Some(Arc::clone(&kick)));
    wake(&current);
    let mut fds = [PollFd::new(kick.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::ZERO).unwrap(), 1);
    kick.clear();
    assert_eq!(poll(&mut fds, PollTimeout::ZERO).unwrap(), 0);
    current.set_polling(None);
}
