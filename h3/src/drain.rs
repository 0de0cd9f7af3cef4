//! The end of a server's connection in good order (RFC 9114, Section 5.2).

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::quic::{RecvStream as _, SendStream as _};
use h3::server;

use crate::Connection;

/// Sends GOAWAY and rejects the requests that come later, until those before it have ended, which `ended` tells. `false` if
/// the client does not take the GOAWAY within `patience`: then nobody waits for `ended`.
///
/// What comes later is reset with H3_REQUEST_REJECTED, so that the client may ask again elsewhere (RFC 9114, Section 4.1.1).
/// A connection that the client closes is waited for like one that it uses: requests under way find its end by themselves.
///
/// Not cancel safe: nothing is accepted or rejected any more where it is dropped.
///
/// # Errors
///
/// The connection failed.
pub async fn drain(
    requests: &mut server::Connection<Connection, Bytes>,
    patience: Duration,
    ended: impl Future<Output = ()>,
) -> Result<bool, ConnectionError> {
    // GOAWAY names the first request that is not answered. Those before it are here.
    match tokio::time::timeout(patience, requests.shutdown(1)).await {
        Ok(told) => told?,
        Err(_) => return Ok(false),
    }
    let mut ended = pin!(ended);
    loop {
        let accepted = tokio::select! {
            accepted = requests.accept() => accepted?,
            () = &mut ended => return Ok(true),
        };
        let Some(mut resolver) = accepted else { break };
        // h3 takes the one that it has named for one before it.
        let code = Code::H3_REQUEST_REJECTED.value();
        resolver.frame_stream.reset(code);
        resolver.frame_stream.stream.stop_sending(code);
    }
    ended.await;
    Ok(true)
}
