//! The one place where frames are written: counted and remembered for recovery.

use quicket_wire::frame::{FrameEncode, StreamHeader};
use quicket_wire::{
    ConnectionId, Full, LongHeader, PacketKind, Reader, ShortHeader, Version, Writer, packet_number,
};

use super::sealing::Unsealed;
use crate::crypto::{Level, TAG_LEN};
use crate::frame_sink::FrameSink;
use crate::observer::PacketContent;
use crate::recovery::RecoverySpace;
use crate::sent_frame::SentFrame;
use crate::stats::FrameCounts;

/// The longest packet with a long header, in bytes: its Length is written as a varint of two
/// (RFC 9000, Sections 16 and 17.2).
const MAX_LONG: usize = (1 << 14) - 1;

/// What the header of a packet says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderFields<'a> {
    pub(crate) level: Level,
    pub(crate) version: Version,
    pub(crate) dcid: ConnectionId,
    pub(crate) scid: ConnectionId,
    pub(crate) token: &'a [u8],
    pub(crate) fixed_bit: bool,
    pub(crate) spin: bool,
    pub(crate) key_phase: bool,
}

/// The parts of a connection that hear of every frame written.
pub(crate) struct Ledger<'a> {
    pub(crate) recovery: &'a mut RecoverySpace,
    pub(crate) counts: &'a mut FrameCounts,
}

/// A packet under construction in the transmit buffer.
pub(crate) struct PacketBuilder<'a> {
    writer: Writer<'a>,
    ledger: Ledger<'a>,
    level: Level,
    packet_number: u64,
    /// Offset of the packet in the transmit buffer.
    start: usize,
    length_offset: Option<usize>,
    pn_offset: usize,
    payload: usize,
    tag_len: usize,
    ack_eliciting: bool,
}

/// A finished packet, not yet sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltPacket {
    pub(crate) unsealed: Unsealed,
    /// Where the Length field of a long header is, in the transmit buffer.
    length_offset: Option<usize>,
    tag_len: usize,
    pub(crate) ack_eliciting: bool,
    /// Counts for congestion control: ack-eliciting or padded (RFC 9002, Section 2).
    pub(crate) in_flight: bool,
}

