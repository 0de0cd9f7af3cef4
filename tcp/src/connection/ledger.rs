//! What is counted of both sides' octets, which smoltcp does not tell: the numbers by which segments are judged.

use smoltcp::socket::tcp::{Socket, State};

use crate::device::Seen;
use crate::initial::InitialWindow;
use crate::screen::{Numbers, is_acknowledged_before, is_well_inside};
use crate::segment::{Change, Header};

/// What smoltcp's socket says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) state: State,
    /// Octets that were written and are not acknowledged, and how many may be.
    pub(super) owed: u32,
    pub(super) send_capacity: u32,
    /// Octets that have come and are not read, and how many may be.
    pub(super) unread: u32,
    pub(super) receive_capacity: u32,
}

impl Held {
    pub(super) fn of(socket: &Socket<'_>) -> Self {
        Self {
            state: socket.state(),
            owed: socket.send_queue() as u32,
            send_capacity: socket.send_capacity() as u32,
            unread: socket.recv_queue() as u32,
            receive_capacity: socket.recv_capacity() as u32,
        }
    }

    pub(super) const fn has_heard_end(&self) -> bool {
        matches!(self.state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) seen: Seen,
    /// What the first segments may take. None once that is settled, and congestion control has begun.
    initial: Option<InitialWindow>,
    /// The first sequence number of the other side's data.
    begun: Option<u32>,
    /// Octets that were written.
    written: u32,
    /// Octets that were read.
    consumed: u32,
    /// The window that the other side has said last, as it stands in the header.
    room: u16,
    /// By how many bits it is shifted (RFC 7323, Section 2.2).
    scale: u8,
    /// The other side has acknowledged the same twice.
    has_repeated: bool,
    was_established: bool,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            seen: Seen::default(),
            initial: Some(InitialWindow::new()),
            begun: None,
            written: 0,
            consumed: 0,
            room: 0,
            scale: 0,
            has_repeated: false,
            was_established: false,
        }
    }

    /// The other side's SYN had a sequence number, and said by how much its windows are shifted.
    pub(super) fn begin(&mut self, sequence: u32, scale: Option<u8>) {
        self.begun = Some(sequence.wrapping_add(1));
        // RFC 7323, Section 2.3: 14 at most.
        self.scale = scale.unwrap_or(0).min(14);
    }

    /// The next sequence number of the other side, and its window as it stands in the header of the next segment, if `header` is its SYN once
    /// more, with the acknowledgment of this side's.
    pub(super) fn answered(&self, header: &Header) -> Option<(u32, u16)> {
        let next = self.begun.filter(|begun| *begun == header.sequence.wrapping_add(1))?;
        let is_answer = header.is_syn() && header.is_ack() && !header.is_rst() && !header.is_fin();
        let is_ours = self.seen.sent == Some(header.acknowledgment);
        (is_answer && is_ours).then_some((next, header.window >> self.scale))
    }

    /// Whether a FIN may follow at once what was written: all of that was sent, and certainly has room. A window may seem to shrink, as
    /// it is rounded down.
    pub(super) fn may_end(&self, held: &Held) -> bool {
        let (Some(first), Some(sent)) = (self.seen.first, self.seen.sent) else { return true };
        let unsent = first.wrapping_add(self.written).wrapping_sub(sent).cast_signed();
        let (needed, room) = (u64::from(held.owed) + (1 << self.scale), u64::from(self.room));
        held.owed == 0 || unsent <= 0 && needed <= room << self.scale
    }

    /// The handshake is complete.
    pub(super) const fn establish(&mut self) {
        self.was_established = true;
    }

    pub(super) const fn was_established(&self) -> bool {
        self.was_established
    }

    pub(super) const fn write(&mut self, octets: usize) {
        self.written = self.written.wrapping_add(octets as u32);
    }

    pub(super) const fn read(&mut self, octets: usize) {
        self.consumed = self.consumed.wrapping_add(octets as u32);
    }

    /// What is counted of losses changes from now on.
    pub(super) const fn repeat(&mut self) {
        self.has_repeated = true;
    }

    /// Whether smoltcp has counted no losses. Before the handshake is complete, it counts none but by a timer that begins anew.
    pub(super) const fn is_clean(&self) -> bool {
        !self.was_established || !self.has_repeated && !self.seen.has_repeated
    }

    pub(super) const fn room(&self) -> u16 {
        self.room
    }

    /// What the other side has acknowledged (SND.UNA), as smoltcp has it. None before both sides have begun.
    pub(super) fn heard(&self, held: &Held) -> Option<u32> {
        if !self.was_established {
            return None;
        }
        let is_end_heard = matches!(held.state, State::FinWait2 | State::TimeWait);
        let octets = self.written.wrapping_sub(held.owed);
        Some(self.seen.first?.wrapping_add(octets).wrapping_add(is_end_heard.into()))
    }

    /// The numbers by which a segment is judged. None before both sides have begun.
    pub(super) fn numbers(&self, held: &Held) -> Option<Numbers> {
        let owes_end = matches!(held.state, State::FinWait1 | State::Closing | State::LastAck);
        let come = self.consumed.wrapping_add(held.unread);
        Some(Numbers {
            sent: self.seen.sent?,
            acknowledged: self.heard(held)?,
            reach: held.send_capacity,
            expected: self.begun?.wrapping_add(come).wrapping_add(held.has_heard_end().into()),
            window: held.receive_capacity,
            owes_end: owes_end && held.owed == 0,
            has_heard_end: held.has_heard_end(),
        })
    }

    /// Whether a segment has data that the window of the SYN had no room for, while no other one was said. smoltcp takes that window for a
    /// scaled one, and data for which its buffer has no room.
    pub(super) fn is_beyond_first_window(&self, header: &Header) -> bool {
        let (Some(begun), Some(room)) = (self.begun, self.seen.first_room()) else { return false };
        let end = header.end().wrapping_sub(begun).wrapping_sub(header.is_fin().into());
        header.has_data() && end.cast_signed() > 0 && end > room
    }

    /// Octets that wait for their acknowledgment, and one for a FIN. None before both sides have begun.
    pub(super) fn flight(&self, held: &Held) -> Option<u32> {
        self.seen.sent.zip(self.heard(held)).map(|(sent, heard)| sent.wrapping_sub(heard))
    }

    /// Whether something that is under way begins with a sequence number.
    pub(super) fn is_under_way(&self, sequence: u32, held: &Held) -> bool {
        let (Some(sent), Some(heard)) = (self.seen.sent, self.heard(held)) else { return false };
        sequence.wrapping_sub(heard) < sent.wrapping_sub(heard)
    }

    /// What smoltcp is to see otherwise than it has come.
    pub(super) fn change(&self, header: &Header, numbers: &Numbers) -> Change {
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
            && !is_well_inside(header, self.seen.acknowledged, self.seen.window());
        change
    }

    /// Notes what a segment says that smoltcp does not tell.
    pub(super) fn note(&mut self, header: &Header, change: &Change, held: &Held) {
        if !header.is_ack() || header.is_rst() {
            return;
        }
        let heard = self.heard(held);
        let is_overtaken = |heard: u32| heard.wrapping_sub(header.acknowledgment).cast_signed() > 0;
        // The window of a SYN is not scaled (RFC 7323, Section 2.2).
        if !header.is_syn() && change.acknowledgment.is_none() && !heard.is_some_and(is_overtaken) {
            self.room = header.window;
        }
        let is_repeated = heard == Some(header.acknowledgment) && header.is_empty();
        self.has_repeated |= is_repeated && self.seen.sent != heard;
    }

    /// Notes what was sent since the sequence number was `before`, which the handshake's does not count for.
    pub(super) fn count(&mut self, before: Option<u32>) {
        if let (Some(initial), Some(before), true) =
            (&mut self.initial, before, self.was_established)
        {
            initial.sent(self.seen.sent.map_or(0, |sent| sent.wrapping_sub(before)));
        }
    }

    /// Whether congestion control has not begun.
    pub(super) const fn is_initial(&self) -> bool {
        self.initial.is_some()
    }

    /// Whether congestion control begins: once the first segments, of `largest` octets at most, have taken their window, or one of
    /// them was acknowledged or sent again. That is said once.
    pub(super) fn ends_initial(&mut self, largest: u32, held: &Held) -> bool {
        let Some(initial) = &self.initial else { return false };
        let is_heard = self.flight(held).is_some_and(|flight| flight < initial.octets());
        let ends = !initial.has_room(largest) || is_heard || self.seen.has_repeated;
        if ends {
            self.initial = None;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(state: State, owed: u32, unread: u32) -> Held {
        Held { state, owed, send_capacity: 300, unread, receive_capacity: 100 }
    }

    /// Both sides have begun shortly before their numbers wrap.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new();
        ledger.seen.first = Some(u32::MAX - 9);
        ledger.seen.sent = Some(u32::MAX - 9);
        ledger.begin(u32::MAX - 5, Some(3));
        ledger.establish();
        ledger
    }

    /// A segment without data.
    fn header(acknowledgment: u32, window: u16, flags: u8) -> Header {
        let mut segment = [0; 20];
        segment[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        segment[14..16].copy_from_slice(&window.to_be_bytes());
        (segment[12], segment[13]) = (5 << 4, flags);
        Header::read(&segment).unwrap()
    }

    /// RFC 9293, Section 3.4.
    #[test]
    fn octets_and_ends_of_both_sides_are_counted_over_the_wrap() {
        let mut ledger = ledger();
        ledger.write(30);
        ledger.read(7);
        ledger.seen.sent = Some(16);
        let numbers = ledger.numbers(&held(State::Established, 25, 3)).unwrap();
        assert_eq!((numbers.acknowledged, numbers.sent, numbers.expected), (u32::MAX - 4, 16, 5));
        assert_eq!((numbers.reach, numbers.window, numbers.owes_end), (300, 100, false));
        assert_eq!(ledger.flight(&held(State::Established, 25, 3)), Some(21));
        for (sequence, is_under_way) in
            [(u32::MAX - 5, false), (u32::MAX - 4, true), (15, true), (16, false)]
        {
            let held = held(State::Established, 25, 3);
            assert_eq!(ledger.is_under_way(sequence, &held), is_under_way, "{sequence}");
        }
        // Ends have a number each.
        assert_eq!(ledger.numbers(&held(State::LastAck, 0, 3)).unwrap().expected, 6);
        assert!(ledger.numbers(&held(State::LastAck, 0, 3)).unwrap().owes_end);
        assert_eq!(ledger.heard(&held(State::FinWait2, 0, 3)), Some(21));
    }

    #[test]
    fn nothing_is_known_before_both_sides_have_begun() {
        let mut ledger = Ledger::new();
        ledger.seen.first = Some(1);
        ledger.seen.sent = Some(1);
        let held = held(State::SynReceived, 0, 0);
        assert!(ledger.numbers(&held).is_none() && ledger.flight(&held).is_none());
        assert!(!ledger.is_under_way(0, &held));
        ledger.establish();
        assert!(ledger.numbers(&held).is_none());
        ledger.begin(7, None);
        assert!(ledger.numbers(&held).is_some());
    }

    /// RFC 7323, Section 2.2; RFC 9293, Section 3.10.7.4.
    #[test]
    fn windows_count_that_are_scaled_and_not_overtaken() {
        let (ack, syn, rst) = (16, 2, 4);
        let mut ledger = ledger();
        ledger.write(30);
        ledger.seen.sent = Some(20);
        let held = held(State::Established, 20, 0);
        let mut note = |acknowledgment, window, flags| {
            ledger.note(&header(acknowledgment, window, flags), &Change::default(), &held);
            (ledger.room(), ledger.is_clean())
        };
        assert_eq!(note(5, 1, ack), (1, true));
        assert_eq!(note(5, 2, ack | syn), (1, true));
        assert_eq!(note(5, 3, ack | rst), (1, true));
        assert_eq!(note(u32::MAX, 4, ack), (1, true));
        assert_eq!(note(0, 5, ack), (5, false), "the same again");
    }

    /// RFC 9293, Section 3.5, Figure 7; RFC 7323, Section 2.2.
    #[test]
    fn a_syn_that_comes_again_answers_ours() {
        let ledger = ledger();
        let ours = u32::MAX - 9;
        let answered = |sequence, acknowledgment, flags| {
            let mut header = header(acknowledgment, 85, flags);
            header.sequence = sequence;
            ledger.answered(&header)
        };
        let (theirs, next) = (u32::MAX - 5, u32::MAX - 4);
        assert_eq!(answered(theirs, ours, 18), Some((next, 10)));
        assert_eq!(answered(next, ours, 18), None);
        assert_eq!(answered(theirs, ours - 1, 18), None);
        for flags in [2, 16, 19, 22] {
            assert_eq!(answered(theirs, ours, flags), None, "{flags}");
        }
        assert_eq!(Ledger::new().answered(&header(0, 0, 18)), None);
    }

    #[test]
    fn an_end_follows_what_was_sent_and_has_room() {
        let mut ledger = ledger();
        ledger.write(30);
        ledger.seen.sent = Some(20);
        let state = State::CloseWait;
        let may_end = |ledger: &Ledger, owed| ledger.may_end(&held(state, owed, 0));
        assert!(!may_end(&ledger, 30), "there is no room");
        ledger.room = 4;
        assert!(!may_end(&ledger, 30), "a window of 32 octets may lose eight");
        assert!(may_end(&ledger, 24) && may_end(&ledger, 0));
        ledger.room = 5;
        assert!(may_end(&ledger, 30));
        ledger.seen.sent = Some(19);
        assert!(!may_end(&ledger, 30), "an octet is not sent");
    }

    #[test]
    fn the_initial_window_ends_with_the_first_answer() {
        let largest = 1460;
        let mut ledger = ledger();
        let before = ledger.seen.sent;
        ledger.write(1460);
        ledger.seen.sent = before.map(|before| before.wrapping_add(1460));
        ledger.count(before);
        assert!(!ledger.ends_initial(largest, &held(State::Established, 1460, 0)));
        let heard = held(State::Established, 460, 0);
        assert!(ledger.is_initial() && ledger.ends_initial(largest, &heard));
        assert!(!ledger.is_initial() && !ledger.ends_initial(largest, &heard));
    }
}
