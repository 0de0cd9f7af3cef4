//! HTTP/3 (RFC 9114).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::{self, RequestResolver, RequestStream};
use http::{Request, Response, Version};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use quicket_h3::{EarlyStreams, RecvStream, SendStream, WebSocket};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf};
use tokio::time::timeout;

use super::Shared;
use crate::proxy::{self, Client};
use crate::request::content_length;
use crate::tunnel::Stay;
use crate::upgrade;
use crate::{Body, BodyError};

/// What of a tunnel's data waits for the other side, in each direction, in bytes.
const TUNNEL_BUFFER: usize = 64 << 10;

/// Answers what comes on a connection until it ends or, once the gateway stops, until all that is
/// under way is answered.
pub(crate) async fn serve(connection: quicket::tokio::Connection, shared: Arc<Shared>) {
    let _open = shared.metrics.connected("h3");
    // Tunnels are streams here, and end with the connection.
    let (stay, _) = shared.stay();
    let transport = quicket_h3::Connection::new(connection.clone());
    let early = transport.early_streams();
    if let Err(error) = accept(transport, &connection, &early, &shared, &stay).await
        && !error.is_h3_no_error()
    {
        log::debug!("{}: {error}", connection.remote_addr());
    }
    connection.close(Code::H3_NO_ERROR.value(), b"");
    connection.closed().await;
}

async fn accept(
    transport: quicket_h3::Connection,
    connection: &quicket::tokio::Connection,
    early: &EarlyStreams,
    shared: &Arc<Shared>,
    stay: &Stay,
) -> Result<(), h3::error::ConnectionError> {
    let limits = shared.current().0.limits;
    let mut builder = server::builder();
    builder.max_field_section_size(limits.header_bytes.into());
    let mut requests: server::Connection<_, Bytes> = builder.build(transport).await?;
    let mut ending = shared.ending.clone();
    let begin = |resolver| {
        let (connection, early) = (connection.clone(), early.clone());
        tokio::spawn(exchange(resolver, connection, early, Arc::clone(shared), stay.clone()));
    };
    loop {
        tokio::select! {
            request = requests.accept() => match request? {
                Some(resolver) => begin(resolver),
                None => return Ok(()),
            },
            () = ending.takes_nothing_new() => break,
        }
    }
    // RFC 9114, Section 5.2: no further requests, but those that are here are answered.
    requests.shutdown(0).await?;
    while let Some(resolver) = requests.accept().await? {
        begin(resolver);
    }
    delivered(connection).await;
    Ok(())
}

/// Waits until the client has acknowledged all data, or is gone: the last answers would be cut off.
async fn delivered(connection: &quicket::tokio::Connection) {
    /// How often to look.
    const LOOK: Duration = Duration::from_millis(20);
    while connection.close_reason().is_none() && connection.stats().send_buffered > 0 {
        tokio::time::sleep(LOOK).await;
    }
}

type Resolver = RequestResolver<quicket_h3::Connection, Bytes>;

async fn exchange(
    resolver: Resolver,
    connection: quicket::tokio::Connection,
    early: EarlyStreams,
    shared: Arc<Shared>,
    stay: Stay,
) {
    let limits = shared.current().0.limits;
    let resolved = match timeout(limits.header_timeout, quicket_h3::resolve(resolver)).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            shared.metrics.refused("malformed HTTP/3");
            return log::debug!("{}: no request: {error}", connection.remote_addr());
        }
        // Dropped, the stream is reset.
        Err(_) => {
            shared.metrics.refused("a header section that took too long");
            return log::debug!("{}: a request took too long", connection.remote_addr());
        }
    };
    let (request, stream) = resolved;
    let is_early = early.contains(stream.id());
    let client = Client {
        address: connection.remote_addr(),
        early: is_early.then(|| connection.clone()),
        alt_svc: None,
        stay,
    };
    let (mut sending, receiving) = stream.split();
    let is_websocket = request.extensions().get::<WebSocket>().is_some();
    let mut request = with_body(request, receiving);
    let mut tunnel = None;
    if is_websocket {
        let (near, far) = tokio::io::duplex(TUNNEL_BUFFER);
        let body =
            std::mem::replace(request.body_mut(), Empty::new().map_err(Into::into).boxed_unsync());
        request.extensions_mut().insert(upgrade::Stream::new(near));
        tunnel = Some((body, far));
    }
    let mut response = proxy::answer(&shared, client, request).await;
    if let Some((body, far)) = tunnel
        && upgrade::is_upgraded(&response)
    {
        *response.body_mut() = carry(body, far);
    }
    if let Err(code) = send(response, &mut sending, limits.body_timeout).await {
        sending.stop_stream(code);
    }
}

