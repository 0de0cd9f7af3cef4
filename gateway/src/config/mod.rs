//! The file: TOML, read into these types, and checked by `check` into a [`Snapshot`].
//!
//! A field that is not known is an error, as is everything that would have no effect.

mod acme;
mod action;
pub(crate) mod balancer;
mod capture;
mod check;
mod clients;
mod congestion;
mod early_data;
mod headers;
mod key;
mod limits;
mod metrics;
mod origin;
mod pass;
mod problem;
mod protocol;
mod site;
mod traces;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;

pub use self::acme::{Acme, Challenge, ExternalAccount, Names, OrderedKey};
pub use self::action::{Redirect, Respond};
pub use self::balancer::Balancer;
pub use self::capture::{Capture, MAX_MIB as MAX_CAPTURE_MIB};
pub use self::clients::{CertificateHeaders, ClientCertificates};
pub use self::congestion::{Algorithm, Congestion};
pub use self::early_data::EarlyDataRegister;
pub use self::headers::{Edits, Hsts};
pub use self::key::{KeyElsewhere, KeyPlace};
pub use self::limits::Limits;
pub use self::metrics::Metrics;
pub use self::origin::{Balance, HashBy, HealthCheck, Origin, Server, Weighted};
pub use self::pass::Pass;
pub use self::problem::Problem;
pub use self::protocol::Protocol;
pub use self::site::{EarlyData, Route, Site};
pub use self::traces::Traces;
use crate::snapshot::Snapshot;
use crate::watch::Seen;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// The largest page for an error, in bytes.
const MAX_PAGE: u64 = 1 << 20;

/// What the file says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Addresses with HTTP/3 over UDP, and HTTP/2 and 1.1 with TLS over TCP.
    pub listen: Vec<SocketAddr>,
    /// The file, and all that it names, are read again when they change.
    pub watch: bool,
    /// Addresses with plain HTTP, which redirects to the first of `listen`.
    pub redirect: Vec<SocketAddr>,
    /// The certificates; the first is everybody's who asks for another name.
    pub certificate: Vec<Certificate>,
    /// Certificates that the gateway gets by itself.
    pub acme: Option<Acme>,
    /// Name servers, each with its port, which resolve the names of origins, private protocols and of what is passed on; the
    /// system does if there are none.
    pub resolver: Vec<SocketAddr>,
    /// Who answers, by name.
    pub origin: BTreeMap<String, Origin>,
    /// Which names are served.
    pub site: Vec<Site>,
    /// What is carried besides HTTP.
    pub protocol: Vec<Protocol>,
    /// What is passed on without being ended here.
    pub pass: Vec<Pass>,
    /// Which congestion controller connections over QUIC have.
    pub congestion: Vec<Congestion>,
    /// What one client or one request may take.
    pub limits: Limits,
    /// Networks of balancers in front, which begin each connection over TCP by saying who the client is (PROXY
    /// protocol, version 2).
    pub proxy_protocol: Vec<IpNet>,
    /// Networks whose clients have connections over QUIC without encryption, if they ask for it. Everybody on the way
    /// can read and change what is sent.
    pub disable_1rtt_encryption: Vec<IpNet>,
    /// A place behind a balancer that routes by connection IDs.
    pub balancer: Option<Balancer>,
    /// The secrets of a site, which all of its gateways have: tickets of one are taken by the others.
    pub secrets: Option<PathBuf>,
    /// The register of tickets that brought early data, in common with other gateways.
    pub early_data: Option<EarlyDataRegister>,
    /// Where the counters can be read.
    pub metrics: Option<Metrics>,
    /// Spans of requests for OpenTelemetry.
    pub traces: Option<Traces>,
    /// Whether clients may be captured; they may not if not given.
    pub capture: Option<Capture>,
    /// A line of JSON for each request: a file, or `-` for standard error.
    pub access_log: Option<PathBuf>,
}

impl File {
    /// The files that are read with this one. Those of routes with `files` are read when somebody asks for them.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let certificates = self
            .certificate
            .iter()
            .flat_map(|own| std::iter::once(&own.chain).chain(own.key.files()));
        let origins = self.origin.values().flat_map(|origin| {
            [&origin.ca, &origin.client_chain, &origin.client_key].into_iter().flatten()
        });
        let pages = self.site.iter().flat_map(|site| site.error_page.values());
        let asked = self.site.iter().map(|site| &site.client_certificates);
        let asked = asked.chain(self.protocol.iter().map(|protocol| &protocol.client_certificates));
        let asked = asked.flatten().flat_map(|asked| asked.ca.iter().chain(&asked.crl));
        let protocols = self.protocol.iter().filter_map(|protocol| protocol.ca.as_ref());
        let ids = self.pass.iter().filter_map(|pass| pass.connection_ids.as_ref());
        let token = self.metrics.iter().filter_map(|metrics| metrics.token_file.as_ref());
        let balancer = self.balancer.iter().map(|balancer| &balancer.connection_ids);
        let acme = self.acme.iter().flat_map(Acme::files);
        let register = self.early_data.iter().flat_map(EarlyDataRegister::files);
        let traces = self.traces.iter().filter_map(|traces| traces.ca.as_ref());
        let shared = self.secrets.iter().chain(register).chain(traces);
        let all = certificates.chain(origins).chain(pages).chain(asked).chain(protocols);
        all.chain(ids).chain(token).chain(balancer).chain(acme).chain(shared).map(PathBuf::as_path)
    }
}

