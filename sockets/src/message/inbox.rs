//! What waits to be received, in the order in which it will be: TLS messages, notifications, then
//! stream data and datagrams as they came.

use std::collections::{HashMap, HashSet, VecDeque};

use quicket_engine::{Connection, ReadError, RecvState};
use quicket_wire::StreamId;

use super::buffer::Room;
use super::flags::{MsgFlags, StreamFlags};
use super::notification::{EventType, Notification};
use super::raw::StreamInfo;

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How many bytes of the buffer were filled.
    pub len: usize,
    /// What it is.
    pub kind: MessageKind,
    /// It ends here: nothing of it is left for the next call. Always false of stream data, whose
    /// end is [`StreamFlags::FIN`].
    pub eor: bool,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Data of one stream.
    Stream(StreamInfo),
    /// A datagram (RFC 9221).
    Datagram,
    /// A [`Notification`].
    Notification,
    /// A piece of a TLS message of this level, for a program that performs the handshake.
    Handshake(u8),
}

impl Message {
    /// The flags that recvmsg(2) would return. `truncated`: there was no room for the control
    /// message, so that the stream's flags come along.
    #[must_use]
    pub fn flags(&self, truncated: bool) -> MsgFlags {
        let mut flags = MsgFlags::NONE;
        match self.kind {
            MessageKind::Datagram => flags |= MsgFlags::DATAGRAM,
            MessageKind::Notification => flags |= MsgFlags::NOTIFICATION,
            MessageKind::Stream(info) if truncated => {
                flags |= MsgFlags::CTRUNC | MsgFlags::from(info.flags);
            }
            MessageKind::Handshake(_) if truncated => flags |= MsgFlags::CTRUNC,
            _ => {}
        }
        if self.eor {
            flags |= MsgFlags::EOR;
        }
        flags
    }
}

/// A message that is held whole and may be received in pieces.
#[derive(Debug)]
struct Held {
    kind: MessageKind,
    bytes: Vec<u8>,
    read: usize,
}

impl Held {
    fn left(&self) -> usize {
        self.bytes.len() - self.read
    }

    /// Copies out; true if nothing is left.
    fn copy(&mut self, out: &mut dyn Room, peek: bool) -> (usize, bool) {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let len = rest.len().min(out.len());
        out.put(0, rest.get(..len).unwrap_or_default());
        let all = len == rest.len();
        if !peek {
            self.read += len;
        }
        (len, all)
    }
}

/// Something in the order of arrival.
#[derive(Debug)]
enum Arrival {
    /// A stream has data. The number is how much of it goes before what came after it; unknown
    /// until its turn.
    Stream(StreamId, Option<usize>),
    Datagram(Held),
}

/// A stream of which the program wants no more than had come by then.
#[derive(Debug)]
struct Stopped {
    /// How much of that is not received yet.
    wanted: usize,
    /// All of it, to its end, has come nevertheless.
    complete: bool,
}

/// What waits to be received.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    handshake: VecDeque<Held>,
    notifications: VecDeque<Held>,
    arrivals: VecDeque<Arrival>,
    /// The streams among them.
    queued: HashSet<StreamId>,
    /// Streams of which the program wants no more.
    stopped: HashMap<StreamId, Stopped>,
    /// The size of what is held whole, in bytes.
    held: usize,
    /// The most that may be; notifications and datagrams beyond it are dropped.
    limit: usize,
    /// Kinds of notifications that are wanted, as bits.
    wanted: u16,
}

impl Inbox {
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub(super) const fn wanted(&self) -> u16 {
        self.wanted
    }

    pub(super) fn set_wanted(&mut self, wanted: u16) {
        self.wanted = wanted;
    }

    pub(super) const fn wants(&self, kind: EventType) -> bool {
        self.wanted & (1 << kind.number()) != 0
    }

    pub(super) fn want(&mut self, kind: EventType, on: bool) {
        let bit = 1 << kind.number();
        self.wanted = if on { self.wanted | bit } else { self.wanted & !bit };
    }

    /// True if there is room for a piece of a TLS message. There always is for the first: without it no handshake goes on.
    pub(super) fn takes_handshake(&self) -> bool {
        self.handshake.is_empty() || self.held < self.limit
    }

