//! Segments that smoltcp is not shown, as it would take them for what they are not.

use crate::segment::Header;

/// What is known of a connection that is established.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The next sequence number of this side (SND.NXT).
    pub(crate) sent: u32,
    /// What the other side has acknowledged (SND.UNA).
    pub(crate) acknowledged: u32,
    /// The next sequence number of the other side (RCV.NXT).
    pub(crate) expected: u32,
    /// Octets that may be in the window at most.
    pub(crate) window: u32,
    /// Nothing but a FIN waits for its acknowledgment.
    pub(crate) owes_end: bool,
}

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Show,
    Drop,
    /// It is dropped, and answered with an acknowledgment: who sent it in truth knows then what is expected.
    Challenge,
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
    if header.is_ack() {
        // What was not sent cannot be acknowledged (RFC 9293, Section 3.10.7.4). smoltcp compares with what it
        // has in its buffer.
        if header.acknowledgment.wrapping_sub(numbers.sent).cast_signed() > 0 {
            return Verdict::Challenge;
        }
        // smoltcp takes three of them for the loss of data, stops its timer, and has no data to send again.
        let is_empty = header.end() == header.sequence;
        if numbers.owes_end && is_empty && header.acknowledgment == numbers.acknowledged {
            return Verdict::Drop;
        }
    }
    Verdict::Show
}

/// Whether an acknowledgment counts though its sequence number is not the next one. While this side has no room, nothing is
/// acceptable but that number; acknowledgments, and the windows in them, are nevertheless (RFC 9293, Section 3.10.7.4). smoltcp
/// drops them: where both sides have no room, neither would hear that the other one has some again.
pub(crate) fn counts_beside_window(header: &Header, numbers: &Numbers, said: u16) -> bool {
    let is_bare = header.is_ack() && header.end() == header.sequence && !header.is_rst();
    let off = header.sequence.wrapping_sub(numbers.expected).cast_signed();
    said == 0 && is_bare && off != 0 && off.unsigned_abs() <= numbers.window
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        sent: 500,
        acknowledged: 400,
        expected: u32::MAX - 9,
        window: 100,
        owes_end: false,
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
