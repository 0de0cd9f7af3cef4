//! Which route a request takes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use quicket_front::authority::host;

use crate::action::Action;
use crate::config::EarlyData;
use crate::credentials::Rule;
use crate::edits::Edits;
use crate::metrics::{Metrics, RouteMetrics};
use crate::pace::Rate;
use crate::pages::Pages;
use crate::path::{Doubt, Prefix};
use crate::quota::Quota;
use crate::request::Refusal;

/// The sites by their names, in lower case.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    pub(crate) exact: HashMap<String, Arc<Site>>,
    /// By what follows `*.`.
    pub(crate) wildcard: HashMap<String, Arc<Site>>,
    pub(crate) any: Option<Arc<Site>>,
}

/// What is done with requests for some names.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// The first of its names.
    pub(crate) name: String,
    /// The longest path first.
    pub(crate) routes: Vec<Route>,
    /// RFC 6797.
    pub(crate) hsts: Option<HeaderValue>,
    pub(crate) pages: Pages,
    /// What clients are asked for.
    pub(crate) rule: Option<Rule>,
    /// How fast bodies flow, of all requests together.
    pub(crate) rate: Option<Rate>,
    /// How many requests there may be.
    pub(crate) quota: Quota,
    /// How many connections and handshakes there may be that ask for one of its names.
    pub(crate) clients: Quota,
}

/// Requests that are treated alike.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) prefix: Prefix,
    /// All if there are none.
    pub(crate) methods: Vec<Method>,
    /// All must be there, with this value if there is one.
    pub(crate) headers: Vec<(HeaderName, Option<HeaderValue>)>,
    pub(crate) action: Action,
    /// What stands in the place of the prefix from here on, without a slash at its end.
    pub(crate) new_prefix: Option<String>,
    /// Of the request's fields.
    pub(crate) to_origin: Edits,
    /// Of the answer's fields.
    pub(crate) to_client: Edits,
    pub(crate) compress: bool,
    pub(crate) early_data: EarlyData,
    /// Set once the gateway takes the configuration.
    pub(crate) metrics: OnceLock<Arc<RouteMetrics>>,
}

impl Sites {
    /// Sites, each once for each of its names.
    fn all(&self) -> impl Iterator<Item = &Arc<Site>> {
        self.exact.values().chain(self.wildcard.values()).chain(&self.any)
    }

    /// What the sites ask of clients.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.all().filter_map(|site| site.rule.as_ref())
    }

    /// Gives each route its counters.
    pub(crate) fn count_by(&self, metrics: &Metrics) {
        for site in self.all() {
            for route in &site.routes {
                let counted = || Arc::new(metrics.route(&site.name, route.label()));
                route.metrics.get_or_init(counted);
            }
        }
    }

    /// Has sites go on with what those of the same name have spent.
    pub(crate) fn take_over(&self, before: &Self) {
        let before: HashMap<&str, &Arc<Site>> =
            before.all().map(|site| (site.name.as_str(), site)).collect();
        for site in self.all() {
            let Some(before) = before.get(site.name.as_str()) else { continue };
            site.quota.take_over(&before.quota);
            site.clients.take_over(&before.clients);
            if let (Some(rate), Some(before)) = (&site.rate, &before.rate) {
                rate.take_over(&before.account());
            }
        }
    }

    /// Forgets the counters of routes that `next` has not.
    pub(crate) fn forget_but(&self, next: &Self, metrics: &Metrics) {
        let ways = |sites: &Self| -> HashSet<(String, String)> {
            let each = |site: &Arc<Site>| {
                let name = site.name.clone();
                let labels =
                    site.routes.iter().map(move |route| (name.clone(), route.label().to_owned()));
                labels.collect::<Vec<_>>()
            };
            sites.all().flat_map(each).collect()
        };
        for (site, route) in ways(self).difference(&ways(next)) {
            metrics.forget(site, route);
        }
    }

    /// The site of an authority.
    pub(crate) fn find(&self, authority: &str) -> Result<&Site, Refusal> {
        // RFC 9110, Section 7.4.
        self.named(host(authority)).ok_or_else(|| {
            Refusal::new(StatusCode::MISDIRECTED_REQUEST, "this name is not served here")
        })
    }
}

