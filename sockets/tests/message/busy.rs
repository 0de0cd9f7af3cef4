//! The order of data and notifications while much comes at once: eight streams, one of which is reset while the client
//! moves. Notifications are received before the data of streams that waits with them (see `events.rs` for each kind alone).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use quicket::message::raw::{ErrInfo, StreamUpdate};
use quicket::message::{
    EventType, MessageKind, MsgFlags, Notification, Socket, StreamFlags, StreamInfo, StreamState,
};

use crate::movement::free_address;
use crate::pair::{NEW, pair, send, settle};

const STREAMS: i64 = 8;
const SIZE: usize = 2 << 20;
/// The stream that is reset, and with what.
const RESET: i64 = 4 * 5;
const CODE: u32 = 77;
/// How much has come in when that happens, some of that stream included.
const MIDST: usize = SIZE;

fn pattern(id: i64, at: usize) -> u8 {
    (id as usize * 31 + at * 7 + at / 251) as u8
}

/// What a receiver has seen of a stream.
#[derive(Debug, Default)]
struct Story {
    states: Vec<StreamState>,
    received: usize,
    finished: bool,
}

impl Story {
    fn is_over(&self) -> bool {
        self.finished || self.states.contains(&StreamState::RecvResetRecvd)
    }

    fn on_update(&mut self, update: &StreamUpdate) {
        let state = StreamState::from_number(update.state).unwrap();
        let before = self.states.last().copied();
        match state {
            StreamState::Recv => {
                assert_eq!((before, self.received), (None, 0), "the first thing that is told");
            }
            StreamState::RecvSizeKnown => {
                assert_eq!((before, update.finalsz), (Some(StreamState::Recv), SIZE as u64));
            }
            StreamState::RecvRecvd => {
                let known = matches!(before, Some(StreamState::Recv | StreamState::RecvSizeKnown));
                assert!(known && !self.finished, "before the last of its data");
                assert_eq!(update.finalsz, SIZE as u64);
            }
            StreamState::RecvResetRecvd => {
                assert_eq!((before, update.id), (Some(StreamState::Recv), RESET));
                assert_eq!(update.errcode, CODE);
                assert!(update.finalsz >= self.received as u64);
            }
            other => panic!("{other:?} of a stream of the peer"),
        }
        self.states.push(state);
    }

    fn on_data(&mut self, info: StreamInfo, data: &[u8]) {
        let id = info.stream_id;
        assert!(self.states.contains(&StreamState::Recv), "data of {id} before its beginning");
        assert!(!self.is_over(), "data of {id} behind its end, or its reset");
        let expected = (self.received..).map(|at| pattern(id, at));
        assert!(data.iter().copied().eq(expected.take(data.len())), "data of {id}");
        self.received += data.len();
        if info.flags.contains(StreamFlags::FIN) {
            assert_eq!(self.received, SIZE);
            let told = self.states.last();
            assert_eq!(told, Some(&StreamState::RecvRecvd), "the end is told before");
            self.finished = true;
        }
    }
}

/// Sends a stream; the one that is reset goes on until it is.
fn send_stream(socket: &Socket, id: i64) {
    const PIECE: usize = 10_000;
    let size = if id == RESET { usize::MAX } else { SIZE };
    for begin in (0..size).step_by(PIECE) {
        let piece: Vec<u8> = (begin..size).take(PIECE).map(|at| pattern(id, at)).collect();
        let mut flags = if begin == 0 { NEW } else { StreamFlags::NONE };
        if begin + piece.len() == size {
            flags = flags.union(StreamFlags::FIN);
        }
        match send(socket, &piece, id, flags) {
            Ok(len) if len == piece.len() => {}
            Ok(_) | Err(_) if id == RESET => return,
            Ok(len) => panic!("{len} bytes on {id}"),
            Err(error) => panic!("{error:?} on {id}"),
        }
    }
}

/// Receives until all streams are over and the move was told; says so when the midst has come.
fn receive(server: &Socket, midst: &AtomicBool) -> HashMap<i64, Story> {
    let mut stories: HashMap<i64, Story> = HashMap::new();
    let (mut buffer, mut moves) = (vec![0; 30_000], 0);
    loop {
        let over = stories.values().filter(|story| story.is_over()).count();
        if over == STREAMS as usize && moves == 1 {
            return stories;
        }
        let message = server.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        match message.kind {
            MessageKind::Stream(info) => {
                let story = stories.entry(info.stream_id).or_default();
                story.on_data(info, &buffer[..message.len]);
            }
            MessageKind::Notification => {
                assert!(message.eor);
                match Notification::from_bytes(&buffer[..message.len]).unwrap() {
                    Notification::StreamUpdate(update) => {
                        stories.entry(update.id).or_default().on_update(&update);
                    }
                    Notification::ConnectionMigration(local) => {
                        assert_eq!(local, 0, "the peer's address");
                        moves += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
        let has_begun = stories.get(&RESET).is_some_and(|story| story.received > 0);
        if has_begun && stories.values().map(|story| story.received).sum::<usize>() >= MIDST {
            midst.store(true, Ordering::SeqCst);
        }
    }
}

/// What the client is told of its streams and of its move, each once.
fn hear_client(client: &Socket) {
    let (mut done, mut moved) = (HashMap::new(), false);
    let mut buffer = vec![0; 256];
    while done.len() < STREAMS as usize || !moved {
        let message = client.recv_message(&mut buffer, MsgFlags::NONE).unwrap();
        match Notification::from_bytes(&buffer[..message.len]).unwrap() {
            Notification::StreamUpdate(update) => {
                let state = StreamState::from_number(update.state).unwrap();
                let (expected, code) = match update.id {
                    RESET => (StreamState::SendResetRecvd, CODE),
                    _ => (StreamState::SendRecvd, 0),
                };
                assert_eq!((state, update.errcode), (expected, code), "{}", update.id);
                assert!(done.insert(update.id, state).is_none(), "{} twice", update.id);
            }
            Notification::ConnectionMigration(local) => {
                assert_eq!((local, moved), (1, false), "this side's address, once");
                moved = true;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn data_resets_and_moves_keep_their_order_under_load() {
    let (client, server) = pair();
    for socket in [&client, &server] {
        socket.set_event(EventType::StreamUpdate, true);
        socket.set_event(EventType::ConnectionMigration, true);
    }
    let midst = AtomicBool::new(false);
    let stories = std::thread::scope(|scope| {
        let received = scope.spawn(|| receive(&server, &midst));
        for number in 0..STREAMS {
            let client = &client;
            scope.spawn(move || send_stream(client, 4 * number));
        }
        scope.spawn(|| hear_client(&client));
        settle(|| midst.load(Ordering::SeqCst));
        // Together: one thread resets, another moves.
        scope.spawn(|| {
            client.reset_stream(ErrInfo { stream_id: RESET, errcode: CODE }).unwrap();
        });
        let after = free_address();
        settle(|| client.migrate(after) == Ok(()));
        received.join().unwrap()
    });
    for (id, story) in stories {
        assert_eq!(story.finished, id != RESET, "{id}: {story:?}");
    }
    let mut buffer = [0; 256];
    let more = server.recv_message(&mut buffer, MsgFlags::DONTWAIT);
    assert!(more.is_err(), "{more:?} after everything");
}