    /// Adds a piece of a TLS message.
    pub(super) fn push_handshake(&mut self, level: u8, bytes: Vec<u8>) {
        self.held += bytes.len();
        self.handshake.push_back(Held { kind: MessageKind::Handshake(level), bytes, read: 0 });
    }

    /// Drops the TLS messages: the program does not perform the handshake.
    pub(super) fn drop_handshake(&mut self) {
        for held in self.handshake.drain(..) {
            self.held -= held.bytes.len();
        }
    }

    /// Adds a notification, if it is wanted and fits. True if it was added.
    pub(super) fn notify(&mut self, notification: &Notification) -> bool {
        if !self.wants(notification.event_type()) {
            return false;
        }
        let bytes = notification.to_bytes();
        if self.held + bytes.len() > self.limit {
            return false;
        }
        self.held += bytes.len();
        self.notifications.push_back(Held { kind: MessageKind::Notification, bytes, read: 0 });
        true
    }

    /// Takes over the engine's datagrams as far as they fit.
    pub(super) fn take_datagrams(&mut self, engine: &mut Connection) {
        while let Some(datagram) = engine.peek_datagram() {
            // An empty one carries nothing that could be received.
            if !datagram.is_empty() && self.held + datagram.len() <= self.limit {
                let bytes = datagram.to_vec();
                self.held += bytes.len();
                let held = Held { kind: MessageKind::Datagram, bytes, read: 0 };
                self.arrivals.push_back(Arrival::Datagram(held));
            }
            engine.pop_datagram();
        }
    }

    /// The program wants no more of a stream than what is here.
    pub(super) fn stop_stream(&mut self, engine: &mut Connection, id: StreamId) {
        let wanted = readable_len(engine, id);
        self.stopped.insert(id, Stopped { wanted, complete: false });
    }

    /// All of a stream is here. True if the program wants no more of it.
    pub(super) fn on_complete(&mut self, id: StreamId) -> bool {
        let Some(stopped) = self.stopped.get_mut(&id) else { return false };
        stopped.complete = true;
        if stopped.wanted == 0 {
            self.stopped.remove(&id);
        }
        true
    }

    /// True if the program wants no more of a stream.
    pub(super) fn is_stopped(&self, id: StreamId) -> bool {
        self.stopped.contains_key(&id)
    }

    /// The peer gave a stream up.
    pub(super) fn on_reset(&mut self, id: StreamId) {
        self.stopped.remove(&id);
    }

    /// How much of a stream can be received beyond what was.
    fn wanted_of(&self, id: StreamId) -> usize {
        self.stopped.get(&id).map_or(usize::MAX, |stopped| stopped.wanted)
    }

    /// Drops what came of a stream after the program wanted no more of it, once all else of it
    /// is received. True if that is so.
    fn drop_unwanted(&mut self, engine: &mut Connection, id: StreamId) -> bool {
        let Some(stopped) = self.stopped.get(&id) else { return false };
        if stopped.wanted > 0 {
            return false;
        }
        let _ = engine.consume(id, usize::MAX);
        if stopped.complete {
            self.stopped.remove(&id);
        }
        true
    }

    /// A stream may have something to read.
    pub(super) fn offer_stream(&mut self, engine: &mut Connection, id: StreamId) {
        let recv = engine.stream_status(id).and_then(|status| status.recv);
        let untouched =
            |recv: quicket_engine::RecvStatus| recv.state == RecvState::Recv && recv.received == 0;
        if recv.is_none_or(untouched) || self.drop_unwanted(engine, id) {
            return;
        }
        match engine.peek(id) {
            Ok(_) if self.queued.insert(id) => self.arrivals.push_back(Arrival::Stream(id, None)),
            // The program hears of it as a notification, if at all.
            Err(ReadError::Reset(_)) => {
                let _ = engine.read(id, &mut []);
                if self.queued.remove(&id) {
                    let is_it = |arrival: &Arrival| matches!(arrival, Arrival::Stream(other, _) if *other == id);
                    self.arrivals.retain(|arrival| !is_it(arrival));
                }
            }
            _ => {}
        }
    }

