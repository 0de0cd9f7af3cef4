//! What programs and the switch read from each other, and what must hold whatever it is.

use quicket_switch::channel::{self, HEAD};
use quicket_switch::protocol::{Message, ProtocolError, Question, Refused, encode};

/// The first byte chooses what the input is.
pub(crate) fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 3 {
        0 => question(bytes),
        1 => message(bytes),
        _ => head(bytes),
    }
}

/// A program's: what is understood is written so that it is understood the same; for all else there are
/// words, which everybody understands.
fn question(bytes: &[u8]) {
    match Question::decode(bytes) {
        Ok(question) => match encode(&question) {
            Ok(written) => assert_eq!(Question::decode(&written).unwrap(), question),
            Err(error) => assert!(matches!(error, ProtocolError::TooLong(_)), "{error}"),
        },
        Err(error) => {
            let refused = Message::Refused(Refused::from(&error));
            let written = encode(&refused).unwrap();
            assert_eq!(Message::decode(&written).unwrap(), refused);
        }
    }
}

/// The switch's.
fn message(bytes: &[u8]) {
    match Message::decode(bytes) {
        Ok(message) => match encode(&message) {
            Ok(written) => assert_eq!(Message::decode(&written).unwrap(), message),
            Err(error) => assert!(matches!(error, ProtocolError::TooLong(_)), "{error}"),
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The head of a train, and its length behind it.
fn head(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return };
    let len = rest.iter().take(2).fold(0, |len, octet| len << 8 | usize::from(*octet));
    let Some(arrival) = channel::decode(head, len) else { return };
    assert!(arrival.stride > 0 && arrival.len == len);
    assert!(arrival.local.is_none_or(|local| local.is_ipv4() == arrival.remote.is_ipv4()));
    let written = channel::encode(&arrival);
    assert_eq!(channel::decode(&written, len), Some(arrival));
    assert_eq!(written, *head, "there is one way to write it");
}
