//! Errors of Quicket as h3 wants them.

use std::sync::Arc;

use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming};
use quicket::{AcceptError, ConnectionError, OpenError, ReadError, WriteError};

use crate::Violation;

pub(crate) fn connection(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::PeerApplication { code, .. } => {
            ConnectionErrorIncoming::ApplicationClose { error_code: code }
        }
        ConnectionError::IdleTimeout | ConnectionError::HandshakeTimeout => {
            ConnectionErrorIncoming::Timeout
        }
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

pub(crate) fn accept(error: AcceptError) -> ConnectionErrorIncoming {
    match error {
        AcceptError::Lost(error) => connection(error),
        other => ConnectionErrorIncoming::Undefined(Arc::new(other)),
    }
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection(error) }
}

pub(crate) fn open(error: OpenError) -> StreamErrorIncoming {
    match error {
        OpenError::Lost(error) => lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

pub(crate) fn read(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code },
        ReadError::Lost(error) => lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

pub(crate) fn write(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code },
        WriteError::Lost(error) => lost(error),
        other => StreamErrorIncoming::Unknown(Box::new(other)),
    }
}

/// Ends the connection for what its peer did, and tells h3.
pub(crate) fn refuse(
    connection: &quicket::tokio::Connection,
    violation: Violation,
) -> ConnectionErrorIncoming {
    connection.close(violation.code.value(), violation.reason.as_bytes());
    ConnectionErrorIncoming::Undefined(Arc::new(violation))
}

/// h3 did what its own rules forbid.
pub(crate) fn misuse(what: &str) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: ConnectionErrorIncoming::InternalError(what.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_peer_are_kept() {
        let reset = read(ReadError::Reset(0x10c));
        assert!(matches!(reset, StreamErrorIncoming::StreamTerminated { error_code: 0x10c }));
        let stopped = write(WriteError::Stopped(0x10e));
        assert!(matches!(stopped, StreamErrorIncoming::StreamTerminated { error_code: 0x10e }));
        let closed = ConnectionError::PeerApplication { code: 0x100, reason: b"bye".to_vec() };
        for error in [read(ReadError::Lost(closed.clone())), write(WriteError::Lost(closed))] {
            let StreamErrorIncoming::ConnectionErrorIncoming { connection_error } = error else {
                panic!("{error:?}");
            };
            assert!(matches!(
                connection_error,
                ConnectionErrorIncoming::ApplicationClose { error_code: 0x100 }
            ));
        }
    }

    #[test]
    fn timeouts_are_timeouts_and_the_rest_keeps_its_cause() {
        assert!(matches!(
            connection(ConnectionError::IdleTimeout),
            ConnectionErrorIncoming::Timeout
        ));
        let reset = accept(AcceptError::Lost(ConnectionError::StatelessReset));
        let ConnectionErrorIncoming::Undefined(cause) = reset else { panic!("{reset:?}") };
        assert!(cause.downcast_ref::<ConnectionError>().is_some());
        assert!(matches!(read(ReadError::Closed), StreamErrorIncoming::Unknown(_)));
    }
}
