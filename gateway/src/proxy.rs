//! One request, whatever it came by, to its origin and back.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use quicket_front::authority::host;
use tokio::time::timeout;

use crate::Body;
use crate::action::{self, Action};
use crate::clients::Clients;
use crate::compress;
use crate::config::EarlyData;
use crate::credentials::{self, Credentials, Fields, Shown};
use crate::front::Shared;
use crate::headers::{self, Asked, EARLY_DATA};
use crate::log_line::{Followed, Record};
use crate::metrics::{Metrics, RouteMetrics};
use crate::origin::{Origin, Outcome, Unanswered, Watched};
use crate::pace::{Flow, Payers, Rate};
use crate::quota::Taken;
use crate::request::{self, Refusal, is_safe};
use crate::route::{Route, Site};
use crate::snapshot::Snapshot;
use crate::spans;
use crate::trailers::Filter;
use crate::tunnel::Stay;
use crate::upgrade::{self, Wish};

/// Who asks, and by what.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// The connection, if the request came as 0-RTT data.
    pub(crate) early: Option<quicket::tokio::Connection>,
    /// The certificate that the connection has shown.
    pub(crate) credentials: Credentials,
    /// What the client is told of other ways to this gateway (RFC 7838).
    pub(crate) alt_svc: Option<HeaderValue>,
    /// How long what follows an upgrade may last.
    pub(crate) stay: Stay,
}

/// Answers a request. Only its body can fail, once the answer has begun.
pub(crate) async fn answer(
    shared: &Shared,
    client: Client,
    request: Request<Body>,
) -> Response<Body> {
    let (snapshot, log) = shared.current();
    let begun = Instant::now();
    let mut record = Record::of(&log, &request, client.address, client.early.is_some());
    let wishes = compress::wishes(request.headers());
    let (version, is_head) = (request.version(), request.method() == Method::HEAD);
    let alt_svc = client.alt_svc.clone();
    let rate = snapshot.limits.client.bytes_per_second;
    let payer = rate.map(|rate| (Arc::clone(&shared.clients), client.address.ip(), rate));
    let mut way = Way { payer, ..Way::default() };
    let expects = request.headers().contains_key(header::EXPECT);
    let (mut parts, body) = request.into_parts();
    record.span = shared.spans.begin(snapshot.traces.as_ref(), &mut parts, client.address);
    let mut body = Some(body);
    let counted = shared.clients.ask(client.address.ip(), &snapshot.limits.client);
    let (counted, outcome) = match counted {
        Ok(counted) => {
            let (metrics, asked) = (&shared.metrics, (parts, &mut body));
            // Without a name of its own: it is large, and a move of it a copy of all.
            (counted, pass_on(&snapshot, metrics, client, asked, &mut way, &mut record).await)
        }
        Err(exceeded) => (None, Err(exceeded.into())),
    };
    // Where it is in doubt where a request ends, nothing more is read of its connection (RFC 9112, Section 6.3).
    let is_doubtful = version <= Version::HTTP_11
        && outcome.as_ref().is_err_and(|refusal| matches!(refusal.status.as_u16(), 400 | 501));
    if let Some(body) = body.take().filter(|_| !is_doubtful && !expects) {
        Box::pin(drain(body)).await;
    }
    let mut response = match outcome {
        Ok(response) => response,
        Err(refusal) => {
            // Of those the connection counts each, whether it has come as far as here or not.
            if refusal.reason != request::MALFORMED_TWO {
                shared.metrics.refused(refusal.reason);
            }
            record.error = Some(refusal.reason.to_owned());
            way.said(refusal)
        }
    };
    headers::to_client(response.headers_mut(), version);
    way.finish(response.headers_mut());
    upgrade::finish(&mut response);
    let may_compress = !upgrade::is_upgraded(&response);
    if may_compress && way.route.is_some_and(|route| route.compress) {
        response = Box::pin(compress::compress(&wishes, response)).await;
    }
    if let Some(alt_svc) = alt_svc {
        response.headers_mut().insert(header::ALT_SVC, alt_svc);
    }
    if is_doubtful {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    record.status = response.status().as_u16();
    if is_head {
        response = response.map(|_| Empty::new().map_err(Into::into).boxed_unsync());
    }
    let counted = (counted, way.under_way.take());
    let followed = Followed::new(log, record, begun, way.counters(), counted);
    response.map(|body| followed.body(way.paced(Flow::Sent, body)))
}

/// Reads what little is left of a request that no origin gets: many clients take it ill if their stream or
/// connection is reset beside the answer (RFC 9113, Section 8.1; RFC 9112, Section 9.6).
async fn drain(mut body: Body) {
    /// The most that is read, in bytes.
    const MOST: usize = 64 << 10;
    /// How long it may take.
    const PATIENCE: Duration = Duration::from_millis(500);
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MOST {
                return;
            }
        }
    };
    let _ = timeout(PATIENCE, reading).await;
}

