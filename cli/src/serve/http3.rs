//! HTTP/3 on one connection (RFC 9114).

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::quic::{self, StreamId};
use h3::server::{self, RequestResolver, RequestStream};
use http::{Request, Response};
use quicket_files::{Answer, Body, Chunks, Room};
use quicket_front::{Counted, UnderWay};
use quicket_h3::Transfer;
use tokio::sync::watch;
use tokio::time::timeout;

use super::conversation::{Draining, PATIENCE};
use super::log::Record;
use super::{Client, Site};

/// The largest header section that is accepted, in bytes as HTTP/3 counts them.
pub(super) const MAX_HEADERS: u64 = 32 << 10;

/// Tells what the transport knows of a request: whether it came as 0-RTT data, and how its answer is sent.
pub(crate) type TransferOf = Arc<dyn Fn(StreamId) -> Option<Arc<Transfer>> + Send + Sync>;

/// Answers requests until the connection ends or, once `draining` says so or nothing was asked for long, until those
/// under way are answered and `delivered`.
pub(crate) async fn serve(
    connection: quicket_h3::Connection,
    client: Arc<Client>,
    transfer_of: TransferOf,
    mut draining: watch::Receiver<Draining>,
    delivered: impl Future<Output = ()>,
) -> Result<(), h3::error::ConnectionError> {
    let mut builder = server::builder();
    let mut connection: server::Connection<_, Bytes> =
        builder.max_field_section_size(MAX_HEADERS).build(connection).await?;
    let under_way = UnderWay::default();
    let mut unasked = Box::pin(under_way.idle(client.site.unasked));
    let begin = |resolver| {
        let (client, transfer_of) = (Arc::clone(&client), Arc::clone(&transfer_of));
        tokio::spawn(exchange(resolver, client, transfer_of, under_way.count()));
    };
    loop {
        tokio::select! {
            request = connection.accept() => match request? {
                Some(resolver) => begin(resolver),
                None => return Ok(()),
            },
            _ = draining.wait_for(|draining| *draining != Draining::No) => break,
            // RFC 9114, Section 5.1: QUIC's own timeout does not end a connection whose client asks whether we are there.
            () = &mut unasked => break,
        }
    }
    if Box::pin(quicket_h3::drain(&mut connection, PATIENCE, under_way.ends())).await? {
        delivered.await;
    } else {
        log::debug!("{}: the client takes no GOAWAY", client.remote);
    }
    Ok(())
}

/// One request and its answer.
async fn exchange(
    resolver: RequestResolver<quicket_h3::Connection, Bytes>,
    client: Arc<Client>,
    transfer_of: TransferOf,
    _counted: Counted,
) {
    let begun = Instant::now();
    let (request, mut stream) = match timeout(PATIENCE, resolver.resolve_request()).await {
        Ok(Ok(request)) => request,
        Ok(Err(error)) => return log::debug!("{}: no request: {error}", client.remote),
        // Dropped, the stream is reset.
        Err(_) => return log::debug!("{}: a request took too long", client.remote),
    };
    client.requests.fetch_add(1, Ordering::Relaxed);
    let transfer = transfer_of(stream.id()).unwrap_or_default();
    let early = transfer.is_early();
    let mut sent = 0;
    let (status, outcome) = match ask(&client.site, &request, early).await {
        Ok(answer) => {
            let status = answer.status.as_u16();
            let outcome = send(answer, &mut stream, &transfer, &client.room, &mut sent).await;
            (Some(status), outcome)
        }
        Err(error) => {
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
            (None, Err(error))
        }
    };
    // Takes notice of the request's end, which most often is here; if it is not, the rest is of no
    // interest (RFC 9114, Section 4.1).
    let end = poll_fn(|cx| Poll::Ready(stream.poll_recv_data(cx).map_ok(|data| data.is_none())));
    if !matches!(end.await, Poll::Ready(Ok(true))) {
        stream.stop_sending(Code::H3_NO_ERROR);
    }
    if client.site.access_log {
        let record = Record {
            remote: client.remote,
            protocol: "h3",
            method: request.method().as_str(),
            target: request.uri().path(),
            status,
            sent,
            took: begun.elapsed(),
            early,
            error: outcome.err(),
        };
        record.print();
    }
}

async fn ask(site: &Site, request: &Request<()>, early: bool) -> Result<Answer, String> {
    site.ask(request.method(), request.uri().path(), request.headers(), early).await
}

/// Why an answer did not get through, for the access log.
fn said(error: StreamError) -> String {
    match error {
        StreamError::RemoteTerminate { code, .. } => format!("the client stopped it ({code})"),
        StreamError::ConnectionError { .. } => "the connection ended".to_owned(),
        other => other.to_string(),
    }
}

async fn send<S>(
    answer: Answer,
    stream: &mut RequestStream<S, Bytes>,
    transfer: &Transfer,
    room: &Room,
    sent: &mut u64,
) -> Result<(), String>
where
    S: quic::SendStream<Bytes>,
{
    let Answer { status, headers, body } = answer;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    stream.send_response(response).await.map_err(said)?;
    match body {
        Body::Empty => {}
        Body::Bytes(bytes) => {
            let len = bytes.len() as u64;
            stream.send_data(bytes).await.map_err(said)?;
            *sent += len;
        }
        Body::File(file, len) => {
            let mut chunks = Chunks::new(file, len, room);
            loop {
                let chunk = match chunks.next().await {
                    Ok(Some(chunk)) => chunk,
                    Ok(None) => break,
                    Err(error) => {
                        // The client must not take the part for the whole.
                        stream.stop_stream(Code::H3_INTERNAL_ERROR);
                        return Err(error.to_string());
                    }
                };
                let len = chunk.len() as u64;
                // It is sent from where it was read to.
                transfer.offer(&chunk);
                stream.send_data(chunk).await.map_err(said)?;
                *sent += len;
            }
        }
    }
    stream.finish().await.map_err(said)
}
