//! What the application does with a connection.

use alloc::boxed::Box;
use core::net::SocketAddr;

use quicket_wire::{Dir, Side, StreamId, TransportParameters, Version};

use super::state::CloseReason;
use super::{Connection, EarlyData, close};
use crate::cid::CidNumbers;
use crate::config::TransportConfig;
use crate::congestion::Congestion;
use crate::crypto::{Deferred, HandshakeError, HandshakeSummary, TAG_LEN, TlsConfig};
use crate::datagrams::{DatagramError, DatagramFate, Datagrams, WhenFull};
use crate::error::{ConnectionError, TransportError};
use crate::observer::Observer;
use crate::random::Random;
use crate::stats::{PathStats, Stats};
use crate::streams::{
    Chunk, OpenError, Peek, ReadError, ReadOutcome, SendRoom, StreamCounts, StreamNews,
    StreamStatus, Streams, WriteError,
};
use crate::time::Time;

#[inline(never)] // keeps it out of the frame of `Connection::new`
pub(super) fn new_streams(
    side: Side,
    config: &TransportConfig,
    rng: &mut dyn Random,
) -> Box<Streams> {
    let seed = rng.next_u64();
    Box::new(Streams::new(side, config.into(), seed))
}

pub(super) fn new_datagrams(config: &TransportConfig) -> Datagrams {
    let announced = super::parameters::max_datagram_frame_size(config);
    Datagrams::new(config.datagram_send_buffer, config.datagram_receive_buffer, announced)
}

/// Why keys cannot be updated now (RFC 9001, Section 6.1 and 6.5).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyUpdateError;

/// In words, for it is what a `main` that returns the error shows.
impl core::fmt::Debug for KeyUpdateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{self} (KeyUpdateError)")
    }
}

impl core::fmt::Display for KeyUpdateError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(
            "keys can be updated once the handshake is confirmed and the last update is \
             acknowledged; try again a few round trips later",
        )
    }
}

impl core::error::Error for KeyUpdateError {}

/// Streams (RFC 9000, Section 2).
impl Connection {
    /// Opens a stream.
    pub fn open(&mut self, dir: Dir) -> Result<StreamId, OpenError> {
        self.streams.open(dir)
    }

    /// The next stream that the peer has opened.
    pub fn accept(&mut self, dir: Dir) -> Option<StreamId> {
        self.streams.accept(dir)
    }

    /// True if the stream began as early data, which an attacker can repeat (RFC 9001, Section
    /// 9.2): its first frame came in a 0-RTT packet. Ask when it is accepted; of a stream that is
    /// over, nothing is known for sure.
    pub fn is_early_data(&mut self, id: StreamId) -> bool {
        self.streams.is_early_data(id)
    }

    /// Takes as much of `data` as there is room for; returns how many bytes.
    pub fn write(&mut self, id: StreamId, data: &[u8]) -> Result<usize, WriteError> {
        self.streams.write(id, data)
    }

    /// Ends the stream behind what was written.
    pub fn finish(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.finish(id)
    }

    /// Gives the stream up; what was not delivered may be lost (RFC 9000, Section 3.1).
    pub fn reset(&mut self, id: StreamId, code: u64) -> Result<(), WriteError> {
        self.streams.reset(id, code)
    }

    /// Streams of higher priority are sent first; 0 is the default.
    pub fn set_priority(&mut self, id: StreamId, priority: i32) -> Result<(), WriteError> {
        self.streams.set_priority(id, priority)
    }

    /// Lets the peer hear of a bidirectional stream before anything is sent on it, by MAX_STREAM_DATA
    /// (RFC 9000, Section 3.2).
    ///
    /// # Errors
    ///
    /// If the stream is closed.
    pub fn announce(&mut self, id: StreamId) -> Result<(), WriteError> {
        self.streams.announce(id)
    }

    /// How many bytes [`Connection::write`] would take now.
    pub fn send_capacity(&mut self, id: StreamId) -> Result<usize, WriteError> {
        self.streams.send_capacity(id)
    }

    /// How many bytes of the stream the peer has not acknowledged.
    pub fn bytes_unacked(&mut self, id: StreamId) -> Result<usize, WriteError> {
        self.streams.bytes_unacked(id)
    }