    /// True if something can be received. Streams count once `streams`.
    pub(super) fn is_readable(&mut self, engine: &mut Connection, streams: bool) -> bool {
        if !self.handshake.is_empty() || !self.notifications.is_empty() {
            return true;
        }
        self.skip_ended(engine);
        self.arrivals.iter().any(|arrival| streams || matches!(arrival, Arrival::Datagram(_)))
    }

    /// How many bytes wait.
    pub(super) fn waiting(&self, engine: &mut Connection) -> usize {
        let wanted_of = |id: &StreamId| readable_len(engine, *id).min(self.wanted_of(*id));
        let of_streams = self.queued.iter().map(wanted_of).sum::<usize>();
        let read = |held: &VecDeque<Held>| held.iter().map(Held::left).sum::<usize>();
        let datagrams = self.arrivals.iter().map(|arrival| match arrival {
            Arrival::Datagram(held) => held.left(),
            Arrival::Stream(..) => 0,
        });
        of_streams + read(&self.handshake) + read(&self.notifications) + datagrams.sum::<usize>()
    }

    /// Removes streams at the front that have nothing to read any more.
    fn skip_ended(&mut self, engine: &mut Connection) {
        while let Some(Arrival::Stream(id, _)) = self.arrivals.front() {
            let id = *id;
            match engine.peek(id) {
                Ok(_) => return,
                Err(ReadError::Reset(_)) => drop(engine.read(id, &mut [])),
                Err(_) => {}
            }
            self.arrivals.pop_front();
            self.queued.remove(&id);
        }
    }

    /// Receives the next message, or a piece of it. Streams count once `streams`.
    pub(super) fn receive(
        &mut self,
        engine: &mut Connection,
        out: &mut dyn Room,
        peek: bool,
        streams: bool,
    ) -> Option<Message> {
        for queue in [&mut self.handshake, &mut self.notifications] {
            if let Some(message) = take_held(queue, &mut self.held, out, peek) {
                return Some(message);
            }
        }
        self.skip_ended(engine);
        match self.arrivals.front_mut()? {
            Arrival::Datagram(held) => {
                let (len, all) = held.copy(out, peek);
                if all && !peek {
                    self.held -= held.bytes.len();
                    self.arrivals.pop_front();
                }
                Some(Message { len, kind: MessageKind::Datagram, eor: all })
            }
            Arrival::Stream(..) if !streams => None,
            Arrival::Stream(id, quota) => {
                let id = *id;
                let wanted = self.stopped.get(&id).map_or(usize::MAX, |stopped| stopped.wanted);
                let readable = readable_len(engine, id).min(wanted);
                let turn = *quota.get_or_insert(readable);
                let alone = self.arrivals.len() == 1 && wanted == usize::MAX;
                // Others have come meanwhile: what came after them waits its turn.
                let most = if alone { out.len() } else { out.len().min(turn) };
                Some(self.receive_stream(engine, id, out, most, peek))
            }
        }
    }

    fn receive_stream(
        &mut self,
        engine: &mut Connection,
        id: StreamId,
        out: &mut dyn Room,
        most: usize,
        peek: bool,
    ) -> Message {
        let copy = if peek { peek_stream } else { read };
        let (len, fin) = copy(engine, id, out, most);
        if !peek {
            self.after_read(engine, id, len, fin);
        }
        let flags = if fin { StreamFlags::FIN } else { StreamFlags::NONE };
        let stream_id = i64::try_from(id.as_u64()).unwrap_or(i64::MAX);
        let kind = MessageKind::Stream(StreamInfo::new(stream_id, flags));
        Message { len, kind, eor: false }
    }

    /// Puts the stream at the front where it belongs now.
    fn after_read(&mut self, engine: &mut Connection, id: StreamId, len: usize, fin: bool) {
        if let Some(stopped) = self.stopped.get_mut(&id) {
            stopped.wanted = stopped.wanted.saturating_sub(len);
        }
        self.drop_unwanted(engine, id);
        let Some(Arrival::Stream(_, quota)) = self.arrivals.front_mut() else { return };
        let left = quota.unwrap_or_default().saturating_sub(len);
        if fin || engine.peek(id).is_err() {
            self.arrivals.pop_front();
            self.queued.remove(&id);
        } else if left == 0 {
            self.arrivals.pop_front();
            self.arrivals.push_back(Arrival::Stream(id, None));
        } else {
            *quota = Some(left);
        }
    }
}