/// A certificate, a file of PEM, with its private key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// The chain, the server's own certificate first.
    pub chain: PathBuf,
    /// The private key.
    pub key: KeyPlace,
}

/// Reads and checks a file. Paths in it are relative to its own directory.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn load(path: &Path) -> Result<Snapshot, Vec<Problem>> {
    load_seen(path).0
}

/// The same, and all files that were read for it, or were to be read.
pub fn load_seen(path: &Path) -> (Result<Snapshot, Vec<Problem>>, Seen) {
    let mut seen = Seen::default();
    seen.look(path);
    let directory = path.parent().unwrap_or(Path::new("."));
    let read = read(path).and_then(|text| read_toml(&text));
    let file = match read {
        Ok(file) => file,
        Err(problem) => return (Err(vec![problem]), seen),
    };
    file.files().for_each(|path| seen.look(&directory.join(path)));
    seen.want(file.watch);
    (check::check(file, directory), seen)
}

fn read_toml(text: &str) -> Result<File, Problem> {
    toml::from_str(text).map_err(|error| Problem::syntax(text, &error))
}

fn read(path: &Path) -> Result<String, Problem> {
    let bytes = read_bytes(path, MAX_FILE)?;
    let text = String::from_utf8(bytes);
    text.map_err(|_| Problem::new("", format!("{} is not UTF-8", path.display())))
}

/// Reads a file of no more than `most` bytes.
fn read_bytes(path: &Path, most: u64) -> Result<Vec<u8>, Problem> {
    use std::io::Read;
    let failed = |error: std::io::Error| Problem::file(path, &error);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    let read = file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    match read as u64 > most {
        true => {
            let most = most >> 20;
            Err(Problem::new("", format!("{} is larger than {most} MiB", path.display())))
        }
        false => Ok(bytes),
    }
}

/// Checks what a file says; `directory` is where its relative paths begin.
///
/// # Errors
///
/// Everything that is wrong with it.
pub fn parse(text: &str, directory: &Path) -> Result<Snapshot, Vec<Problem>> {
    let file = read_toml(text).map_err(|problem| vec![problem])?;
    check::check(file, directory)
}

/// The same with a certificate that is here already, beside which the file has none that count.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn parse_with(
    text: &str,
    directory: &Path,
    identity: quicket::Identity,
) -> Result<Snapshot, Vec<Problem>> {
    let file = read_toml(text).map_err(|problem| vec![problem])?;
    check::check_with(file, directory, vec![(Vec::new(), identity)])
}

/// A gateway on `listen` in front of one server, with a certificate of its own.
///
/// # Errors
///
/// If the server's URL or the certificate cannot be used. There is no file: what is wrong with the server is told of
/// `SERVER`, as `quicket gateway try` calls it.
pub fn single(
    listen: Vec<SocketAddr>,
    server: &str,
    identity: quicket::Identity,
) -> Result<Snapshot, Vec<Problem>> {
    const ORIGIN: &str = "origin";
    let origin = Origin::of(server);
    let route = Route { path: site::root(), origin: Some(ORIGIN.to_owned()), ..Route::default() };
    let file = File {
        listen,
        origin: BTreeMap::from([(ORIGIN.to_owned(), origin)]),
        site: vec![Site { names: vec!["*".to_owned()], route: vec![route], ..Site::default() }],
        access_log: Some(PathBuf::from("-")),
        ..File::default()
    };
    let checked = check::check_with(file, Path::new("."), vec![(Vec::new(), identity)]);
    let of_server = format!("origin.{ORIGIN}");
    checked.map_err(|problems| {
        problems.into_iter().map(|problem| problem.instead_of(&of_server, "SERVER")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_one_server_is_told_of_it() {
        let identity = quicket::Identity::self_signed(["localhost"]).unwrap();
        let problems = single(Vec::new(), "ftp://x", identity).err().unwrap();
        let told = problems.iter().map(Problem::to_string).collect::<Vec<_>>();
        assert!(
            told.iter().any(|told| told.starts_with("SERVER: \"ftp://x\" is none of")),
            "{told:?}"
        );
        assert!(!told.iter().any(|told| told.contains("origin.")), "{told:?}");
    }
}