    /// How many streams are open or have something to be acknowledged.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// How many bytes of memory the data of streams takes: what is written and not acknowledged,
    /// received and not read, and buffers that are kept for the next.
    pub const fn stream_memory(&self) -> usize {
        self.streams.footprint()
    }

    /// Says how many bytes of stream data the connection may hold now in each direction, where
    /// many share the memory; at first as many as [`TransportConfig`](crate::TransportConfig)
    /// allows. Where it holds more, nothing is lost: nothing can be written until the peer has
    /// acknowledged enough, and the peer gets no credit beyond what it was promised.
    pub fn set_memory_allowance(&mut self, bytes: usize) {
        self.streams.set_allowance(bytes);
    }

    /// Has another congestion controller decide from now on, as it would on a new path: it is meant for the
    /// beginning of a connection, once more is known of the peer. Nothing changes if it is the one that decides
    /// already, with the same parameters.
    pub fn set_congestion(&mut self, now: Time, congestion: impl Into<Congestion>) {
        self.paths.set_congestion(congestion.into(), now, &mut *self.rng);
    }

    /// True if the peer has acknowledged everything that was written, finished or reset on any
    /// stream: closing the connection loses nothing then.
    pub fn is_delivered(&self) -> bool {
        self.streams.is_delivered()
    }

    /// Reads what has arrived, in order.
    pub fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<ReadOutcome, ReadError> {
        self.streams.read(id, out)
    }

    /// Shows what has arrived without a copy; [`Connection::consume`] follows.
    pub fn peek(&mut self, id: StreamId) -> Result<Peek<'_>, ReadError> {
        self.streams.peek(id)
    }

    /// Takes what has arrived out in its buffer, or as much as lies in one, and gives `spent` back;
    /// nothing is copied unless data of this stream behind a gap shares the buffer.
    pub fn take_chunk(&mut self, id: StreamId, spent: Option<Chunk>) -> Result<Chunk, ReadError> {
        spent.into_iter().for_each(|spent| self.give_back(spent));
        self.streams.take_chunk(id)
    }

    /// Takes the buffer of a chunk back.
    pub fn give_back(&mut self, chunk: Chunk) {
        self.streams.give_back(chunk);
    }

    /// True if the peer should hear of a larger window of all streams together, as it may even
    /// after a call that found nothing to read: [`Connection::poll_transmit`] tells it.
    pub fn is_window_update_due(&self) -> bool {
        self.streams.window_due()
    }

    /// Marks `len` bytes of what [`Connection::peek`] showed as read.
    pub fn consume(&mut self, id: StreamId, len: usize) -> Result<ReadOutcome, ReadError> {
        self.streams.consume(id, len)
    }

    /// Asks the peer to stop sending on the stream (RFC 9000, Section 3.5), and still reads what
    /// comes until it does.
    pub fn request_stop(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.request_stop(id, code)
    }

    /// Asks the peer to stop sending on the stream (RFC 9000, Section 3.5). What came and comes
    /// is dropped.
    pub fn stop_sending(&mut self, id: StreamId, code: u64) -> Result<(), ReadError> {
        self.streams.stop_sending(id, code)
    }
}

/// What streams do, for applications that follow it step by step.
impl Connection {
    /// Collects [`StreamNews`] from now on, or no more.
    pub fn follow_streams(&mut self, follow: bool) {
        self.streams.follow(follow);
    }

    /// The next news.
    pub fn poll_stream_news(&mut self) -> Option<StreamNews> {
        self.streams.poll_news()
    }

    /// Where the halves of a stream stand; `None` if it is closed or was never open.
    pub fn stream_status(&mut self, id: StreamId) -> Option<StreamStatus> {
        self.streams.status(id)
    }

    /// How many streams of one direction there were.
    pub fn stream_counts(&self, dir: Dir) -> StreamCounts {
        self.streams.counts(dir)
    }

    /// What can be written to a stream now; `None` if nothing ever again.
    pub fn send_room(&mut self, id: StreamId) -> Option<SendRoom> {
        self.streams.send_room(id).ok().flatten()
    }

