//! Which congestion controller a connection over QUIC has: by what it is for, where it comes from, and how long a
//! round trip takes. That is known once the handshake is complete; then it is exchanged.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use ipnet::IpNet;
use quicket::Congestion;
use quicket::tokio::Connection;

use crate::metrics::Metrics;

/// A controller, and for which connections it is.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) congestion: Congestion,
    /// In lower case; any if there are none.
    pub(crate) names: Vec<String>,
    /// Any if there are none.
    pub(crate) alpn: Vec<String>,
    /// Any if there are none.
    pub(crate) networks: Vec<IpNet>,
    pub(crate) rtt: Range<Duration>,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
struct Known<'a> {
    name: Option<&'a str>,
    alpn: &'a [u8],
    client: IpAddr,
    rtt: Duration,
}

impl Rule {
    fn fits(&self, known: Known<'_>) -> bool {
        let is_name = |wanted: &String, name: &str| match wanted.strip_prefix("*.") {
            Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest == parent),
            None => wanted == name,
        };
        let name = known.name.map(str::to_ascii_lowercase);
        let has_name = || {
            name.as_deref()
                .is_some_and(|name| self.names.iter().any(|wanted| is_name(wanted, name)))
        };
        let client = known.client.to_canonical();
        (self.names.is_empty() || has_name())
            && (self.alpn.is_empty() || self.alpn.iter().any(|alpn| alpn.as_bytes() == known.alpn))
            && (self.networks.is_empty()
                || self.networks.iter().any(|network| network.contains(&client)))
            && self.rtt.contains(&known.rtt)
    }
}

/// All rules; the first that fits counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan(pub(crate) Vec<Rule>);

impl Plan {
    fn choose(&self, known: Known<'_>) -> Congestion {
        let rule = self.0.iter().find(|rule| rule.fits(known));
        rule.map(|rule| rule.congestion).unwrap_or_default()
    }

    /// Has a connection whose handshake is complete controlled as planned.
    pub(crate) fn apply(&self, connection: &Connection, metrics: &Metrics) {
        if let Some(handshake) = connection.handshake().filter(|_| !self.0.is_empty()) {
            connection.set_congestion(self.choose(Known {
                name: handshake.server_name.as_deref(),
                alpn: &handshake.alpn,
                client: connection.remote_addr().ip(),
                rtt: connection.stats().path.min_rtt,
            }));
        }
        metrics.controlled_by(connection.stats().path.congestion_controller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket::CongestionAlgorithm;

    const ALL: Range<Duration> = Duration::ZERO..Duration::MAX;

    fn rule(algorithm: CongestionAlgorithm) -> Rule {
        let congestion = algorithm.into();
        let (names, alpn, networks) = (Vec::new(), Vec::new(), Vec::new());
        Rule { congestion, names, alpn, networks, rtt: ALL }
    }

    #[test]
    fn the_first_that_fits_counts() {
        use CongestionAlgorithm::{Bbr, Cubic, NewReno};
        let millis = Duration::from_millis;
        let plan = Plan(vec![
            Rule {
                names: vec!["a.example".to_owned(), "*.b.example".to_owned()],
                alpn: vec!["h3".to_owned()],
                ..rule(NewReno)
            },
            Rule { networks: vec!["192.0.2.0/24".parse().unwrap()], ..rule(Bbr) },
            Rule { rtt: millis(100)..millis(200), ..rule(Bbr) },
        ]);
        let choose = |known| plan.choose(known).algorithm;
        let known = Known {
            name: Some("c.example"),
            alpn: b"h3",
            client: "198.51.100.1".parse().unwrap(),
            rtt: millis(10),
        };
        assert_eq!(choose(known), Cubic, "as ever");
        for name in ["a.example", "A.Example", "x.b.example"] {
            assert_eq!(choose(Known { name: Some(name), ..known }), NewReno, "{name}");
            assert_eq!(choose(Known { name: Some(name), alpn: b"x", ..known }), Cubic);
        }
        for name in [Some("b.example"), Some("y.x.b.example"), None] {
            assert_eq!(choose(Known { name, ..known }), Cubic, "{name:?}");
        }
        for client in ["192.0.2.7", "::ffff:192.0.2.7"] {
            assert_eq!(choose(Known { client: client.parse().unwrap(), ..known }), Bbr);
        }
        for (rtt, expected) in [(99, Cubic), (100, Bbr), (199, Bbr), (200, Cubic)] {
            assert_eq!(choose(Known { rtt: millis(rtt), ..known }), expected, "{rtt} ms");
        }
    }
}
