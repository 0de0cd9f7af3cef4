//! Spans of requests for OpenTelemetry.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use serde::Deserialize;
use url::Url;

use super::check::Problems;
use crate::origin::{Place, Tls, TlsRules};
use crate::spans::{Receiver, Rules};

/// The longest name of a service, in bytes.
const MAX_SERVICE: usize = 255;

/// Spans of requests for OpenTelemetry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Who gets them, over HTTP with protobuf (OTLP): `http://HOST:PORT/PATH` or `https://…`.
    pub endpoint: String,
    /// The roots by which a receiver over TLS is trusted; the system's if there is none.
    pub ca: Option<PathBuf>,
    /// Which part of the requests has spans, from 0 to 1.
    #[serde(default = "sample")]
    pub sample: f64,
    /// Networks of clients whose `traceparent` counts: their traces go on, as they were sampled or not.
    #[serde(default)]
    pub trust: Vec<IpNet>,
    /// What the gateway is called in traces (`service.name`).
    #[serde(default = "service")]
    pub service: String,
    /// Spans tell the addresses of clients.
    #[serde(default)]
    pub addresses: bool,
    /// Spans tell the paths of requests, without queries.
    #[serde(default)]
    pub paths: bool,
}

const fn sample() -> f64 {
    0.01
}

fn service() -> String {
    "quicket-gateway".to_owned()
}

impl Traces {
    /// Checks it.
    pub(super) fn check(&self, directory: &Path, problems: &mut Problems) -> Option<Rules> {
        if !(0.0..=1.0).contains(&self.sample) {
            let what = format!("{} is not within 0 and 1", self.sample);
            problems.add("traces.sample", what);
        }
        if self.service.is_empty() || self.service.len() > MAX_SERVICE {
            problems.add("traces.service", format!("is not of 1 to {MAX_SERVICE} bytes"));
        }
        let read = problems.take("traces.endpoint", endpoint(&self.endpoint));
        let is_tls = read.as_ref().is_some_and(|(_, place)| place.is_tls());
        if self.ca.is_some() && read.is_some() && !is_tls {
            problems.add("traces.ca", "has no effect without TLS: endpoint = \"https://…\"");
        }
        let tls = is_tls.then(|| {
            let ca = self.ca.as_ref().map(|path| directory.join(path));
            let tls = Tls::new(TlsRules { ca, ..TlsRules::default() });
            problems.take("traces.ca", tls).map(Arc::new)
        });
        let (url, place) = read?;
        let receiver = Receiver { url, place, tls: tls.flatten(), service: self.service.clone() };
        Some(Rules::new(receiver, self.sample, self.trust.clone(), self.addresses, self.paths))
    }
}

/// A URL with a path, and where its server is.
fn endpoint(text: &str) -> Result<(http::Uri, Place), String> {
    let wrong = || format!("{text:?} is not http://HOST:PORT/PATH or https://…");
    let url = Url::parse(text).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(format!("{text:?} has more than a host, a port, a path and a query"));
    }
    if url.path() == "/" {
        return Err(format!("{text:?} has no path: receivers have /v1/traces mostly"));
    }
    let uri: http::Uri = url.as_str().parse().map_err(|_| wrong())?;
    let authority = uri.authority().ok_or_else(wrong)?;
    let place = Place::parse(&format!("{}://{authority}", url.scheme()))?;
    Ok((uri, place))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_receiver_over_tls_has_tls_however_its_scheme_is_written() {
        for (endpoint, is_tls) in [
            ("https://a:4318/v1/traces", true),
            ("HTTPS://a:4318/v1/traces", true),
            (" https://a:4318/v1/traces", true),
            ("HTTP://a:4318/v1/traces", false),
        ] {
            let traces: Traces = toml::from_str(&format!("endpoint = {endpoint:?}")).unwrap();
            let mut problems = Problems::default();
            let rules = traces.check(Path::new("."), &mut problems).unwrap();
            let receiver = rules.receiver();
            assert_eq!(receiver.place.is_tls(), is_tls, "{endpoint}");
            assert_eq!(receiver.tls.is_some(), is_tls, "{endpoint}");
        }
    }

    #[test]
    fn each_mistake_is_told_with_its_field() {
        let right = "endpoint = \"http://127.0.0.1:4318/v1/traces\"\n";
        for (lines, what) in [
            ("", "missing field `endpoint`"),
            ("endpoint = \"127.0.0.1:4318\"", "traces.endpoint: \"127.0.0.1:4318\" is not http"),
            ("endpoint = \"grpc://a:4317\"", "traces.endpoint: \"grpc://a:4317\" is not http"),
            ("endpoint = \"http://a:4318\"", "has no path: receivers have /v1/traces"),
            ("endpoint = \"http://u:p@a/v1\"", "has more than a host"),
            ("endpoint = \"http://a:99999/v1\"", "traces.endpoint"),
            (&format!("{right}sample = 1.5"), "traces.sample: 1.5 is not within 0 and 1"),
            (&format!("{right}sample = -1"), "traces.sample: -1 is not within 0 and 1"),
            (&format!("{right}sample = nan"), "traces.sample: NaN is not within 0 and 1"),
            (&format!("{right}service = \"\""), "traces.service: is not of 1 to 255"),
            (&format!("{right}trust = [\"a\"]"), "invalid IP address"),
            (&format!("{right}ca = \"ca.pem\""), "traces.ca: has no effect without TLS"),
            ("endpoint = \"https://a/v1\"\nca = \"gone.pem\"", "traces.ca: cannot read "),
            (&format!("{right}path = true"), "unknown field `path`"),
        ] {
            let problems = parse(&format!("[traces]\n{lines}\n"), Path::new(".")).unwrap_err();
            let told: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
            assert!(told.contains(what), "{what:?} is not in\n{told}");
        }
        let problems =
            parse(&format!("[traces]\n{right}sample = 1\n"), Path::new(".")).unwrap_err();
        assert!(problems.iter().all(|problem| !problem.to_string().contains("traces")));
    }
}
