//! What was checked: all that a request needs to know. It never changes; a reload makes another.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::HeaderName;
use ipnet::IpNet;
use quicket::steering::ServerId;
use quicket::{EndpointConfig, Identity, SiteSecrets};
use quicket_member::Site;

use crate::acme;
use crate::capture;
use crate::clients::Allowed;
use crate::congestion::Plan;
use crate::early;
use crate::metrics::{NO_SERVER, Place};
use crate::origin::Origin;
use crate::pass::Passes;
use crate::protocol::Protocols;
use crate::route::Sites;
use crate::spans;

/// Certificates with the names for which clients get them.
pub type Certificates = Vec<(Vec<String>, Identity)>;

/// A checked configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// Addresses with HTTP/3 over UDP, and HTTP/2 and 1.1 with TLS over TCP.
    pub listen: Vec<SocketAddr>,
    /// Addresses with plain HTTP, which redirects.
    pub redirect: Vec<SocketAddr>,
    /// Those of the file. The first is everybody's who asks for another name; where there is none, the first that is
    /// ordered.
    pub certificates: Certificates,
    /// What is ordered.
    pub(crate) acme: Option<Arc<acme::Plan>>,
    /// A line for each request; `-` is standard error.
    pub access_log: Option<PathBuf>,
    /// What one client or one request may take.
    pub limits: Limits,
    /// Networks of balancers that say who the client is.
    pub(crate) proxy_protocol: Vec<IpNet>,
    /// Networks whose connections over QUIC may go without encryption.
    pub(crate) unencrypted: Vec<IpNet>,
    /// Its place behind a balancer that routes by connection IDs.
    pub(crate) balancer: Option<Behind>,
    /// What protects tickets, in common with other gateways.
    pub(crate) secrets: Option<SiteSecrets>,
    /// The register of tickets that brought early data, in common with other gateways.
    pub(crate) register: Option<early::Place>,
    /// Where the counters can be read.
    pub(crate) metrics: Option<Reading>,
    /// Which requests have spans for OpenTelemetry.
    pub(crate) traces: Option<spans::Rules>,
    /// What captures may have; there are none without.
    pub(crate) capture: Option<capture::Allowed>,
    pub(crate) congestion: Plan,
    pub(crate) sites: Sites,
    /// Fields in which only the gateway tells origins of clients' certificates, whatever the site.
    pub(crate) certificate_fields: Vec<HeaderName>,
    pub(crate) protocols: Protocols,
    pub(crate) passes: Passes,
    pub(crate) origins: Vec<Arc<Origin>>,
    /// Key processes that could not be asked whether they have the keys of certificates, and why.
    pub keys_away: Vec<String>,
}

/// What no client asks for: a server of QUIC has a protocol (RFC 9001, Section 8.1), also one that only passes connections on.
const NONE: &str = "quicket-none";

/// Says that a certificate has ended, if it has.
pub(crate) fn expired(names: &[String], identity: &Identity) -> Option<String> {
    let end = identity.not_after().filter(|&end| end < SystemTime::now())?;
    let of = match names {
        [] => identity.fingerprint().to_string(),
        names => names.join(", "),
    };
    Some(format!("the certificate of {of} has expired: {}", httpdate::fmt_http_date(end)))
}

/// What one client or one request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, of all clients together.
    pub connections: usize,
    /// Requests under way on one connection.
    pub requests: u32,
    /// The header section of a request, in bytes.
    pub header_bytes: u32,
    /// How long a client may take for the header section.
    pub header_timeout: Duration,
    /// How long a client may be silent in the middle of a body.
    pub body_timeout: Duration,
    /// How long a connection of HTTP/2 or HTTP/3 may have no request.
    pub idle_timeout: Duration,
    /// How long requests under way may take when the gateway stops.
    pub drain: Duration,
    /// How long what is no request may go on once the next generation has taken over.
    pub handover: Duration,
    /// What the data of streams takes on all connections over QUIC, in bytes, if the file says so.
    pub memory: Option<usize>,
    /// What a client's address may take.
    pub client: Allowed,
    /// Above so many unfinished handshakes over QUIC, clients must prove their address.
    pub handshakes_without_retry: usize,
}

impl Limits {
    /// Bounds what all connections over QUIC hold together.
    pub(crate) fn bound(&self, sockets: &mut EndpointConfig) {
        sockets.memory = self.memory.unwrap_or(sockets.memory);
    }
}

/// A place behind a balancer that routes by connection IDs.
#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// How connection IDs are written.
    pub(crate) site: Site,
    /// What names the gateway in them.
    pub(crate) id: ServerId,
    /// Who hears that it is there.
    pub(crate) report_to: Vec<SocketAddr>,
    /// What clients may send at once.
    pub(crate) max_udp_payload: Option<u16>,
}

