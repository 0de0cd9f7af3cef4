//! Whose data goes out first, and how it is cut.

use super::*;

/// The stream frames of a packet: ID, offset, length, end.
fn segments(packet: &TestPacket) -> Vec<(StreamId, u64, usize, bool)> {
    let frames = packet.frames();
    let streams = frames.iter().filter_map(|frame| match frame {
        Frame::Stream(frame) => Some((frame.id, frame.offset, frame.data.len(), frame.fin)),
        _ => None,
    });
    streams.collect()
}

fn open_and_write(streams: &mut Streams, lens: &[usize]) -> Vec<StreamId> {
    lens.iter()
        .map(|len| {
            let id = streams.open(Dir::Uni).unwrap();
            assert_eq!(streams.write(id, &alloc::vec![7; *len]), Ok(*len));
            id
        })
        .collect()
}

/// Which stream each of the next packets carries first.
fn turns(streams: &mut Streams, packets: usize) -> Vec<StreamId> {
    (0..packets).map(|_| segments(&packet_of(streams, 600))[0].0).collect()
}

#[test]
fn equals_take_turns_by_packet() {
    let (mut client, _) = pair(config());
    let ids = open_and_write(&mut client, &[5000, 5000, 5000]);
    let expected = [ids[0], ids[1], ids[2], ids[0], ids[1], ids[2]];
    assert_eq!(turns(&mut client, 6), expected);
}

#[test]
fn without_fairness_one_stream_ends_before_the_next() {
    let (mut client, _) = pair(StreamsConfig { fair: false, ..config() });
    let ids = open_and_write(&mut client, &[1500, 1500]);
    assert_eq!(turns(&mut client, 4), [ids[0], ids[0], ids[0], ids[1]]);
}

#[test]
fn higher_priorities_go_first_and_may_change_at_any_time() {
    let (mut client, _) = pair(config());
    let ids = open_and_write(&mut client, &[5000, 5000, 5000, 100]);
    client.set_priority(ids[1], 5).unwrap();
    client.set_priority(ids[2], -5).unwrap();
    assert_eq!(turns(&mut client, 2), [ids[1], ids[1]]);
    client.set_priority(ids[2], 9).unwrap();
    assert_eq!(turns(&mut client, 1), [ids[2]]);
    client.set_priority(ids[2], 5).unwrap();
    assert_eq!(turns(&mut client, 3), [ids[1], ids[2], ids[1]], "turns among equals");
    client.reset(ids[1], 0).unwrap();
    client.reset(ids[2], 0).unwrap();
    let rest = segments(&packet_of(&mut client, 600));
    assert_eq!(rest[0].0, ids[0]);
}

#[test]
fn bytes_of_equals_are_shared_evenly() {
    let config = StreamsConfig { window: 1 << 20, max_window: 1 << 20, ..config() };
    let (mut client, _) = pair(StreamsConfig { send_buffer: 1 << 20, ..config });
    let ids = open_and_write(&mut client, &[9000; 8]);
    let mut sent: Vec<usize> = alloc::vec![0; ids.len()];
    for _ in 0..40 {
        for (id, _, len, _) in segments(&packet_of(&mut client, PACKET)) {
            sent[id.index() as usize] += len;
        }
    }
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= PACKET, "{sent:?}");
}

#[test]
fn short_streams_share_a_packet() {
    let (mut client, _) = pair(config());
    let ids = open_and_write(&mut client, &[100, 200, 300]);
    let packet = packet_of(&mut client, PACKET);
    let expected = [(ids[0], 0, 100, false), (ids[1], 0, 200, false), (ids[2], 0, 300, false)];
    assert_eq!(segments(&packet), expected);
    assert!(!client.has_pending());
}

#[test]
fn data_that_fits_is_never_split_and_no_scraps_are_sent() {
    // All sizes around the point where the length does not fit any more.
    for len in 560..620 {
        let (mut client, _) = pair(config());
        let id = open_and_write(&mut client, &[len])[0];
        let packet = packet_of(&mut client, 600);
        let header = 2; // type and stream ID
        let fits = 600 - header;
        assert_eq!(segments(&packet), [(id, 0, len.min(fits), false)]);
        assert_eq!(client.has_pending(), len > fits);
    }
    let (mut client, _) = pair(config());
    let ids = open_and_write(&mut client, &[550, 1000]);
    let packet = packet_of(&mut client, 600);
    assert_eq!(segments(&packet), [(ids[0], 0, 550, false)], "40 bytes of the second can wait");
}