/// The site and the route that a request takes, as far as they are known.
#[derive(Clone, Default)]
struct Way<'a> {
    site: Option<&'a Site>,
    route: Option<&'a Route>,
    /// The client, if what it sends and gets is limited.
    payer: Option<(Arc<Clients>, IpAddr, u64)>,
    /// Counts for the site.
    under_way: Option<Arc<Taken>>,
}

async fn pass_on<'a>(
    snapshot: &'a Snapshot,
    metrics: &Metrics,
    client: Client,
    (mut parts, body): (Parts, &mut Option<Body>),
    way: &mut Way<'a>,
    record: &mut Record,
) -> Result<Response<Body>, Refusal> {
    let authority = request::check(&parts)?;
    request::normalise(&mut parts)?;
    if let Some(body) = body.as_mut().filter(|body| request::is_in_doubt(&parts, body)) {
        Box::pin(request::settle_empty(body, snapshot.limits.body_timeout)).await?;
    }
    if headers::goes_round(&parts.headers) {
        return Err(Refusal::new(StatusCode::LOOP_DETECTED, "the request goes round in circles"));
    }
    let wish = Wish::take(&mut parts, body.as_ref().is_some_and(http_body::Body::is_end_stream));
    let site = snapshot.sites.find(&authority)?;
    way.site = Some(site);
    let counted = site.quota.take().map_err(|over| {
        over.explain("too many requests of one site", "requests of one site come too fast")
    });
    way.under_way = counted.map_err(Refusal::of_site)?.map(Arc::new);
    let credentials = client.credentials.clone();
    let shown = match &site.rule {
        Some(rule) => {
            if let Some(early) = &client.early {
                Box::pin(established(early)).await?;
            }
            let own = |name: Option<&str>| snapshot.rule_of_site(name);
            let met = credentials.meet(rule, own, metrics);
            let misdirected = |reason| Refusal::new(StatusCode::MISDIRECTED_REQUEST, reason);
            let shown = met.map_err(misdirected)?;
            record.client_certificate = shown.fingerprint();
            Some((shown, &rule.fields))
        }
        None => None,
    };
    let route = site.find(&parts)?;
    way.route = Some(route);
    record.takes(route.prefix.as_str());
    let wish = wish.map(|wish| wish.allow(route.action.upgrades())).transpose()?.flatten();
    // What follows an upgrade is not safe to repeat.
    let method = if wish.is_some() { &Method::CONNECT } else { &parts.method };
    let came_early = client.early.is_some();
    // A client that says so passes on somebody else's request, and is told of 425 (RFC 8470, Section 5.2).
    let again = client.early.clone().filter(|_| !parts.headers.contains_key(EARLY_DATA));
    let is_early = match client.early {
        Some(early) => Box::pin(settle(early, route, method)).await?,
        None => false,
    };
    if came_early {
        metrics.early(is_early);
    }
    let wish = wish.map(|wish| (wish, client.stay));
    let target = Target {
        address: client.address,
        authority: &authority,
        is_early,
        wish,
        payers: way.payers(),
        fields: &snapshot.certificate_fields,
        shown,
    };
    match &route.action {
        Action::Origin(origin) => {
            rewrite(&mut parts, route)?;
            let limit = snapshot.limits.body_timeout;
            let body = body.take().unwrap_or_default();
            let again = again.filter(|_| is_early && body.is_end_stream());
            let again = again.map(|connection| (connection, parts.clone()));
            let body = match body.is_end_stream() {
                // There is nothing to be watched, counted or cleaned, and the stream that it came by may go.
                true => Body::default(),
                false => {
                    let body = Watched::with_limit(body, limit, "the client");
                    let body = way.paced(Flow::Received, way.counted(body.boxed_unsync()));
                    let others = &snapshot.certificate_fields;
                    Filter::new(&parts.headers, &route.to_origin, others).clean(body)
                }
            };
            let answer = ask(origin, route, target, parts, body, (metrics, &mut *record)).await?;
            let (connection, parts) = match again {
                Some(again) if answer.status() == StatusCode::TOO_EARLY => again,
                _ => return Ok(answer),
            };
            // RFC 8470, Section 5.2: whoever made it early may ask again, once it is sure that nobody repeats it.
            drop(answer);
            Box::pin(established(&connection)).await?;
            let target = Target {
                address: client.address,
                authority: &authority,
                is_early: false,
                wish: None,
                payers: Payers::default(),
                fields: &snapshot.certificate_fields,
                shown,
            };
            let again = ask(origin, route, target, parts, Body::default(), (metrics, record));
            Box::pin(again).await
        }
        Action::Files(directory) => {
            let path = route.rewritten(parts.uri.path());
            let path = path.as_deref().unwrap_or(parts.uri.path());
            let answer = Box::pin(directory.answer(&parts, path)).await;
            let answer = answer.map_err(|error| {
                record.detail = Some(error.to_string());
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read")
            })?;
            Ok(way.page(answer))
        }
        Action::Redirect(redirect) => {
            let rest = route.rest(parts.uri.path()).unwrap_or_default();
            Ok(redirect.answer(&parts, host(&authority), rest))
        }
        Action::Respond(respond) => Ok(respond.answer()),
    }
}

