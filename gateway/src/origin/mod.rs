//! Who answers: servers, which of them, and what if one does not.
//!
//! `place` says where a server is, `connect`, `tls` and `quic` reach it, `pool` keeps connections (`one` are those of HTTP/1.1, `two` those of
//! HTTP/2, `held` until the body of an answer has ended), as many as `seats` allows; requests wait in `line` for one, or for a stream. `three` has those of
//! HTTP/3, `message` writes requests as a version of HTTP wants them; `balance` and `health` choose among servers.

mod balance;
mod check;
mod connect;
mod first;
mod health;
mod held;
mod hints;
mod idle;
mod judged;
mod lack;
mod line;
mod message;
mod one;
mod place;
mod pool;
mod quic;
mod seats;
mod server;
mod sweep;
mod three;
mod tls;
mod two;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use quicket_front::Malformed;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use self::balance::{Asking, Chooser};
pub use self::check::CheckRules;
pub(crate) use self::check::Checks;
use self::connect::Dialer;
pub(crate) use self::hints::Hints;
pub(crate) use self::idle::{Clock, Watched};
use self::judged::Judge;
pub use self::place::Place;
use self::pool::{Failed, Wanted};
use self::server::{Server, UnderWay};
pub(crate) use self::three::InPages;
pub(crate) use self::tls::Tls;
pub use self::tls::TlsRules;
use crate::config::{Balance, HashBy};
use crate::request::is_safe;
use crate::resolve::{Resolve, Resolver};
use crate::{Body, BodyError};

/// Idle connections that are kept to one server.
const MAX_IDLE: usize = 64;
/// How long one is kept. Most servers close theirs after a minute or more: nginx after 75 s.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);
/// How often a request without a body goes to the same server again that has done nothing with it.
const MAX_AGAIN: usize = 3;
/// The largest header section of an answer, in bytes.
const MAX_ANSWER_HEADERS: usize = 64 << 10;

/// A connection to a server for HTTP/1.1, over TLS where its place says so, which is no origin's.
pub(crate) async fn dial(
    place: &Place,
    tls: Option<&Arc<Tls>>,
    limit: Duration,
) -> std::io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
    let dialer = Dialer::new(place, tls, limit, &Resolve::default());
    Ok(dialer.dial(true).await?.link)
}

/// What an origin may take, and how its servers are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How one of the servers is chosen.
    pub balance: Balance,
    /// How long a connection may take.
    pub connect: Duration,
    /// The longest that the addresses of a name count.
    pub resolve: Option<Duration>,
    /// How long an answer may take to begin, once the request is there.
    pub answer: Duration,
    /// How long a server may be silent in the middle of a body.
    pub idle: Duration,
    /// How many further servers a request is tried on.
    pub retries: usize,
    /// After so many failures in a row a server is left out ...
    pub max_failures: u32,
    /// ... for so long.
    pub pause: Duration,
    /// How long an upgraded connection may be silent.
    pub upgrade_idle: Duration,
    /// How many connections to each server there may be, those over QUIC apart.
    pub max_connections: usize,
}

/// Servers that answer the same requests.
#[derive(Debug)]
pub struct Origin {
    name: String,
    places: Vec<Place>,
    tls: Option<Arc<Tls>>,
    rules: Rules,
    /// Made, or taken over from the configuration before, when the first request comes.
    servers: OnceLock<Vec<Arc<Server>>>,
    chooser: Chooser,
    resolver: Arc<Resolver>,
    check: Option<Arc<CheckRules>>,
    /// What connections may be upgraded to, in lower case.
    upgrades: Vec<String>,
    /// Statuses of answers that are failures of the server, though they are passed on.
    fail_on: Vec<u16>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The origin has no server that could be asked.
    NoServer,
    /// There is no connection.
    Connection { server: String, error: String },
    /// The connection ended, or what came is no answer.
    Broken { server: String, error: String },
    /// It speaks nothing by which what is asked for could be done, which is no failure.
    Incapable { server: String, error: String },
    /// It has no room for more of what is asked for, which is no failure either.
    Full { server: String, error: String },
    /// It is there, and had no time for the request: no failure either.
    Busy { server: String, error: String },
    /// This system lacks something for a connection: no failure of the server's.
    Lack { server: String, what: &'static str },
    /// It takes too long.
    TimedOut { server: String },
    /// The client's part did not come to its end.
    Client(String),
    /// ... for it breaks the rules of HTTP/2.
    Malformed(String),
}

impl Unanswered {
    /// Of a body that did not come to its end.
    fn of_client(error: &BodyError) -> Self {
        let of = if error.is::<Malformed>() { Self::Malformed } else { Self::Client };
        of(error.to_string())
    }

