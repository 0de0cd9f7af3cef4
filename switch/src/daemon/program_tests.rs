//! What becomes of programs, and of what they say.

use std::time::Duration;

use super::*;
use crate::channel::channel;
use crate::client::Place;
use crate::daemon::testing::{System, join};
use crate::options::SocketOptions;
use crate::protocol::{Attention, Join, Octets, VERSION};
use crate::rule::Rule;

fn say(to: &OwnedFd, request: Request, descriptors: &[std::os::fd::BorrowedFd<'_>]) {
    let question = Question { version: VERSION, number: 1, request };
    sys::send_with(to.as_fd(), &encode(&question).unwrap(), descriptors).unwrap();
}

fn serve(name: &str) -> Serve {
    Serve { protocols: vec![Octets(name.into())], ..Serve::default() }
}

fn answers(from: &OwnedFd) -> usize {
    let mut buffer = vec![0; MAX_MESSAGE];
    let messages = std::iter::from_fn(|| {
        let (len, _) = sys::receive_with(from.as_fd(), &mut buffer).ok()?;
        Message::decode(&buffer[..len]).ok()
    });
    messages.filter(|message| matches!(message, Message::Answer { .. })).count()
}

#[test]
fn what_costs_much_is_answered_once_in_a_turn() {
    let mut system = System::new("costs", Rule::default());
    let program = system.connect();
    let (inlet, theirs) = channel().unwrap();
    say(&program, Request::Join(join(system.address)), &[theirs.as_fd()]);
    while system.daemon.programs.have_no_listeners() {
        system.daemon.step();
    }
    assert_eq!(answers(&program), 1);
    (0..3).for_each(|n| say(&program, Request::Serve(serve(&n.to_string())), &[]));
    system.daemon.step();
    assert_eq!(answers(&program), 1);
    (0..2).for_each(|_| say(&program, Request::Heard, &[]));
    system.daemon.step();
    assert_eq!(answers(&program), 1);
    // What costs little is answered along with it.
    system.daemon.step();
    assert_eq!(answers(&program), 1);
    system.daemon.step();
    assert_eq!(answers(&program), 2);
    drop(inlet);
}

#[test]
fn who_says_much_and_that_it_goes_has_not_been_killed() {
    for leaves in [true, false] {
        let mut system = System::new("last-words", Rule::default());
        let program = system.connect();
        let (inlet, theirs) = channel().unwrap();
        say(&program, Request::Join(join(system.address)), &[theirs.as_fd()]);
        while system.daemon.programs.have_no_listeners() {
            system.daemon.step();
        }
        let listener = system.daemon.programs.listeners().next().unwrap().0;
        system.daemon.registry.mark_used(listener);
        let more = Request::Attention(Attention::Busy);
        (0..MESSAGES_PER_TURN + 4).for_each(|_| say(&program, more.clone(), &[]));
        if leaves {
            say(&program, Request::Leave, &[]);
        }
        drop(program);
        while !system.daemon.programs.have_no_listeners() {
            system.daemon.step();
        }
        assert_eq!(system.daemon.addresses.is_empty(), leaves);
        drop(inlet);
    }
}

#[test]
fn who_is_refused_names_again_knows_that_it_has_them_no_more() {
    let mut system = System::plain("refused-again");
    let (first, _inlets, _) = system.join(SocketOptions::default()).unwrap();
    let (second, _others, _) = system.join(SocketOptions::default()).unwrap();
    let name = || serve("a");
    system.answer(|| first.serve(name())).unwrap();
    assert_eq!(first.remembers(), (true, false, true));
    system.answer(|| first.cease());
    assert_eq!(first.remembers(), (false, true, false), "it has given them up");
    system.answer(|| second.serve(name())).unwrap();
    let error = system.answer(|| first.serve(name())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
    // It would come back to the next switch as who serves.
    assert_eq!(first.remembers(), (false, true, false));
}

#[test]
fn what_waits_for_processes_that_were_forked_counts_and_ends_with_the_permission() {
    let mut system = System::new("kept", Rule::default());
    let mut holds = Vec::new();
    let most = crate::daemon::MAX_ADDRESSES_OF_TENANT;
    let any = |system: &mut System| {
        let (only_v6, workers, steered, remains) = (false, 1, true, false);
        let (address, options) = (system.address, SocketOptions::default());
        system.join_at(Place { address, only_v6, workers, steered, remains, options })
    };
    for n in 0..most {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        system.address = free.local_addr().unwrap();
        drop(free);
        let (program, _inlets, _) = any(&mut system).unwrap();
        system.answer(|| program.serve(serve("a"))).unwrap();
        let (family, hold) = crate::client::Family::new([n as u8; 16]).unwrap();
        program.bequeath(&family, Attention::Away);
        holds.push((family, hold));
        drop(program);
        while !system.daemon.programs.have_no_listeners() {
            system.daemon.step();
        }
    }
    assert_eq!(system.daemon.addresses.len(), most);
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    system.address = free.local_addr().unwrap();
    drop(free);
    let refused = any(&mut system).map(drop).unwrap_err();
    assert!(refused.to_string().contains("has 16 addresses"), "{refused}");
    // One serves at the last one, and shares with those that it forks.
    let at = system.daemon.addresses.values().next().unwrap().listen.socket_addr();
    system.address = at;
    let (program, _inlets, _) = any(&mut system).unwrap();
    let (family, hold) = crate::client::Family::new([99; 16]).unwrap();
    system.answer(|| program.serve(serve("b"))).unwrap();
    program.bequeath(&family, Attention::Busy);
    system.answer(|| program.await_heard(Instant::now() + Duration::from_secs(20)));
    let rule = Rule::parse("user * ports 1").unwrap();
    system.rules.as_ref().unwrap().replace(rule).unwrap();
    while !system.daemon.programs.have_no_listeners() {
        system.daemon.step();
    }
    assert!(system.daemon.addresses.is_empty(), "names are kept");
    drop((holds, family, hold));
}

/// The last thing that was said.
fn last(from: &OwnedFd) -> Option<Message> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let messages = std::iter::from_fn(|| {
        let (len, _) = sys::receive_with(from.as_fd(), &mut buffer).ok()?;
        Message::decode(&buffer[..len]).ok()
    });
    messages.last()
}

#[test]
fn who_is_displaced_by_a_later_claim_hears_so_and_has_gone() {
    let mut system = System::new("displaced", Rule::default());
    let channels = [(); 4].map(|()| channel().unwrap());
    let mut had = Vec::new();
    let mut programs = Vec::new();
    for (at, (_, theirs)) in channels.iter().enumerate() {
        let program = system.connect();
        // The third comes back as the first one, and the fourth as the second.
        let resume = (at >= 2).then(|| {
            let had: &crate::protocol::Joined = &had[at - 2];
            Box::new(crate::protocol::Resume {
                generation: had.generation,
                receipt: had.receipt,
                served: None,
                draining: false,
                drain_seconds_left: None,
                secrets: had.secrets.clone(),
                sockets: Vec::new(),
            })
        });
        say(&program, Request::Join(Join { resume, ..join(system.address) }), &[theirs.as_fd()]);
        let joined = loop {
            system.daemon.step();
            match last(&program) {
                Some(Message::Answer { reply: Reply::Joined(joined), .. }) => break joined,
                other => assert!(other.is_none(), "{other:?}"),
            }
        };
        had.push(*joined);
        if at < 2 {
            say(&program, Request::Leave, &[]);
            while !system.daemon.programs.have_no_listeners() {
                system.daemon.step();
            }
        }
        programs.push(program);
    }
    assert_eq!(had[2].generation, had[3].generation);
    assert_eq!(system.daemon.programs.listeners().count(), 1);
    let Some(Message::Refused(refused)) = last(&programs[2]) else { panic!() };
    assert!(refused.text.contains("another program has come back"), "{refused:?}");
    assert!(last(&programs[3]).is_none());
}
