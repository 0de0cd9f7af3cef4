//! A connection's account: what happened to it, as its socket tells it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use quicket_engine::time::Time;
use quicket_engine::{
    CidNumbers, Connection, ConnectionError, Event, StreamEvent, StreamNews, TransportErrorCode,
};
use quicket_wire::{Dir, Side, StreamId};

use super::inbox::Inbox;
use super::mailbox::Mailbox;
use super::notification::{CryptoLevel, EventType, Notification, StreamState};
use super::raw::{ConnectionClose, ConnectionIdInfo, StreamMaxData, StreamUpdate};
use crate::core::Tap;

/// Session tickets of TLS are no longer than this, in bytes.
pub(super) const MAX_TICKET: usize = 4096;
/// Type and length of a TLS message.
const TLS_HEADER: usize = 4;

/// What a socket knows of its connection. Shared with the core, which reports to it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) mailbox: Mailbox,
    account: Mutex<Account>,
}

/// The account itself. Locked after the connection.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) inbox: Inbox,
    /// How the connection will end, or has ended.
    pub(super) close: ConnectionClose,
    /// Client: the token for, or from, the server.
    pub(super) token: Vec<u8>,
    /// Client: the session for, or from, the server. Server: the master key of tickets.
    pub(super) ticket: Vec<u8>,
    /// What came of a ticket that is not whole yet.
    ticket_pieces: Vec<u8>,
    /// The ticket came on this connection and is whole.
    pub(super) ticket_ready: bool,
    /// The stream that messages without one go to.
    pub(super) active_stream: Option<StreamId>,
    /// The number that counts as active among our connection IDs.
    pub(super) local_active: u64,
    /// The keys are to be updated as soon as that is permitted.
    pub(super) key_update_due: bool,
    /// Somebody waits until anything at all can be sent.
    wants_room: bool,
    /// TLS runs in the program.
    pub(super) external_tls: bool,
    /// How many streams of each direction the peer has opened.
    known: [u64; 2],
    cids: Option<(CidNumbers, CidNumbers)>,
    remote: Option<std::net::SocketAddr>,
    /// Those who wait should look.
    changed: bool,
}

impl Ledger {
    pub(super) fn lock(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the program receive TLS messages, as far as there is room for them. What is left goes on when it has received
    /// some.
    fn deliver(&self, account: &mut Account) {
        while account.inbox.takes_handshake()
            && let Some((level, bytes)) = self.mailbox.take()
        {
            account.on_tls(level, bytes);
        }
    }

    /// True if stream data may be received: not before the handshake, lest replayed early data
    /// be taken for more.
    pub(super) fn delivers_streams(&self, engine: &Connection) -> bool {
        !engine.is_handshaking() || self.mailbox.has_receive_secret()
    }
}

impl Tap for Ledger {
    fn on_event(&self, engine: &mut Connection, event: &Event) {
        let mut account = self.lock();
        match event {
            Event::Stream(StreamEvent::Opened { dir }) => account.on_opened(engine, *dir),
            Event::Stream(StreamEvent::Readable { id }) => account.inbox.offer_stream(engine, *id),
            Event::DatagramReceived => account.inbox.take_datagrams(engine),
            Event::SessionTicket(ticket) => account.on_ticket(ticket.clone()),
            // RFC 9000, Section 19.7: a frame that was taken for lost comes again.
            Event::NewToken(token) if account.token == *token => {}
            Event::NewToken(token) => {
                account.token.clone_from(token);
                account.notify(&Notification::NewToken(token.clone()));
            }
            Event::KeyUpdated { updates, by_peer: true } => {
                account.notify(&Notification::KeyUpdate((updates & 1) as u8));
            }
            Event::PathChanged { remote, .. } => {
                let local = account.remote.replace(*remote) == Some(*remote);
                account.notify(&Notification::ConnectionMigration(u8::from(local)));
            }
            Event::HandshakeComplete if !account.external_tls => account.forget_session(),
            Event::Closed(error) => account.on_closed(error),
            _ => {}
        }
    }

    fn on_turn(&self, engine: &mut Connection, now: Time) -> bool {
        let mut account = self.lock();
        self.deliver(&mut account);
        while let Some(news) = engine.poll_stream_news() {
            account.on_news(engine.side(), news);
        }
        account.remote.get_or_insert(engine.remote());
        account.watch_cids(engine);
        if account.key_update_due && engine.update_keys(now).is_ok() {
            account.key_update_due = false;
        }
        if account.wants_room && has_room(engine) {
            account.wants_room = false;
            account.changed = true;
        }
        std::mem::take(&mut account.changed)
    }
}

impl Account {
    fn notify(&mut self, notification: &Notification) {
        self.changed |= self.inbox.notify(notification);
    }

