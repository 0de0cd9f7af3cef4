//! Interoperability peers: one command line and one set of JSON lines for every implementation.
//!
//! A peer is a program with two roles. A server runs until its standard input ends; a client does
//! what it was told and exits, with a status other than zero when anything failed. Both print one
//! JSON object a line, see [`Event`].

mod arguments;
mod event;

pub use arguments::{Arguments, ClientArguments, Role, ServerArguments};
pub use event::{Event, Facts, emit};

/// HTTP/0.9 as the QUIC interoperability tests speak it: `GET /path`, then the body until FIN.
pub const ALPN_HQ: &str = "hq-interop";
/// HTTP/3 (RFC 9114).
pub const ALPN_H3: &str = "h3";
/// Every bidirectional stream and every datagram is sent back as it came.
pub const ALPN_ECHO: &str = "echo";

/// Length in bytes of what a client sends on each echoed stream.
pub const ECHO_STREAM_LENGTH: usize = 1024;
/// The code in the RESET_STREAM frames of a client that gives streams up.
pub const RESET_CODE: u32 = 7;
/// The code in its STOP_SENDING frames.
pub const STOP_CODE: u32 = 8;
/// Length in bytes of each echoed datagram.
pub const ECHO_DATAGRAM_LENGTH: usize = 512;

/// What a client sends on the echoed stream, or in the echoed datagram, numbered `number`.
///
/// Every implementation makes the same bytes, each number other ones, so that an answer which
/// belongs to another stream is noticed.
#[must_use]
pub fn echo_payload(number: u32, length: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(length);
    payload.extend_from_slice(&number.to_be_bytes());
    let mut state = number;
    while payload.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        payload.push((state >> 24) as u8);
    }
    payload.truncate(length);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echo_payloads_differ_by_number_and_have_the_length_asked_for() {
        let one = echo_payload(1, ECHO_STREAM_LENGTH);
        let two = echo_payload(2, ECHO_STREAM_LENGTH);
        assert_eq!(one.len(), ECHO_STREAM_LENGTH);
        assert_ne!(one, two);
        assert_eq!(echo_payload(7, 3), [0, 0, 0]);
    }
}