    /// What can be written now to streams that have no limit of their own in the way.
    pub fn shared_send_room(&self) -> SendRoom {
        SendRoom { credit: self.streams.credit_left(), buffer: self.streams.buffer_left() }
    }

    /// How many bytes written to streams were never sent.
    pub fn bytes_unsent(&self) -> u64 {
        self.streams.unsent()
    }

    /// Holds stream data back, whatever else is sent, until this is called again or data is lost:
    /// for applications that know that more follows.
    pub fn cork_streams(&mut self, corked: bool) {
        self.streams.cork(corked);
    }

    /// How many bytes written to streams are not acknowledged.
    pub fn bytes_held(&self) -> usize {
        self.streams.held()
    }

    /// Has the peer told that it permits too few streams (RFC 9000, Section 4.6).
    pub fn tell_streams_blocked(&mut self, dir: Dir) {
        self.streams.tell_streams_blocked(dir);
    }

    /// Has the peer told of limits that keep this side from writing to a stream
    /// (RFC 9000, Section 4.1).
    pub fn tell_blocked(&mut self, id: StreamId) {
        self.streams.tell_blocked(id);
    }
}

/// Datagrams (RFC 9221).
impl Connection {
    /// Queues an unreliable datagram; returns a number that names it.
    pub fn send_datagram(&mut self, data: &[u8], full: WhenFull) -> Result<u64, DatagramError> {
        self.update_datagram_limit();
        self.datagrams.send(data, full)
    }

    /// The oldest datagram received and not yet taken.
    pub fn peek_datagram(&self) -> Option<&[u8]> {
        self.datagrams.peek()
    }

    /// Takes the datagram that [`Connection::peek_datagram`] shows.
    pub fn pop_datagram(&mut self) {
        self.datagrams.pop();
    }

    /// The largest datagram that can be sent now, in bytes; `None` if the peer takes none. It
    /// changes with the path's MTU.
    pub fn max_datagram_size(&mut self) -> Option<usize> {
        self.update_datagram_limit();
        self.datagrams.max_size()
    }

    /// How many bytes of datagrams wait to be sent.
    pub fn datagram_bytes_unsent(&self) -> usize {
        self.datagrams.bytes_unsent()
    }

    /// Reports through [`Connection::poll_datagram_fate`] what becomes of datagrams, or stops to.
    pub fn follow_datagrams(&mut self, follow: bool) {
        self.datagrams.follow_fates(follow);
    }

    /// What became of a datagram.
    pub fn poll_datagram_fate(&mut self) -> Option<DatagramFate> {
        self.datagrams.poll_fate()
    }

    /// How many bytes of frames a 1-RTT packet on the active path has room for.
    pub fn max_packet_payload(&self) -> usize {
        let path = self.paths.active();
        let dcid = self.remote_cids.get(path.key()).map_or(0, |cid| cid.len());
        // First byte, connection ID, packet number, tag.
        let overhead = dcid.saturating_add(1 + 4 + TAG_LEN);
        usize::from(path.max_datagram()).saturating_sub(overhead)
    }

    pub(super) fn update_datagram_limit(&mut self) {
        let room = self.max_packet_payload();
        self.datagrams.set_path_limit(room);
    }
}

/// What is the application's.
impl Connection {
    /// What TLS leaves to be done for the application, in its order. Whoever holds a lock for this
    /// connection calls it after that: it may use the connection.
    pub fn poll_deferred(&mut self) -> Option<Deferred> {
        self.handshake.poll_deferred()
    }
}

/// The end.
impl Connection {
    /// Closes the connection with the application's `code` and up to 256 bytes of `reason`;
    /// what was not delivered may be lost (RFC 9000, Section 10.2).
    pub fn close(&mut self, now: Time, code: u64, reason: &[u8]) {
        let code = code.min(quicket_wire::varint::MAX);
        let reason = reason.get(..close::MAX_REASON).unwrap_or(reason).to_vec();
        self.close_with(now, CloseReason::Application { code, reason });
    }

    /// True once the connection has ended; packets may still be sent to tell the peer.
    pub fn is_closed(&self) -> bool {
        !self.state.is_open()
    }

