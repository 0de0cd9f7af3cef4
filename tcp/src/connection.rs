//! A connection: an interface of smoltcp's with one socket, so that nothing is searched for a segment.

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use smoltcp::iface::{Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, RecvError, Socket, SocketBuffer, State};
use smoltcp::time::Instant;

use crate::device::Wire;
use crate::out::Out;
use crate::segment::{Ends, Segment};

mod again;
mod audience;
mod incoming;
mod interface;
mod ledger;
mod place;
mod times;

use audience::Audience;
pub(crate) use audience::Side;
use interface::interface;
use ledger::{Held, Ledger};
use place::Place;
use times::Times;

/// How long data waits for its acknowledgment until a connection is given up.
pub const USER_TIMEOUT: Duration = Duration::from_secs(120);
/// How long an acknowledgment waits for data to go with, or for another segment (RFC 9293, Section 3.8.6.3). The other side may have
/// sent one segment, as its window is for one in the beginning, and wait for it.
const ACK_DELAY: smoltcp::time::Duration = smoltcp::time::Duration::from_millis(1);
/// Segments that a connection sends before others have their turn.
pub const MAX_BURST: u32 = 256;
/// How long a connection that nobody holds any more waits for the other side to acknowledge more, or to end.
pub const ORPHAN_TIME: Duration = Duration::from_secs(60);

/// A socket with its buffers, before it has a connection, or after.
pub(crate) struct Prepared {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Prepared {
    pub(crate) fn new(receive: usize, send: usize) -> Self {
        let buffer = |len| SocketBuffer::new(vec![0; len]);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(Socket::new(buffer(receive), buffer(send)));
        Self { sockets, handle }
    }
}

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A listener's, until it is established; its turn among those, and whether the system has said how long packets to its other side may be.
    HalfOpen { turn: u64, knows_way: bool },
    /// A listener's, until it is accepted.
    Queued,
    /// A stream's.
    Owned,
    /// Nobody's: it ends.
    Orphan,
}

/// What a stream has set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) write_timeout: Option<Duration>,
    pub(crate) is_read_shut: bool,
    pub(crate) is_nonblocking: bool,
    /// It ends with a reset when the stream goes.
    pub(crate) resets: bool,
}

pub(crate) struct Connection {
    interface: Interface,
    prepared: Prepared,
    ledger: Ledger,
    mtu: usize,
    pub(crate) place: Place,
    pub(crate) role: Role,
    pub(crate) settings: Settings,
    /// Why it is over, if it did not end as it should. Said once.
    pub(crate) error: Option<ErrorKind>,
    pub(crate) times: Times,
    pub(crate) audience: Audience,
    /// Its end waits for data before it.
    is_closing: bool,
    /// Nothing more is asked of its socket.
    is_broken: bool,
    /// A reset has come.
    was_reset: bool,
}

impl Connection {
    fn new(
        prepared: Prepared,
        ends: Ends,
        role: Role,
        mtu: usize,
        seed: u64,
        now: Instant,
    ) -> Self {
        Self {
            interface: interface(&ends, mtu, seed, now),
            prepared,
            ledger: Ledger::new(),
            mtu,
            place: Place::new(ends),
            role,
            settings: Settings::default(),
            error: None,
            times: Times::default(),
            audience: Audience::new(),
            is_closing: false,
            is_broken: false,
            was_reset: false,
        }
    }

    /// One that waits for the SYN that has come.
    pub(crate) fn listen(
        prepared: Prepared,
        ends: Ends,
        (turn, knows_way): (u64, bool),
        mtu: usize,
        seed: u64,
        now: Instant,
    ) -> Option<Self> {
        let role = Role::HalfOpen { turn, knows_way };
        let mut this = Self::new(prepared, ends, role, mtu, seed, now);
        let socket = this.socket();
        restore(socket);
        socket.listen(ends.local).ok()?;
        Some(this)
    }

