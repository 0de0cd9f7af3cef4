//! What goes wrong on a connection of HTTP/3, in the words of the log.

use h3::error::{Code, ConnectionError, StreamError};
use h3::quic::ConnectionErrorIncoming;
use quicket_h3::Violation;

use crate::BodyError;

/// True if the server has said that it did nothing with the request (RFC 9114, Sections 4.1.1 and 5.2).
pub(super) fn is_unprocessed(error: &StreamError) -> bool {
    match error {
        StreamError::RemoteTerminate { code } => *code == Code::H3_REQUEST_REJECTED,
        StreamError::RemoteClosing => true,
        _ => false,
    }
}

/// True if it is the connection that has ended, or takes no more requests.
pub(super) const fn is_of_connection(error: &StreamError) -> bool {
    matches!(error, StreamError::ConnectionError(_) | StreamError::RemoteClosing)
}

/// What is said of it.
pub(super) fn plain(error: StreamError) -> BodyError {
    if let Some(violation) = Violation::of(&error) {
        return violation.into();
    }
    match error {
        StreamError::RemoteTerminate { code } => format!("it ended the stream: {code}").into(),
        StreamError::HeaderTooBig { actual_size, max_size } => {
            format!("a header section of {actual_size} bytes, where it takes {max_size}").into()
        }
        StreamError::ConnectionError(error) => of_connection(error),
        other => other.to_string().into(),
    }
}

fn of_connection(error: ConnectionError) -> BodyError {
    if let Some(violation) = Violation::of_connection(&error) {
        return violation.into();
    }
    match error {
        ConnectionError::Timeout => "it is silent: the connection is given up".into(),
        ConnectionError::Remote(ConnectionErrorIncoming::ApplicationClose { error_code }) => {
            let code = Code::from(error_code);
            format!("it closed the connection: {code}").into()
        }
        ConnectionError::Remote(ConnectionErrorIncoming::Undefined(error)) => {
            error.to_string().into()
        }
        other => other.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9114, Section 8.1.
    #[test]
    fn only_what_was_rejected_is_unprocessed() {
        let ended = |code| StreamError::RemoteTerminate { code };
        assert!(is_unprocessed(&ended(Code::H3_REQUEST_REJECTED)));
        assert!(is_unprocessed(&StreamError::RemoteClosing));
        for code in [Code::H3_REQUEST_CANCELLED, Code::H3_INTERNAL_ERROR, Code::H3_NO_ERROR] {
            assert!(!is_unprocessed(&ended(code)), "{code}");
        }
        assert!(!is_unprocessed(&StreamError::ConnectionError(ConnectionError::Timeout)));
    }
}
