use super::*;

fn ends(port: u16) -> Ends {
    Ends { local: ([192, 0, 2, 1], 80).into(), remote: ([192, 0, 2, 2], port).into() }
}

/// A segment with a sequence number and flags, without data.
fn header(sequence: u32, flags: u8) -> Header {
    let mut segment = [0; 20];
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    (segment[12], segment[13]) = (5 << 4, flags);
    Header::read(&segment).unwrap()
}

const FIN_ACK: u8 = 0x11;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 0x10;

/// RFC 6191, Section 2.
#[test]
fn a_later_sequence_number_opens_the_connection_again() {
    let now = Instant::from_secs(1);
    let mut table = TimeWait::default();
    let answer =
        Verdict::Answer(Reply::Acknowledgment { sequence: 50, acknowledgment: 1000, window: 0 });
    table.insert(ends(1), 50, 1000, now);
    let mut judge =
        |sequence, flags, listens| table.judge(&ends(1), &header(sequence, flags), listens, now);
    assert_eq!(judge(1000, SYN, true), answer);
    assert_eq!(judge(900, SYN, true), answer);
    assert_eq!(judge(1001, SYN, false), answer);
    assert_eq!(judge(1001, SYN, true), Verdict::Reopen(50 + APART));
    assert_eq!(judge(1001, SYN, true), Verdict::Unknown);
    // Numbers wrap.
    table.insert(ends(1), 50, u32::MAX, now);
    let verdict = table.judge(&ends(1), &header(3, SYN), true, now);
    assert_eq!(verdict, Verdict::Reopen(50 + APART));
}

/// RFC 1337, Section 3; RFC 9293, Section 3.10.7.4.
#[test]
fn a_reset_changes_nothing_and_a_fin_is_acknowledged_again() {
    let at = Instant::from_secs::<i64>;
    let mut table = TimeWait::default();
    table.insert(ends(1), 50, 1000, at(0));
    assert_eq!(table.judge(&ends(1), &header(1000, RST), true, at(1)), Verdict::Ignore);
    assert_eq!(table.judge(&ends(1), &header(1000, ACK), true, at(1)), Verdict::Ignore);
    let answer =
        Verdict::Answer(Reply::Acknowledgment { sequence: 50, acknowledgment: 1000, window: 0 });
    assert_eq!(table.judge(&ends(1), &header(999, FIN_ACK), true, at(30)), answer);
    // From the beginning.
    assert!(table.contains(&ends(1), at(89)));
    table.expire(at(61));
    assert!(table.contains(&ends(1), at(89)));
    assert_eq!(table.judge(&ends(1), &header(999, FIN_ACK), true, at(90)), Verdict::Unknown);
    table.expire(at(90));
    assert!(table.rows.is_empty() && table.order.is_empty());
}

#[test]
fn there_are_no_more_than_may_be_there() {
    let now = Instant::from_secs(1);
    let mut table = TimeWait::default();
    let count = u16::MAX as usize + 1;
    assert_eq!(count, MAX_TIME_WAIT);
    for port in 0..=u16::MAX {
        table.insert(ends(port), 0, 0, now);
    }
    // Even one whose FIN comes again and again.
    for _ in 0..100 {
        table.judge(&ends(7), &header(u32::MAX, FIN_ACK), true, now);
    }
    let other = Ends { local: ([192, 0, 2, 1], 81).into(), ..ends(0) };
    table.insert(other, 0, 0, now);
    assert!(table.order.len() <= MAX_TIME_WAIT && table.rows.len() <= MAX_TIME_WAIT);
    assert!(table.contains(&other, now) && !table.contains(&ends(0), now));
}