    /// One that sends a SYN.
    pub(crate) fn connect(
        prepared: Prepared,
        ends: Ends,
        mtu: usize,
        seed: u64,
        now: Instant,
    ) -> io::Result<Self> {
        let mut this = Self::new(prepared, ends, Role::Owned, mtu, seed, now);
        let Prepared { sockets, handle } = &mut this.prepared;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        restore(socket);
        socket
            .connect(this.interface.context(), ends.remote, ends.local)
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok(this)
    }

    /// The socket, for another connection.
    pub(crate) fn into_prepared(self) -> Option<Prepared> {
        // smoltcp keeps what it has counted of losses.
        let is_clean = !self.is_broken && self.ledger.is_clean();
        is_clean.then_some(self.prepared)
    }

    pub(crate) fn socket(&mut self) -> &mut Socket<'static> {
        self.prepared.sockets.get_mut(self.prepared.handle)
    }

    fn view(&self) -> &Socket<'static> {
        self.prepared.sockets.get(self.prepared.handle)
    }

    pub(crate) fn state(&self) -> State {
        self.view().state()
    }

    /// What has been seen of its segments: the next sequence numbers of this and of the other side.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let seen = &self.ledger.seen;
        (seen.sent.unwrap_or_default(), seen.acknowledged)
    }

    /// Takes a segment that has come for it. What is to be sent for it waits for [`Connection::advance`].
    pub(crate) fn input(&mut self, segment: &Segment<'_>, out: &mut Out, now: Instant) {
        self.guard(|this| this.take(segment, out, now));
    }

    /// Sends what there is to send, and what timers ask for.
    pub(crate) fn advance(&mut self, out: &mut Out, now: Instant) {
        self.guard(|this| this.send(out, now));
    }

    /// Does something with smoltcp. Should that panic, it is a fault of smoltcp's or ours: this connection is over then, and
    /// those of others are not. None for one that is.
    fn guard<R>(&mut self, what: impl FnOnce(&mut Self) -> R) -> Option<R> {
        if self.is_broken {
            return None;
        }
        let result = catch_unwind(AssertUnwindSafe(|| what(self)));
        if result.is_err() {
            log::error!("a connection from {} has panicked, and is over", self.place.ends.remote);
            self.is_broken = true;
            self.place.starve(false);
            self.error = Some(ErrorKind::Other);
        }
        result.ok()
    }

    /// What has come, as far as it has room; it stays there if `is_peek`. None if nothing more comes.
    pub(crate) fn read(&mut self, buffer: &mut [u8], is_peek: bool) -> Option<usize> {
        let taken = self.guard(|this| {
            let socket = this.socket();
            if !is_peek {
                return socket.recv_slice(buffer).ok();
            }
            let data = socket.peek(buffer.len()).ok()?;
            buffer[..data.len()].copy_from_slice(data);
            Some(data.len())
        })??;
        if !is_peek {
            self.ledger.read(taken);
        }
        Some(taken)
    }

    /// Takes data to send, as much as has room. None if nothing can be sent any more.
    pub(crate) fn write(&mut self, data: &[u8]) -> Option<usize> {
        if self.is_closing {
            return None;
        }
        let taken = self.guard(|this| this.socket().send_slice(data).ok())??;
        self.ledger.write(taken);
        if taken < data.len() {
            self.audience.want_room();
        }
        Some(taken)
    }

    /// Nothing more is sent behind what has been written.
    pub(crate) fn close(&mut self) {
        self.guard(|this| {
            if this.state() == State::CloseWait && !this.ledger.may_end(&this.held()) {
                this.is_closing = true;
                // The last segment waits for nothing more to go with.
                this.socket().set_nagle_enabled(false);
            } else {
                this.forget_request();
                this.socket().close();
            }
        });
    }

    /// A router says that a packet was too long, whose segment began with that sequence number. It is believed if something of
    /// that is under way (RFC 5927, Section 4.1), and makes packets shorter only, from where on the connection sends them again. Returns
    /// whether it is believed.
    pub(crate) fn shorten(&mut self, sequence: u32, mtu: usize, now: Instant) -> bool {
        if !self.ledger.is_under_way(sequence, &self.held()) || mtu >= self.mtu {
            return false;
        }
        self.limit_mtu(mtu, now);
        true
    }

    /// Packets are so long at most from now on, if they were longer.
    pub(crate) fn limit_mtu(&mut self, mtu: usize, now: Instant) {
        if mtu < self.mtu {
            self.mtu = mtu;
            // Sequence numbers have begun, which is what the seed is for.
            self.interface = interface(&self.place.ends, mtu, 0, now);
        }
    }

    /// Octets that wait for their acknowledgment, and one for a FIN. None before both sides have begun.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn flight(&self) -> Option<u32> {
        self.ledger.flight(&self.held())
    }

    fn held(&self) -> Held {
        Held::of(self.view())
    }

    pub(crate) const fn mtu(&self) -> usize {
        self.mtu
    }

    fn send(&mut self, out: &mut Out, now: Instant) {
        let is_owed = self.view().send_queue() > 0;
        // smoltcp counts from the last segment that came, or from when there was something to send again.
        self.socket().set_timeout(is_owed.then(|| USER_TIMEOUT.into()));
        let ends = matches!(self.state(), State::FinWait1 | State::Closing | State::LastAck);
        if self.times.is_end_given_up(ends && !is_owed, now) {
            self.error.get_or_insert(ErrorKind::TimedOut);
            self.socket().abort();
        }
        if self.times.is_stalled(now) {
            self.revive(out, now);
        }
        let was_open = self.state() != State::Closed;
        self.send_segments(out, now);
        // In LAST-ACK, smoltcp would hear nothing of windows, nor that probes are answered (RFC 9293, Section 3.8.6.1).
        if self.is_closing && self.ledger.may_end(&self.held()) {
            self.is_closing = false;
            self.socket().close();
            self.send_segments(out, now);
        }
        self.watch_over(now);
        let is_lost = is_owed || !self.is_ended_well();
        if was_open && self.state() == State::Closed && is_lost {
            self.error.get_or_insert(ErrorKind::TimedOut);
        }
        self.see_state();
    }

    fn send_segments(&mut self, out: &mut Out, now: Instant) {
        let mut is_full = false;
        let mut left = MAX_BURST;
        while left > 0 {
            self.limit();
            // smoltcp takes a segment for sent again that had no room, and stops its timer.
            if !out.has_room() {
                let next = self.interface.poll_at(now, &self.prepared.sockets);
                is_full = next.is_some_and(|next| next <= now);
                break;
            }
            let before = self.ledger.seen.sent;
            let mut wire = self.wire(out, None);
            let (interface, sockets, device) = &mut wire;
            if interface.poll_egress(now, device, sockets) == PollResult::None {
                break;
            }
            left -= 1;
            self.ledger.count(before);
        }
        // Others have their turn, and then it goes on.
        self.place.starve(is_full || left == 0);
    }

    /// Has congestion control begin once the first segments have taken their window, or one of them was acknowledged or sent
    /// again.
    fn limit(&mut self) {
        if !self.ledger.is_initial() {
            return;
        }
        let headers = if self.place.ends.local.is_ipv4() { 40 } else { 60 };
        let largest = self.mtu.saturating_sub(headers) as u32;
        let held = self.held();
        if self.ledger.ends_initial(largest, &held) {
            self.socket().set_congestion_control(CongestionControl::Cubic);
        }
    }

    fn wire<'a>(
        &'a mut self,
        out: &'a mut Out,
        incoming: Option<&'a [u8]>,
    ) -> (&'a mut Interface, &'a mut SocketSet<'static>, Wire<'a>) {
        let Self { interface, prepared, ledger, mtu, .. } = self;
        let wire = Wire { out, seen: &mut ledger.seen, incoming, mtu: *mtu };
        (interface, &mut prepared.sockets, wire)
    }

    /// Notes what a state says that is not the socket's any more after the next one.
    fn see_state(&mut self) {
        let state = self.state();
        if !matches!(state, State::Listen | State::SynSent | State::SynReceived | State::Closed) {
            self.ledger.establish();
        }
        if self.was_reset {
            let kind = if self.is_established() {
                ErrorKind::ConnectionReset
            } else {
                ErrorKind::ConnectionRefused
            };
            self.error = Some(kind);
            self.was_reset = false;
        }
    }

    /// Both sides have said that nothing more comes, or this one has ended it.
    fn is_ended_well(&mut self) -> bool {
        self.role == Role::Orphan
            || matches!(self.socket().recv(|_| (0, ())), Err(RecvError::Finished))
    }

    /// When it is to be looked at next.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Instant> {
        // One that waits for room is looked at when there is some.
        let timers = match self.place.is_starved() {
            true => None,
            false => self.guard(|this| this.interface.poll_at(now, &this.prepared.sockets)),
        };
        [timers.flatten(), self.times.next()].into_iter().flatten().min()
    }

    /// Whether the other side has gone, or this side has ended it, and nothing is to be sent any more.
    pub(crate) fn is_over(&self) -> bool {
        let socket = self.view();
        let is_closed = socket.state() == State::Closed && socket.remote_endpoint().is_none();
        self.place.is_detached() || self.is_broken || is_closed
    }

    /// Whether the handshake that this side began is complete.
    ///
    /// # Errors
    ///
    /// Why it will not be.
    pub(crate) fn is_connected(&mut self) -> io::Result<bool> {
        match self.error.take() {
            Some(kind) => Err(kind.into()),
            None if self.is_established() => Ok(true),
            None if self.is_over() => Err(ErrorKind::ConnectionRefused.into()),
            None => Ok(false),
        }
    }

    pub(crate) fn is_established(&self) -> bool {
        self.ledger.was_established()
    }

    /// Whether the handshake may still come to its end.
    pub(crate) fn is_pending(&self) -> bool {
        let is_shaking = matches!(self.state(), State::SynSent | State::SynReceived);
        is_shaking && !self.is_over()
    }

    /// Whether who reads need not wait.
    pub(crate) fn is_readable(&self) -> bool {
        let socket = self.view();
        let has_ended = !socket.may_recv() && !self.is_pending();
        self.error.is_some() || self.place.is_detached() || socket.can_recv() || has_ended
    }

    /// Whether who writes, or waits for the connection, need not wait.
    pub(crate) fn is_writable(&self) -> bool {
        let socket = self.view();
        self.error.is_some()
            || self.is_closing
            || socket.can_send()
            || (!socket.may_send() && !self.is_pending())
    }

    /// Ends it with a reset, or with nothing if the other side has not answered.
    pub(crate) fn abort(&mut self) {
        if !self.is_over() {
            self.guard(|this| {
                this.forget_request();
                this.socket().abort();
            });
        }
    }

    /// Whoever has not answered is not told that a connection ends (RFC 9293, Sections 3.10.4 and 3.10.5): from an address that the
    /// interface has no more, smoltcp sends no reset.
    fn forget_request(&mut self) {
        if self.state() == State::SynSent {
            self.interface.update_ip_addrs(|addresses| addresses.clear());
        }
    }

    /// Whether data has come that nobody has read.
    pub(crate) fn has_unread(&self) -> bool {
        self.view().recv_queue() > 0
    }
}

/// What a socket that was used before has to have again.
fn restore(socket: &mut Socket<'_>) {
    // One that has made room for another one was still open.
    socket.abort();
    socket.set_nagle_enabled(true);
    socket.set_timeout(None);
    socket.set_keep_alive(None);
    socket.set_ack_delay(Some(ACK_DELAY));
    // It begins behind the initial window.
    socket.set_congestion_control(CongestionControl::None);
}
