//! Segments that smoltcp is not shown, as it would take them for what they are not.

use crate::segment::Header;

/// What is known of a connection that is established.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The next sequence number of this side (SND.NXT).
    pub(crate) sent: u32,
    /// What the other side has acknowledged (SND.UNA).
    pub(crate) acknowledged: u32,
    /// Octets that may wait for their acknowledgment at most: no window of the other side that was used was longer.
    pub(crate) reach: u32,
    /// The next sequence number of the other side (RCV.NXT).
    pub(crate) expected: u32,
    /// Octets that may be in the window at most.
    pub(crate) window: u32,
    /// Nothing but a FIN waits for its acknowledgment.
    pub(crate) owes_end: bool,
    /// The other side's FIN has come: the number before the next one is its.
    pub(crate) has_heard_end: bool,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Show,
    Drop,
    /// It is dropped, and answered with an acknowledgment: who sent it in truth knows then what is expected.
    Challenge,
    /// It has data or a FIN behind the other side's FIN. Only its acknowledgment and window count, and it is answered.
    Strip,
}

pub(crate) fn judge(header: &Header, numbers: &Numbers) -> Verdict {
    if header.is_rst() {
        // Only one that is exactly the next may end the connection (RFC 5961, Section 3.2; RFC 9293, Section 3.10.7.4).
        return match header.sequence.wrapping_sub(numbers.expected) {
            0 => Verdict::Show,
            ahead if ahead < numbers.window => Verdict::Challenge,
            _ => Verdict::Drop,
        };
    }
    // The other side may have forgotten the connection: by a reset it says so (RFC 5961, Section 4; RFC 9293, Section 3.10.7.4).
    if header.is_syn() {
        return Verdict::Challenge;
    }
    if header.is_ack() {
        // What was not sent cannot be acknowledged (RFC 9293, Section 3.10.7.4). smoltcp compares with what it
        // has in its buffer.
        if header.acknowledgment.wrapping_sub(numbers.sent).cast_signed() > 0 {
            return Verdict::Challenge;
        }
        // smoltcp takes three of them for the loss of data, stops its timer, and has no data to send again.
        if numbers.owes_end && header.is_empty() && header.acknowledgment == numbers.acknowledged {
            return Verdict::Drop;
        }
        if is_behind_end(header, numbers) {
            return Verdict::Strip;
        }
    }
    Verdict::Show
}

/// Whether an acceptable segment has data or a FIN behind the other side's FIN. There is nothing (RFC 9293, Section 3.10.7.4, seventh):
/// smoltcp takes that data, and acknowledges it.
fn is_behind_end(header: &Header, numbers: &Numbers) -> bool {
    let ahead = |number: u32| number.wrapping_sub(numbers.expected).cast_signed();
    // What is ahead of the window is not acceptable, and smoltcp answers it.
    let is_in_window = i64::from(ahead(header.sequence)) < i64::from(numbers.window);
    numbers.has_heard_end && !header.is_empty() && ahead(header.end()) > 0 && is_in_window
}

/// Whether an acknowledgment counts though its sequence number is not the next one. While this side has no room, nothing is
/// acceptable but that number; acknowledgments, and the windows in them, are nevertheless (RFC 9293, Section 3.10.7.4). smoltcp
/// drops them: where both sides have no room, neither would hear that the other one has some again.
pub(crate) fn counts_beside_window(header: &Header, numbers: &Numbers, said: u16) -> bool {
    let is_bare = header.is_ack() && header.is_empty() && !header.is_rst();
    let off = header.sequence.wrapping_sub(numbers.expected).cast_signed();
    said == 0 && is_bare && off != 0 && off.unsigned_abs() <= numbers.window
}

/// Whether a segment with data or a FIN acknowledges less than was acknowledged before: one that others have overtaken. Only its
/// acknowledgment is ignored (RFC 9293, Section 3.10.7.4), if it is not too old (RFC 5961, Section 5.2). smoltcp drops all of it.
pub(crate) fn is_acknowledged_before(header: &Header, numbers: &Numbers) -> bool {
    let behind = numbers.acknowledged.wrapping_sub(header.acknowledgment);
    let is_known = (1..=numbers.reach).contains(&behind);
    header.is_ack() && !header.is_rst() && !header.is_empty() && is_known
}

