//! HTTP/3 (RFC 9114).

mod aside;
mod incoming;
mod outgoing;
mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, StreamError};
use h3::server::{self, RequestResolver, RequestStream};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use quicket_front::{Counted, UnderWay};
use quicket_h3::{BidiStream, Requests, Transfer, Violation, WebSocket};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use crate::Body;
use crate::boxed::boxed;
use crate::credentials::Credentials;
use crate::headers;
use crate::origin::Hints;
use crate::proxy::{self, Client};
use crate::tunnel::Stay;
use crate::upgrade;
use aside::Aside;
use incoming::Incoming;
use outgoing::Outgoing;
use tunnel::{carry, ends};

/// Heads that come before the answer and wait to be sent.
const INTERIM: usize = 4;

/// What a client is told before the answer (RFC 9110, Section 15.2).
enum Interim {
    /// It should send its body.
    Continue,
    /// What the answer will probably say (RFC 8297).
    EarlyHints(Box<HeaderMap>),
}

impl Interim {
    fn head(self) -> Response<()> {
        let (status, mut fields) = match self {
            Self::Continue => return head(StatusCode::CONTINUE, HeaderMap::new()),
            Self::EarlyHints(fields) => (StatusCode::EARLY_HINTS, *fields),
        };
        headers::to_client(&mut fields, Version::HTTP_3);
        head(status, fields)
    }
}

fn head(status: StatusCode, fields: HeaderMap) -> Response<()> {
    let mut head = Response::new(());
    *head.status_mut() = status;
    *head.headers_mut() = fields;
    head
}

/// What is known of a connection's requests.
struct Context {
    connection: quicket::tokio::Connection,
    requests: Requests,
    shared: Arc<Shared>,
    stay: Stay,
    credentials: Credentials,
}

/// Answers what comes on a connection until it ends or, once the gateway stops, until all that is
/// under way is answered.
#[expect(
    clippy::manual_async_fn,
    reason = "what a block takes is in its future once, the arguments of an `async fn` twice"
)]
pub(crate) fn serve(
    connection: quicket::tokio::Connection,
    shared: Arc<Shared>,
) -> impl Future<Output = ()> + Send {
    async move {
        let _open = shared.metrics.connected("h3");
        let _followed = shared.metrics.follow("h3", &connection);
        if let Err(error) = accept(&connection, &shared).await
            && !error.is_h3_no_error()
        {
            if let Some(violation) = Violation::of_connection(&error) {
                shared.metrics.refused(violation.reason);
            }
            log::debug!("{}: {error}", connection.remote_addr());
        }
        connection.close(Code::H3_NO_ERROR.value(), b"");
        connection.closed().await;
    }
}

async fn accept(
    connection: &quicket::tokio::Connection,
    shared: &Arc<Shared>,
) -> Result<(), h3::error::ConnectionError> {
    // What its tickets promise is settled already, and a reload since then is for those that come after it.
    let promised = connection
        .application_limits()
        .and_then(|[header_bytes, ..]| u32::try_from(header_bytes).ok());
    let Some(header_bytes) = promised else {
        log::error!("{}: a handshake without limits", connection.remote_addr());
        return Ok(());
    };
    let (building, requests) = begin(connection, header_bytes);
    let (stay, under_way) = (shared.stay(), UnderWay::default());
    let (connection, shared) = (connection.clone(), Arc::clone(shared));
    let mut ending = shared.ending.clone();
    let mut stopping = Box::pin(async move { ending.takes_nothing_new().await });
    let credentials = Credentials::of_quic(&connection);
    let context = Context { connection: connection.clone(), requests, shared, stay, credentials };
    let context = Arc::new(context);
    let mut requests = building.await?;
    let limits = context.shared.current().0.limits;
    let patience = limits.body_timeout;
    let mut idle = Box::pin(under_way.idle(limits.idle_timeout));
    let has_client_ended = loop {
        tokio::select! {
            accepted = poll_fn(|cx| quicket_h3::poll_accept(&mut requests, cx)) => match accepted? {
                Some(resolver) => {
                    let (context, counted) = (Arc::clone(&context), under_way.count());
                    tokio::spawn(boxed(|| exchange(resolver, context, counted)));
                }
                None => break true,
            },
            () = &mut stopping => break false,
            // RFC 9114, Section 5.1: QUIC's own timeout does not end a connection whose client asks whether we are there.
            () = &mut idle => break false,
        }
    };
    if has_client_ended {
        Box::pin(requests.shutdown(0)).await?;
        Box::pin(delivered(&connection, patience)).await;
        return Ok(());
    }
    let drained = quicket_h3::drain(&mut requests, patience, under_way.ends());
    if Box::pin(drained).await? {
        Box::pin(delivered(&connection, patience)).await;
    } else {
        log::debug!("{}: it takes no GOAWAY", connection.remote_addr());
    }
    Ok(())
}

type Server = server::Connection<quicket_h3::Connection, Bytes>;
type Building = Pin<Box<dyn Future<Output = Result<Server, h3::error::ConnectionError>> + Send>>;

/// Begins HTTP/3 on a connection. In boxes, and in functions of their own, is what a connection is in only for a moment: its
/// task, which it keeps while it is idle, would have room for all of that.
fn begin(connection: &quicket::tokio::Connection, header_bytes: u32) -> (Building, Requests) {
    let transport = quicket_h3::Connection::server(connection.clone(), header_bytes as usize);
    let transport = transport.with_kept_sections();
    let requests = transport.requests();
    let mut builder = server::builder();
    // RFC 9220, Section 3: clients ask for WebSocket only where they are told that they may.
    builder.max_field_section_size(header_bytes.into()).enable_extended_connect(true);
    (Box::pin(async move { builder.build(transport).await }), requests)
}

