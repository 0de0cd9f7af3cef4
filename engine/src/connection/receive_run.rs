//! Trains of datagrams, and the runs in them: 1-RTT packets in order, each with nothing but one
//! STREAM frame. Most of a long transfer consists of them. Each is opened and its data goes to
//! its stream; everybody else hears of the whole run once.

use core::ops::Range;

use quicket_wire::frame::Stream;
use quicket_wire::{
    ConnectionId, EcnCodepoint, Header, PacketKind, Reader, fixed_bit, header_sample, key_phase,
    packet_number, reserved_bits_are_zero, spin, unprotect,
};

use super::Connection;
use super::keys::KeyChoice;
use super::paths::four_tuple;
use super::receive::{Arrival, Opened};
use crate::crypto::{CipherError, Level, OpenJob, TAG_LEN};
use crate::endpoint::Datagram;
use crate::error::TransportError;
use crate::observer::{DropReason, PacketContent};
use crate::path::FourTuple;
use crate::recovery::PathKey;
use crate::streams::ReceiveRun;
use crate::time::Time;

/// Datagrams of a train that are to one connection ID.
struct Train<'b> {
    dcid: ConnectionId,
    /// The length of each datagram but the last.
    stride: usize,
    rest: &'b mut [u8],
}

impl<'b> Train<'b> {
    /// The next datagram, if it begins with a short header to the same connection ID.
    fn next(&mut self) -> Option<&'b mut [u8]> {
        if destination(self.rest, self.dcid.len())? != self.dcid.as_slice() {
            return None;
        }
        let stride = self.stride.min(self.rest.len());
        let (next, rest) = core::mem::take(&mut self.rest).split_at_mut_checked(stride)?;
        self.rest = rest;
        Some(next)
    }
}

/// RFC 9000, Section 17.3: the ID follows the first byte of a short header, whose highest bit
/// is 0.
fn destination(datagram: &[u8], cid_len: usize) -> Option<&[u8]> {
    let (first, rest) = datagram.split_first()?;
    (first & 0x80 == 0).then(|| rest.get(..cid_len))?
}

/// A run so far.
struct Run {
    arrival: Arrival,
    path: PathKey,
    /// The number of the first packet.
    first: u64,
    count: u64,
    /// The spin bit of the last one.
    spin: bool,
    stream: Option<ReceiveRun>,
}

/// What became of a packet that might continue a run.
enum Next {
    Continued,
    /// It is for the usual way, with its header protection removed.
    Unopened(Opened),
    /// It is for the usual way, opened; its content is in this range.
    Opened(Opened, Range<usize>),
    Dropped(DropReason),
    /// The cipher is busy.
    NotYet(Opened),
    Failed(TransportError),
}

impl Connection {
    /// Processes datagrams that came together, from one address to one address with one ECN mark,
    /// each of `stride` bytes but the last, which may be shorter: the first, of which
    /// [`crate::Endpoint::route`] found that it is this connection's, and those behind it that
    /// begin with the same connection ID. Returns how many bytes of the train that was.
    pub fn handle_train(&mut self, now: Time, train: &mut Datagram<'_>, stride: usize) -> usize {
        let Datagram { remote, local, ecn, ref mut data } = *train;
        let whole = data.len();
        let cid_len = self.endpoint.cid_generator.len();
        let dcid = destination(data, cid_len).and_then(ConnectionId::new);
        let (first, rest) = data.split_at_mut(stride.clamp(1, whole.max(1)).min(whole));
        self.handle_datagram(now, &mut Datagram { remote, local, ecn, data: first });
        let Some(dcid) = dcid else { return first.len() };
        let tuple = four_tuple(local, remote);
        let mut train = Train { dcid, stride: stride.max(1), rest };
        while !train.rest.is_empty() {
            self.receive_run(now, (tuple, ecn), &mut train);
            let Some(data) = train.next() else { break };
            self.handle_datagram(now, &mut Datagram { remote, local, ecn, data });
        }
        whole.saturating_sub(train.rest.len())
    }

    /// Receives a run from the front of a train, and the packet that ends it, if any.
    fn receive_run(&mut self, now: Time, from: (FourTuple, EcnCodepoint), train: &mut Train<'_>) {
        let Some(mut run) = self.begin_run(now, from) else { return };
        self.streams.receive_early(false);
        while let Some(packet) = train.next() {
            self.reporting.counters.count().udp_received(packet.len());
            run.arrival.datagram_len = packet.len();
            match self.continue_run(&mut run, train.dcid.len(), packet) {
                Next::Continued => {}
                other => {
                    self.end_run(&mut run, &train.dcid);
                    return self.leave_run(&run.arrival, packet, other);
                }
            }
        }
        self.end_run(&mut run, &train.dcid);
    }

    /// A run, if the connection is in a state to receive one.
    fn begin_run(&mut self, now: Time, (tuple, ecn): (FourTuple, EcnCodepoint)) -> Option<Run> {
        let plain = self.termination.is_open()
            && self.handshake.confirmed
            && !self.reporting.is_observed()
            && !self.keys.is_1rtt_plain();
        if !plain || self.recovery.spaces.data.received.is_empty() {
            return None;
        }
        self.wake_keys(now);
        let path = self.paths.find(&tuple)?;
        let active = self.paths.active();
        if path != active.key() || !active.is_validated() {
            return None;
        }
        let arrival = Arrival { now, tuple, path: Some(path), ecn, datagram_len: 0 };
        let first = self.recovery.spaces.data.received.expected();
        Some(Run { arrival, path, first, count: 0, spin: false, stream: None })
    }

