//! What one user may hand over to a switch for all users, and have wait by that: nobody else. These tests need root, to be several
//! users: without it they say LEFT OUT, and fail where [`quicket_testing::leave_out`] does.

mod common;

use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::PATIENCE;
use common::users::{
    ATTACKER, CROWD, DESCRIPTORS, HOST, LINGERER, Of, RINGER, SOON, VICTIM, as_user, connect,
    lingering, send, send_with,
};
use quicket_packets::client::Opening;
use rustix::net::SendFlags;

#[test]
fn who_hands_over_descriptors_without_end_leaves_room_for_others() {
    let Some(switch) = Of::all("who_hands_over_descriptors_without_end_leaves_room_for_others")
    else {
        return;
    };
    let before = switch.memory();
    let is_over = AtomicBool::new(false);
    let (kept, most) = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let (mut most, begun) = (0, Instant::now());
            // Also when the attack fails.
            while !is_over.load(Ordering::Relaxed) && begun.elapsed() < 3 * PATIENCE {
                // While it reads, some are closed and others come: one reading may have both.
                let readings = [(); 3].map(|()| switch.descriptors());
                most = most.max(readings.into_iter().min().unwrap_or_default());
            }
            most
        });
        let kept = attack(&switch);
        is_over.store(true, Ordering::Relaxed);
        (kept, counting.join().unwrap())
    });
    assert!(most < DESCRIPTORS - 100, "others have no room: {most}");
    switch.lets_in();
    switch.serves();
    drop(kept);
    switch.serves();
    let begun = Instant::now();
    while switch.descriptors() > 64 {
        assert!(begun.elapsed() < PATIENCE, "{} are not closed", switch.descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = switch.memory();
    assert!(after < before + (16 << 20), "{before} octets before, and {after} now");
}

/// Returns what keeps descriptors from being closed.
fn attack(switch: &Of) -> Vec<Box<dyn Send>> {
    as_user(ATTACKER, || {
        let mut kept: Vec<Box<dyn Send>> = Vec::new();
        // Each is closed by the clerk, or with what it waits behind.
        for _ in 0..4 {
            let (one, other) = lingering();
            let control = connect(&switch.path);
            send(&control, &[2], &[one.as_fd()]);
            kept.push(Box::new((control, other)));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = [file.as_fd(); 250];
        for _ in 0..120 {
            let control = connect(&switch.path);
            for _ in 0..4 {
                send(&control, &[4], &many);
            }
            kept.push(Box::new(control));
        }
        kept
    })
}

/// In messages that nobody has read when the connection ends, and by a bell.
#[test]
fn what_waits_when_it_is_closed_has_the_switch_wait_nowhere() {
    let Some(switch) = Of::all("what_waits_when_it_is_closed_has_the_switch_wait_nowhere") else {
        return;
    };
    let ends = as_user(LINGERER, || {
        let mut ends = Vec::new();
        for n in 0..6 {
            let (one, other) = lingering();
            let control = connect(&switch.path);
            // The first one is looked into meanwhile, so that the others are not read.
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            send(&control, &[2], &[socket.as_fd()]);
            for _ in 0..=n {
                send(&control, &[4], &[one.as_fd()]);
            }
            ends.push(other);
        }
        ends
    });
    switch.serves();
    let more = as_user(LINGERER, || {
        let liar = common::Liar::open(&switch.path);
        let (one, other) = lingering();
        assert!(send(&liar.bell, &[1], &[one.as_fd()]));
        drop(one);
        assert!(liar.is_expelled(), "who hands over descriptors by a bell");
        let (one, third) = lingering();
        let liar = common::Liar::open(&switch.path);
        assert!(send(&liar.bell, &[1], &[one.as_fd()]));
        drop((one, liar));
        // Out of band: reading what comes behind it would free it.
        let (one, fourth) = lingering();
        let liar = common::Liar::open(&switch.path);
        assert!(send_with(&liar.bell, &[1], &[one.as_fd()], SendFlags::OOB));
        drop(one);
        assert!(liar.is_expelled(), "who hands over descriptors out of band");
        (other, third, fourth)
    });
    switch.serves();
    drop((ends, more));
}

/// As many descriptors as come with a message, of which the last one waits when it is closed, and its other end.
fn many_and_lingering(to: impl AsFd, message: &[u8]) -> TcpStream {
    let file = std::fs::File::open("/dev/null").unwrap();
    let (one, other) = lingering();
    let mut many = [file.as_fd(); 253];
    many[252] = one.as_fd();
    if !send(to, message, &many) {
        // Nobody else has it: it is closed here.
        rustix::net::sockopt::set_socket_linger(&one, None).unwrap();
    }
    other
}

/// More than the switch has room for, in one look: what has no room is closed by the kernel when it is read.
#[test]
fn descriptors_by_many_bells_at_once_are_not_taken() {
    let Some(switch) = Of::all("descriptors_by_many_bells_at_once_are_not_taken") else {
        return;
    };
    let liars = as_user(RINGER, || [(); 6].map(|()| common::Liar::open(&switch.path)));
    let ring = || liars.each_ref().map(|liar| many_and_lingering(&liar.bell, &[1]));
    let kept = switch.paused(|| as_user(RINGER, ring));
    switch.serves();
    assert!(liars.iter().all(common::Liar::is_expelled));
    drop(kept);
}

/// Whose clerks get nothing done.
#[test]
fn descriptors_for_which_there_is_no_room_have_the_switch_wait_nowhere() {
    let Some(switch) =
        Of::all("descriptors_for_which_there_is_no_room_have_the_switch_wait_nowhere")
    else {
        return;
    };
    let (mut one, mut other) = as_user(VICTIM, || (switch.stack(), switch.stack()));
    let mut kept: Vec<Box<dyn Send>> = Vec::new();
    // Standing still for a moment waits for a call that closes something, too.
    let begun = Instant::now();
    let crowd = CROWD.map(|user| as_user(user, || [(); 5].map(|()| connect(&switch.path))));
    // Whoever closes them last waits: the switch.
    switch.paused(|| {
        for (user, [first, ..]) in CROWD.into_iter().zip(&crowd) {
            let (to, holder) = std::os::unix::net::UnixStream::pair().unwrap();
            let (lingers, end) = lingering();
            assert!(send(&to, &[0], &[lingers.as_fd()]));
            as_user(user, || send(first, &[4], &[holder.as_fd()]));
            kept.push(Box::new(end));
        }
    });
    // From now on it does not stand still: that would wake who waits.
    for (user, [_, more @ ..]) in CROWD.into_iter().zip(&crowd) {
        let hand_over = || more.each_ref().map(|control| many_and_lingering(control, &[4]));
        kept.push(Box::new(as_user(user, hand_over)));
    }
    while switch.descriptors() < DESCRIPTORS - 300 {
        assert!(begun.elapsed() < SOON, "there is room: {}", switch.descriptors());
    }
    for _ in 0..100 {
        one.send(other.address, b"there");
        assert_eq!(other.receive(), (one.address, b"there".to_vec()));
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    drop(kept);
}

/// A connection that was handed on is that of a program which he has no hold of.
#[test]
fn what_comes_by_a_connection_that_was_handed_on_keeps_nobody_else_of_the_account_waiting() {
    let Some(switch) = Of::all(
        "what_comes_by_a_connection_that_was_handed_on_keeps_nobody_else_of_the_account_waiting",
    ) else {
        return;
    };
    // Closing the socket closes what is in it, which waits.
    let nested = || {
        let (to, holder) = std::os::unix::net::UnixStream::pair().unwrap();
        let (one, other) = lingering();
        assert!(send(&to, &[0], &[one.as_fd()]));
        (holder, other)
    };
    let (mut kept, mut controls) = (Vec::new(), Vec::new());
    for requests in [&[2][..], &[4], &[2, 4, 4]] {
        let opening = as_user(HOST, || Opening::connect(&switch.path).unwrap());
        let control = opening.confine().unwrap();
        // Whoever closes it last waits: the switch.
        switch.paused(|| {
            as_user(HOST, || {
                for request in requests {
                    let (holder, other) = nested();
                    assert!(send(&control, &[*request], &[holder.as_fd()]));
                    kept.push(other);
                }
            });
        });
        controls.push(control);
    }
    as_user(HOST, || {
        let begun = Instant::now();
        drop(switch.stack());
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    });
    switch.serves();
}
