//! Segments that have come: what smoltcp is shown of them.

use smoltcp::iface::PollIngressSingleResult;
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;
use smoltcp::wire::TcpControl;

use super::{Connection, ORPHAN_TIME, Role};
use crate::out::Out;
use crate::screen::{
    Numbers, Verdict, counts_beside_window, is_acknowledged_before, is_repeated_and_acknowledges,
    is_well_inside, judge,
};
use crate::segment::{Change, Header, Reply, Segment, bare};

impl Connection {
    /// What the other side has acknowledged (SND.UNA), as smoltcp has it. None before both sides have begun.
    pub(super) fn heard(&self) -> Option<u32> {
        if !self.was_established {
            return None;
        }
        let socket = self.view();
        let is_end_heard = matches!(socket.state(), State::FinWait2 | State::TimeWait);
        let octets = self.written.wrapping_sub(socket.send_queue() as u32);
        Some(self.seen.first?.wrapping_add(octets).wrapping_add(is_end_heard.into()))
    }

    fn has_heard_end(&self) -> bool {
        matches!(self.state(), State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }

    /// The numbers by which a segment is judged. None before both sides have begun.
    pub(super) fn known(&self) -> Option<Numbers> {
        let socket = self.view();
        let owes_end = matches!(socket.state(), State::FinWait1 | State::Closing | State::LastAck);
        let come = self.consumed.wrapping_add(socket.recv_queue() as u32);
        Some(Numbers {
            sent: self.seen.sent?,
            acknowledged: self.heard()?,
            reach: socket.send_capacity() as u32,
            expected: self.begun?.wrapping_add(come).wrapping_add(self.has_heard_end().into()),
            window: socket.recv_capacity() as u32,
            owes_end: owes_end && socket.send_queue() == 0,
        })
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
        }
    }

    /// Says what is expected.
    fn acknowledge(&mut self, numbers: &Numbers, out: &mut Out, now: Instant) {
        if self.times.may_challenge(now) {
            let Numbers { sent: sequence, expected: acknowledgment, .. } = *numbers;
            let window = self.seen.window;
            out.reply(&self.place.ends, Reply::Acknowledgment { sequence, acknowledgment, window });
        }
    }

    pub(super) fn take(&mut self, segment: &Segment<'_>, out: &mut Out, now: Instant) {
        let header = &segment.header;
        if !self.screen(header, out, now) {
            return;
        }
        let (was, heard) = (self.state(), self.heard());
        let known = self.known();
        let beside =
            known.filter(|numbers| counts_beside_window(header, numbers, self.seen.window));
        let change = known.map_or_else(Change::default, |numbers| Change {
            sequence: beside.map(|numbers| numbers.expected),
            ..self.change(header, &numbers)
        });
        self.note(header, &change);
        let altered = segment.altered(&change);
        self.show(altered.as_deref().unwrap_or(segment.packet), out, now);
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
            self.begun = Some(header.sequence.wrapping_add(1));
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

    /// What smoltcp is to see otherwise than it has come.
    fn change(&self, header: &Header, numbers: &Numbers) -> Change {
        let mut change = Change::default();
        if is_acknowledged_before(header, numbers) {
            // Its window is as old (RFC 9293, Section 3.10.7.4).
            change.acknowledgment = Some(numbers.acknowledged);
            change.window = Some(self.room);
        }
        // With the FIN acknowledged, nothing is left to be sent: smoltcp would probe the window without end.
        let is_all = header.is_ack() && header.acknowledgment == numbers.sent;
        if self.seen.has_ended && is_all && header.window == 0 {
            change.window = Some(1);
        }
        change.hides_end = header.is_fin()
            && header.has_data()
            && !is_well_inside(header, self.seen.acknowledged, self.seen.window);
        change
    }

    /// Notes what a segment says that smoltcp does not tell.
    fn note(&mut self, header: &Header, change: &Change) {
        if !header.is_ack() || header.is_rst() {
            return;
        }
        let is_overtaken = |heard: u32| heard.wrapping_sub(header.acknowledgment).cast_signed() > 0;
        // The window of a SYN is not scaled (RFC 7323, Section 2.2).
        if !header.is_syn()
            && change.acknowledgment.is_none()
            && !self.heard().is_some_and(is_overtaken)
        {
            self.room = header.window;
        }
        let is_repeated = self.heard() == Some(header.acknowledgment) && header.is_empty();
        self.has_repeated |= is_repeated && self.seen.sent != self.heard();
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
        if !is_next || !header.is_ack() || self.has_heard_end() {
            return;
        }
        let acknowledgment = change.acknowledgment.unwrap_or(header.acknowledgment);
        let window = change.window.unwrap_or(header.window);
        let fin = (TcpControl::Fin, numbers.expected, acknowledgment, window);
        self.show(&bare(&self.place.ends, fin), out, now);
    }
}