    #[inline]
    fn continue_run(&mut self, run: &mut Run, cid_len: usize, packet: &mut [u8]) -> Next {
        let too_short = Next::Dropped(DropReason::Malformed);
        let pn_offset = cid_len.saturating_add(1);
        let Some(keys) = self.keys.current_receiving() else { return too_short };
        let Some(sample) = header_sample(packet, pn_offset) else { return too_short };
        let mask = keys.header.mask(sample);
        let Some((pn_len, truncated)) = unprotect(packet, pn_offset, mask) else {
            return too_short;
        };
        let expected = run.first.saturating_add(run.count);
        let number = packet_number::decode(truncated, pn_len, expected);
        let opened = Opened { number, payload: pn_offset.saturating_add(pn_len) };
        let first = packet.first().copied().unwrap_or_default();
        let usual = number == expected
            && self.reception.takes_fixed_bit(fixed_bit(first))
            && key_phase(first) == self.keys.phase()
            && reserved_bits_are_zero(first)
            && packet.len() >= opened.payload.saturating_add(TAG_LEN);
        if !usual {
            return Next::Unopened(opened);
        }
        let mut job = OpenJob { packet_number: number, header_len: opened.payload, packet };
        let len = match keys.packet.open(&mut job) {
            Ok(len) => len,
            Err(CipherError::NotYet) => return Next::NotYet(opened),
            Err(CipherError::Failed) => {
                return match self.keys.open_failed() {
                    Ok(()) => Next::Dropped(DropReason::Undecryptable),
                    Err(error) => Next::Failed(error),
                };
            }
        };
        let content = opened.payload..opened.payload.saturating_add(len);
        let payload = packet.get(content.clone()).unwrap_or_default();
        let Some(frame) = sole_stream_frame(payload) else {
            return Next::Opened(opened, content);
        };
        if let Err(error) = self.streams.on_stream_of_run(&mut run.stream, &frame) {
            return Next::Failed(error);
        }
        self.reporting.counters.count().frames_received.add(frame.header().frame_type(), 1);
        run.spin = spin(first);
        run.count = run.count.saturating_add(1);
        Next::Continued
    }

    /// Tells everybody of the packets of a run what they would have heard of each.
    fn end_run(&mut self, run: &mut Run, dcid: &ConnectionId) {
        self.streams.end_run(run.stream.take());
        let count = core::mem::take(&mut run.count);
        let Some(more) = count.checked_sub(1) else { return };
        let Arrival { now, ecn, .. } = run.arrival;
        let last = run.first.saturating_add(more);
        let counters = self.reporting.counters.count();
        counters.packets_received = counters.packets_received.saturating_add(count);
        self.idle.on_received(now, true);
        let space = &mut self.recovery.spaces.data;
        space.received.record_run(run.first..=last, now, ecn);
        space.acks.on_run(now, run.first..=last, true, ecn, &space.received);
        run.first = last.saturating_add(1);
        self.update_spin(run.path, run.spin, true);
        let opened = self.opened_1rtt(now, KeyChoice::Current, last);
        let result = opened.and_then(|()| self.on_packet_path(now, dcid, run.path, (true, false)));
        if let Err(error) = result {
            self.fail(now, error);
        }
    }

    /// Sees to the packet that ended a run.
    fn leave_run(&mut self, arrival: &Arrival, packet: &mut [u8], next: Next) {
        let now = arrival.now;
        let cid_len = self.endpoint.cid_generator.len();
        let Ok(header) = Header::parse(packet, cid_len) else { return };
        if !self.termination.is_open() {
            return;
        }
        match next {
            Next::Continued => {}
            Next::Unopened(opened) => self.resume_datagram(arrival, &header, packet, opened),
            Next::NotYet(opened) => self.keep(arrival, &header, packet, Some(opened)),
            Next::Failed(error) => self.fail(now, error),
            Next::Dropped(reason) => {
                self.reporting.packet_dropped(now, Some(PacketKind::OneRtt), packet.len(), reason);
                self.detect_stateless_reset(now, packet);
            }
            Next::Opened(opened, content) => {
                let first = packet.first().copied().unwrap_or_default();
                let content = PacketContent {
                    header: packet.get(..opened.payload).unwrap_or_default(),
                    payload: packet.get(content).unwrap_or_default(),
                };
                let opening = self.opened_1rtt(now, KeyChoice::Current, opened.number);
                let what = (Level::OneRtt, opened.number, spin(first));
                let result =
                    opening.and_then(|()| self.process_packet(arrival, &header, what, content));
                if let Err(error) = result {
                    self.fail(now, error);
                }
            }
        }
        self.after_receiving(now);
    }
}

/// The STREAM frame that a payload consists of.
fn sole_stream_frame(payload: &[u8]) -> Option<Stream<'_>> {
    let mut reader = Reader::new(payload);
    let frame_type = u64::from(reader.u8().ok()?);
    if !(Stream::TYPE_FIRST..=Stream::TYPE_LAST).contains(&frame_type) {
        return None;
    }
    let frame = Stream::decode(frame_type, &mut reader).ok()?;
    (reader.remaining() == 0).then_some(frame)
}