#[test]
fn the_end_rides_with_the_last_data() {
    let (mut client, _) = pair(config());
    let id = open_and_write(&mut client, &[1000])[0];
    client.finish(id).unwrap();
    assert_eq!(segments(&packet_of(&mut client, 602)), [(id, 0, 600, false)]);
    assert_eq!(segments(&packet_of(&mut client, 602)), [(id, 600, 400, true)]);
}

#[test]
fn what_was_lost_goes_before_what_is_new() {
    let (mut client, _) = pair(config());
    let id = open_and_write(&mut client, &[3000])[0];
    let first = packet_of(&mut client, 602);
    packet_of(&mut client, 602);
    lost(&mut client, &first.sent);
    assert_eq!(segments(&packet_of(&mut client, 602)), [(id, 0, 600, false)]);
    assert_eq!(segments(&packet_of(&mut client, 602))[0].1, 1198);
}

#[test]
fn repetitions_pass_a_blocked_connection() {
    let (mut client, _) = pair(StreamsConfig { window: 1500, ..config() });
    let ids = open_and_write(&mut client, &[1000, 1000, 1000]);
    let packet = packet_of(&mut client, 3000);
    assert_eq!(segments(&packet).iter().map(|segment| segment.2).sum::<usize>(), 1500);
    let blocked = packet_of(&mut client, 3000);
    assert!(matches!(blocked.frames()[..], [Frame::DataBlocked(frame)] if frame.limit == 1500));
    assert!(!client.has_pending(), "said once");
    lost(&mut client, &packet.sent);
    let again = packet_of(&mut client, 3000);
    assert_eq!(segments(&again), [(ids[0], 0, 1000, false), (ids[1], 0, 500, false)]);
    lost(&mut client, &blocked.sent);
    assert!(client.has_pending(), "the loss of DATA_BLOCKED is made up for");
    packet_of(&mut client, 3000);
    receive(&mut client, &max_data(9000)).unwrap();
    let mut more = segments(&packet_of(&mut client, 3000));
    more.sort();
    assert_eq!(more, [(ids[1], 500, 500, false), (ids[2], 0, 1000, false)], "all go on");
}

#[test]
fn a_blocked_stream_says_so_once_and_lets_others_pass() {
    let (mut client, _) = pair(StreamsConfig { stream_window: 500, ..config() });
    let ids = open_and_write(&mut client, &[1000, 100]);
    let packet = packet_of(&mut client, PACKET);
    assert_eq!(segments(&packet), [(ids[0], 0, 500, false), (ids[1], 0, 100, false)]);
    let blocked = packet_of(&mut client, PACKET);
    let frames = blocked.frames();
    let [Frame::StreamDataBlocked(frame)] = frames[..] else { panic!("{frames:?}") };
    assert_eq!((frame.id, frame.limit), (ids[0], 500));
    assert!(!client.has_pending());
    client.repeat_blocked();
    assert!(client.has_pending(), "repeated on request");
}

#[test]
fn control_frames_go_before_data_and_survive_full_packets() {
    let (mut client, mut server) = pair(config());
    let ids = open_and_write(&mut client, &[8000, 8000]);
    flush(&mut client, &mut server);
    for _ in &ids {
        let id = server.accept(Dir::Uni).unwrap();
        read_all(&mut server, id);
    }
    let answer = server.open(Dir::Uni).unwrap();
    server.write(answer, &[0; 500]).unwrap();
    let mut kinds = Vec::new();
    for tiny in 0..5 {
        assert!(packet_of(&mut server, tiny).frames().is_empty() && server.has_pending());
    }
    while server.has_pending() {
        // Room for one control frame at a time.
        let packet = packet_of(&mut server, 8);
        kinds.extend(packet.frames().iter().map(|frame| frame.frame_type()));
        if packet.frames().is_empty() {
            kinds.extend(packet_of(&mut server, PACKET).frames().iter().map(Frame::frame_type));
        }
    }
    assert_eq!(kinds, [0x10, 0x11, 0x11, 0x0a]);
}