/// Where the counters can be read, and by whom.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) place: Place,
    /// What readers must know; none where the place itself is protected.
    pub(crate) token: Option<String>,
}

impl Snapshot {
    /// The names of the origins, with how many servers each has.
    pub fn origins(&self) -> impl Iterator<Item = (&str, usize)> {
        self.origins.iter().map(|origin| (origin.name(), origin.len()))
    }

    /// The servers with the names of their origins, and one for each origin that stands for none.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (String, String)> {
        self.origins.iter().flat_map(|origin| {
            let servers = origin.places().iter().map(ToString::to_string);
            let all = servers.chain([NO_SERVER.to_owned()]);
            all.map(|server| (origin.name().to_owned(), server))
        })
    }

    /// The same servers: by the name of an origin, the place, how many connections there are, and whether it is well.
    pub(crate) fn standing(&self) -> impl Iterator<Item = (&str, String, usize, bool)> {
        self.origins.iter().flat_map(|origin| {
            origin.standing().map(|(server, open, is_well)| (origin.name(), server, open, is_well))
        })
    }

    /// The certificates that have ended, in words.
    pub fn expired(&self) -> Vec<String> {
        let all = self.certificates.iter();
        all.filter_map(|(names, identity)| expired(names, identity)).collect()
    }

    /// How many certificates are ordered.
    pub fn ordered(&self) -> usize {
        self.acme.as_ref().map_or(0, |plan| plan.wanted.len())
    }

    /// The application protocols of clients over QUIC, most wanted first: HTTP/3, if there are sites, and
    /// private ones.
    pub(crate) fn alpn(&self) -> Vec<String> {
        let http = self.has_sites().then(|| "h3".to_owned());
        let none = (!self.has_sites() && self.protocols.alpn().is_empty()).then(|| NONE.to_owned());
        http.into_iter().chain(self.protocols.alpn().iter().cloned()).chain(none).collect()
    }

    /// True if connection IDs are those of a site behind a balancer.
    pub const fn has_balancer(&self) -> bool {
        self.balancer.is_some()
    }

    /// The number of the secret that protects new tickets, if other gateways have it, too.
    pub fn secrets(&self) -> Option<u32> {
        self.secrets.as_ref().map(|secrets| secrets.current().number())
    }

    /// Where the register of used tickets is, if other gateways have it, too.
    pub fn register(&self) -> Option<String> {
        self.register.as_ref().map(|place| place.address.to_string())
    }

    /// True if HTTP is served.
    pub fn has_sites(&self) -> bool {
        !self.sites.is_empty()
    }

    /// True if something is listened for over TCP.
    pub fn has_tcp(&self) -> bool {
        self.has_sites() || self.passes.has_tls()
    }

    /// How many origins connections are passed on to without being ended here.
    pub fn passes(&self) -> usize {
        self.passes.len()
    }

    /// True if connections over QUIC are passed on without being ended here.
    pub fn passes_quic(&self) -> bool {
        self.passes.has_quic()
    }

    /// True if clients are asked for certificates anywhere.
    pub fn asks_clients(&self) -> bool {
        self.sites.rules().next().is_some() || self.protocols.rules().next().is_some()
    }

    /// The private protocols by their names in ALPN.
    pub fn protocols(&self) -> &[String] {
        self.protocols.alpn()
    }

    /// Takes over what the configuration before knows of servers that are the same: connections, health, turns, how many
    /// connections of private protocols there are; and of sites: what their bandwidth is spent on.
    pub(crate) fn take_over(&self, before: &Self) {
        for origin in &self.origins {
            if let Some(before) =
                before.origins.iter().find(|before| before.name() == origin.name())
            {
                origin.take_over(before);
            }
        }
        self.sites.take_over(&before.sites);
        self.protocols.take_over(&before.protocols);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_bounds_the_memory_of_connections() {
        let identity = Identity::self_signed(["a.example"]).unwrap();
        let bound = |limits: &str| {
            let text = format!(
                "listen = [\"127.0.0.1:0\"]\n[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{}}\n{limits}"
            );
            let directory = std::path::Path::new(".");
            let read = crate::config::parse_with(&text, directory, identity.clone()).unwrap();
            let mut sockets = EndpointConfig::default();
            read.limits.bound(&mut sockets);
            sockets.memory
        };
        assert_eq!(bound("[limits]\nmemory_mib = 64\n"), 64 << 20);
        assert_eq!(bound(""), EndpointConfig::default().memory);
    }
}