/// Who asks for what.
struct Target<'a> {
    address: SocketAddr,
    authority: &'a str,
    is_early: bool,
    /// An upgrade, and how long what follows may last.
    wish: Option<(Wish, Stay)>,
    /// Who pays for what follows.
    payers: Payers,
    /// In which nobody but the gateway tells of certificates.
    fields: &'a [HeaderName],
    /// The client's certificate, and in which of them the origin is told.
    shown: Option<(&'a Shown, &'a Fields)>,
}

/// Asks an origin.
async fn ask(
    origin: &Origin,
    route: &Route,
    target: Target<'_>,
    mut parts: Parts,
    body: Body,
    (metrics, record): (&Metrics, &mut Record),
) -> Result<Response<Body>, Refusal> {
    let Target { address: client, authority, is_early, mut wish, payers, fields, shown } = target;
    let asked = Asked { client, authority, version: parts.version, is_early };
    headers::to_origin(&mut parts.headers, &asked);
    credentials::remove_forged(&mut parts.headers, fields);
    if let Some((shown, fields)) = shown {
        shown.tell(fields, &mut parts.headers);
    }
    let call = record.span.as_ref().map(|span| span.call(origin.name(), &mut parts));
    route.to_origin.apply_to_request(&mut parts.headers);
    if let Some((wish, _)) = &mut wish {
        wish.ask(&mut parts.headers)?;
    }
    let Outcome { answer, server, attempts } = origin.ask(client.ip(), &parts, body).await;
    record.asks(origin.name(), server.as_deref(), attempts);
    let answer = spans::answered(call, answer, server.as_deref(), attempts);
    metrics.retried(attempts.saturating_sub(1));
    match &answer {
        Err(Unanswered::Full { .. } | Unanswered::Busy { .. }) => {
            metrics.origin_busy(origin.name(), server.as_deref());
        }
        Err(error) if error.is_of_server() => {
            metrics.origin_failed(origin.name(), server.as_deref());
        }
        _ => {}
    }
    let answer = answer.map_err(|error| refusal(error, record))?;
    let filter = Filter::new(answer.headers(), &route.to_client, &[]);
    let answer = answer.map(|body| filter.clean(body));
    match wish {
        Some((wish, stay)) => {
            let tunnel = stay.tunnel(origin.upgrade_idle()).paid_by(payers);
            let tunnel = tunnel.counted_by(metrics.tunnel(wish.protocol()));
            wish.settle(answer, tunnel)
        }
        None => Ok(answer),
    }
}

/// Gives the path the prefix that the route demands.
fn rewrite(parts: &mut Parts, route: &Route) -> Result<(), Refusal> {
    match route.rewritten(parts.uri.path()) {
        Some(target) => request::replace_path(parts, target),
        None => Ok(()),
    }
}

/// True if a request that came as 0-RTT data goes on as such. Others wait until it is sure that they
/// were not repeated: a client would show its user the 425 (Too Early) that it could get instead.
async fn settle(
    connection: quicket::tokio::Connection,
    route: &Route,
    method: &Method,
) -> Result<bool, Refusal> {
    if route.early_data == EarlyData::Safe && is_safe(method) {
        return Ok(true);
    }
    established(&connection).await.map(|()| false)
}