    /// True once nothing is left to do and the connection can be dropped.
    pub fn is_drained(&self) -> bool {
        self.state.is_drained()
    }

    /// Why the connection ended.
    pub fn close_reason(&self) -> Option<&ConnectionError> {
        self.error.as_deref()
    }

    /// What TLS said when the handshake failed on this side.
    pub fn handshake_error(&self) -> Option<&HandshakeError> {
        self.handshake_error.as_deref()
    }
}

/// The handshake.
impl Connection {
    /// Which side of the connection this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// True until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        !self.handshake.complete && self.state.is_open()
    }

    /// True while the handshake is complete and the connection open.
    pub fn is_established(&self) -> bool {
        self.handshake.complete && self.state.is_open()
    }

    /// True once the peer is known to know that the handshake is complete
    /// (RFC 9001, Section 4.1.2).
    pub fn is_confirmed(&self) -> bool {
        self.handshake.confirmed
    }

    /// What the handshake settled, once it is complete.
    pub fn handshake_summary(&self) -> Option<&HandshakeSummary> {
        self.handshake.summary.as_deref()
    }

    /// The application protocol, once settled: servers know it before they read early data
    /// (RFC 9001, Section 8.1). Empty if none was negotiated.
    pub fn alpn(&self) -> Option<&[u8]> {
        let settled = self.handshake_summary().map(|summary| summary.alpn.as_slice());
        settled.or_else(|| self.handshake.tls()?.alpn())
    }

    /// What became of early data.
    pub fn early_data(&self) -> EarlyData {
        self.handshake.early_data
    }

    /// The version in use.
    pub fn version(&self) -> Version {
        self.handshake.versions.current
    }

    /// The peer's transport parameters, once known.
    pub fn peer_transport_parameters(&self) -> Option<&TransportParameters> {
        self.handshake.remote_parameters.as_ref()
    }

    /// Our transport parameters, once sent.
    pub fn local_transport_parameters(&self) -> &TransportParameters {
        &self.handshake.local_parameters
    }

    /// True if 1-RTT packets are not encrypted, because both sides asked for that.
    pub fn is_1rtt_encryption_disabled(&self) -> bool {
        self.keys.is_1rtt_plain()
    }

    /// Keying material for the application (RFC 8446, Section 7.5).
    pub fn export_keying_material(
        &self,
        label: &[u8],
        context: &[u8],
        out: &mut [u8],
    ) -> Result<(), HandshakeError> {
        match self.handshake.tls() {
            Some(tls) => tls.export_keying_material(label, context, out),
            None => Err(HandshakeError {
                alert: crate::crypto::Alert::INTERNAL_ERROR,
                reason: "the handshake has not started".into(),
            }),
        }
    }

    /// Server: goes on after [`crate::Event::ClientHello`] with this TLS configuration.
    pub fn accept_handshake(&mut self, now: Time, tls: &dyn TlsConfig) {
        let result = self.start_server_handshake(now, tls);
        self.after_tls(now, result);
    }

    /// A handshake that runs elsewhere has something new to say.
    pub fn handshake_progressed(&mut self, now: Time) {
        if self.state.is_open() {
            let result = self.drive_handshake(now);
            self.after_tls(now, result);
        }
    }

    fn after_tls(&mut self, now: Time, result: Result<(), TransportError>) {
        match result {
            Ok(()) => self.after_receiving(now),
            Err(error) => self.fail(now, error),
        }
    }
}

/// Keys, paths, numbers.
impl Connection {
    /// Updates the 1-RTT keys (RFC 9001, Section 6).
    pub fn update_keys(&mut self, now: Time) -> Result<(), KeyUpdateError> {
        if !self.state.is_open() || !self.keys.may_update(self.handshake.confirmed) {
            return Err(KeyUpdateError);
        }
        self.wake_keys(now);
        self.keys.update();
        self.on_key_update(now, false);
        Ok(())
    }

    /// Sends a PING, so that the peer answers.
    pub fn ping(&mut self) {
        self.spaces.data.ping = true;
    }

    /// Replaces all our connection IDs (RFC 9000, Section 5.1.2); false if a replacement is
    /// under way.
    pub fn rotate_local_cids(&mut self, now: Time) -> bool {
        let rotated = self.local_cids.rotate();
        self.issue_cids(now);
        rotated
    }

