//! Origins that speak QUIC.

use quicket::tokio::{Connection, Listener};
use quicket::{Identity, ReadError, ServerConfig};
use tokio::sync::mpsc;

use super::common::{Gateway, directory};
use super::support::connection;

/// An origin with the certificate of `dir`, and a gateway in front of it.
fn start(
    runtime: &tokio::runtime::Runtime,
    more: &str,
) -> (Gateway, mpsc::UnboundedReceiver<Connection>) {
    let dir = directory();
    let identity =
        Identity::from_pem_files(dir.path().join("cert.pem"), dir.path().join("cert.key"));
    let server = ServerConfig::with_identity(identity.unwrap(), ["test"]).unwrap();
    let listener = runtime.block_on(Listener::bind("127.0.0.1:0", server)).unwrap();
    let at = listener.local_addr();
    let (sender, accepted) = mpsc::unbounded_channel();
    runtime.spawn(async move {
        while let Ok(connection) = listener.accept().await {
            let _ = sender.send(connection);
        }
    });
    let origin = format!("quic://localhost:{}", at.port());
    let file = format!(
        "[[protocol]]\nalpn = [\"test\"]\nstreams = \"{origin}\"\ndatagrams = \"{origin}\"\n{more}"
    );
    (Gateway::start(dir, &file), accepted)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

#[test]
fn streams_of_all_kinds_datagrams_and_codes_go_through() {
    let runtime = runtime();
    let (gateway, mut accepted) = start(&runtime, "ca = \"cert.pem\"\n");
    let near = connection(&gateway);
    runtime.block_on(async {
        let far = accepted.recv().await.unwrap();
        for (from, to) in [(&near, &far), (&far, &near)] {
            let mut opened = from.open_bi().await.unwrap();
            opened.send().write_all(b"question").await.unwrap();
            opened.finish().unwrap();
            let mut answered = to.accept_bi().await.unwrap();
            assert_eq!(answered.read_to_end(100).await.unwrap(), b"question");
            answered.send().write_all(b"answer").await.unwrap();
            answered.finish().unwrap();
            assert_eq!(opened.read_to_end(100).await.unwrap(), b"answer");

            let mut opened = from.open_uni().await.unwrap();
            opened.write_all(b"told").await.unwrap();
            opened.finish().unwrap();
            assert_eq!(to.accept_uni().await.unwrap().read_to_end(100).await.unwrap(), b"told");

            from.send_datagram(b"datagram").await.unwrap();
            assert_eq!(to.recv_datagram().await.unwrap(), b"datagram");

            // Each direction breaks by itself, with the application's codes.
            let (mut send, mut recv) = from.open_bi().await.unwrap().split();
            send.write_all(b"x").await.unwrap();
            let (mut back, mut heard) = to.accept_bi().await.unwrap().split();
            heard.read_some(&mut [0]).await.unwrap();
            send.reset(11).unwrap();
            assert_eq!(heard.read_some(&mut [0]).await, Err(ReadError::Reset(11)));
            back.write_all(b"still here").await.unwrap();
            assert_eq!(recv.read_some(&mut [0; 10]).await, Ok(10));
            recv.stop(12).unwrap();
            assert_eq!(back.stopped().await, Ok(Some(12)));
        }
        near.close(13, b"bye");
        let ended = far.closed().await;
        assert!(
            matches!(ended, quicket::ConnectionError::PeerApplication { code: 13, .. }),
            "{ended}"
        );
    });
}

#[test]
fn an_origin_that_is_not_trusted_gets_nothing() {
    let runtime = runtime();
    let (gateway, mut accepted) = start(&runtime, "");
    let near = connection(&gateway);
    runtime.block_on(async {
        let ended = near.closed().await;
        assert!(
            matches!(ended, quicket::ConnectionError::PeerApplication { code: 0x51_4701, .. }),
            "{ended}"
        );
        assert!(accepted.try_recv().is_err());
    });
}
