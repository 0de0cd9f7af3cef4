//! Sites and their routes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use serde::Deserialize;

use super::check::Problems;
use super::headers::{self, Edits, Hsts};
use super::{ClientCertificates, MAX_PAGE, Redirect, Respond, action, read_bytes};
use crate::credentials::Rule;
use crate::origin::Origin;
use crate::pace::Rate;
use crate::pages::{Page, Pages};
use crate::path::{self, Doubt, Prefix};
use crate::quota::Quota;
use crate::route::{self, Sites};

/// Names, and what is done with requests for them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// DNS names; `*.` and a name for its direct subdomains; `*` for all others.
    pub names: Vec<String>,
    /// The routes; the longest path that fits counts.
    pub route: Vec<Route>,
    /// Clients come by HTTPS only, from now on.
    pub hsts: Option<Hsts>,
    /// Pages, by status, instead of what the gateway itself would say. Answers of origins stay as they are.
    pub error_page: BTreeMap<String, PathBuf>,
    /// Bytes of bodies in a second, of all requests together, each way.
    pub bytes_per_s: Option<u64>,
    /// Requests under way, of all clients together. No limit if not given, as with those below.
    pub requests: Option<u32>,
    /// Requests in a second, of all clients together.
    pub requests_per_s: Option<u32>,
    /// Connections of clients whose handshake asks for one of the names, of all clients together.
    pub connections: Option<u32>,
    /// Their handshakes in a second.
    pub handshakes_per_s: Option<u32>,
    /// Clients show certificates.
    pub client_certificates: Option<ClientCertificates>,
    /// Whether answers are compressed on their way, if their type and length make it worth it.
    pub compress: bool,
}

/// Requests that are treated alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Route {
    /// The beginning of the path: whole segments. `/a` is `/a` and `/a/b`, and not `/ab`.
    #[serde(default = "root")]
    pub path: String,
    /// The methods; all if there are none.
    pub methods: Vec<String>,
    /// Header fields that must be there, with these values; `*` stands for any.
    pub headers: BTreeMap<String, String>,
    /// The name of the origin that answers.
    pub origin: Option<String>,
    /// The directory whose files answer.
    pub files: Option<PathBuf>,
    /// Clients are told to go elsewhere.
    pub redirect: Option<Redirect>,
    /// The answer is always the same.
    pub respond: Option<Respond>,
    /// What stands in the place of `path` for the origin, or below the directory: `/` strips it.
    pub rewrite_prefix: Option<String>,
    /// Changes of what the origin gets.
    pub request_headers: Edits,
    /// Changes of what the client gets.
    pub response_headers: Edits,
    /// Whether answers are compressed; as the site says if this says nothing.
    pub compress: Option<bool>,
    /// What becomes of requests that came as 0-RTT data.
    pub early_data: EarlyData,
}

pub(super) fn root() -> String {
    "/".to_owned()
}

/// What becomes of requests that came as 0-RTT data, which an attacker can repeat (RFC 8470).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyData {
    /// Those with a safe method go on, with `Early-Data: 1`; others wait for the handshake.
    #[default]
    Safe,
    /// All wait for the handshake.
    Wait,
}

/// Checks all sites.
pub(super) fn check(
    all: &[Site],
    directory: &Path,
    origins: &BTreeMap<String, Arc<Origin>>,
    problems: &mut Problems,
) -> Sites {
    if all.is_empty() {
        problems.add("site", "there is none: [[site]] with names = [\"example.org\"]");
    }
    let mut sites = Sites::default();
    for (at, site) in all.iter().enumerate() {
        let place = format!("site {}", at + 1);
        if site.names.is_empty() {
            problems
                .add(&place, "has no names; names = [\"*\"] stands for all that others have not");
        }
        super::limits::rate(&format!("{place}.bytes_per_s"), site.bytes_per_s, problems);
        let counts = [
            ("requests", site.requests),
            ("requests_per_s", site.requests_per_s),
            ("connections", site.connections),
            ("handshakes_per_s", site.handshakes_per_s),
        ];
        for (name, value) in counts {
            super::limits::count(&format!("{place}.{name}"), value, problems);
        }
        let checked = Arc::new(route::Site {
            name: site.names.first().cloned().unwrap_or_default(),
            routes: routes(&place, site, directory, origins, problems),
            hsts: site.hsts.and_then(|hsts| hsts.check(&place, problems)),
            pages: pages(&place, site, directory, problems),
            rule: rule(&place, site, directory, problems),
            rate: site.bytes_per_s.map(Rate::new),
            quota: Quota::new(site.requests, site.requests_per_s),
            clients: Quota::new(site.connections, site.handshakes_per_s),
        });
        for name in &site.names {
            if let Some(what) = sites.add(name, &checked) {
                problems.add(format!("{place}.names"), what);
            }
        }
    }
    sites
}

fn rule(place: &str, site: &Site, directory: &Path, problems: &mut Problems) -> Option<Rule> {
    let asked = site.client_certificates.as_ref()?;
    let is_address =
        |name: &&String| name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
    if let Some(address) = site.names.iter().find(is_address) {
        problems.add(
            format!("{place}.client_certificates"),
            format!("clients that connect to {address} do not say so in the handshake (RFC 6066, Section 3), where they \
                     are asked: only the site with the name \"*\" can ask them"),
        );
    }
    asked.check(place, directory, problems)
}

