//! The header field by which a trace goes on (W3C Trace Context, Section 3.2).

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use opentelemetry::trace::{SpanId, TraceId, TraceState};

/// Which trace, which span of it, and whether it is sampled.
pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What vendors say of it (W3C Trace Context, Section 3.3).
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The span is recorded.
pub(super) const SAMPLED: u8 = 0x01;
/// The trace's ID was made of random bytes (W3C Trace Context Level 2, Section 3.2.2.5.2).
pub(super) const RANDOM: u8 = 0x02;
/// The length of what version 00 has.
const LENGTH: usize = 55;
/// The longest `tracestate` that a span has, in bytes: as much as everybody is to pass on (Section 3.3.1.5).
/// Longer ones reach the origin all the same.
const MAX_STATE: usize = 512;

/// The span in which a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Those of the flags that are known.
    pub(super) flags: u8,
}

impl Parent {
    /// What a request says, if it says one thing only.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut all = headers.get_all(TRACEPARENT).iter();
        let (Some(value), None) = (all.next(), all.next()) else { return None };
        Self::parse(value.as_bytes())
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (known, more) = value.split_at_checked(LENGTH)?;
        let [v1, v2, b'-', rest @ ..] = known else { return None };
        let version = number(&[*v1, *v2])?;
        // Section 3.2.4: version 00 has this length, later ones may go on behind another dash, and ff is none.
        let may_go_on = matches!(more, [] | [b'-', ..]);
        if version == 0xff || (version == 0 && !more.is_empty()) || !may_go_on {
            return None;
        }
        let (trace, rest) = rest.split_at_checked(32)?;
        let (span, rest) = rest.strip_prefix(b"-")?.split_at_checked(16)?;
        let flags = number(rest.strip_prefix(b"-")?)?;
        let trace = TraceId::from(number(trace)?);
        let span = SpanId::from(u64::try_from(number(span)?).ok()?);
        let flags = u8::try_from(flags).ok()? & (SAMPLED | RANDOM);
        let is_valid = trace != TraceId::INVALID && span != SpanId::INVALID;
        is_valid.then_some(Self { trace, span, flags })
    }

    /// The field.
    pub(super) fn value(self) -> Option<HeaderValue> {
        let Self { trace, span, flags } = self;
        HeaderValue::from_str(&format!("00-{trace}-{span}-{flags:02x}")).ok()
    }
}

/// A number in hexadecimal digits, which are lower case (Section 3.2.2).
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

/// What vendors say of a trace, as far as a span has it.
pub(super) fn state(headers: &HeaderMap) -> TraceState {
    let mut text = String::new();
    for value in headers.get_all(TRACESTATE) {
        let Ok(value) = value.to_str() else { return TraceState::default() };
        if text.len() + value.len() >= MAX_STATE {
            return TraceState::default();
        }
        text.extend([value, ","]);
    }
    // The library takes an empty key for one.
    if text.split(',').any(|member| member.trim_start().starts_with('=')) {
        return TraceState::default();
    }
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Option<Parent> {
        Parent::parse(text.as_bytes())
    }

    /// W3C Trace Context, Section 3.2.
    #[test]
    fn what_is_right_is_read_and_written() {
        let parent = parse(RIGHT).unwrap();
        assert_eq!(parent.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(parent.span.to_string(), "b7ad6b7169203331");
        assert_eq!(parent.flags, SAMPLED);
        assert_eq!(parent.value().unwrap(), RIGHT);
        assert_eq!(parse(&RIGHT.replace("-01", "-00")).unwrap().flags, 0);
        // Flags that nobody knows are not passed on.
        assert_eq!(parse(&RIGHT.replace("-01", "-fe")).unwrap().flags, RANDOM);
        // A later version may have more.
        let later = RIGHT.replacen("00", "cc", 1);
        assert_eq!(parse(&later), Some(parent));
        assert_eq!(parse(&format!("{later}-what-the-future-brings")), Some(parent));
    }

    #[test]
    fn what_is_wrong_is_none() {
        for wrong in [
            String::new(),
            "00".to_owned(),
            "-".repeat(55),
            "0".repeat(55),
            RIGHT[..54].to_owned(),
            format!("{RIGHT}-"),
            format!("{RIGHT}1"),
            format!(" {RIGHT}"),
            RIGHT.to_uppercase(),
            RIGHT.replacen("00", "ff", 1),
            RIGHT.replacen("00", "0g", 1),
            format!("{}1", RIGHT.replacen("00", "cc", 1)),
            RIGHT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            RIGHT.replace("b7ad6b7169203331", &"0".repeat(16)),
            RIGHT.replace("-01", "-+1"),
            RIGHT.replace("-01", "-0\u{e9}"),
            RIGHT.replace('-', "_"),
            "\u{20ac}".repeat(19),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        }
        // Whatever byte stands anywhere in it.
        for at in 0..LENGTH {
            for byte in 0..=u8::MAX {
                let mut value = RIGHT.as_bytes().to_vec();
                value[at] = byte;
                if let Some(parent) = Parent::parse(&value) {
                    assert!(byte.is_ascii_hexdigit() || byte == b'-', "{parent:?}");
                }
            }
        }
    }

    #[test]
    fn two_of_them_are_none() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(RIGHT));
        assert!(Parent::of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(RIGHT));
        assert_eq!(Parent::of(&headers), None);
    }

    #[test]
    fn a_long_or_wrong_state_is_none() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(TRACESTATE, HeaderValue::from_str(value).unwrap());
            }
            state(&headers).header()
        };
        assert_eq!(read(&[]), "");
        assert_eq!(read(&["a=1", "b=2,c=3"]), "a=1,b=2,c=3");
        for wrong in ["a", "=", "A B=1", &"a=1,".repeat(200)] {
            assert_eq!(read(&[wrong]), "", "{wrong}");
        }
    }
}
