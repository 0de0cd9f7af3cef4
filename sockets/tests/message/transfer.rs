//! Data of streams, both ways.

use quicket::message::{Errno, MessageKind, MsgFlags, StreamFlags, StreamInfo};

use crate::pair::{pair, recv};

const NEW_FIN: StreamFlags = StreamFlags::NEW.union(StreamFlags::FIN);

#[test]
fn a_request_is_answered_on_its_stream() {
    let (client, server) = pair();
    assert!(client.is_established() && server.is_established());
    assert_eq!(client.negotiated_alpn().as_deref(), Some(&b"test"[..]));
    let info = StreamInfo::new(0, NEW_FIN);
    assert_eq!(client.send_message(b"request", Some(info), MsgFlags::NONE), Ok(7));
    let (request, message) = recv(&server);
    assert_eq!(request, b"request");
    assert_eq!(message.kind, MessageKind::Stream(StreamInfo::new(0, StreamFlags::FIN)));
    // Without a stream the answer goes to the latest one.
    assert_eq!(server.send_message(b"answer", None, StreamFlags::FIN.into()), Ok(6));
    let (answer, message) = recv(&client);
    assert_eq!(answer, b"answer");
    assert_eq!(message.kind, MessageKind::Stream(StreamInfo::new(0, StreamFlags::FIN)));
    // Both sides have ended it.
    let info = StreamInfo::new(0, StreamFlags::NONE);
    assert_eq!(client.send_message(b"x", Some(info), MsgFlags::NONE), Err(Errno::ENOSTR));
}
