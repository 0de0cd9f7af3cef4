//! What a peer does wrong.

use std::fmt;

use h3::error::Code;

/// What ends with a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The stream, in both directions; other requests go on.
    Stream,
    /// The connection.
    Connection,
}

/// A violation of HTTP/3 by a peer, and how it is told of it. It is the source of the error that h3 returns:
/// [`Violation::of`] finds it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What ends.
    pub scope: Scope,
    /// What the peer is told.
    pub code: Code,
    /// For logs and counters.
    pub reason: &'static str,
}

impl Violation {
    /// A malformed message is an error of its stream (RFC 9114, Section 4.1.2).
    pub(crate) const fn malformed(reason: &'static str) -> Self {
        Self { scope: Scope::Stream, code: Code::H3_MESSAGE_ERROR, reason }
    }

    pub(crate) const fn stream(code: Code, reason: &'static str) -> Self {
        Self { scope: Scope::Stream, code, reason }
    }

    pub(crate) const fn connection(code: Code, reason: &'static str) -> Self {
        Self { scope: Scope::Connection, code, reason }
    }

    /// The violation of a stream that an error of h3 tells of. One of a connection is not told of by its streams,
    /// but by the connection: so it is counted once.
    pub fn of(error: &h3::error::StreamError) -> Option<Self> {
        match error {
            h3::error::StreamError::Undefined(error) => error.downcast_ref().copied(),
            // What h3 itself finds.
            h3::error::StreamError::StreamError { code, .. } => {
                Some(Self::stream(*code, "malformed HTTP/3"))
            }
            h3::error::StreamError::HeaderTooBig { .. } => {
                Some(Self::stream(Code::H3_EXCESSIVE_LOAD, "a header section that is too long"))
            }
            _ => None,
        }
    }

    /// Whoever reads a request's stream closes the connection for a violation before h3 hears of it: who accepts streams
    /// meanwhile sees no more than that it is closed.
    fn of_close(error: &quicket::ConnectionError) -> Option<Self> {
        match error {
            quicket::ConnectionError::Local { code, .. } if *code != Code::H3_NO_ERROR.value() => {
                Some(Self::connection(Code::from(*code), "malformed HTTP/3"))
            }
            _ => None,
        }
    }

    /// The violation that an error of a connection tells of.
    pub fn of_connection(error: &h3::error::ConnectionError) -> Option<Self> {
        use h3::error::{ConnectionError, LocalError};
        use h3::quic::ConnectionErrorIncoming;
        match error {
            ConnectionError::Remote(ConnectionErrorIncoming::Undefined(error)) => {
                error.downcast_ref().copied().or_else(|| Self::of_close(error.downcast_ref()?))
            }
            ConnectionError::Local { error: LocalError::Application { code, .. }, .. }
                if *code != Code::H3_NO_ERROR =>
            {
                Some(Self::connection(*code, "malformed HTTP/3"))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.code)
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use h3::error::ConnectionError;
    use h3::quic::ConnectionErrorIncoming;

    use super::*;

    #[test]
    fn a_connection_that_this_side_has_closed_for_a_violation_tells_of_one() {
        let closed = |code: Code| {
            let local = quicket::ConnectionError::Local { code: code.value(), reason: Vec::new() };
            let lost = ConnectionErrorIncoming::Undefined(Arc::new(local));
            Violation::of_connection(&ConnectionError::Remote(lost))
        };
        let found = closed(Code::H3_FRAME_UNEXPECTED).map(|found| (found.scope, found.code));
        assert_eq!(found, Some((Scope::Connection, Code::H3_FRAME_UNEXPECTED)));
        assert_eq!(closed(Code::H3_NO_ERROR), None);
    }
}