    /// Addresses the peer by another of its connection IDs; false if it has given us no other.
    pub fn rotate_remote_cid(&mut self, now: Time) -> bool {
        let key = self.paths.active().key();
        let rotated = match self.remote_cids.rotate(key) {
            Ok(rotated) => rotated,
            Err(error) => {
                self.fail(now, error);
                false
            }
        };
        self.report_cids(now);
        rotated
    }

    /// The numbers of our connection IDs.
    pub fn local_cid_numbers(&self) -> CidNumbers {
        self.local_cids.numbers()
    }

    /// The numbers of the peer's connection IDs.
    pub fn remote_cid_numbers(&self) -> CidNumbers {
        self.remote_cids.numbers(self.paths.active().key())
    }

    /// Has the peer retire our connection IDs below this number (RFC 9000, Section 5.1.2); false
    /// if the number is not above that of an earlier request and below that of the next
    /// connection ID, or an earlier request is unanswered.
    pub fn retire_local_cids(&mut self, now: Time, prior_to: u64) -> bool {
        let retires = self.local_cids.retire_prior_to(prior_to);
        self.issue_cids(now);
        retires
    }

    /// Retires the peer's connection IDs below this number; paths that used them take others.
    pub fn retire_remote_cids(&mut self, now: Time, prior_to: u64) {
        if let Err(error) = self.remote_cids.retire_prior_to(prior_to) {
            self.fail(now, error);
        }
        self.report_cids(now);
    }

    /// Addresses the peer by its connection ID of this number; false if there is none or it was
    /// used already.
    pub fn use_remote_cid(&mut self, now: Time, sequence: u64) -> bool {
        let switched = self.remote_cids.switch_to(self.paths.active().key(), sequence);
        self.report_cids(now);
        switched
    }

    /// True while a path is being validated to which this side wants to move.
    pub fn is_migrating(&self) -> bool {
        self.paths.is_migrating()
    }

    /// Bytes that were sent and neither acknowledged nor taken for lost, on the active path.
    pub fn bytes_in_flight(&self) -> u64 {
        self.paths.active().congestion.stats().in_flight
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        self.paths.active().remote()
    }

    /// This side's address, if known.
    pub fn local(&self) -> Option<SocketAddr> {
        self.active_route().local
    }

    /// The socket refused to send a datagram of `size` bytes as too large for this host.
    pub fn on_send_refused(&mut self, size: usize) {
        let Ok(size) = u16::try_from(size) else { return };
        let path = self.paths.active_mut();
        if path.mtu.on_send_refused(size) {
            path.congestion.on_mtu_changed(path.mtu.current());
        }
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats {
            counters: (*self.counters).clone(),
            path: self.path_stats(),
            streams: self.streams.len(),
            send_buffered: self.streams.held(),
            datagrams_dropped: self.datagrams.received_dropped(),
        }
    }

    /// Gauges of the active path.
    pub(super) fn path_stats(&self) -> PathStats {
        let path = self.paths.active();
        let congestion = path.congestion.stats();
        PathStats {
            latest_rtt: path.rtt.latest().into(),
            min_rtt: path.rtt.min().into(),
            smoothed_rtt: path.rtt.smoothed().into(),
            rtt_variation: path.rtt.variation().into(),
            mtu: path.max_datagram(),
            ecn_capable: path.ecn.is_capable(),
            ecn: path.ecn.state(),
            congestion_controller: congestion.algorithm,
            congestion_state: congestion.state,
            congestion_window: congestion.window,
            slow_start_threshold: congestion.ssthresh,
            bytes_in_flight: congestion.in_flight,
            pacing_rate: congestion.pacing_rate,
            delivery_rate: congestion.delivery_rate,
            congestion_events: congestion.congestion_events,
            ecn_ce_events: congestion.ecn_ce_events,
            persistent_congestion: congestion.persistent_congestion,
        }
    }

    /// Reports everything to `observer` from now on.
    pub fn set_observer(&mut self, observer: Option<Box<dyn Observer>>) {
        self.observer = observer;
    }
}
