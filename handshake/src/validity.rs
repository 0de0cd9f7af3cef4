//! When a certificate begins and ends (RFC 5280, Section 4.1.2.5).

use std::time::{Duration, SystemTime};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// The version, before all else, if it is not the first one.
const VERSION: u8 = 0xa0;

/// The end of a certificate in DER; `None` if it cannot be read.
pub(crate) fn not_after(certificate: &[u8]) -> Option<SystemTime> {
    moment(validity(certificate)?.1)
}

/// Its beginning.
pub(crate) fn not_before(certificate: &[u8]) -> Option<SystemTime> {
    moment(validity(certificate)?.0)
}

fn moment(seconds: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Both, in seconds since 1970.
fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (certificate, _) = value(certificate, SEQUENCE)?;
    let (mut rest, _) = value(certificate, SEQUENCE)?;
    if let Some((_, after)) = value(rest, VERSION) {
        rest = after;
    }
    // The serial number, the signature's algorithm, the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, rest) = value(rest, tag)?;
    }
    let (validity, _) = value(rest, SEQUENCE)?;
    let (begin, after) = time(validity)?;
    let (end, _) = time(after)?;
    Some((begin, end))
}

/// The value of an element with this tag, and what follows it.
fn value(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    if found != tag {
        return None;
    }
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        // A certificate of 16 MiB is none.
        if !(1..=3).contains(&count) {
            return None;
        }
        let (bytes, after) = rest.split_at_checked(count)?;
        length = bytes.iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
        rest = after;
    }
    rest.split_at_checked(length)
}

/// A time in seconds since 1970, and what follows it.
fn time(der: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest, digits) = match der.first()? {
        &UTC_TIME => {
            let (text, rest) = value(der, UTC_TIME)?;
            (text, rest, 2)
        }
        _ => {
            let (text, rest) = value(der, GENERALIZED_TIME)?;
            (text, rest, 4)
        }
    };
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let year = match (number(0, digits)?, digits) {
        (year, 2) if year < 50 => year + 2000,
        (year, 2) => year + 1900,
        (year, _) => year,
    };
    let part = |at: usize| number(digits + at, digits + at + 2);
    let (month, day) = (part(0)?, part(2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = part(4)? * 3600 + part(6)? * 60 + part(8)?;
    Some((days(year, month, day) * 86_400 + seconds, rest))
}

/// Days from 1970-01-01 to a day of the Gregorian calendar. Years begin in March, so that leap days come last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year
        - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_over_leap_years() {
        for ((year, month, day), expected) in [
            ((1970, 1, 1), 0),
            ((1970, 3, 1), 59),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 24), 20_781),
            ((4096, 1, 1), 776_506),
        ] {
            assert_eq!(days(year, month, day), expected, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn times_are_read_in_both_forms() {
        let utc =
            |text: &[u8]| time(&[&[UTC_TIME, text.len() as u8], text].concat()).map(|(at, _)| at);
        assert_eq!(utc(b"700101000000Z"), Some(0));
        assert_eq!(utc(b"491231235959Z"), Some(2_524_607_999));
        assert_eq!(utc(b"500101000000Z"), Some(-631_152_000));
        let general = |text: &[u8]| {
            time(&[&[GENERALIZED_TIME, text.len() as u8], text].concat()).map(|(at, _)| at)
        };
        assert_eq!(general(b"20500101000000Z"), Some(2_524_608_000));
        for wrong in
            [&b""[..], b"Z", b"7001010000Z", b"70010100000-Z", b"701301000000Z", b"700100000000Z"]
        {
            assert_eq!(utc(wrong), None);
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_found_and_no_bytes_harm() {
        let mut parameters = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2030, 1, 2);
        parameters.not_after = rcgen::date_time_ymd(2031, 5, 6);
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let der = certificate.der().to_vec();
        let expected = |year, month, day| {
            let seconds = days(year, month, day) as u64 * 86_400;
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        };
        assert_eq!(not_before(&der), expected(2030, 1, 2));
        assert_eq!(not_after(&der), expected(2031, 5, 6));
        for end in 0..der.len() {
            let _ = not_after(&der[..end]);
            let mut changed = der.clone();
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                changed[end] = byte;
                let _ = not_after(&changed);
            }
        }
    }
}