    /// True if a server has failed, and none was asked for what it does not do.
    pub(crate) const fn is_of_server(&self) -> bool {
        !matches!(
            self,
            Self::Client(_)
                | Self::Malformed(_)
                | Self::Incapable { .. }
                | Self::Full { .. }
                | Self::Busy { .. }
                | Self::Lack { .. }
        )
    }
}

/// What was made of a request.
pub(crate) struct Outcome {
    pub(crate) answer: Result<Response<Body>, Unanswered>,
    /// The server that was asked last.
    pub(crate) server: Option<Arc<str>>,
    /// How many were asked.
    pub(crate) attempts: usize,
}

impl Origin {
    /// An origin of these servers.
    pub(crate) fn new(name: String, places: Vec<Place>, rules: Rules) -> Self {
        let weights = vec![1; places.len()];
        let chooser = chooser(&places, rules.balance, HashBy::default(), weights);
        Self {
            name,
            places,
            tls: None,
            rules,
            servers: OnceLock::new(),
            chooser,
            resolver: Resolve::default().resolver,
            check: None,
            upgrades: Vec::new(),
            fail_on: Vec::new(),
        }
    }

    /// The servers have these weights, and choices are made by this where they are made by a hash.
    pub(crate) fn weighing(mut self, weights: Vec<u32>, hash_by: HashBy) -> Self {
        self.chooser = chooser(&self.places, self.rules.balance, hash_by, weights);
        self
    }

    /// Names of servers are resolved by this.
    pub(crate) fn resolving(mut self, resolver: &Arc<Resolver>) -> Self {
        self.resolver = Arc::clone(resolver);
        self
    }

    /// The servers are checked by these rules.
    pub(crate) fn checked(mut self, rules: CheckRules) -> Self {
        self.check = Some(Arc::new(rules));
        self
    }

    /// Those of the servers that speak TLS are trusted by these rules.
    pub(crate) fn over_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(Arc::new(tls));
        self
    }

    /// Connections may be upgraded to these protocols.
    pub(crate) fn upgrading(mut self, upgrades: Vec<String>) -> Self {
        self.upgrades = upgrades;
        self
    }

    /// Answers with these statuses are failures.
    pub(crate) fn failing_on(mut self, statuses: Vec<u16>) -> Self {
        self.fail_on = statuses;
        self
    }

    pub(crate) fn upgrades(&self) -> &[String] {
        &self.upgrades
    }

    /// How long an upgraded connection may be silent.
    pub(crate) const fn upgrade_idle(&self) -> Duration {
        self.rules.upgrade_idle
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len()
    }

    fn servers(&self) -> &[Arc<Server>] {
        self.servers.get_or_init(|| self.dialers().map(|dialer| self.server(dialer)).collect())
    }

