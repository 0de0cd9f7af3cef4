//! Active health checks: each server is asked now and then, whether requests come or not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Uri};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::idle::Clock;
use super::pool::{Failed, Wanted};
use super::server::Server;
use super::{Origin, empty};

/// What is read of an answer to a check, in bytes. After a longer one the connection is given up.
const MAX_ANSWER: usize = 64 << 10;

/// How the servers of an origin are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRules {
    /// What is asked for, by GET.
    pub path: PathAndQuery,
    /// The host that is asked for.
    pub host: HeaderValue,
    /// How often.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
    /// The statuses of a server that is well.
    pub expect: Vec<u16>,
    /// After so many good answers in a row a server that was not well is.
    pub healthy_after: u32,
    /// After so many bad ones it is not.
    pub unhealthy_after: u32,
}

/// Checks that go on until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Check>);

/// How a server is checked at the moment.
#[derive(Debug)]
struct Check {
    server: Arc<Server>,
    rules: Arc<CheckRules>,
    task: AbortHandle,
}

impl Checks {
    /// Checks the servers of these origins from now on. Those that are checked already, by the same rules, have their
    /// turn when it comes: however often this is called, none is asked more often, and none has less time for its answer.
    pub(crate) fn take_up(&mut self, origins: &[Arc<Origin>], runtime: &Handle) {
        let before = std::mem::take(&mut self.0).into_iter();
        let mut before: HashMap<*const Server, Check> =
            before.map(|check| (Arc::as_ptr(&check.server), check)).collect();
        for origin in origins {
            let Some(rules) = &origin.check else { continue };
            for server in origin.servers() {
                let known = before.remove(&Arc::as_ptr(server));
                let check = known.filter(|check| check.rules == *rules);
                let begin = || Check::begin(Arc::clone(server), Arc::clone(rules), runtime);
                self.0.push(check.unwrap_or_else(begin));
            }
        }
    }
}

impl Check {
    fn begin(server: Arc<Server>, rules: Arc<CheckRules>, runtime: &Handle) -> Self {
        let watching = watch(Arc::clone(&server), Arc::clone(&rules));
        Self { server, rules, task: runtime.spawn(watching).abort_handle() }
    }
}

impl Drop for Check {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(server: Arc<Server>, rules: Arc<CheckRules>) {
    let mut times = tokio::time::interval(rules.interval);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        times.tick().await;
        let (clock, granted) = (Clock::now(), server.granted());
        let result = tokio::time::timeout(rules.timeout, ask(&server, &rules, &clock)).await;
        let result = match result {
            // A server that has no time for a check has it for requests.
            Err(_) if clock.is_held() && !server.gives_up_stuck(granted) => continue,
            Ok(Err(Failed::Busy(_) | Failed::Lack(_))) => continue,
            Ok(result) => result.map_err(|failed| Server::reason(&failed)),
            Err(_) => Err("no answer in time".to_owned()),
        };
        if server.health.checked(result.is_ok(), rules.healthy_after, rules.unhealthy_after) {
            match result {
                Ok(()) => log::warn!("{server} is well again"),
                Err(error) => log::warn!("{server} is not well: {error}"),
            }
        }
    }
}

async fn ask(server: &Arc<Server>, rules: &CheckRules, clock: &Clock) -> Result<(), Failed> {
    let mut wanted = Wanted { is_check: true, ..Wanted::default() };
    let answer = loop {
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.uri = Uri::from(rules.path.clone());
        parts.headers.insert(header::HOST, rules.host.clone());
        let agent = HeaderValue::from_static("quicket-health-check");
        parts.headers.insert(header::USER_AGENT, agent);
        match server.send(&parts, empty(), wanted, clock).await {
            Ok(answer) => break answer,
            // The server may have ended an idle connection just then.
            Err(Failed::Broken { is_reused: true, .. }) if !wanted.is_fresh => {
                wanted.is_fresh = true;
            }
            Err(failed) => return Err(failed),
        }
    };
    let wrong = |error| Failed::Broken { error, is_reused: false, is_unprocessed: false };
    let status = answer.status().as_u16();
    let (mut body, mut length) = (answer.into_body(), 0);
    while length < MAX_ANSWER
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(wrong)?;
        length += frame.data_ref().map_or(0, bytes::Bytes::len);
    }
    match rules.expect.contains(&status) {
        true => Ok(()),
        false => Err(wrong(format!("it answers {status}").into())),
    }
}
