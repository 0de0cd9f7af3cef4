//! What a socket tells its program without being asked.

use super::raw::{ConnectionClose, ConnectionIdInfo, Raw, StreamMaxData, StreamUpdate};

/// Declares an enumeration with its numbers.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_doc])* $variant = $number,)*
        }

        impl $name {
            /// What has this number.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Its number.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

numbered! {
    /// Kinds of notifications; each is off until it is asked for.
    EventType {
        /// A stream took a step.
        StreamUpdate = 1,
        /// The peer takes more of a stream.
        StreamMaxData = 2,
        /// The peer takes more streams.
        StreamMaxStream = 3,
        /// Connection IDs were retired.
        ConnectionId = 4,
        /// The connection ended.
        ConnectionClose = 5,
        /// The connection moved to another path.
        ConnectionMigration = 6,
        /// The peer updated the keys.
        KeyUpdate = 7,
        /// A token for the next connection came.
        NewToken = 8,
        /// A session ticket came.
        NewSessionTicket = 9,
    }
}

numbered! {
    /// Where a half of a stream stands (RFC 9000, Section 3).
    StreamState {
        /// Sending: "Ready".
        SendReady = 0,
        /// Sending: "Send".
        Send = 1,
        /// Sending: "Data Sent".
        Sent = 2,
        /// Sending: "Data Recvd".
        SendRecvd = 3,
        /// Sending: "Reset Sent".
        SendResetSent = 4,
        /// Sending: "Reset Recvd".
        SendResetRecvd = 5,
        /// Receiving: "Recv".
        Recv = 6,
        /// Receiving: "Size Known".
        RecvSizeKnown = 7,
        /// Receiving: "Data Recvd".
        RecvRecvd = 8,
        /// Receiving: "Data Read".
        RecvRead = 9,
        /// Receiving: "Reset Recvd".
        RecvResetRecvd = 10,
        /// Receiving: "Reset Read".
        RecvResetRead = 11,
    }
}

numbered! {
    /// Levels of TLS messages and secrets (RFC 9001, Section 4).
    CryptoLevel {
        /// 1-RTT.
        App = 0,
        /// Initial.
        Initial = 1,
        /// Handshake.
        Handshake = 2,
        /// 0-RTT.
        Early = 3,
    }
}

/// A notification.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// A stream took a step.
    StreamUpdate(StreamUpdate),
    /// The peer takes more of a stream.
    StreamMaxData(StreamMaxData),
    /// The peer takes more streams: the highest ID that may be opened.
    StreamMaxStream(u64),
    /// Connection IDs were retired.
    ConnectionId(ConnectionIdInfo),
    /// The connection ended.
    ConnectionClose(ConnectionClose),
    /// The connection moved; 1 if this side's address changed, 0 if the peer's.
    ConnectionMigration(u8),
    /// The peer updated the keys: the key phase now.
    KeyUpdate(u8),
    /// A token for the next connection came.
    NewToken(Vec<u8>),
    /// A session ticket came.
    NewSessionTicket(Vec<u8>),
}

impl Notification {
    /// Its kind.
    #[must_use]
    pub const fn event_type(&self) -> EventType {
        match self {
            Self::StreamUpdate(_) => EventType::StreamUpdate,
            Self::StreamMaxData(_) => EventType::StreamMaxData,
            Self::StreamMaxStream(_) => EventType::StreamMaxStream,
            Self::ConnectionId(_) => EventType::ConnectionId,
            Self::ConnectionClose(_) => EventType::ConnectionClose,
            Self::ConnectionMigration(_) => EventType::ConnectionMigration,
            Self::KeyUpdate(_) => EventType::KeyUpdate,
            Self::NewToken(_) => EventType::NewToken,
            Self::NewSessionTicket(_) => EventType::NewSessionTicket,
        }
    }

    /// As it is received: the kind's number, then the structure.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.event_type().number()];
        match self {
            Self::StreamUpdate(update) => bytes.extend(update.to_bytes()),
            Self::StreamMaxData(limit) => bytes.extend(limit.to_bytes()),
            Self::StreamMaxStream(id) => bytes.extend(id.to_ne_bytes()),
            Self::ConnectionId(info) => bytes.extend(info.to_bytes()),
            Self::ConnectionClose(close) => bytes.extend(close.to_bytes()),
            Self::ConnectionMigration(number) | Self::KeyUpdate(number) => bytes.push(*number),
            Self::NewToken(data) | Self::NewSessionTicket(data) => bytes.extend(data),
        }
        bytes
    }

    /// Reads what was received with [`MsgFlags::NOTIFICATION`](super::MsgFlags::NOTIFICATION);
    /// `None` if it is no notification.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, body) = bytes.split_first()?;
        Some(match EventType::from_number(*kind)? {
            EventType::StreamUpdate => Self::StreamUpdate(StreamUpdate::from_bytes(body)),
            EventType::StreamMaxData => Self::StreamMaxData(StreamMaxData::from_bytes(body)),
            EventType::StreamMaxStream => {
                Self::StreamMaxStream(u64::from_ne_bytes(body.first_chunk().copied()?))
            }
            EventType::ConnectionId => Self::ConnectionId(ConnectionIdInfo::from_bytes(body)),
            EventType::ConnectionClose => Self::ConnectionClose(ConnectionClose::from_bytes(body)),
            EventType::ConnectionMigration => Self::ConnectionMigration(*body.first()?),
            EventType::KeyUpdate => Self::KeyUpdate(*body.first()?),
            EventType::NewToken => Self::NewToken(body.to_vec()),
            EventType::NewSessionTicket => Self::NewSessionTicket(body.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_survive_their_encoding() {
        let update = StreamUpdate { id: 4, state: 8, errcode: 0, finalsz: 11 };
        for (notification, len) in [
            (Notification::StreamUpdate(update), 25),
            (Notification::StreamMaxData(StreamMaxData { id: 4, max_data: 9 }), 17),
            (Notification::StreamMaxStream(488), 9),
            (Notification::ConnectionId(ConnectionIdInfo { dest: 1, active: 3, prior_to: 2 }), 13),
            (Notification::ConnectionClose(ConnectionClose::new(10, 0, b"this is app err")), 73),
            (Notification::ConnectionMigration(1), 2),
            (Notification::KeyUpdate(1), 2),
            (Notification::NewToken(b"token".to_vec()), 6),
            (Notification::NewSessionTicket(b"ticket".to_vec()), 7),
        ] {
            let bytes = notification.to_bytes();
            assert_eq!(bytes.len(), len);
            assert_eq!(Notification::from_bytes(&bytes), Some(notification));
        }
        assert_eq!(Notification::from_bytes(&[]), None);
        assert_eq!(Notification::from_bytes(&[10, 1]), None);
    }
}
