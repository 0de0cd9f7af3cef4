//! Segments that have come: what smoltcp is shown of them.

use smoltcp::iface::PollIngressSingleResult;
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::TcpControl;

use super::{Connection, ORPHAN_TIME, Role};
use crate::out::Out;
use crate::screen::{
    Numbers, Verdict, counts_beside_window, is_end_ahead, is_repeated_and_acknowledges, judge,
};
use crate::segment::{Change, Header, Reply, Segment, bare, header_len, window_scale};

impl Connection {
    fn heard(&self) -> Option<u32> {
        self.ledger.heard(&self.held())
    }

    /// The numbers by which a segment is judged. None before both sides have begun.
    pub(super) fn known(&self) -> Option<Numbers> {
        self.ledger.numbers(&self.held())
    }

    /// Whether smoltcp is to see a segment. Answers one that it is not to.
    fn screen(&mut self, header: &Header, out: &mut Out, now: Instant) -> bool {
        let Some(numbers) = self.known() else { return true };
        match judge(header, &numbers) {
            Verdict::Show => true,
            Verdict::Drop => false,
            Verdict::Challenge => {
                self.acknowledge(&numbers, out, now);
                false
            }
            Verdict::Strip => {
                self.take_stripped(header, &numbers, out, now);
                false
            }
        }
    }

    /// Takes the acknowledgment and the window of a segment, and says what is expected.
    fn take_stripped(&mut self, header: &Header, numbers: &Numbers, out: &mut Out, now: Instant) {
        self.ledger.seen.has_spoken = false;
        // Without data, one that says nothing new would be counted as a duplicate (RFC 5681, Section 2).
        let is_new = header.acknowledgment != numbers.acknowledged;
        if is_new || header.window != self.ledger.room() {
            self.take_bare((numbers.expected, header.acknowledgment, header.window), out, now);
        }
        // Nothing is expected once the end of this side is acknowledged.
        if !self.ledger.seen.has_spoken && self.state() != State::Closed {
            self.acknowledge(numbers, out, now);
        }
    }

    /// Takes an acknowledgment: sequence number, acknowledgment, and window as it stands in the header.
    fn take_bare(
        &mut self,
        (sequence, acknowledgment, window): (u32, u32, u16),
        out: &mut Out,
        now: Instant,
    ) {
        let ends = self.place.ends;
        let packet = bare(&ends, (TcpControl::None, sequence, acknowledgment, window));
        if let Some(header) = Header::read(&packet[header_len(&packet)..]) {
            self.take(&Segment { packet: &packet, ends, header }, out, now);
        }
    }

    /// Says what is expected, once in a second.
    fn acknowledge(&mut self, numbers: &Numbers, out: &mut Out, now: Instant) {
        if self.times.may_challenge(now) {
            self.say_expected(numbers, out);
        }
    }

    fn say_expected(&self, numbers: &Numbers, out: &mut Out) {
        let Numbers { sent: sequence, expected: acknowledgment, .. } = *numbers;
        let window = self.ledger.seen.window();
        out.reply(&self.place.ends, Reply::Acknowledgment { sequence, acknowledgment, window });
    }

    pub(super) fn take(&mut self, segment: &Segment<'_>, out: &mut Out, now: Instant) {
        let header = &segment.header;
        if self.ledger.is_beyond_first_window(header) || !self.screen(header, out, now) {
            return;
        }
        let (was, heard) = (self.state(), self.heard());
        // Both sides have asked at once (RFC 9293, Section 3.5, Figure 7). smoltcp answers such a SYN as one that has come before.
        if was == State::SynReceived
            && self.role == Role::Owned
            && let Some((next, window)) = self.ledger.answered(header)
        {
            return self.take_bare((next, header.acknowledgment, window), out, now);
        }
        let known = self.known();
        let said = self.ledger.seen.window();
        let beside = known.filter(|numbers| counts_beside_window(header, numbers, said));
        let change = known.map_or_else(Change::default, |numbers| Change {
            sequence: beside.map(|numbers| numbers.expected),
            ..self.ledger.change(header, &numbers)
        });
        let held = self.held();
        self.ledger.note(header, &change, &held);
        let altered = segment.altered(&change);
        self.ledger.seen.has_spoken = false;
        self.show(altered.as_deref().unwrap_or(segment.packet), out, now);
        // At once, as for data ahead of a gap (RFC 5681, Section 4.2). What is beyond the window that was said, smoltcp answers.
        if let Some(numbers) = known.filter(|numbers| is_end_ahead(header, numbers))
            && !self.ledger.seen.has_spoken
        {
            self.say_expected(&numbers, out);
        }
        if change.hides_end {
            self.show_end(header, &change, out, now);
        }
        if beside.is_none()
            && let Some(numbers) =
                known.filter(|numbers| is_repeated_and_acknowledges(header, numbers))
        {
            let window = change.window.unwrap_or(header.window);
            let told = (TcpControl::None, numbers.expected, header.acknowledgment, window);
            self.show(&bare(&self.place.ends, told), out, now);
        }
        if was != State::Closed && header.is_rst() && self.state() == State::Closed {
            self.was_reset = true;
        }
        if matches!(was, State::Listen | State::SynSent)
            && matches!(self.state(), State::SynReceived | State::Established)
        {
            let scale = window_scale(&segment.packet[header_len(segment.packet)..]);
            self.ledger.begin(header.sequence, scale);
        }
        // Who probes waits for an answer.
        if let Some(numbers) = beside {
            self.acknowledge(&numbers, out, now);
        }
        self.see_state();
        if self.role == Role::Orphan && self.heard() != heard {
            self.times.give(ORPHAN_TIME, now);
        }
    }

    /// smoltcp sees a packet.
    pub(super) fn show(&mut self, packet: &[u8], out: &mut Out, now: Instant) {
        let mut wire = self.wire(out, Some(packet));
        let (interface, sockets, wire) = &mut wire;
        let result = interface.poll_ingress_single(now, wire, sockets);
        debug_assert_ne!(result, PollIngressSingleResult::None, "the segment is still there");
    }

    /// smoltcp sees the FIN behind data, if it has got all of that: it takes a FIN also where data before it had no room.
    fn show_end(&mut self, header: &Header, change: &Change, out: &mut Out, now: Instant) {
        let Some(numbers) = self.known() else { return };
        let is_next = header.end().wrapping_sub(1) == numbers.expected;
        if !is_next || !header.is_ack() || self.held().has_heard_end() {
            return;
        }
        let acknowledgment = change.acknowledgment.unwrap_or(header.acknowledgment);
        let window = change.window.unwrap_or(header.window);
        let fin = (TcpControl::Fin, numbers.expected, acknowledgment, window);
        self.show(&bare(&self.place.ends, fin), out, now);
    }
}