async fn established(connection: &quicket::tokio::Connection) -> Result<(), Refusal> {
    let waited = connection.wait_established().await;
    waited.map_err(|_| Refusal::new(StatusCode::TOO_EARLY, "the handshake failed"))
}

/// What the client is told where there is no answer; the log has the whole.
fn refusal(error: Unanswered, record: &mut Record) -> Refusal {
    let (status, reason, detail) = match error {
        Unanswered::NoServer => {
            (StatusCode::SERVICE_UNAVAILABLE, "the origin has no server", String::new())
        }
        Unanswered::Connection { server, error } => {
            (StatusCode::BAD_GATEWAY, "the origin cannot be reached", format!("{server}: {error}"))
        }
        Unanswered::Broken { server, error } => (
            StatusCode::BAD_GATEWAY,
            "the origin gave no right answer",
            format!("{server}: {error}"),
        ),
        Unanswered::Incapable { server, error } => (
            StatusCode::BAD_GATEWAY,
            "the origin cannot do what is asked for",
            format!("{server}: {error}"),
        ),
        Unanswered::Full { server, error } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the origin has no room for more of this",
            format!("{server}: {error}"),
        ),
        Unanswered::Busy { server, error } => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the origin takes no more requests at the moment",
            format!("{server}: {error}"),
        ),
        Unanswered::Lack { server, what } => (StatusCode::SERVICE_UNAVAILABLE, what, server),
        Unanswered::TimedOut { server } => {
            (StatusCode::GATEWAY_TIMEOUT, "the origin takes too long", server)
        }
        Unanswered::Client(error) => (StatusCode::REQUEST_TIMEOUT, request::NOT_ENDED, error),
        Unanswered::Malformed(error) => (StatusCode::BAD_REQUEST, request::MALFORMED_TWO, error),
    };
    record.detail = Some(detail).filter(|detail| !detail.is_empty());
    Refusal::new(status, reason)
}

impl Way<'_> {
    fn counters(&self) -> Option<Arc<RouteMetrics>> {
        self.route.and_then(|route| route.metrics.get().cloned())
    }

    /// A request's body whose bytes are counted.
    fn counted(&self, body: Body) -> Body {
        let Some(counters) = self.counters().filter(|_| !body.is_end_stream()) else { return body };
        let counted = body.map_frame(move |frame| {
            counters.received.inc_by(frame.data_ref().map_or(0, |data| data.len() as u64));
            frame
        });
        counted.boxed_unsync()
    }

    /// A body that flows as fast as the file allows.
    fn paced(&self, flow: Flow, body: Body) -> Body {
        self.payers().pace(flow, body)
    }

    fn payers(&self) -> Payers {
        let service = self.site.and_then(|site| site.rate.as_ref()).map(Rate::account);
        Payers { service, client: self.payer.clone() }
    }

    /// What the client is told instead of an answer.
    fn said(&self, refusal: Refusal) -> Response<Body> {
        let text = format!("{}: {}\n", refusal.status, refusal.reason);
        let mut response = action::answer(refusal.status, Bytes::from(text));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.extend(refusal.retry_after.map(|seconds| (header::RETRY_AFTER, seconds.into())));
        if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
            let allowed: Vec<&str> = refusal.allowed.iter().map(Method::as_str).collect();
            // Methods are tokens, which values may hold.
            fields.extend(
                HeaderValue::from_str(&allowed.join(", ")).ok().map(|all| (header::ALLOW, all)),
            );
        }
        self.page(response)
    }

    /// The site's own page for this status, if it has one.
    fn page(&self, mut response: Response<Body>) -> Response<Body> {
        let Some(page) = self.site.and_then(|site| site.pages.get(response.status())) else {
            return response;
        };
        response.headers_mut().insert(header::CONTENT_TYPE, page.content_type.clone());
        response.headers_mut().insert(header::CONTENT_LENGTH, page.body.len().into());
        response.map(|_| action::body(page.body.clone()))
    }

    /// What the file demands of an answer's fields.
    fn finish(&self, headers: &mut HeaderMap) {
        if let Some(hsts) = self.site.and_then(|site| site.hsts.as_ref()) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        if let Some(route) = self.route {
            route.to_client.apply(headers);
        }
    }
}