fn routes(
    place: &str,
    site: &Site,
    directory: &Path,
    origins: &BTreeMap<String, Arc<Origin>>,
    problems: &mut Problems,
) -> Vec<route::Route> {
    if site.route.is_empty() {
        problems.add(place, "has no route: [[site.route]] with origin = \"NAME\"");
    }
    let mut routes = Vec::new();
    for (at, route) in site.route.iter().enumerate() {
        let place = format!("{place}, route {}", at + 1);
        // Of equal paths the earlier one counts.
        let prefix = Prefix::new(&route.path);
        let hides = |before: &Route| {
            Prefix::new(&before.path).is_like(&prefix)
                && before.methods.is_empty()
                && before.headers.is_empty()
        };
        if site.route[..at].iter().any(hides) {
            problems.add(&place, "is never taken: one before it takes all requests for its path");
        }
        let action = action::check(&place, route, directory, origins, problems);
        routes.extend(check_route(&place, route, site.compress, action, problems));
    }
    // The sort is stable.
    routes.sort_by_key(|route: &route::Route| std::cmp::Reverse(route.prefix.depth()));
    routes
}

fn check_route(
    place: &str,
    route: &Route,
    compress: bool,
    action: Option<crate::action::Action>,
    problems: &mut Problems,
) -> Option<route::Route> {
    let mut clean = |field: &str, path: &str| {
        let place = format!("{place}.{field}");
        if !path.starts_with('/') || path.contains(['?', '#']) {
            problems.add(place, format!("{path:?} does not begin with /, or has ? or # in it"));
        } else if let Err(why) = path::check(path) {
            problems.add(place, format!("{path:?} is {why}"));
        }
        path.trim_end_matches('/').to_owned()
    };
    clean("path", &route.path);
    let new_prefix = route.rewrite_prefix.as_ref().map(|new| clean("rewrite_prefix", new));
    if Doubt::of(&route.path).is_some() {
        let what = "has // or ; in it, or an encoded slash, backslash or ;: origins differ in what they make of these";
        problems.add(format!("{place}.path"), format!("{:?} {what}", route.path));
    }
    let mut methods = Vec::new();
    for method in &route.methods {
        let place = format!("{place}.methods");
        match Method::from_bytes(method.as_bytes()) {
            Ok(method) => methods.push(method),
            Err(_) => problems.add(place, format!("{method:?} is no method")),
        }
    }
    if new_prefix.is_some() && route.origin.is_none() && route.files.is_none() {
        problems.add(format!("{place}.rewrite_prefix"), "has no effect but with origin or files");
    }
    if !route.request_headers.is_empty() && route.origin.is_none() {
        problems.add(format!("{place}.request_headers"), "has no effect but with origin");
    }
    Some(route::Route {
        prefix: Prefix::new(&route.path),
        methods,
        headers: headers::wanted(place, &route.headers, problems),
        to_origin: route.request_headers.check(&format!("{place}.request_headers"), problems),
        to_client: route.response_headers.check(&format!("{place}.response_headers"), problems),
        action: action?,
        new_prefix,
        compress: route.compress.unwrap_or(compress),
        early_data: route.early_data,
        metrics: std::sync::OnceLock::new(),
    })
}

fn pages(place: &str, site: &Site, directory: &Path, problems: &mut Problems) -> Pages {
    let mut pages = Pages::default();
    for (status, path) in &site.error_page {
        let place = format!("{place}.error_page");
        let checked = status.parse().ok().and_then(|status: u16| StatusCode::from_u16(status).ok());
        let Some(status) = checked.filter(|status| (400..600).contains(&status.as_u16())) else {
            problems.add(place, format!("{status:?} is not within 400 and 599"));
            continue;
        };
        match read_bytes(&directory.join(path), MAX_PAGE) {
            Ok(body) => {
                let (content_type, body) = (headers::content_type(path), Bytes::from(body));
                pages.0.insert(status, Page { content_type, body });
            }
            Err(problem) => problems.add(place, problem.to_string()),
        }
    }
    pages
}

impl Sites {
    /// Gives a site a name, or says what is wrong with that.
    fn add(&mut self, name: &str, site: &Arc<route::Site>) -> Option<String> {
        let name = name.to_ascii_lowercase();
        let suffix = name.strip_prefix("*.");
        let before = if name == "*" {
            self.any.replace(Arc::clone(site)).is_some()
        } else if !is_dns_name(suffix.unwrap_or(&name)) {
            return Some(format!("{name:?} is no DNS name, nor *.NAME, nor *"));
        } else if let Some(suffix) = suffix {
            self.wildcard.insert(suffix.to_owned(), Arc::clone(site)).is_some()
        } else {
            self.exact.insert(name.clone(), Arc::clone(site)).is_some()
        };
        before.then(|| format!("{name} is there twice"))
    }
}

/// Letters, digits, hyphens and underscores in labels of up to 63; or an address of IPv4 or IPv6.
pub(super) fn is_dns_name(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    if bare.is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok()) {
        return true;
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