impl Sites {
    /// The site of a name in lower case: by that itself, else that of the level above with a wildcard, else that of all others.
    fn named(&self, host: &str) -> Option<&Site> {
        let wildcard = || self.wildcard.get(host.split_once('.')?.1);
        let site = self.exact.get(host).or_else(wildcard).or(self.any.as_ref());
        site.map(AsRef::as_ref)
    }

    /// The site of the server name in a handshake, if there is one.
    pub(crate) fn of_connection(&self, name: Option<&str>) -> Option<&Site> {
        match name {
            Some(name) => self.named(&name.to_ascii_lowercase()),
            None => self.any.as_deref(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.any.is_none()
    }
}

impl Site {
    /// The first route that takes the request. Its path is normalised.
    pub(crate) fn find(&self, request: &Parts) -> Result<&Route, Refusal> {
        let path = request.uri.path();
        if let Some(doubt) = Doubt::of(path) {
            let mut prefixes = self.routes.iter().map(|route| &route.prefix);
            if prefixes.any(|prefix| doubt.may_begin_with(prefix) && prefix.rest(path).is_none()) {
                return Err(Refusal::bad("a path that leads origins into another route"));
            }
        }
        let mut allowed = Vec::new();
        for route in self.routes.iter().filter(|route| route.covers(request)) {
            if route.methods.is_empty() || route.methods.contains(&request.method) {
                return Ok(route);
            }
            allowed.extend(route.methods.iter().cloned());
        }
        if allowed.is_empty() {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "no route leads there"));
        }
        let refusal =
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "no route takes this method here");
        Err(Refusal { allowed, ..refusal })
    }
}