/// Whether a segment that has come before acknowledges something new. After a timeout, the other side may send from earlier
/// sequence numbers than those that have come: where both sides do, neither would hear what has come of its own, as smoltcp
/// drops all of a segment that is before the window.
pub(crate) fn is_repeated_and_acknowledges(header: &Header, numbers: &Numbers) -> bool {
    let behind = numbers.expected.wrapping_sub(header.sequence);
    let is_before = (1..=numbers.window).contains(&behind)
        && header.end().wrapping_sub(header.sequence) <= behind;
    let new = header.acknowledgment.wrapping_sub(numbers.acknowledged);
    let is_new = new > 0 && new <= numbers.sent.wrapping_sub(numbers.acknowledged);
    header.is_ack() && !header.is_rst() && !header.is_syn() && is_before && is_new
}

/// Whether a segment has a FIN alone, ahead of data that is missing. smoltcp neither keeps nor answers it.
pub(crate) fn is_end_ahead(header: &Header, numbers: &Numbers) -> bool {
    let ahead = header.sequence.wrapping_sub(numbers.expected);
    let is_alone = header.is_fin() && !header.has_data() && !header.is_syn() && !header.is_rst();
    header.is_ack() && is_alone && (1..numbers.window).contains(&ahead)
}

/// Whether all data of a segment with a FIN certainly lies inside of the window that smoltcp knows. `said` is the one that was
/// said last with the acknowledgment number `acknowledged`, as it stands in the header: smoltcp may know an earlier one, which
/// is half as long at least, as it says at once that a window is twice as long.
pub(crate) fn is_well_inside(header: &Header, acknowledged: u32, said: u16) -> bool {
    let end = header.end().wrapping_sub(1);
    end.wrapping_sub(acknowledged) <= u32::from(said) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        sent: 500,
        acknowledged: 400,
        reach: 300,
        expected: u32::MAX - 9,
        window: 100,
        owes_end: false,
        has_heard_end: false,
    };

    /// A segment without data.
    fn header(sequence: u32, acknowledgment: u32, flags: u8) -> Header {
        let mut segment = [0; 20];
        segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        segment[8..12].copy_from_slice(&acknowledgment.to_be_bytes());
        (segment[12], segment[13]) = (5 << 4, flags);
        Header::read(&segment).unwrap()
    }

    /// RFC 5961, Section 3.2.
    #[test]
    fn only_a_reset_with_the_next_number_is_one() {
        let judge = |sequence| judge(&header(sequence, 0, 4), &NUMBERS);
        assert_eq!(judge(u32::MAX - 9), Verdict::Show);
        assert_eq!(judge(u32::MAX - 10), Verdict::Drop);
        assert_eq!(judge(u32::MAX - 8), Verdict::Challenge);
        assert_eq!(judge(89), Verdict::Challenge);
        assert_eq!(judge(90), Verdict::Drop);
    }

    #[test]
    fn acknowledgments_count_while_there_is_no_room() {
        let counts = |sequence, flags, said| {
            counts_beside_window(&header(sequence, 450, flags), &NUMBERS, said)
        };
        // A probe, and what was sent before there was no room.
        assert!(counts(u32::MAX - 10, 16, 0) && counts(u32::MAX - 8, 16, 0) && counts(50, 16, 0));
        // The next one is shown as it is; so is what comes while there is room, resets, a FIN, and what is far off.
        assert!(!counts(u32::MAX - 9, 16, 0) && !counts(u32::MAX - 8, 16, 1));
        assert!(!counts(u32::MAX - 8, 20, 0) && !counts(u32::MAX - 8, 17, 0) && !counts(91, 16, 0));
    }

    /// RFC 9293, Section 3.10.7.4.
    #[test]
    fn what_was_not_sent_is_not_acknowledged() {
        let judge = |number| judge(&header(7, number, 16), &NUMBERS);
        assert_eq!(judge(500), Verdict::Show);
        assert_eq!(judge(501), Verdict::Challenge);
        assert_eq!(judge(300), Verdict::Show);
    }

    /// RFC 5961, Section 4.
    #[test]
    fn a_syn_is_challenged_whatever_it_says() {
        for sequence in [0, u32::MAX - 10, u32::MAX - 9, u32::MAX - 8, 1 << 31] {
            assert_eq!(judge(&header(sequence, 0, 2), &NUMBERS), Verdict::Challenge);
            assert_eq!(judge(&header(sequence, 450, 18), &NUMBERS), Verdict::Challenge);
        }
        assert_eq!(judge(&header(200, 0, 6), &NUMBERS), Verdict::Drop, "a reset");
    }

    /// RFC 9293, Section 3.10.7.4; RFC 5961, Section 5.2.
    #[test]
    fn an_acknowledgment_that_others_have_overtaken_is_ignored_and_its_segment_is_not() {
        let is_before = |number, flags| is_acknowledged_before(&header(7, number, flags), &NUMBERS);
        assert!(is_before(399, 17) && is_before(100, 17));
        assert!(!is_before(400, 17) && !is_before(99, 17) && !is_before(401, 17));
        assert!(!is_before(399, 16), "without data");
        assert!(!is_before(399, 20) && !is_before(399, 1));
    }

    #[test]
    fn what_has_come_before_acknowledges_what_is_new() {
        let expected = NUMBERS.expected;
        let counts = |behind: u32, number, flags| {
            let header = header(expected.wrapping_sub(behind), number, flags);
            is_repeated_and_acknowledges(&header, &NUMBERS)
        };
        assert!(counts(1, 401, 16) && counts(100, 500, 16) && counts(1, 401, 17));
        assert!(!counts(0, 401, 16) && !counts(0, 401, 17) && !counts(101, 401, 16));
        assert!(!counts(1, 400, 16) && !counts(1, 399, 16) && !counts(1, 501, 16));
        assert!(!counts(1, 401, 20) && !counts(1, 401, 18) && !counts(1, 401, 1));
    }

    /// RFC 5681, Section 4.2.
    #[test]
    fn an_end_is_ahead_within_the_window() {
        let is_ahead = |ahead: u32, flags| {
            let sequence = NUMBERS.expected.wrapping_add(ahead);
            is_end_ahead(&header(sequence, 450, flags), &NUMBERS)
        };
        assert!(is_ahead(1, 17) && is_ahead(99, 17));
        assert!(!is_ahead(0, 17) && !is_ahead(100, 17) && !is_ahead(u32::MAX, 17));
        assert!(!is_ahead(1, 16) && !is_ahead(1, 1) && !is_ahead(1, 19) && !is_ahead(1, 21));
    }

    #[test]
    fn only_what_is_far_from_the_end_of_the_window_certainly_is_in_it() {
        let is_inside = |end: u32, said| is_well_inside(&header(end, 0, 17), 1000, said);
        assert!(is_inside(1000, 0) && is_inside(1050, 100));
        assert!(!is_inside(1051, 100) && !is_inside(999, 100) && !is_inside(1001, 1));
    }

    /// RFC 9293, Section 3.10.7.4.
    #[test]
    fn nothing_is_behind_an_end() {
        let numbers = Numbers { has_heard_end: true, ..NUMBERS };
        let expected = numbers.expected;
        let judge = |ahead: i32, flags, numbers: &Numbers| {
            let sequence = expected.wrapping_add_signed(ahead);
            judge(&header(sequence, 450, flags), numbers)
        };
        assert_eq!(judge(0, 17, &numbers), Verdict::Strip, "another FIN");
        assert_eq!(judge(99, 17, &numbers), Verdict::Strip);
        assert_eq!(judge(100, 17, &numbers), Verdict::Show, "it is beyond the window");
        assert_eq!(judge(-1, 17, &numbers), Verdict::Show, "the same FIN again");
        assert_eq!(judge(0, 16, &numbers), Verdict::Show);
        assert_eq!(judge(0, 1, &numbers), Verdict::Show, "smoltcp drops what acknowledges nothing");
        assert_eq!(judge(0, 17, &NUMBERS), Verdict::Show);
    }

    #[test]
    fn a_duplicate_acknowledgment_of_all_data_does_not_stop_the_timer_of_a_fin() {
        let numbers = Numbers { owes_end: true, ..NUMBERS };
        assert_eq!(judge(&header(7, 400, 16), &numbers), Verdict::Drop);
        assert_eq!(judge(&header(7, 401, 16), &numbers), Verdict::Show);
        // A FIN of the other side goes on its way.
        assert_eq!(judge(&header(7, 400, 17), &numbers), Verdict::Show);
        assert_eq!(judge(&header(7, 400, 16), &NUMBERS), Verdict::Show);
    }
}
