//! Remembered limits and refused 0-RTT (RFC 9000, Section 7.4.1).

use super::super::{OpenError, WriteError};
use super::*;

/// A client that has sent `len` bytes on each of two streams as 0-RTT, and what it sent.
fn early_client(len: usize) -> (Streams, Vec<SentFrame>) {
    let mut client = Streams::new(Side::Client, config(), 1);
    assert_eq!(client.open(Dir::Bidi), Err(OpenError::StreamLimit));
    client.set_peer_limits(PeerLimits {
        initial_max_data: 2000,
        initial_max_stream_data_bidi_remote: 1000,
        initial_max_streams_bidi: 2,
        ..PeerLimits::default()
    });
    for _ in 0..2 {
        let id = client.open(Dir::Bidi).unwrap();
        client.write(id, &alloc::vec![id.index() as u8; len]).unwrap();
        client.finish(id).unwrap();
    }
    let mut sent = Vec::new();
    while client.has_pending() {
        sent.extend(packet_of(&mut client, PACKET).sent);
    }
    (client, sent)
}

#[test]
fn accepted_early_data_goes_on_under_the_new_limits() {
    let (mut client, sent) = early_client(1500);
    client.set_peer_limits(limits_of(&config()));
    let (_, mut server) = pair(config());
    acked(&mut client, &sent);
    let packet = packet_of(&mut client, PACKET);
    let frames = packet.frames();
    assert!(matches!(frames[0], Frame::Stream(frame) if frame.offset == 1000), "{frames:?}");
    receive_all(&mut server, &packet);
}

#[test]
fn refused_early_data_is_sent_again_from_the_start() {
    let (mut client, sent) = early_client(900);
    client.on_early_data_rejected();
    assert!(!client.has_pending(), "no leave to send before the new limits");
    client.set_peer_limits(limits_of(&config()));
    // The order in which the connection reports its losses does not matter.
    lost(&mut client, &sent);
    let (_, mut server) = pair(config());
    exchange(&mut client, &mut server);
    for index in 0..2 {
        let id = server.accept(Dir::Bidi).unwrap();
        assert_eq!(read_all(&mut server, id), (alloc::vec![index; 900], true));
    }
    assert_eq!(client.held(), 0);
}

#[test]
fn refused_early_data_respects_lower_limits() {
    let (mut client, _) = early_client(900);
    client.on_early_data_rejected();
    let lower = StreamsConfig {
        window: 500,
        max_window: 500,
        stream_window: 300,
        max_streams_bidi: 1,
        ..config()
    };
    client.set_peer_limits(limits_of(&lower));
    let (_, mut server) = pair(lower);
    let mut got: [Vec<u8>; 2] = Default::default();
    let mut ends = 0;
    while ends < 2 {
        // Any breach of a limit makes the server fail here.
        exchange(&mut client, &mut server);
        while server.accept(Dir::Bidi).is_some() {}
        for (index, got) in got.iter_mut().enumerate() {
            let id = client_stream(Dir::Bidi, index as u64);
            if server.table.find(id).is_none() {
                continue;
            }
            if server.peek(id) == Err(ReadError::ClosedStream) {
                continue;
            }
            let (data, fin) = read_all(&mut server, id);
            got.extend(data);
            if fin {
                ends += 1;
                server.finish(id).unwrap();
            }
        }
        while server.poll_event().is_some() {}
    }
    assert_eq!(got, [alloc::vec![0; 900], alloc::vec![1; 900]]);
}

#[test]
fn a_reset_of_refused_early_data_counts_nothing() {
    let (mut client, _) = early_client(900);
    let id = client_stream(Dir::Bidi, 0);
    client.reset(id, 6).unwrap();
    let packet = packet_of(&mut client, PACKET);
    assert!(matches!(packet.frames()[0], Frame::ResetStream(frame) if frame.final_size == 900));
    client.on_early_data_rejected();
    client.set_peer_limits(limits_of(&config()));
    let packet = packet_of(&mut client, PACKET);
    assert!(matches!(packet.frames()[0], Frame::ResetStream(frame) if frame.final_size == 0));
    assert_eq!(client.write(id, b"x"), Err(WriteError::ClosedStream));
}

/// The client's stream `index` as it is accepted: its index, and whether it is early data.
fn accept_next(server: &mut Streams) -> Option<(u64, bool)> {
    let id = server.accept(Dir::Bidi)?;
    Some((id.index(), server.is_early_data(id)))
}

#[test]
fn a_stream_is_early_data_if_its_first_frame_came_in_a_0rtt_packet() {
    let (_, mut server) = pair(config());
    let data = |server: &mut Streams, early, index, offset| {
        server.receive_early(early);
        let id = client_stream(Dir::Bidi, index);
        server.on_stream(&stream_frame(id, offset, b"data", false)).unwrap();
    };
    data(&mut server, true, 0, 0);
    data(&mut server, true, 2, 0);
    data(&mut server, false, 2, 4);
    // The rest may come when the handshake is complete, and before anything is accepted.
    data(&mut server, false, 1, 0);
    data(&mut server, false, 4, 4);
    data(&mut server, true, 4, 0);
    data(&mut server, true, 3, 0);
    let accepted: Vec<_> = core::iter::from_fn(|| accept_next(&mut server)).collect();
    assert_eq!(accepted, [(0, true), (1, false), (2, true), (3, true), (4, false)]);
}

#[test]
fn streams_opened_by_early_data_of_higher_ones_are_early_data() {
    // RFC 9000, Section 3.2: a frame opens all lower streams as well.
    let (_, mut server) = pair(config());
    for (early, index) in [(true, 1), (false, 3)] {
        server.receive_early(early);
        let id = client_stream(Dir::Bidi, index);
        server.on_stream(&stream_frame(id, 0, b"data", false)).unwrap();
    }
    let accepted: Vec<_> = core::iter::from_fn(|| accept_next(&mut server)).collect();
    assert_eq!(accepted, [(0, true), (1, true), (2, false), (3, false)]);
    assert!(!server.is_early_data(server_stream(Dir::Bidi, 0)));
}