/// Waits until the client has acknowledged all data and the ends of streams, or is gone: the last answers would be cut off.
/// One that takes nothing for as long as `patience` is not waited for.
async fn delivered(connection: &quicket::tokio::Connection, patience: Duration) {
    /// How often to look, at first and at last.
    const LOOK: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(200)];
    let (mut waiting, mut since, mut look) = (usize::MAX, Instant::now(), LOOK[0]);
    while connection.close_reason().is_none() && !connection.is_delivered() {
        let now = connection.stats().send_buffered;
        if now < waiting {
            (waiting, since) = (now, Instant::now());
        } else if since.elapsed() >= patience {
            return log::debug!("{}: it does not take {now} bytes", connection.remote_addr());
        }
        sleep(look).await;
        look = (look * 2).min(LOOK[1]);
    }
}

type Resolver = RequestResolver<quicket_h3::Connection, Bytes>;
type Resolved = (Request<()>, RequestStream<BidiStream<Bytes>, Bytes>);

/// Reads a request, for as long as it may take.
async fn read(
    resolver: Resolver,
    transfer: &Transfer,
    limit: Duration,
) -> Result<Result<Resolved, StreamError>, Elapsed> {
    let mut resolving = pin!(quicket_h3::resolve(resolver, transfer));
    // Mostly it is here as a whole: nothing is asked of the clock then.
    match poll_fn(|cx| Poll::Ready(resolving.as_mut().poll(cx))).await {
        Poll::Ready(resolved) => Ok(resolved),
        Poll::Pending => timeout(limit, resolving).await,
    }
}

async fn exchange(resolver: Resolver, context: Arc<Context>, counted: Counted) {
    let Context { connection, requests, shared, stay, credentials } = &*context;
    let limits = shared.current().0.limits;
    let id = resolver.frame_stream.id();
    // It is there until its stream is dropped or split. A request that is known is nothing without it.
    let Some(transfer) = requests.transfer(id) else {
        return log::error!("{}: a request of which nothing is known", connection.remote_addr());
    };
    let refused = |violation: Violation| {
        shared.metrics.refused(violation.reason);
        log::debug!("{}: {violation}", connection.remote_addr());
    };
    let resolved = match read(resolver, &transfer, limits.header_timeout).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            if let Some(violation) = Violation::of(&error) {
                refused(violation);
            }
            return log::debug!("{}: no request: {error}", connection.remote_addr());
        }
        // Dropped, the stream is reset.
        Err(_) => {
            shared.metrics.refused("a header section that took too long");
            return log::debug!("{}: a request took too long", connection.remote_addr());
        }
    };
    let (request, stream) = resolved;
    let client = Client {
        address: connection.remote_addr(),
        early: transfer.is_early().then(|| connection.clone()),
        credentials: credentials.clone(),
        alt_svc: None,
        stay: stay.clone(),
    };
    let (sending, receiving) = stream.split();
    let mut outgoing =
        Outgoing { stream: sending, transfer: &transfer, patience: limits.body_timeout };
    let aside = Aside::default();
    let hints = aside.clone();
    let mut body = Incoming::new(receiving, request.headers(), aside.clone(), limits.body_timeout);
    body.look().await;
    let mut request = request.map(|()| match body.is_end_stream() {
        true => Body::default(),
        false => body.boxed_unsync(),
    });
    if request.extensions().get::<WebSocket>().is_some() {
        // What becomes of its stream may be there for longer than its answer.
        request.extensions_mut().insert(counted.clone());
    }
    Hints::attach(&mut request, move |fields| {
        hints.tell(Interim::EarlyHints(Box::new(fields.clone())));
    });
    let sent = {
        // In its place from the beginning: it is large, and a move of it a copy of all.
        let mut answering = pin!(async {
            let response = answer(shared, client, request, &mut outgoing, &aside).await?;
            match aside.refused() {
                // Another thread may have found it just now: the answer is that the body did not end.
                Some(violation) => Err(violation.code),
                None => outgoing.send(response).await,
            }
        });
        // What is malformed is told of by the stream's end, whatever the origin says.
        tokio::select! {
            biased;
            violation = aside.refusal() => Err(violation.code),
            sent = &mut answering => sent,
        }
    };
    if let Some(violation) = aside.refused() {
        refused(violation);
    }
    if let Err(code) = sent {
        outgoing.stream.stop_stream(code);
    }
}

/// The answer to a request, where what comes before it was sent; fails with what the client is told instead.
async fn answer(
    shared: &Shared,
    client: Client,
    mut request: Request<Body>,
    outgoing: &mut Outgoing<'_>,
    aside: &Aside,
) -> Result<Response<Body>, Code> {
    *request.version_mut() = Version::HTTP_3;
    let mut tunnel = None;
    if request.extensions().get::<WebSocket>().is_some() {
        let (near, far) = ends();
        let body =
            std::mem::replace(request.body_mut(), Empty::new().map_err(Into::into).boxed_unsync());
        request.extensions_mut().insert(upgrade::Stream::new(near));
        tunnel = Some((body, far));
    }
    let mut answering = pin!(proxy::answer(shared, client, request));
    let mut response = loop {
        tokio::select! {
            biased;
            interim = aside.interim() => outgoing.send_head(interim.head()).await?,
            response = &mut answering => break response,
        }
    };
    // What came just before the answer.
    while let Some(hints @ Interim::EarlyHints(_)) = aside.told() {
        outgoing.send_head(hints.head()).await?;
    }
    if let Some((body, far)) = tunnel
        && upgrade::is_upgraded(&response)
    {
        aside.become_tunnel();
        *response.body_mut() = carry(body, far);
    }
    Ok(response)
}