impl<'a> PacketBuilder<'a> {
    /// Begins a packet in `room`, which lies at offset `start` of the transmit buffer and ends
    /// where the packet must end at the latest. A `plain` packet gets no AEAD tag. `None` if even
    /// a header does not fit.
    pub(crate) fn begin(
        room: &'a mut [u8],
        start: usize,
        header: &HeaderFields<'_>,
        plain: bool,
        ledger: Ledger<'a>,
    ) -> Option<Self> {
        let tag_len = if plain { 0 } else { TAG_LEN };
        let most = match header.level {
            Level::Initial | Level::EarlyData | Level::Handshake => MAX_LONG,
            Level::OneRtt => usize::MAX,
        };
        let most = room.len().min(most);
        let room = room.get_mut(..most)?;
        let usable = room.len().checked_sub(tag_len)?;
        let mut writer = Writer::new(room.get_mut(..usable)?);
        let number = ledger.recovery.next_packet_number();
        let pn_len = packet_number::encoded_len(number, ledger.recovery.largest_acked());
        let (length_offset, pn_offset) = if header.level == Level::OneRtt {
            let short = ShortHeader {
                dcid: header.dcid,
                spin: header.spin,
                key_phase: header.key_phase,
                fixed_bit: header.fixed_bit,
            };
            (None, short.encode(&mut writer, number, pn_len).ok()?)
        } else {
            let long = LongHeader {
                kind: kind_of(header.level),
                version: header.version,
                dcid: header.dcid,
                scid: header.scid,
                token: header.token,
            };
            let marks = long.encode(&mut writer, number, pn_len, header.fixed_bit).ok()?;
            (Some(marks.length_offset), marks.pn_offset)
        };
        let payload = writer.position();
        // RFC 9001, Section 5.4.2: room for the header protection sample.
        if writer.remaining() < 4 {
            return None;
        }
        Some(Self {
            writer,
            ledger,
            level: header.level,
            packet_number: number,
            start,
            length_offset,
            pn_offset,
            payload,
            tag_len,
            ack_eliciting: false,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writer.position() == self.payload
    }

    pub(crate) fn is_ack_eliciting(&self) -> bool {
        self.ack_eliciting
    }

    /// Gives the packet up, as if it had never begun.
    pub(crate) fn abandon(self) {
        self.ledger.recovery.discard_pending_frames();
    }

    /// Ends the packet; the caller may still pad it, then tells recovery and seals it.
    pub(crate) fn finish(mut self) -> BuiltPacket {
        // RFC 9001, Section 5.4.2: packet number and payload have at least 4 bytes, so that with
        // the tag there is enough to sample. begin() made sure of the room.
        let short_by = self.pn_offset.saturating_add(4).saturating_sub(self.writer.position());
        let _ = self.writer.zeros(short_by);
        let end = self.writer.position().saturating_add(self.tag_len);
        let built = BuiltPacket {
            unsealed: Unsealed {
                level: self.level,
                packet_number: self.packet_number,
                start: self.start,
                pn_offset: self.start.saturating_add(self.pn_offset),
                payload: self.start.saturating_add(self.payload),
                end: self.start.saturating_add(end),
            },
            length_offset: self.length_offset.map(|offset| self.start.saturating_add(offset)),
            tag_len: self.tag_len,
            ack_eliciting: self.ack_eliciting,
            in_flight: self.ack_eliciting || short_by > 0,
        };
        if let Some(offset) = self.length_offset {
            let _ = self.writer.patch(offset, &built.length_field());
        }
        built
    }

    /// An ACK frame with as many ranges as fit; changes nothing if not even one does.
    pub(crate) fn ack(
        &mut self,
        delay: u64,
        ranges: impl IntoIterator<Item = core::ops::RangeInclusive<u64>>,
        counts: Option<quicket_wire::EcnCounts>,
        sent: SentFrame,
    ) -> Result<(), Full> {
        let before = self.writer.position();
        quicket_wire::frame::encode_ack(&mut self.writer, delay, ranges, counts)?;
        self.note(before, false, Some(sent));
        Ok(())
    }

    /// Counts and remembers the frame that begins at `before`.
    fn note(&mut self, before: usize, ack_eliciting: bool, sent: Option<SentFrame>) {
        self.ack_eliciting |= ack_eliciting;
        let written = self.writer.written().get(before..).unwrap_or(&[]);
        let frame_type = Reader::new(written).varint().unwrap_or(0);
        self.ledger.counts.add(frame_type, 1);
        if let Some(sent) = sent {
            self.ledger.recovery.push_frame(sent);
        }
    }
}

impl BuiltPacket {
    /// The Length field of a long header (RFC 9000, Section 17.2), as a two-byte varint.
    fn length_field(&self) -> [u8; 2] {
        let length = self.unsealed.end.saturating_sub(self.unsealed.pn_offset);
        (length.min(MAX_LONG) as u16 | 0x4000).to_be_bytes()
    }

    /// What it says, while it is not sealed.
    pub(crate) fn content<'b>(&self, buf: &'b [u8]) -> PacketContent<'b> {
        let Unsealed { start, payload, end, .. } = self.unsealed;
        PacketContent {
            header: buf.get(start..payload).unwrap_or_default(),
            payload: buf.get(payload..end.saturating_sub(self.tag_len)).unwrap_or_default(),
        }
    }

    /// Appends PADDING so that the packet ends at offset `end` of the transmit buffer.
    pub(crate) fn pad(&mut self, buf: &mut [u8], end: usize) {
        let plaintext_end = self.unsealed.end.saturating_sub(self.tag_len);
        let Some(padding) = buf.get_mut(plaintext_end..end.saturating_sub(self.tag_len)) else {
            return;
        };
        padding.fill(0);
        self.unsealed.end = end;
        // RFC 9002, Section 2: packets with PADDING count toward bytes in flight.
        self.in_flight = true;
        if let Some(offset) = self.length_offset {
            let length = self.length_field();
            if let Some(field) = buf.get_mut(offset..offset.saturating_add(2)) {
                field.copy_from_slice(&length);
            }
        }
    }
}

impl FrameSink for PacketBuilder<'_> {
    fn remaining(&self) -> usize {
        self.writer.remaining()
    }

    fn frame(&mut self, frame: &impl FrameEncode, sent: Option<SentFrame>) -> Result<(), Full> {
        let before = self.writer.position();
        frame.encode(&mut self.writer)?;
        self.note(before, frame.is_ack_eliciting(), sent);
        Ok(())
    }

    fn stream_data(
        &mut self,
        header: StreamHeader,
        parts: (&[u8], &[u8]),
        sent: SentFrame,
    ) -> Result<(), Full> {
        let before = self.writer.position();
        if header.encoded_len().saturating_add(parts.0.len()).saturating_add(parts.1.len())
            > self.writer.remaining()
        {
            return Err(Full);
        }
        header.encode(&mut self.writer)?;
        self.writer.bytes(parts.0)?;
        self.writer.bytes(parts.1)?;
        self.note(before, true, Some(sent));
        Ok(())
    }
}

pub(crate) const fn kind_of(level: Level) -> PacketKind {
    match level {
        Level::Initial => PacketKind::Initial,
        Level::EarlyData => PacketKind::ZeroRtt,
        Level::Handshake => PacketKind::Handshake,
        Level::OneRtt => PacketKind::OneRtt,
    }
}