    /// The peer opened streams: answers go to the latest of those that can be answered.
    fn on_opened(&mut self, engine: &mut Connection, dir: Dir) {
        let index = usize::from(dir == Dir::Uni);
        let opened = engine.stream_counts(dir).opened_by_peer;
        let peer = engine.side().peer();
        // What the core has accepted meanwhile, and what is left, is known here by number alone.
        while engine.accept(dir).is_some() {}
        let Some(known) = self.known.get_mut(index) else { return };
        for number in std::mem::replace(known, opened)..opened {
            let id = StreamId::new(peer, dir, number);
            if dir == Dir::Bidi {
                self.active_stream = Some(id);
            }
            self.inbox.offer_stream(engine, id);
        }
    }

    /// A stream takes no more data: messages that name none go elsewhere.
    pub(super) fn release_stream(&mut self, id: StreamId) {
        if self.active_stream == Some(id) {
            self.active_stream = None;
        }
    }

    /// True if something can be sent on a stream without limits of its own. Whoever waits for
    /// that hears of it.
    pub(super) fn check_room(&mut self, engine: &Connection) -> bool {
        let has_room = has_room(engine);
        self.wants_room |= !has_room;
        has_room
    }

    /// What was for this handshake is of no more use; what the server gives is for the next.
    pub(super) fn forget_session(&mut self) {
        self.token.clear();
        if !self.ticket_ready {
            self.ticket.clear();
        }
    }

    fn on_ticket(&mut self, ticket: Vec<u8>) {
        self.notify(&Notification::NewSessionTicket(ticket.clone()));
        self.ticket = ticket;
        self.ticket_ready = true;
    }

    /// A piece of a TLS message came. Those after the handshake are session tickets, which are
    /// not received but asked for; one is enough.
    fn on_tls(&mut self, level: quicket_engine::crypto::Level, bytes: Vec<u8>) {
        use quicket_engine::crypto::Level;
        self.changed = true;
        match level {
            Level::Initial => {
                self.inbox.push_handshake(CryptoLevel::Initial.number(), bytes);
            }
            Level::Handshake => {
                self.inbox.push_handshake(CryptoLevel::Handshake.number(), bytes);
            }
            Level::OneRtt if !self.ticket_ready => self.on_ticket_piece(&bytes),
            Level::OneRtt | Level::EarlyData => {}
        }
    }

    fn on_ticket_piece(&mut self, bytes: &[u8]) {
        if self.ticket_pieces.len() + bytes.len() > MAX_TICKET {
            return;
        }
        self.ticket_pieces.extend_from_slice(bytes);
        if let Some(&[_, high, middle, low]) = self.ticket_pieces.first_chunk::<TLS_HEADER>() {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            if self.ticket_pieces.len() >= len + TLS_HEADER {
                let ticket = std::mem::take(&mut self.ticket_pieces);
                self.on_ticket(ticket);
            }
        }
    }

    fn on_news(&mut self, side: Side, news: StreamNews) {
        match news {
            // The program is through with it: what is left to hear of is the reset.
            StreamNews::SizeKnown { id, .. } if self.inbox.is_stopped(id) => return,
            StreamNews::Received { id, .. } if self.inbox.on_complete(id) => return,
            StreamNews::ResetReceived { id, .. } => self.inbox.on_reset(id),
            StreamNews::Stopped { id, .. } => self.release_stream(id),
            _ => {}
        }
        let update = |id: StreamId, state: StreamState, errcode: u64, finalsz: u64| {
            Notification::StreamUpdate(StreamUpdate {
                id: signed(id),
                state: state.number(),
                // Larger codes do not fit the interface.
                errcode: errcode as u32,
                finalsz,
            })
        };
        let notification = match news {
            StreamNews::Receiving { id } => update(id, StreamState::Recv, 0, 0),
            StreamNews::SizeKnown { id, final_size } => {
                update(id, StreamState::RecvSizeKnown, 0, final_size)
            }
            StreamNews::Received { id, final_size } => {
                update(id, StreamState::RecvRecvd, 0, final_size)
            }
            StreamNews::ResetReceived { id, code, final_size } => {
                update(id, StreamState::RecvResetRecvd, code, final_size)
            }
            StreamNews::Acked { id } => update(id, StreamState::SendRecvd, 0, 0),
            StreamNews::Stopped { id, code, final_size } => {
                update(id, StreamState::SendResetSent, code, final_size)
            }
            StreamNews::ResetAcked { id, code, final_size } => {
                update(id, StreamState::SendResetRecvd, code, final_size)
            }
            StreamNews::MaxStreamData { id, limit } => {
                Notification::StreamMaxData(StreamMaxData { id: signed(id), max_data: limit })
            }
            StreamNews::MaxStreams { dir, limit } => {
                let highest = StreamId::new(side, dir, limit.saturating_sub(1));
                Notification::StreamMaxStream(highest.as_u64())
            }
            _ => return,
        };
        self.inbox.notify(&notification);
        // Limits were raised or streams freed: who waits to send should look.
        self.changed = true;
    }

