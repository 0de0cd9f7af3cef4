//! Trains through a channel.

use std::os::fd::AsRawFd;

use super::*;
use quicket_testing::Rng;

fn random_arrival(rng: &mut Rng) -> Arrival {
    let mut octets = [0; 16];
    let mut ip = |rng: &mut Rng, v6: bool| {
        rng.fill(&mut octets);
        let [a, b, c, d, ..] = octets;
        if v6 { IpAddr::V6(octets.into()) } else { IpAddr::V4([a, b, c, d].into()) }
    };
    let v6 = rng.index(2) == 0;
    let mut remote = SocketAddr::new(ip(rng, v6), rng.next() as u16);
    if let SocketAddr::V6(remote) = &mut remote {
        remote.set_scope_id(rng.index(9) as u32);
    }
    let local = SocketAddr::new(ip(rng, v6), rng.next() as u16);
    let marks = [EcnCodepoint::NotEct, EcnCodepoint::Ect0, EcnCodepoint::Ect1, EcnCodepoint::Ce];
    Arrival {
        remote,
        local: (rng.index(3) > 0).then_some(local),
        ecn: marks[rng.index(4)],
        stride: 1 + rng.index(65_535),
        len: rng.index(70_000),
    }
}

#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let arrival = random_arrival(&mut rng);
        assert_eq!(decode(&encode(&arrival), arrival.len), Some(arrival));
    }
}

/// Whatever comes, it is either refused or just what would be written.
#[test]
fn what_is_read_would_be_written_so() {
    let mut rng = Rng::new(2);
    let mut taken = 0;
    for round in 0..200_000 {
        let mut head = encode(&random_arrival(&mut rng));
        if round % 10 == 0 {
            rng.fill(&mut head);
        } else {
            head[rng.index(HEAD)] ^= 1 << rng.index(8);
        }
        if let Some(arrival) = decode(&head, 7) {
            taken += 1;
            assert_eq!(encode(&arrival), head, "{arrival:?}");
        }
    }
    assert!((1_000..199_000).contains(&taken), "{taken} were taken");
}

fn arrival(stride: usize) -> Arrival {
    Arrival {
        remote: "192.0.2.1:9".parse().unwrap(),
        local: Some("192.0.2.2:443".parse().unwrap()),
        ecn: EcnCodepoint::Ect0,
        stride,
        len: 0,
    }
}