    /// The servers by their places: how many connections there are, and whether it is well.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (String, usize, bool)> {
        // Those that nobody has asked yet are not made.
        let servers = self.servers.get();
        self.places.iter().enumerate().map(move |(at, place)| {
            let server = servers.and_then(|servers| servers.get(at));
            let known = server.map(|server| (server.open(), server.health.is_well()));
            let (open, is_well) = known.unwrap_or((0, true));
            (place.to_string(), open, is_well)
        })
    }

    fn server(&self, dialer: Dialer) -> Arc<Server> {
        Server::new(dialer, self.rules.max_connections)
    }

    fn dialers(&self) -> impl Iterator<Item = Dialer> {
        let Rules { connect, resolve, .. } = self.rules;
        let tls = self.tls.as_ref();
        let resolve = Resolve { resolver: Arc::clone(&self.resolver), most: resolve };
        self.places.iter().map(move |place| Dialer::new(place, tls, connect, &resolve))
    }

    /// Takes over the servers of the configuration before that are the same, with their connections and
    /// what is known of their health; and whose turn it is, if all are.
    pub(crate) fn take_over(&self, before: &Self) {
        if self.places == before.places {
            self.chooser.take_over(&before.chooser);
        }
        let known = |dialer: &Dialer| {
            let server =
                before.servers.get()?.iter().find(|server| server.dialer().is_like(dialer))?;
            if self.check.is_none() {
                server.health.unchecked();
            }
            server.limit(self.rules.max_connections);
            Some(Arc::clone(server))
        };
        let servers =
            self.dialers().map(|dialer| known(&dialer).unwrap_or_else(|| self.server(dialer)));
        // Where requests came already, they have servers.
        let _ = self.servers.set(servers.collect());
    }

    /// Passes a request on, and its answer back. What can be repeated without harm is asked of
    /// another server if one fails.
    pub(crate) async fn ask(&self, client: IpAddr, parts: &Parts, body: Body) -> Outcome {
        let body = match first::known(parts, body).await {
            Ok(body) => body,
            Err(error) => {
                let answer = Err(Unanswered::of_client(&error));
                return Outcome { answer, server: None, attempts: 0 };
            }
        };
        let is_empty = body.is_end_stream();
        let can_repeat = is_safe(&parts.method) && is_empty;
        let attempts = if can_repeat { 1 + self.rules.retries } else { 1 };
        let mut asked: Vec<usize> = Vec::new();
        let mut first = Some(body);
        let mut last = Unanswered::NoServer;
        while asked.len() < attempts {
            let asking = Asking { client, parts, asked: &asked };
            let Some(at) = self.choose(&asking) else { break };
            asked.push(at);
            let server = &self.servers()[at];
            let body = first.take().unwrap_or_else(empty);
            match self.ask_server(server, parts, body).await {
                Ok(answer) => {
                    let server = Some(server.name());
                    return Outcome { answer: Ok(answer), server, attempts: asked.len() };
                }
                Err(error) => {
                    if error.is_of_server() {
                        server.health.failed(self.rules.max_failures, self.rules.pause);
                    }
                    last = error;
                }
            }
        }
        let server = asked.last().map(|&at| self.servers()[at].name());
        Outcome { answer: Err(last), server, attempts: asked.len() }
    }

    fn choose(&self, asking: &Asking<'_>) -> Option<usize> {
        let servers = self.servers();
        self.chooser.choose(asking, |at| servers[at].health.is_well(), |at| servers[at].active())
    }

    /// Asks one server; again if that is no fault of its: it ended an idle connection just then, or said that
    /// it did nothing with the request.
    async fn ask_server(
        &self,
        server: &Arc<Server>,
        parts: &Parts,
        body: Body,
    ) -> Result<Response<Body>, Unanswered> {
        let is_empty = body.is_end_stream();
        let is_safe = is_safe(&parts.method);
        let is_upgrade = parts.headers.contains_key(header::UPGRADE);
        let plain = Wanted { is_upgrade, ..Wanted::default() };
        let mut next = (body, plain);
        let mut left = MAX_AGAIN;
        loop {
            let (body, wanted) = next;
            let failed = match self.ask_once(server, parts, body, wanted).await {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Over(unanswered)) => return Err(unanswered),
                Err(Attempt::Failed(failed)) => failed,
            };
            let wanted = match &failed {
                Failed::Broken { is_unprocessed: true, .. } => plain,
                Failed::Broken { is_reused: true, .. } if is_safe => {
                    Wanted { is_fresh: true, ..plain }
                }
                _ => return Err(server.explain(&failed)),
            };
            if !is_empty || left == 0 {
                return Err(server.explain(&failed));
            }
            next = (empty(), wanted);
            left -= 1;
        }
    }

    async fn ask_once(
        &self,
        server: &Arc<Server>,
        parts: &Parts,
        body: Body,
        wanted: Wanted,
    ) -> Result<Response<Body>, Attempt> {
        let under_way = UnderWay::new(server);
        let clock = Clock::now();
        let body = match body.is_end_stream() {
            true => body,
            false => Watched::new(body, clock.clone()).boxed_unsync(),
        };
        let mut asking = std::pin::pin!(server.send(parts, body, wanted, &clock));
        // The time counts from the last of the request: a long upload is no slow answer.
        let answer = loop {
            let until = clock.last() + self.rules.answer;
            tokio::select! {
                answer = &mut asking => break answer,
                () = tokio::time::sleep_until(until) => if clock.last() + self.rules.answer <= Instant::now() {
                    return Err(Attempt::Over(Unanswered::TimedOut { server: server.to_string() }));
                }
            }
        };
        let answer = answer.map_err(Attempt::Failed)?;
        // RFC 9110, Section 15.2.2. The client would wait for an answer, or speak another protocol.
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS && !wanted.is_upgrade {
            let error = "it switched protocols, and nobody had asked for that".to_owned();
            return Err(Attempt::Over(Unanswered::Broken { server: server.to_string(), error }));
        }
        let (parts, body) = answer.into_parts();
        let body = Watched::with_limit(body, self.rules.idle, "the origin");
        let body = if self.fail_on.contains(&parts.status.as_u16()) {
            server.health.failed(self.rules.max_failures, self.rules.pause);
            Judge::settled(body, under_way, self.rules)
        } else if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            server.health.succeeded();
            Judge::settled(body, under_way, self.rules)
        } else {
            Judge::body(body, under_way, self.rules)
        };
        Ok(Response::from_parts(parts, body))
    }
}