    /// Tells of retired connection IDs, one by one.
    fn watch_cids(&mut self, engine: &Connection) {
        let now = (engine.local_cid_numbers(), engine.remote_cid_numbers());
        let Some(before) = self.cids.replace(now) else { return };
        if before == now {
            return;
        }
        for first in before.0.first + 1..=now.0.first {
            let info = ConnectionIdInfo {
                dest: 0,
                active: number(self.local_active.max(first)),
                prior_to: number(first),
            };
            self.notify(&Notification::ConnectionId(info));
        }
        let active = now.1.active.unwrap_or(now.1.first);
        for first in before.1.first + 1..=now.1.first {
            let info =
                ConnectionIdInfo { dest: 1, active: number(active), prior_to: number(first) };
            self.notify(&Notification::ConnectionId(info));
        }
    }

    fn on_closed(&mut self, error: &ConnectionError) {
        self.changed = true;
        let code = |code: TransportErrorCode| code.0 as u32;
        let none = ConnectionClose::default();
        // What the peer or this side's stack said stays to be asked for; what just happened,
        // such as silence, is told and that is all.
        let (told, stays) = match error {
            ConnectionError::PeerTransport { code: theirs, frame_type, reason } => {
                (ConnectionClose::new(code(*theirs), *frame_type as u8, reason), true)
            }
            ConnectionError::PeerApplication { code, reason } => {
                (ConnectionClose::new(*code as u32, 0, reason), true)
            }
            ConnectionError::Transport(error) => {
                (ConnectionClose::new(code(error.code), error.frame_type as u8, b""), true)
            }
            ConnectionError::VersionNegotiation { .. } => {
                let unsupported = TransportErrorCode::VERSION_NEGOTIATION_ERROR;
                (ConnectionClose::new(code(unsupported), 0, b""), true)
            }
            ConnectionError::NoViablePath => {
                (ConnectionClose::new(code(TransportErrorCode::NO_VIABLE_PATH), 0, b""), true)
            }
            ConnectionError::StatelessReset => {
                (ConnectionClose::new(code(TransportErrorCode::crypto(0)), 0, b""), false)
            }
            ConnectionError::IdleTimeout
            | ConnectionError::HandshakeTimeout
            | ConnectionError::PortUnreachable
            | ConnectionError::HostUnreachable => (none, false),
            // The program did it itself.
            ConnectionError::Local { .. } => return,
        };
        if stays {
            self.close = told;
        }
        self.notify(&Notification::ConnectionClose(told));
    }

    /// Among our connection IDs, the number that counts as active.
    pub(super) fn active_local_cid(&self, numbers: CidNumbers) -> u64 {
        self.local_active.max(numbers.first)
    }

    /// True if notifications of this kind are wanted.
    pub(super) fn wants(&self, kind: EventType) -> bool {
        self.inbox.wants(kind)
    }
}

fn has_room(engine: &Connection) -> bool {
    let room = engine.shared_send_room();
    room.credit > 0 && room.buffer > 0
}

/// A stream's ID as the interface writes it.
pub(super) fn signed(id: StreamId) -> i64 {
    i64::try_from(id.as_u64()).unwrap_or(i64::MAX)
}

/// A connection ID's number as the interface writes it.
pub(super) fn number(sequence: u64) -> u32 {
    u32::try_from(sequence).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use quicket_engine::crypto::{HandshakeStart, Level, TlsConfig as _};

    use super::*;

    /// RFC 9000, Section 7.5: a peer that sends TLS messages without end, to a program that takes none.
    #[test]
    fn tls_messages_that_nobody_receives_are_bounded() {
        const PIECE: usize = 1_000;
        const LIMIT: usize = 20_000;
        let ledger = Ledger::default();
        ledger.lock().inbox.set_limit(LIMIT);
        let start = HandshakeStart {
            server_name: "",
            peer: None,
            transport_parameters: b"",
            resume: None,
            early_data: false,
        };
        let mut handshake = ledger.mailbox.start_client(&start).unwrap();
        let mut taken = 0;
        while handshake.room() >= PIECE {
            handshake.read(Level::Handshake, &[0; PIECE]).unwrap();
            ledger.deliver(&mut ledger.lock());
            taken += PIECE;
            assert!(taken <= 10 * LIMIT, "there is no end");
        }
        assert!(taken >= LIMIT + (1 << 16) - PIECE, "{taken}");
        // As when the program has received all of them.
        ledger.lock().inbox.drop_handshake();
        ledger.deliver(&mut ledger.lock());
        assert!(handshake.room() >= LIMIT);
    }
}
