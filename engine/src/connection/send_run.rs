//! Runs: packets that differ in nothing but their number and the offset of the one STREAM frame
//! that fills each. Most of a long transfer consists of them, so what is the same for all is
//! looked at once for the run.
//!
//! A run only ever follows a datagram of full size in the same burst. Whatever else there is to
//! say goes the usual way, through `content`.

use quicket_wire::frame::StreamHeader;
use quicket_wire::{EcnCodepoint, Full, ShortHeader, Writer, packet_number};

use super::Connection;
use super::sealing::{Unsealed, seals_apart};
use super::transmit::Route;
use crate::crypto::{Level, TAG_LEN};
use crate::recovery::SentInfo;
use crate::sent_frame::SentFrame;
use crate::streams::{StreamRun, Streams};
use crate::time::Time;

/// Fewer packets than this are not worth the look.
const MIN_RUN: usize = 2;

/// The most packets of one stream while others of its priority wait ...
const TURN: usize = 8;
/// ... which they do by packet unless so many may leave at once: they are gone in a moment.
const FAST_ENOUGH: u64 = 32;

/// Where the datagrams of a run go in the transmit buffer.
pub(super) struct RunSpace<'b> {
    pub(super) now: Time,
    pub(super) buf: &'b mut [u8],
    /// Offset of the first datagram.
    pub(super) start: usize,
    /// The size of each, which is the path's.
    pub(super) size: usize,
    /// How many there may be.
    pub(super) most: usize,
    pub(super) route: Route,
}

/// What all packets of a run have in common.
#[derive(Debug)]
struct Shape {
    header: ShortHeader,
    pn_len: usize,
    tag_len: usize,
    /// A random bit for each packet, which becomes its Fixed Bit; all set without RFC 9287.
    fixed_bits: u64,
    /// The data goes into the packets as they are sealed.
    seals_apart: bool,
    stream: StreamRun,
}

impl Connection {
    /// Writes a run; returns how many datagrams it has, 0 if what comes next is no run.
    #[inline(never)] // keeps its frame out of that of `poll_transmit`
    pub(super) fn write_run(&mut self, space: &mut RunSpace<'_>) -> usize {
        let Some((shape, count)) = self.plan_run(space) else { return 0 };
        let mut stream = shape.stream.clone();
        let mut written = 0;
        while written < count {
            let Some(offset) = self.write_run_packet(space, &shape, written, stream.range.start)
            else {
                break;
            };
            stream.range.start = offset;
            written = written.saturating_add(1);
            if !self.transmission.goes_on(&self.keys, space.buf) {
                break;
            }
        }
        stream.range = shape.stream.range.start..stream.range.start;
        self.streams.on_run_sent(stream);
        self.on_run_sent(space, &shape, written);
        written
    }

    /// What the next packets have in common, and how many of them there can be.
    fn plan_run(&mut self, space: &RunSpace<'_>) -> Option<(Shape, usize)> {
        let RunSpace { now, size, .. } = *space;
        let room =
            space.buf.len().saturating_sub(space.start).checked_div(size.max(1)).unwrap_or(0);
        // As many as there are bits in `fixed_bits`.
        let most = space.most.min(room).min(64);
        if most < MIN_RUN || !self.has_only_stream_data(now) {
            return None;
        }
        let stream = self.streams.run()?;
        let data = &mut self.recovery.spaces.data;
        data.maybe_skip_packet_number(&mut *self.rng);
        let first = data.recovery.next_packet_number();
        let until_skip = data.next_skip.map_or(u64::MAX, |skip| skip.saturating_sub(first));
        let most = most.min(usize::try_from(until_skip).unwrap_or(usize::MAX));
        let pn_len = packet_number::encoded_len(
            first.saturating_add(most as u64),
            data.recovery.largest_acked(),
        );
        let dcid = self.cids.remote.get(space.route.key)?;
        let path = self.paths.get_mut(space.route.key)?;
        let header = ShortHeader {
            dcid,
            spin: path.spin.next(&dcid, &mut *self.rng),
            key_phase: self.keys.phase(),
            fixed_bit: true,
        };
        let tag_len = if self.keys.is_1rtt_plain() { 0 } else { TAG_LEN };
        // The first offset is the shortest, so that its frame has room for the most data.
        let overhead = header
            .encoded_len(pn_len)
            .saturating_add(tag_len)
            .saturating_add(stream.header().encoded_len());
        let per_packet = size.checked_sub(overhead)?;
        let data = usize::try_from(stream.range.end.saturating_sub(stream.range.start))
            .unwrap_or(usize::MAX);
        let most = most.min(data.checked_div(per_packet.max(1)).unwrap_or(0));
        let allowed = path.congestion.burst(now, size as u64);
        let most = match stream.takes_turns {
            true if allowed < FAST_ENOUGH => 0,
            true => most.min(TURN),
            false => most,
        };
        let count = most.min(usize::try_from(allowed).unwrap_or(usize::MAX));
        let fixed_bits = self.transmission.fixed_bits(&mut *self.rng);
        let seals_apart = seals_apart(&self.keys);
        let shape = Shape { header, pn_len, tag_len, fixed_bits, seals_apart, stream };
        (count >= MIN_RUN).then_some((shape, count))
    }