/// All that is there.
fn drain(inlet: &Inlet) -> Vec<(Arrival, Vec<u8>)> {
    let mut got = Vec::new();
    let mut bytes = vec![vec![0; 65_536]; BATCH];
    loop {
        let mut buffers: Vec<_> = bytes.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let mut arrivals = [Arrival::default(); BATCH];
        match inlet.receive(&mut buffers, &mut arrivals) {
            Ok(count) => {
                for (arrival, bytes) in arrivals.iter().zip(&bytes).take(count) {
                    got.push((*arrival, bytes[..arrival.len].to_vec()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return got,
            Err(error) => panic!("{error}"),
        }
    }
}

fn pair() -> (Inlet, Outlet) {
    let (inlet, handover) = channel().unwrap();
    (inlet, Outlet::new(handover.0))
}

#[test]
fn trains_arrive_whole_and_in_order() {
    let (inlet, mut outlet) = pair();
    let bytes: Vec<u8> = (0..60_000).map(|i| i as u8).collect();
    let head = encode(&arrival(1200));
    let trains: Vec<_> = (0..3).map(|i| (head, &bytes[i..20_000 * (i + 1)])).collect();
    let sent = outlet.send(&trains);
    assert_eq!(sent, Sent { datagrams: 17 + 34 + 50, lost: 0 });
    let got = drain(&inlet);
    assert_eq!(got.len(), 3);
    for ((seen, data), (_, bytes)) in got.iter().zip(&trains) {
        assert_eq!(*seen, Arrival { len: bytes.len(), ..arrival(1200) });
        assert_eq!(data, bytes);
    }
}

/// More waits than the system takes, up to a bound; the rest is counted as lost.
#[test]
fn what_a_slow_program_does_not_take_waits_and_then_is_lost() {
    let (inlet, mut outlet) = pair();
    let train = vec![7; 60_000];
    let head = encode(&arrival(1000));
    let (mut sent, mut lost) = (0, 0);
    for _ in 0..1000 {
        let result = outlet.send(&[(head, &train)]);
        sent += result.datagrams;
        lost += result.lost;
    }
    assert_eq!(sent + lost, 60_000);
    assert!(lost > 0 && outlet.is_full(), "{lost} were lost");
    assert!(sent >= (BACKLOG_BYTES / (60_000 + HEAD)) as u64 * 60, "{sent}");
    let mut received = 0;
    while received < sent {
        received += drain(&inlet).iter().map(|(_, data)| data.len() as u64 / 1000).sum::<u64>();
        assert_eq!(outlet.flush(), 0);
    }
    assert_eq!(received, sent);
    assert!(!outlet.is_full() && outlet.waiting_bytes == 0);
    assert_eq!(outlet.send(&[(head, &train)]).lost, 0, "there is room again");
}

#[test]
fn a_program_that_is_gone_loses_its_own_and_blocks_nobody() {
    let (inlet, mut outlet) = pair();
    drop(inlet);
    let head = encode(&arrival(10));
    assert_eq!(outlet.send(&[(head, &[0; 25])]), Sent { datagrams: 0, lost: 3 });
    assert!(!outlet.is_full());
}

#[test]
fn what_is_no_train_leads_to_nothing_and_what_is_no_channel_is_refused() {
    let (inlet, handover) = channel().unwrap();
    let raw = handover.0.as_raw_fd();
    for junk in [&[1][..], &[0; HEAD], &[0xff; 80]] {
        nix::sys::socket::send(raw, junk, nix::sys::socket::MsgFlags::empty()).unwrap();
    }
    let got = drain(&inlet);
    assert_eq!(got.len(), 3);
    assert!(got.iter().all(|(arrival, _)| arrival.len == 0));
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let (stream, _) = std::os::unix::net::UnixStream::pair().unwrap();
    for wrong in [OwnedFd::from(udp), file.into(), stream.into()] {
        let error = Outlet::check(wrong.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}

/// What a program has its switch send finds no room: it waits in order, and nothing more is heard.
#[test]
fn what_is_to_be_sent_waits_for_room_in_order() {
    let (inlet, handover) = channel().unwrap();
    let mut outlet = Outlet::new(handover.0.try_clone().unwrap());
    outlet.set_hears(true);
    let burst = |bytes| Outgoing {
        remote: "192.0.2.1:9".parse().unwrap(),
        local: Some("192.0.2.7".parse().unwrap()),
        ecn: EcnCodepoint::Ect1,
        segment_size: 2,
        bytes,
    };
    inlet.send_through(&burst(b"by the channel")).unwrap();
    let mut buffers = quicket_udp::ReceiveBuffers::new();
    let mut batch = quicket_udp::receive_from_port(&outlet, 443, &mut buffers).unwrap();
    let train = batch.trains().next().unwrap();
    assert_eq!((train.remote, train.ecn, train.stride), (burst(b"").remote, EcnCodepoint::Ect1, 2));
    // The port is that of the address, whatever the program says.
    assert_eq!(train.local, Some("192.0.2.7:443".parse().unwrap()));
    assert_eq!(train.bytes, b"by the channel");
    outlet.keep(&burst(b"first"));
    outlet.keep(&burst(b"second"));
    assert!(outlet.is_stuck() && !outlet.wants().contains(EpollFlags::EPOLLIN));
    let mut sent = Vec::new();
    outlet.retry(|burst| {
        sent.push(burst.bytes.to_vec());
        Some(4)
    });
    assert!(outlet.is_stuck());
    outlet.retry(|burst| {
        sent.push(burst.bytes.to_vec());
        None
    });
    assert_eq!(sent, [&b"first"[..], b"t", b"second"]);
    assert!(!outlet.is_stuck() && outlet.wants().contains(EpollFlags::EPOLLIN));
}

#[test]
fn words_are_read_and_are_no_trains() {
    for word in Word::ALL {
        let head = word.encode();
        assert_eq!(Word::decode(&head, HEAD), Some(word));
        assert_eq!((decode(&head, 0), Word::decode(&head, HEAD + 1)), (None, None));
        for at in 0..HEAD {
            let mut other = head;
            other[at] ^= 0x80;
            assert_eq!(Word::decode(&other, HEAD), None, "{at}");
        }
    }
    assert_eq!(Word::decode(&[0; HEAD], HEAD), None);
    assert_eq!(Word::decode(&encode(&arrival(5)), HEAD), None);
}

/// A socket of an address, a worker's end of its channel and the switch's.
fn borrowing() -> (UdpSocket, Inlet, Outlet) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut inlet, outlet) = pair();
    inlet.may_borrow(&socket).unwrap();
    (socket, inlet, outlet)
}

fn is_readable(descriptor: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, poll};
    poll(&mut [PollFd::new(descriptor, PollFlags::POLLIN)], 0_u8) == Ok(1)
}

#[test]
fn who_waits_for_a_worker_hears_of_the_socket_as_long_as_it_is_lent() {
    let (socket, inlet, mut outlet) = borrowing();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let come = || client.send_to(b"it", socket.local_addr().unwrap()).unwrap();
    come();
    assert!(!is_readable(inlet.readable()) && !inlet.is_lent());
    for _ in 0..2 {
        // Once more changes nothing.
        assert!(outlet.say(Word::Lend) && outlet.say(Word::Lend) && is_readable(inlet.readable()));
        assert_eq!(drain(&inlet), []);
        assert!(inlet.is_lent() && is_readable(inlet.readable()), "it waits in the socket");
        socket.recv(&mut [0; 9]).unwrap();
        assert!(!is_readable(inlet.readable()));
        come();
        assert!(is_readable(inlet.readable()));
        assert!(outlet.say(Word::Recall) && outlet.say(Word::Recall));
        drain(&inlet);
        assert!(!is_readable(inlet.readable()) && !inlet.is_lent());
    }
    assert!(!outlet.has_declined());
}

#[test]
fn a_worker_that_cannot_read_the_socket_says_so() {
    let (inlet, mut outlet) = pair();
    assert!(outlet.say(Word::Lend));
    drain(&inlet);
    assert!(!inlet.is_lent());
    let mut buffers = quicket_udp::ReceiveBuffers::new();
    let mut batch = quicket_udp::receive_from_port(&outlet, 443, &mut buffers).unwrap();
    assert_eq!(batch.trains().count(), 0, "a word is no train");
    assert!(outlet.has_declined() && !outlet.has_declined());
}

/// The socket is read while trains are on their way still: they come first. And where there is no room to say that it is
/// lent, it is not.
#[test]
fn words_keep_their_place_among_trains() {
    let (_socket, inlet, mut outlet) = borrowing();
    let train = vec![7; 60_000];
    let head = encode(&arrival(1000));
    assert!(outlet.say(Word::Lend));
    while !outlet.is_full() {
        outlet.send(&[(head, &train)]);
    }
    assert!(!outlet.say(Word::Lend));
    outlet.say_for_sure(Word::Recall);
    let mut got = 0;
    while outlet.is_full() {
        got += drain(&inlet).len();
        assert!(inlet.is_lent());
        assert_eq!(outlet.flush(), 0);
    }
    let mut bytes = vec![0; 65_536];
    let mut receive = || {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        inlet.receive(&mut buffers, &mut [Arrival::default()])
    };
    while let Ok(count) = receive() {
        assert!(inlet.is_lent());
        got += count;
    }
    assert!(!inlet.is_lent() && got > 0, "it was behind them all");
    assert_eq!(outlet.waiting_bytes, 0);
}
