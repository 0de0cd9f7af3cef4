//! The origins of a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use quicket::Identity;
use serde::Deserialize;

use super::check::Problems;
use crate::origin::{self, CheckRules, Place, Tls, TlsRules};
use crate::resolve::Resolver;

/// The largest share of a server.
const MAX_WEIGHT: u32 = 1000;
/// The most servers of an origin.
const MAX_SERVERS: usize = 1000;

/// Servers that answer the same requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// The servers: `http://HOST[:PORT]` and `unix:/PATH` for HTTP/1.1; `h2c://HOST[:PORT]` and
    /// `h2c+unix:/PATH` for HTTP/2 without TLS; `https://HOST[:PORT]` for HTTP/2 or HTTP/1.1 over TLS 1.3 or 1.2;
    /// `h3://HOST[:PORT]` for HTTP/3.
    pub servers: Vec<Server>,
    /// A file of PEM with the certificates that those with TLS are trusted by; the system's if there is none.
    pub ca: Option<PathBuf>,
    /// The name in the certificates of those with TLS, where it is not the host.
    pub server_name: Option<String>,
    /// The gateway's own certificate chain, for servers that ask for one: a file of PEM ...
    pub client_chain: Option<PathBuf>,
    /// ... and its private key.
    pub client_key: Option<PathBuf>,
    /// How one of them is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// What `consistent-hash` hashes.
    pub hash_by: Option<HashBy>,
    /// What connections may be upgraded to, if the server agrees: `websocket` and others, not `h2c`.
    #[serde(default = "default_upgrade")]
    pub upgrade: Vec<String>,
    /// How long an upgraded connection may be silent, in milliseconds.
    #[serde(default = "default_upgrade_idle")]
    pub upgrade_idle_timeout_ms: u64,
    /// How the servers are checked; only by the requests that they get if there is nothing.
    pub health_check: Option<HealthCheck>,
    /// How long a connection to a server may take, in milliseconds.
    #[serde(default = "default_connect")]
    pub connect_timeout_ms: u64,
    /// The longest that the addresses of a server's name count, in milliseconds. DNS says how long they do, of which up to an
    /// hour counts if this is not given; 30 s where nothing is said.
    #[serde(default)]
    pub resolve_ms: Option<u64>,
    /// How long a server may take to begin its answer, in milliseconds.
    #[serde(default = "default_answer")]
    pub answer_timeout_ms: u64,
    /// How long a server may be silent in the middle of a body, in milliseconds.
    #[serde(default = "default_answer")]
    pub idle_timeout_ms: u64,
    /// How many further servers a request is tried on, if it is safe to repeat.
    #[serde(default = "default_retries")]
    pub retries: usize,
    /// After so many failures in a row a server is left out ...
    #[serde(default = "default_failures")]
    pub max_failures: u32,
    /// ... for so long, in milliseconds.
    #[serde(default = "default_pause")]
    pub pause_ms: u64,
    /// Statuses from 500 to 599 that are such failures, too. The client gets the answer as it is.
    #[serde(default)]
    pub fail_on: Vec<u16>,
}

const fn default_connect() -> u64 {
    5_000
}
const fn default_answer() -> u64 {
    60_000
}
fn default_upgrade() -> Vec<String> {
    vec!["websocket".to_owned()]
}
const fn default_upgrade_idle() -> u64 {
    300_000
}
const fn default_retries() -> usize {
    1
}
const fn default_failures() -> u32 {
    3
}
const fn default_pause() -> u64 {
    10_000
}

/// How a server is chosen among those of an origin.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// In turns.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way.
    LeastRequests,
    /// The same one for the same client address, as long as it is there.
    ClientAddress,
    /// The same one for what has the same hash, as long as it is there.
    ConsistentHash,
}

/// A server of an origin.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a server is \"http://HOST:PORT\" or { url = \"http://HOST:PORT\", weight = 1 }"
)]
pub enum Server {
    /// Where it is.
    Place(String),
    /// ... with its share.
    Weighted(Weighted),
}

/// A server with its share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    /// Where it is.
    pub url: String,
    /// Its share in relation to the others', from 0 (no requests) to 1000.
    pub weight: u32,
}