fn take_held(
    queue: &mut VecDeque<Held>,
    total: &mut usize,
    out: &mut dyn Room,
    peek: bool,
) -> Option<Message> {
    let held = queue.front_mut()?;
    let (len, all) = held.copy(out, peek);
    let message = Message { len, kind: held.kind, eor: all };
    if all && !peek {
        *total -= held.bytes.len();
        queue.pop_front();
    }
    Some(message)
}

fn readable_len(engine: &mut Connection, id: StreamId) -> usize {
    engine.peek(id).map_or(0, |peek| peek.first.len() + peek.second.len())
}

/// Copies up to `most` bytes out and takes them from the stream; true with the last of all.
fn read(engine: &mut Connection, id: StreamId, out: &mut dyn Room, most: usize) -> (usize, bool) {
    let mut read = 0;
    loop {
        // What is there lies in several parts, of which two are seen at a time.
        let (len, _) = copy_shown(engine, id, out, read, most - read);
        let Ok(outcome) = engine.consume(id, len) else { return (read, false) };
        read += outcome.len;
        if outcome.fin || len == 0 || read == most {
            return (read, outcome.fin);
        }
    }
}

fn peek_stream(
    engine: &mut Connection,
    id: StreamId,
    out: &mut dyn Room,
    most: usize,
) -> (usize, bool) {
    copy_shown(engine, id, out, 0, most)
}

/// Copies up to `most` bytes of what the engine shows to an offset; true if it ends with them.
fn copy_shown(
    engine: &mut Connection,
    id: StreamId,
    out: &mut dyn Room,
    at: usize,
    most: usize,
) -> (usize, bool) {
    let Ok(peek) = engine.peek(id) else { return (0, false) };
    let first = peek.first.len().min(most);
    let second = peek.second.len().min(most - first);
    out.put(at, peek.first.get(..first).unwrap_or_default());
    out.put(at + first, peek.second.get(..second).unwrap_or_default());
    let all = first + second == peek.first.len() + peek.second.len();
    (first + second, peek.fin && all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox() -> Inbox {
        Inbox { limit: 100, ..Inbox::default() }
    }

    #[test]
    fn only_wanted_notifications_are_kept_and_only_as_many_as_fit() {
        let mut inbox = inbox();
        let update = Notification::KeyUpdate(1);
        assert!(!inbox.notify(&update));
        inbox.want(EventType::KeyUpdate, true);
        assert!(inbox.wants(EventType::KeyUpdate) && !inbox.wants(EventType::NewToken));
        let fitting = (0..100).filter(|_| inbox.notify(&update)).count();
        assert_eq!(fitting, 50);
        inbox.want(EventType::KeyUpdate, false);
        assert_eq!(inbox.wanted(), 0);
    }

    #[test]
    fn what_is_received_in_pieces_ends_with_the_last() {
        let mut inbox = inbox();
        inbox.push_handshake(2, b"hello".to_vec());
        let (mut out, mut held) = ([0; 3], inbox.held);
        let mut take = |peek| take_held(&mut inbox.handshake, &mut held, &mut &mut out[..], peek);
        let first = take(true).unwrap();
        assert_eq!((first.len, first.eor), (3, false));
        assert_eq!(take(false), Some(first));
        let last = take(false).unwrap();
        assert_eq!((last.len, last.eor, last.kind), (2, true, MessageKind::Handshake(2)));
        assert_eq!((take(false), held), (None, 0));
    }

    #[test]
    fn flags_tell_what_a_message_is() {
        let info = StreamInfo::new(4, StreamFlags::FIN);
        let stream = Message { len: 1, kind: MessageKind::Stream(info), eor: false };
        assert_eq!(stream.flags(false), MsgFlags::NONE);
        assert_eq!(stream.flags(true), MsgFlags::CTRUNC | MsgFlags::from(StreamFlags::FIN));
        let datagram = Message { len: 1, kind: MessageKind::Datagram, eor: true };
        assert_eq!(datagram.flags(false), MsgFlags::DATAGRAM | MsgFlags::EOR);
        let notification = Message { kind: MessageKind::Notification, ..datagram };
        assert_eq!(notification.flags(true), MsgFlags::NOTIFICATION | MsgFlags::EOR);
    }
}
