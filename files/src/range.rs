//! Range requests (RFC 9110, Section 14).

use http::HeaderValue;

/// Which bytes of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// All of them: the header is absent, not understood, or asks for several parts, and a server
    /// may ignore it (RFC 9110, Section 14.2).
    Whole,
    /// From `start` up to and without `end`.
    Part {
        /// The first byte's offset.
        start: u64,
        /// The offset behind the last byte.
        end: u64,
    },
    /// The part lies behind the end of the file.
    Unsatisfiable,
}

/// Reads a Range header for a file of `len` bytes.
pub(crate) fn parse(value: &HeaderValue, len: u64) -> Range {
    let part = value.to_str().ok().and_then(|value| {
        let (unit, part) = value.split_once('=')?;
        let (first, last) = part.trim().split_once('-')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some((first, last))
    });
    match part {
        // The last so many bytes.
        Some(("", suffix)) => match number(suffix) {
            Some(0) => Range::Unsatisfiable,
            Some(_) if len == 0 => Range::Unsatisfiable,
            Some(suffix) => Range::Part { start: len.saturating_sub(suffix), end: len },
            None => Range::Whole,
        },
        Some((first, last)) => {
            let last = if last.is_empty() { Some(u64::MAX) } else { number(last) };
            match (number(first), last) {
                (Some(first), Some(last)) if first > last => Range::Whole,
                (Some(first), Some(_)) if first >= len => Range::Unsatisfiable,
                (Some(first), Some(last)) => {
                    Range::Part { start: first, end: last.saturating_add(1).min(len) }
                }
                _ => Range::Whole,
            }
        }
        None => Range::Whole,
    }
}

/// Digits only: `parse` alone would take a plus sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_to_the_file() {
        let part = |start, end| Range::Part { start, end };
        for (value, range) in [
            ("bytes=0-0", part(0, 1)),
            ("bytes=2-", part(2, 10)),
            ("bytes=2-5", part(2, 6)),
            ("Bytes=2-99", part(2, 10)),
            ("bytes=-3", part(7, 10)),
            ("bytes=-30", part(0, 10)),
            ("bytes=10-", Range::Unsatisfiable),
            ("bytes=-0", Range::Unsatisfiable),
            ("bytes=5-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes=99999999999999999999-", Range::Whole),
            ("lines=1-2", Range::Whole),
            ("nonsense", Range::Whole),
        ] {
            assert_eq!(parse(&HeaderValue::from_static(value), 10), range, "{value}");
        }
        assert_eq!(parse(&HeaderValue::from_static("bytes=-1"), 0), Range::Unsatisfiable);
    }
}
