//! What stands in events, read as tolerantly as the drafts have changed.

use serde_json::Value;

/// QUIC's numbers have 62 bits (RFC 9000, Section 16): a greater one is no offset and no length.
const MAX_NUMBER: u64 = (1 << 62) - 1;
/// Longer texts of a file are cut, in characters.
const MAX_TEXT: usize = 160;

/// A whole number; the drafts up to 01 wrote large ones as texts.
pub(super) fn number(value: &Value) -> Option<u64> {
    let number = match value {
        Value::Number(number) => number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| *number <= MAX_NUMBER)
}

fn whole(number: f64) -> Option<u64> {
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

/// A number that may have a fraction, and is not below 0.
pub(super) fn float(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite() && *number >= 0.0)
}

/// A text, a number or a truth value as a text that is not too long; nothing else.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(cut(text)),
        Value::Number(number) => Some(cut(&number.to_string())),
        Value::Bool(truth) => Some(if *truth { "yes".into() } else { "no".into() }),
        _ => None,
    }
}

/// As much of a text as is shown.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A version as people know it; files have it as a number or in hexadecimal.
pub(super) fn version(value: &Value) -> Option<String> {
    let number = match value {
        Value::String(text) => {
            u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| cut(text))
        }
        other => Ok(number(other)?),
    };
    Some(match number {
        Ok(1) => "1".into(),
        Ok(0x6b33_43cf) => "2".into(),
        Ok(number) => format!("0x{number:08x}"),
        Err(text) => text,
    })
}

/// The length of what a frame or packet carries, as far as it is said: `payload` for what is within.
pub(super) fn length(value: &Value, payload: bool) -> Option<u64> {
    let raw = &value["raw"];
    let within = if payload { number(&raw["payload_length"]) } else { None };
    within.or_else(|| number(&value["length"])).or_else(|| number(&raw["length"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_those_of_quic_however_they_are_written() {
        assert_eq!(number(&json!(12)), Some(12));
        assert_eq!(number(&json!("12")), Some(12));
        assert_eq!(number(&json!(12.0)), Some(12));
        for wrong in [json!(-1), json!(1.5), json!(u64::MAX), json!(1e300), json!([1]), json!(null)]
        {
            assert_eq!(number(&wrong), None, "{wrong}");
        }
        assert_eq!(float(&json!(-0.5)), None);
        assert_eq!(float(&json!("inf")), None);
    }

    #[test]
    fn versions_have_their_short_names() {
        assert_eq!(version(&json!(1)).as_deref(), Some("1"));
        assert_eq!(version(&json!("00000001")).as_deref(), Some("1"));
        assert_eq!(version(&json!("6b3343cf")).as_deref(), Some("2"));
        assert_eq!(version(&json!("0xff00001d")).as_deref(), Some("0xff00001d"));
        assert_eq!(version(&json!("draft")).as_deref(), Some("draft"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(cut(&"ä".repeat(500)).chars().count(), MAX_TEXT + 1);
    }
}