fn chooser(places: &[Place], balance: Balance, by: HashBy, weights: Vec<u32>) -> Chooser {
    let names: Vec<String> = places.iter().map(ToString::to_string).collect();
    Chooser::new(balance, by, &names, weights)
}

/// How an attempt came out that brought no answer.
enum Attempt {
    /// There is no point in another one.
    Over(Unanswered),
    Failed(Failed),
}

fn empty() -> Body {
    Empty::new().map_err(|never| -> BodyError { match never {} }).boxed_unsync()
}

#[cfg(test)]
impl Rules {
    pub(crate) fn for_tests() -> Self {
        let second = Duration::from_secs(1);
        Self {
            balance: Balance::RoundRobin,
            connect: second,
            resolve: Some(second),
            answer: second,
            idle: second,
            retries: 1,
            max_failures: 2,
            pause: second,
            upgrade_idle: second,
            max_connections: 100,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    /// A body that begins, and breaks off.
    struct Broken(bool);

    impl http_body::Body for Broken {
        type Data = bytes::Bytes;
        type Error = BodyError;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, BodyError>>> {
            std::task::Poll::Ready(Some(match std::mem::replace(&mut self.0, true) {
                false => Ok(http_body::Frame::data(bytes::Bytes::from_static(b"a"))),
                true => Err("the client is gone".into()),
            }))
        }
    }

    #[tokio::test]
    async fn a_client_that_breaks_off_does_not_have_a_server_left_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Place::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        });
        let rules = Rules { max_failures: 1, pause: Duration::from_secs(60), ..Rules::for_tests() };
        let origin = Origin::new("a".to_owned(), vec![place], rules);
        let request = || Request::post("/").body(()).unwrap().into_parts().0;
        let outcome = origin
            .ask(IpAddr::from([127, 0, 0, 1]), &request(), Broken(false).boxed_unsync())
            .await;
        assert!(matches!(outcome.answer, Err(Unanswered::Client(_))), "{:?}", outcome.answer.err());
        assert!(origin.servers()[0].health.is_well());
        let whole = Empty::new().map_err(Into::into).boxed_unsync();
        let outcome = origin.ask(IpAddr::from([127, 0, 0, 1]), &request(), whole).await;
        assert!(
            matches!(outcome.answer, Err(Unanswered::TimedOut { .. })),
            "the server says nothing"
        );
        assert!(!origin.servers()[0].health.is_well());
    }
}