impl Server {
    fn parts(&self) -> (&str, u32) {
        match self {
            Self::Place(place) => (place, 1),
            Self::Weighted(weighted) => (&weighted.url, weighted.weight),
        }
    }
}

/// What decides which server a request goes to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum HashBy {
    /// The client's address.
    #[default]
    ClientAddress,
    /// The path, without what follows `?`.
    Path,
    /// A field of this name; the client's address if there is none.
    Header(String),
    /// A cookie of this name; the client's address if there is none.
    Cookie(String),
}

/// How servers are checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthCheck {
    /// What is asked for, by GET.
    pub path: String,
    /// The host that is asked for; `localhost` if there is none.
    pub host: Option<String>,
    /// How often, in milliseconds.
    pub interval_ms: u64,
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
    /// The statuses of a server that is well.
    pub expect: Vec<u16>,
    /// After so many good answers in a row a server that was not well is.
    pub healthy_after: u32,
    /// After so many bad ones, or none, it is not.
    pub unhealthy_after: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            host: None,
            interval_ms: 5_000,
            timeout_ms: 2_000,
            expect: vec![200],
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

impl Origin {
    /// One server, all else as it is where the file says nothing.
    pub(super) fn of(server: &str) -> Self {
        Self {
            servers: vec![Server::Place(server.to_owned())],
            ca: None,
            server_name: None,
            client_chain: None,
            client_key: None,
            balance: Balance::default(),
            hash_by: None,
            health_check: None,
            upgrade: default_upgrade(),
            upgrade_idle_timeout_ms: default_upgrade_idle(),
            connect_timeout_ms: default_connect(),
            resolve_ms: None,
            answer_timeout_ms: default_answer(),
            idle_timeout_ms: default_answer(),
            retries: default_retries(),
            max_failures: default_failures(),
            pause_ms: default_pause(),
            fail_on: Vec::new(),
        }
    }
}

/// Checks the origins of a file; paths are relative to `directory`.
pub(super) fn check(
    origins: &BTreeMap<String, Origin>,
    directory: &Path,
    resolver: &Arc<Resolver>,
    problems: &mut Problems,
) -> BTreeMap<String, Arc<origin::Origin>> {
    let mut checked = BTreeMap::new();
    for (name, written) in origins {
        let place = format!("origin.{name}");
        if written.servers.is_empty() {
            problems.add(&place, "has no server: servers = [\"http://127.0.0.1:8080\"]");
        }
        let (servers, weights) = servers(&format!("{place}.servers"), written, problems);
        let rules = origin::Rules {
            balance: written.balance,
            connect: problems
                .wait(&format!("{place}.connect_timeout_ms"), written.connect_timeout_ms),
            resolve: written
                .resolve_ms
                .map(|longest| problems.wait(&format!("{place}.resolve_ms"), longest)),
            answer: problems.wait(&format!("{place}.answer_timeout_ms"), written.answer_timeout_ms),
            idle: problems.wait(&format!("{place}.idle_timeout_ms"), written.idle_timeout_ms),
            retries: written.retries,
            max_failures: written.max_failures,
            upgrade_idle: problems
                .wait(&format!("{place}.upgrade_idle_timeout_ms"), written.upgrade_idle_timeout_ms),
            pause: problems.wait(&format!("{place}.pause_ms"), written.pause_ms),
        };
        if written.max_failures == 0 {
            problems.add(format!("{place}.max_failures"), "0 would leave out every server at once");
        }
        if written.fail_on.iter().any(|status| !(500..600).contains(status)) {
            let place = format!("{place}.fail_on");
            problems.add(place, "has a status that is not within 500 and 599");
        }
        let tls = tls(&place, written, &servers, directory, problems);
        let hash_by = hash_by(&place, written, problems);
        let mut made = origin::Origin::new(name.clone(), servers, rules)
            .resolving(resolver)
            .weighing(weights, hash_by)
            .upgrading(upgrades(&place, written, problems))
            .failing_on(written.fail_on.clone());
        if let Some(tls) = tls {
            made = made.over_tls(tls);
        }
        if let Some(health_check) = &written.health_check {
            let place = format!("{place}.health_check");
            if let Some(rules) = health_check.rules(&place, problems) {
                made = made.checked(rules);
            }
        }
        checked.insert(name.clone(), Arc::new(made));
    }
    checked
}

