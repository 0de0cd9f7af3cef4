//! The JSON lines that all peers print.

use std::io::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// One line of a peer's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A server takes connections at this address.
    Listening {
        /// The address with the port that was taken.
        address: SocketAddr,
    },
    /// A handshake is complete.
    Connection {
        /// Number of the connection in this process, from 1.
        connection: u64,
        /// What is known by now.
        #[serde(flatten)]
        facts: Facts,
    },
    /// A client has downloaded a file.
    File {
        /// Number of the connection in this process, from 1.
        connection: u64,
        /// The path that was asked for.
        path: String,
        /// Length in bytes.
        bytes: u64,
        /// Digest in lowercase hexadecimal digits.
        sha256: String,
    },
    /// A client has had everything echoed.
    Echo {
        /// Number of the connection in this process, from 1.
        connection: u64,
        /// Streams that came back whole and right.
        streams: u32,
        /// Datagrams that came back whole and right.
        datagrams: u32,
        /// Datagrams that had to be sent again because no echo came in time.
        #[serde(default)]
        datagrams_lost: u32,
    },
    /// A connection has ended.
    Closed {
        /// Number of the connection in this process, from 1.
        connection: u64,
        /// Streams on which a request or an echo was served, or asked for.
        streams: u64,
        /// What is known in the end.
        #[serde(flatten)]
        facts: Facts,
    },
    /// Something failed; a client exits after it.
    Error {
        /// What failed.
        message: String,
    },
    /// A client has done all it was told.
    Done,
}

/// What one end knows of a connection; `None` where its implementation does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The QUIC version in use, such as `0x00000001`.
    pub version: Option<String>,
    /// The negotiated application protocol.
    pub alpn: Option<String>,
    /// Whether the TLS session is a resumed one.
    pub resumed: Option<bool>,
    /// Whether early data was accepted.
    pub early_data: Option<bool>,
    /// Whether a Retry packet was part of the handshake.
    pub retry: Option<bool>,
    /// How often the packet protection keys were updated, by either end.
    pub key_updates: Option<u64>,
}

impl Facts {
    /// Takes over from `later` whatever it knows.
    pub fn update(&mut self, later: &Self) {
        fn replace<T: Clone>(old: &mut Option<T>, new: &Option<T>) {
            if new.is_some() {
                old.clone_from(new);
            }
        }
        replace(&mut self.version, &later.version);
        replace(&mut self.alpn, &later.alpn);
        replace(&mut self.resumed, &later.resumed);
        replace(&mut self.early_data, &later.early_data);
        replace(&mut self.retry, &later.retry);
        replace(&mut self.key_updates, &later.key_updates);
    }
}

/// Prints `event` as one line.
///
/// A closed standard output is no error: whoever started the peer has lost interest.
pub fn emit(event: &Event) {
    if let Ok(mut line) = serde_json::to_string(event) {
        line.push('\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_json_object() {
        let facts = Facts { alpn: Some("h3".into()), retry: Some(true), ..Facts::default() };
        let event = Event::Connection { connection: 1, facts };
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.starts_with(r#"{"event":"connection","connection":1,"#), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }

    #[test]
    fn what_a_peer_leaves_out_is_unknown() {
        let line = r#"{"event":"closed","connection":2,"streams":3,"key_updates":1}"#;
        let Event::Closed { facts, .. } = serde_json::from_str(line).unwrap() else {
            panic!("not a closed event")
        };
        assert_eq!((facts.key_updates, facts.resumed), (Some(1), None));
    }

    #[test]
    fn later_facts_win_and_unknown_ones_do_not_erase() {
        let mut facts = Facts { resumed: Some(true), ..Facts::default() };
        facts.update(&Facts { early_data: Some(false), ..Facts::default() });
        facts.update(&Facts { early_data: Some(true), ..Facts::default() });
        assert_eq!((facts.resumed, facts.early_data), (Some(true), Some(true)));
    }
}