impl Route {
    /// What follows the route's own path, if that is how the path begins.
    pub(crate) fn rest<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.prefix.rest(path)
    }

    /// The path, as it stands in counters.
    fn label(&self) -> &str {
        let path = self.prefix.as_str();
        if path.is_empty() { "/" } else { path }
    }

    fn covers(&self, request: &Parts) -> bool {
        self.rest(request.uri.path()).is_some()
            && self.headers.iter().all(|(name, wanted)| {
                let mut values = request.headers.get_all(name).iter();
                values.any(|value| wanted.as_ref().is_none_or(|wanted| wanted == value))
            })
    }

    /// The path as it goes on from here.
    pub(crate) fn rewritten(&self, path: &str) -> Option<String> {
        let new = self.new_prefix.as_ref()?;
        let path = match self.rest(path)? {
            "*" => "*".to_owned(),
            rest => format!("{new}{rest}"),
        };
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::{Origin, Rules};
    use http::Request;

    fn route(path: &str, methods: &[Method], origin: &str) -> Route {
        let origin = Arc::new(Origin::new(origin.to_owned(), Vec::new(), Rules::for_tests()));
        Route {
            prefix: Prefix::new(path),
            methods: methods.to_vec(),
            headers: Vec::new(),
            action: Action::Origin(origin),
            new_prefix: None,
            to_origin: Edits::default(),
            to_client: Edits::default(),
            compress: false,
            early_data: EarlyData::Safe,
            metrics: OnceLock::new(),
        }
    }

    fn sites() -> Sites {
        let site = |routes| Arc::new(Site { routes, ..Site::default() });
        let mut sites = Sites::default();
        let canary = (HeaderName::from_static("x-canary"), Some(HeaderValue::from_static("1")));
        let debug = (HeaderName::from_static("x-debug"), None);
        let routes = vec![
            route("/a/b", &[], "deep"),
            Route { headers: vec![canary, debug], ..route("/a", &[], "canary") },
            route("/a", &[Method::POST], "posts"),
            route("/a", &[], "shallow"),
        ];
        sites.exact.insert("a.example".to_owned(), site(routes));
        sites.wildcard.insert("example".to_owned(), site(vec![route("/", &[Method::GET], "wild")]));
        sites
    }

    fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn found(authority: &str, request: &Parts) -> Result<String, u16> {
        let sites = sites();
        let route = sites.find(authority).and_then(|site| site.find(request));
        let name = route.map(|route| match &route.action {
            Action::Origin(origin) => origin.name().to_owned(),
            _ => String::new(),
        });
        name.map_err(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn the_most_specific_route_counts() {
        let get = |authority, path| found(authority, &asked(Method::GET, path, &[]));
        assert_eq!(get("a.example", "/a/b").unwrap(), "deep");
        assert_eq!(get("a.example:443", "/a/b/c").unwrap(), "deep");
        assert_eq!(get("a.example.", "/a/bc").unwrap(), "shallow", "segments are whole");
        assert_eq!(found("a.example", &asked(Method::POST, "/a", &[])).unwrap(), "posts");
        assert_eq!(get("a.example", "/ab"), Err(404));
        assert_eq!(get("b.example", "/ab").unwrap(), "wild");
        assert_eq!(found("b.example", &asked(Method::PUT, "/", &[])), Err(405));
        assert_eq!(get("c.b.example", "/"), Err(421), "a wildcard stands for one label");
        assert_eq!(get("[::1]:443", "/"), Err(421));
    }

    #[test]
    fn a_path_that_others_read_as_another_routes_is_refused() {
        let get = |path| found("a.example", &asked(Method::GET, path, &[]));
        for path in ["//a", "/a//b", "/a;x", "/a/b;x", "/a/b%2Fc", "/a%2Fb", "/%2Fa", "/a/;/b"] {
            assert_eq!(get(path), Err(400), "{path}");
        }
        for path in ["/a/c;x", "/a/c%2Fb", "/a//c", "/a/b/c;x", "/a/b//c", "/a/b/%2F"] {
            assert!(get(path).is_ok(), "{path}");
        }
        assert_eq!(get("/%2540"), Err(404));
        let get = |path| found("b.example", &asked(Method::GET, path, &[]));
        assert_eq!(get("//a;x%2Fb").unwrap(), "wild", "there is no other route");
    }

    #[test]
    fn all_header_fields_of_a_route_must_be_there() {
        let get = |headers| found("a.example", &asked(Method::GET, "/a", headers)).unwrap();
        assert_eq!(get(&[("x-canary", "1"), ("x-debug", "any")]), "canary");
        assert_eq!(get(&[("x-canary", "0"), ("x-canary", "1"), ("x-debug", "")]), "canary");
        assert_eq!(get(&[("x-canary", "1")]), "shallow");
        assert_eq!(get(&[("x-canary", "2"), ("x-debug", "any")]), "shallow");
    }

    #[test]
    fn a_prefix_is_replaced_in_whole_segments() {
        let rewritten = |from: &str, to: &str, path: &str| {
            let new_prefix = Some(to.trim_end_matches('/').to_owned());
            Route { new_prefix, ..route(from, &[], "a") }.rewritten(path)
        };
        assert_eq!(rewritten("/a", "/", "/a/b").as_deref(), Some("/b"));
        assert_eq!(rewritten("/a", "/", "/a").as_deref(), Some("/"));
        assert_eq!(rewritten("/a", "/c/d", "/a/").as_deref(), Some("/c/d/"));
        assert_eq!(rewritten("/", "/c", "/a").as_deref(), Some("/c/a"));
        assert_eq!(rewritten("/", "/c", "*").as_deref(), Some("*"));
        assert_eq!(route("/", &[], "a").rewritten("/a"), None);
    }
}
