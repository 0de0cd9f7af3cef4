//! Streams as a whole: two sides that exchange packets.

mod early_data;
mod errors;
mod events;
mod limits;
mod news;
mod scheduling;
mod transfer;

use alloc::vec::Vec;

use quicket_wire::frame::{MaxData, Stream as StreamFrame};
use quicket_wire::{Dir, Frame, Side, StreamId};

use super::{PeerLimits, ReadError, Streams, StreamsConfig};
use crate::config::StreamWindows;
use crate::error::TransportError;
use crate::sent_frame::SentFrame;
use crate::testing::TestPacket;
use crate::time::{Duration, Time};

const RTT: Duration = Duration::from_millis(10);

/// Room for frames in an ordinary packet.
const PACKET: usize = 1180;

fn config() -> StreamsConfig {
    StreamsConfig {
        stream_window: 10_000,
        windows: StreamWindows::default(),
        max_stream_window: 40_000,
        window: 30_000,
        max_window: 60_000,
        max_streams_bidi: 8,
        max_streams_uni: 8,
        max_streams_step: None,
        stream_send_buffer: 16_384,
        send_buffer: 50_000,
        send_ahead: usize::MAX,
        fair: true,
    }
}

fn limits_of(config: &StreamsConfig) -> PeerLimits {
    PeerLimits {
        initial_max_data: config.window,
        initial_max_stream_data_bidi_local: config.stream_window,
        initial_max_stream_data_bidi_remote: config.stream_window,
        initial_max_stream_data_uni: config.stream_window,
        initial_max_streams_bidi: config.max_streams_bidi,
        initial_max_streams_uni: config.max_streams_uni,
    }
}

/// A client and a server with the same configuration that know each other's limits.
fn pair(config: StreamsConfig) -> (Streams, Streams) {
    let limits = limits_of(&config);
    let mut client = Streams::new(Side::Client, config.clone(), 1);
    let mut server = Streams::new(Side::Server, config, 2);
    client.set_peer_limits(limits);
    server.set_peer_limits(limits);
    (client, server)
}

fn packet_of(from: &mut Streams, size: usize) -> TestPacket {
    let mut packet = TestPacket::new(size);
    from.write_frames(Time::ZERO, RTT, &mut packet);
    packet
}

fn receive(to: &mut Streams, frame: &Frame<'_>) -> Result<(), TransportError> {
    match frame {
        Frame::Padding(_) => Ok(()),
        Frame::Stream(frame) => to.on_stream(frame),
        Frame::ResetStream(frame) => to.on_reset_stream(frame),
        Frame::StopSending(frame) => to.on_stop_sending(frame),
        Frame::MaxData(frame) => to.on_max_data(frame),
        Frame::MaxStreamData(frame) => to.on_max_stream_data(frame),
        Frame::MaxStreams(frame) => to.on_max_streams(frame),
        Frame::DataBlocked(frame) => to.on_data_blocked(frame),
        Frame::StreamDataBlocked(frame) => to.on_stream_data_blocked(frame),
        Frame::StreamsBlocked(frame) => to.on_streams_blocked(frame),
        other => panic!("{other:?}"),
    }
}

fn receive_all(to: &mut Streams, packet: &TestPacket) {
    for frame in packet.frames() {
        receive(to, &frame).unwrap();
    }
}

fn acked(from: &mut Streams, sent: &[SentFrame]) {
    for frame in sent {
        from.on_acked(frame);
    }
}

fn lost(from: &mut Streams, sent: &[SentFrame]) {
    for frame in sent {
        from.on_lost(frame);
    }
}

/// Sends all that there is from one side to the other, without loss.
fn flush(from: &mut Streams, to: &mut Streams) {
    while from.has_pending() {
        let packet = packet_of(from, PACKET);
        receive_all(to, &packet);
        acked(from, &packet.sent);
    }
}

/// Lets both sides send until neither has anything to say.
fn exchange(a: &mut Streams, b: &mut Streams) {
    while a.has_pending() || b.has_pending() {
        flush(a, b);
        flush(b, a);
    }
}

/// All data that can be read now, and whether the stream ended.
fn read_all(streams: &mut Streams, id: StreamId) -> (Vec<u8>, bool) {
    let mut all = Vec::new();
    let mut buffer = [0; 777];
    loop {
        match streams.read(id, &mut buffer) {
            Ok(read) => {
                all.extend_from_slice(&buffer[..read.len]);
                if read.fin {
                    return (all, true);
                }
            }
            Err(ReadError::Blocked) => return (all, false),
            Err(error) => panic!("{error}"),
        }
    }
}

fn stream_frame(id: StreamId, offset: u64, data: &[u8], fin: bool) -> StreamFrame<'_> {
    StreamFrame { id, offset, fin, data }
}

fn client_stream(dir: Dir, index: u64) -> StreamId {
    StreamId::new(Side::Client, dir, index)
}

fn server_stream(dir: Dir, index: u64) -> StreamId {
    StreamId::new(Side::Server, dir, index)
}

fn max_data(maximum: u64) -> Frame<'static> {
    Frame::MaxData(MaxData { maximum })
}