fn servers(place: &str, written: &Origin, problems: &mut Problems) -> (Vec<Place>, Vec<u32>) {
    let mut servers: (Vec<Place>, Vec<u32>) = Default::default();
    for server in &written.servers {
        let (url, weight) = server.parts();
        if weight > MAX_WEIGHT {
            problems.add(place, format!("a weight of {weight} is above {MAX_WEIGHT}"));
        }
        if let Some(server) = problems.take(place, Place::parse(url)) {
            if servers.0.contains(&server) {
                problems
                    .add(place, format!("{server} is there twice: weight = 2 is twice as much"));
            }
            servers.0.push(server);
            servers.1.push(weight);
        }
    }
    if !servers.1.is_empty() && servers.1.iter().all(|&weight| weight == 0) {
        problems.add(place, "no server has a weight above 0");
    }
    if servers.0.len() > MAX_SERVERS {
        problems.add(place, format!("more than {MAX_SERVERS} servers"));
    }
    servers
}

fn upgrades(place: &str, written: &Origin, problems: &mut Problems) -> Vec<String> {
    let place = format!("{place}.upgrade");
    let checked = written.upgrade.iter().map(|token| {
        let token = token.to_ascii_lowercase();
        // A token as the name of a field is, perhaps with a version (RFC 9110, Section 7.8).
        let mut parts = token.split('/');
        let is_token = parts.all(|part| part.parse::<HeaderName>().is_ok());
        if !is_token || token.split('/').count() > 2 {
            problems.add(&place, format!("{token:?} is no protocol"));
        } else if ["h2c", "tls"].iter().any(|no| token.split('/').next() == Some(no)) {
            // What follows would be requests that nobody has checked.
            problems
                .add(&place, format!("{token} cannot be passed on: it would carry any request"));
        }
        token
    });
    checked.collect()
}

fn hash_by(place: &str, written: &Origin, problems: &mut Problems) -> HashBy {
    let place = format!("{place}.hash_by");
    let Some(by) = written.hash_by.clone() else { return HashBy::default() };
    if written.balance != Balance::ConsistentHash {
        problems.add(&place, "has no effect: balance is not \"consistent-hash\"");
    }
    let (HashBy::Header(name) | HashBy::Cookie(name)) = &by else { return by };
    // The name of a cookie is a token as the name of a field is (RFC 6265, Section 4.1.1).
    if name.parse::<HeaderName>().is_err() {
        problems.add(&place, format!("{name:?} is no name"));
    }
    by
}

impl HealthCheck {
    fn rules(&self, place: &str, problems: &mut Problems) -> Option<CheckRules> {
        let interval = problems.wait(&format!("{place}.interval_ms"), self.interval_ms);
        let timeout = problems.wait(&format!("{place}.timeout_ms"), self.timeout_ms);
        for (field, count) in
            [("healthy_after", self.healthy_after), ("unhealthy_after", self.unhealthy_after)]
        {
            if count == 0 {
                problems.add(format!("{place}.{field}"), "0 decides before any answer");
            }
        }
        if self.expect.is_empty() || self.expect.iter().any(|status| !(200..600).contains(status)) {
            problems.add(format!("{place}.expect"), "has no status, or one not within 200 and 599");
        }
        let path = match self.path.starts_with('/') {
            true => self.path.parse::<PathAndQuery>().map_err(|error| error.to_string()),
            false => Err(format!("{:?} does not begin with /", self.path)),
        };
        let path = problems.take(&format!("{place}.path"), path);
        let host = self.host.clone().map(|host| {
            let authority = host.parse::<Authority>().map_err(|error| error.to_string())?;
            HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())
        });
        let host = host.map(|host| problems.take(&format!("{place}.host"), host));
        Some(CheckRules {
            path: path?,
            host: host.unwrap_or(Some(HeaderValue::from_static("localhost")))?,
            interval,
            timeout,
            expect: self.expect.clone(),
            healthy_after: self.healthy_after,
            unhealthy_after: self.unhealthy_after,
        })
    }
}