    /// True if data of streams is all that there is to send, and nothing stands in its way.
    fn has_only_stream_data(&self, now: Time) -> bool {
        let space = &self.recovery.spaces.data;
        self.handshake.confirmed
            && !self.reporting.is_observed()
            && self.paths.active().is_validated()
            && !space.acks.should_bundle_ack()
            && space.probes == 0
            && !space.ping
            && !space.crypto.has_pending()
            && !self.datagrams.has_pending()
            && !self.has_1rtt_control(now)
    }

    /// Writes packet `n` of a run, with the data from `offset` on; returns where the data ends.
    fn write_run_packet(
        &mut self,
        space: &mut RunSpace<'_>,
        shape: &Shape,
        n: usize,
        offset: u64,
    ) -> Option<u64> {
        let recovery = &mut self.recovery.spaces.data.recovery;
        if !recovery.reserve() {
            return None;
        }
        let start = space.start.saturating_add(n.saturating_mul(space.size));
        let end = start.saturating_add(space.size);
        let packet_number = recovery.next_packet_number();
        let mut writer = Writer::new(space.buf.get_mut(start..end.saturating_sub(shape.tag_len))?);
        let fixed_bit = shape.fixed_bits >> n & 1 == 1;
        let short = ShortHeader { fixed_bit, ..shape.header };
        let pn_offset = short.encode(&mut writer, packet_number, shape.pn_len).ok()?;
        let payload = writer.position();
        let header = StreamHeader { offset, ..shape.stream.header() };
        header.encode(&mut writer).ok()?;
        let len = writer.remaining();
        let body = match self.streams.run_data(&shape.stream, offset, len) {
            (body, []) if shape.seals_apart && body.len() == len => Some(body),
            _ => None,
        };
        if body.is_none() {
            fill(&mut writer, &self.streams, &shape.stream, offset).ok()?;
        }
        let sent = SentFrame::Stream { id: header.id, offset, len: len as u32, fin: false };
        recovery.push_frame(sent);
        let path = self.paths.get_mut(space.route.key)?;
        let size = u16::try_from(space.size).unwrap_or(u16::MAX);
        recovery.on_sent(&SentInfo {
            time_sent: space.now,
            size,
            path: space.route.key,
            ack_eliciting: true,
            in_flight: true,
            mtu_probe: false,
            ecn_ect: matches!(space.route.ecn, EcnCodepoint::Ect0 | EcnCodepoint::Ect1),
            rate: path.congestion.on_sent(space.now, size),
        });
        let (pn_offset, payload) = (start.saturating_add(pn_offset), start.saturating_add(payload));
        let level = Level::OneRtt;
        let packet = Unsealed { level, packet_number, start, pn_offset, payload, end };
        match body {
            Some(body) => self.transmission.seal_apart(&self.keys, &packet, space.buf, body),
            None => self.transmission.push(packet),
        }
        Some(offset.saturating_add(len as u64))
    }

    /// Tells everybody of the packets of a run what they would have heard of each.
    fn on_run_sent(&mut self, space: &RunSpace<'_>, shape: &Shape, count: usize) {
        let RunSpace { now, size, route, .. } = *space;
        let pto = self.pto();
        for _ in 0..count {
            self.recovery.spaces.data.ecn.on_sent(route.ecn);
            self.paths.on_datagram_sent(now, route.key, size, route.ecn, pto);
        }
        let next = self.recovery.spaces.data.recovery.next_packet_number();
        self.keys.sealing_1rtt(next.saturating_sub(count as u64), count as u64);
        let counters = self.reporting.counters.count();
        counters.udp_sent_each(count as u64, size);
        counters.packets_sent = counters.packets_sent.saturating_add(count as u64);
        let frame_type = StreamHeader { offset: 1, ..shape.stream.header() }.frame_type();
        counters.frames_sent.add(frame_type, count as u64);
        if count > 0 {
            self.idle.on_sent_ack_eliciting(now);
        }
    }
}

/// Fills a packet with what a stream has from `offset` on.
fn fill(
    writer: &mut Writer<'_>,
    streams: &Streams,
    run: &StreamRun,
    mut offset: u64,
) -> Result<(), Full> {
    while writer.remaining() > 0 {
        let (head, tail) = streams.run_data(run, offset, writer.remaining());
        if head.is_empty() {
            return Err(Full);
        }
        writer.bytes(head)?;
        writer.bytes(tail)?;
        offset = offset.saturating_add(head.len().saturating_add(tail.len()) as u64);
    }
    Ok(())
}