/// Carries the client's data into a tunnel; what comes out of it is the body of the answer.
fn carry(mut body: Body, far: DuplexStream) -> Body {
    let (reading, mut writing) = tokio::io::split(far);
    // It ends with the client's data, or when the tunnel takes no more.
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { break };
            if writing.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = writing.shutdown().await;
    });
    Outgoing(reading).boxed_unsync()
}

/// What comes out of a tunnel.
struct Outgoing(ReadHalf<DuplexStream>);

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut buffer = [0; 8 << 10];
        let mut read = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        let data = Bytes::copy_from_slice(read.filled());
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }
}

/// The request with its body, as others know it.
fn with_body(request: Request<()>, stream: RequestStream<RecvStream, Bytes>) -> Request<Body> {
    let (mut parts, ()) = request.into_parts();
    parts.version = Version::HTTP_3;
    // What is no length is refused later.
    let expected = content_length(&parts.headers).ok().flatten();
    let body = Incoming { stream, expected, received: 0, state: State::Data };
    Request::from_parts(parts, body.boxed_unsync())
}

/// What follows of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Data,
    Trailers,
    End,
}

/// The body of a request.
struct Incoming {
    stream: RequestStream<RecvStream, Bytes>,
    /// The length that the client has announced.
    expected: Option<u64>,
    received: u64,
    state: State,
}

impl Incoming {
    /// RFC 9114, Section 4.1.2: a body of another length than announced is malformed. To an origin it
    /// could be the beginning of another request.
    fn check(&mut self, is_end: bool) -> Result<(), BodyError> {
        let is_wrong = self.expected.is_some_and(|expected| {
            self.received > expected || (is_end && self.received < expected)
        });
        if !is_wrong {
            return Ok(());
        }
        self.stream.stop_sending(Code::H3_MESSAGE_ERROR);
        Err("the request's body has another length than announced".into())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.state == State::Data {
            let data = ready!(self.stream.poll_recv_data(cx))?;
            if let Some(mut data) = data {
                let data = data.copy_to_bytes(data.remaining());
                self.received = self.received.saturating_add(data.len() as u64);
                self.check(false)?;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.check(true)?;
            self.state = State::Trailers;
        }
        if self.state == State::Trailers {
            let trailers = ready!(self.stream.poll_recv_trailers(cx))?;
            self.state = State::End;
            if let Some(trailers) = trailers {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
        }
        Poll::Ready(None)
    }
}

impl http_body::Body for Incoming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.poll(cx);
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            self.state = State::End;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::End
    }

    fn size_hint(&self) -> SizeHint {
        match self.expected {
            Some(expected) => SizeHint::with_exact(expected.saturating_sub(self.received)),
            None => SizeHint::default(),
        }
    }
}

/// Sends an answer; fails with what the client is told instead of its end.
async fn send(
    response: Response<Body>,
    stream: &mut RequestStream<SendStream<Bytes>, Bytes>,
    patience: Duration,
) -> Result<(), Code> {
    const GONE: Code = Code::H3_REQUEST_CANCELLED;
    let (mut parts, mut body) = response.into_parts();
    parts.version = Version::HTTP_3;
    stream.send_response(Response::from_parts(parts, ())).await.map_err(|_| GONE)?;
    while let Some(frame) = body.frame().await {
        // The client must not take the part for the whole.
        let frame = frame.map_err(|_| Code::H3_INTERNAL_ERROR)?;
        let sent = match frame.into_data() {
            Ok(data) if data.is_empty() => continue,
            // A client that takes nothing is not waited for for ever.
            Ok(data) => timeout(patience, stream.send_data(data)).await,
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => timeout(patience, stream.send_trailers(trailers)).await,
                Err(_) => continue,
            },
        };
        sent.map_err(|_| Code::H3_EXCESSIVE_LOAD)?.map_err(|_| GONE)?;
    }
    stream.finish().await.map_err(|_| GONE)
}