/// Whom to trust, if one of the servers speaks TLS.
fn tls(
    place: &str,
    written: &Origin,
    servers: &[Place],
    directory: &Path,
    problems: &mut Problems,
) -> Option<Tls> {
    if !servers.iter().any(Place::is_tls) {
        for (field, is_there) in [
            ("ca", written.ca.is_some()),
            ("server_name", written.server_name.is_some()),
            ("client_chain", written.client_chain.is_some()),
            ("client_key", written.client_key.is_some()),
        ] {
            if is_there {
                problems.add(
                    format!("{place}.{field}"),
                    "has no effect: no server is https:// or h3://",
                );
            }
        }
        return None;
    }
    let identity = match (&written.client_chain, &written.client_key) {
        (Some(chain), Some(key)) => {
            let read = Identity::from_pem_files(directory.join(chain), directory.join(key));
            Some(problems.take(&format!("{place}.client_chain"), read)?)
        }
        (None, None) => None,
        _ => {
            problems.add(place, "client_chain and client_key go together: one is missing");
            return None;
        }
    };
    let ca = written.ca.as_ref().map(|path| directory.join(path));
    let rules = TlsRules { ca, server_name: written.server_name.clone(), identity };
    problems.take(place, Tls::new(rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn problems(text: &str) -> String {
        let problems = parse(text, Path::new(".")).expect_err("it is wrong");
        problems.iter().map(|problem| format!("{problem}\n")).collect()
    }

    #[test]
    fn what_is_said_of_tls_has_to_have_an_effect() {
        let all = problems(
            "[origin.a]\nservers = [\"http://a\"]\nca = \"x\"\nserver_name = \"b\"\n\
             [origin.b]\nservers = [\"https://a\"]\nclient_key = \"x\"\n\
             [origin.c]\nservers = [\"https://a\"]\nca = \"/nonexistent/ca.pem\"\n\
             [origin.d]\nservers = [\"https://a\"]\nserver_name = \"a b\"\n",
        );
        for what in [
            "origin.a.ca: has no effect",
            "origin.a.server_name: has no effect",
            "origin.b: client_chain and client_key go together",
            "origin.c: cannot read /nonexistent/ca.pem",
            "origin.d: \"a b\" is neither a DNS name nor an address",
        ] {
            assert!(all.contains(what), "{what:?} is not in\n{all}");
        }
    }

    #[test]
    fn shares_and_checks_have_to_make_sense() {
        let all = problems(
            "[origin.a]\nservers = [{ url = \"http://a\", weight = 0 }]\nhash_by = \"path\"\n\
             [origin.b]\nservers = [\"http://a\", { url = \"http://a:80\", weight = 1001 }]\n\
             upgrade = [\"h2c\", \"a b\"]\nupgrade_idle_timeout_ms = 0\nfail_on = [404]\n\
             balance = \"consistent-hash\"\nhash_by = { cookie = \"a;b\" }\n\
             [origin.c]\nservers = [\"http://a\"]\nhealth_check = { path = \"a\", interval_ms = 0, \
             timeout_ms = 0, expect = [99], healthy_after = 0, unhealthy_after = 0, host = \"/\" }\n",
        );
        for what in [
            "origin.a.servers: no server has a weight above 0",
            "origin.a.hash_by: has no effect",
            "origin.b.servers: a weight of 1001",
            "origin.b.servers: http://a:80 is there twice",
            "origin.b.hash_by: \"a;b\" is no name",
            "origin.b.upgrade: h2c cannot be passed on",
            "origin.b.upgrade: \"a b\" is no protocol",
            "origin.b.upgrade_idle_timeout_ms",
            "origin.b.fail_on",
            "origin.c.health_check.path: \"a\" does not begin with /",
            "origin.c.health_check.host",
            "origin.c.health_check.interval_ms",
            "origin.c.health_check.timeout_ms",
            "origin.c.health_check.expect",
            "origin.c.health_check.healthy_after",
            "origin.c.health_check.unhealthy_after",
        ] {
            assert!(all.contains(what), "{what:?} is not in\n{all}");
        }
        assert!(problems("[origin.a]\nservers = [1]\n").contains("a server is \"http://"));
    }
}
