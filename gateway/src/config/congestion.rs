//! Congestion control in the file, and its check.

use std::time::Duration;

use ipnet::IpNet;
use quicket::CongestionAlgorithm;
use serde::Deserialize;

use super::check::Problems;
use super::site::is_dns_name;
use crate::congestion::{Plan, Rule};

/// Which congestion controller connections over QUIC have; the first that fits one counts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Congestion {
    /// The controller.
    pub algorithm: Algorithm,
    /// Server names of the handshake: DNS names; `*.` and a name for its direct subdomains. Any if there are none.
    #[serde(default)]
    pub names: Vec<String>,
    /// Application protocols (ALPN), such as `h3`; any if there are none.
    #[serde(default)]
    pub alpn: Vec<String>,
    /// Networks of clients; any if there are none.
    #[serde(default)]
    pub networks: Vec<IpNet>,
    /// Round trip times that the handshake has measured, in milliseconds: so long at least.
    #[serde(default)]
    pub rtt_from_ms: Option<u64>,
    /// ... and shorter than this.
    #[serde(default)]
    pub rtt_below_ms: Option<u64>,
}

/// A congestion controller.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// RFC 9002, Section 7.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// BBR version 3.
    Bbr,
}

/// Checks all of them.
pub(super) fn check(all: &[Congestion], protocols: &[String], problems: &mut Problems) -> Plan {
    let mut plan = Plan::default();
    for (at, one) in all.iter().enumerate() {
        let place = format!("congestion {}", at + 1);
        for name in &one.names {
            if !is_dns_name(name.strip_prefix("*.").unwrap_or(name)) {
                let what =
                    format!("{name:?} is no DNS name, nor *.NAME; without names it is for all");
                problems.add(format!("{place}.names"), what);
            }
        }
        for alpn in one.alpn.iter().filter(|alpn| !protocols.contains(alpn)) {
            problems.add(
                format!("{place}.alpn"),
                format!("{alpn:?} is not served over QUIC; there are: {}", protocols.join(", ")),
            );
        }
        let (from, below) = (one.rtt_from_ms.unwrap_or(0), one.rtt_below_ms.unwrap_or(u64::MAX));
        if from >= below {
            problems.add(format!("{place}.rtt_below_ms"), "no round trip time is left");
        }
        let fits_all = |one: &Congestion| {
            one.names.is_empty()
                && one.alpn.is_empty()
                && one.networks.is_empty()
                && one.rtt_from_ms.unwrap_or(0) == 0
                && one.rtt_below_ms.is_none()
        };
        if all[..at].iter().any(fits_all) {
            problems.add(&place, "is never taken: one before it is for all connections");
        }
        plan.0.push(Rule {
            algorithm: match one.algorithm {
                Algorithm::NewReno => CongestionAlgorithm::NewReno,
                Algorithm::Cubic => CongestionAlgorithm::Cubic,
                Algorithm::Bbr => CongestionAlgorithm::Bbr,
            },
            names: one.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            alpn: one.alpn.clone(),
            networks: one.networks.clone(),
            rtt: Duration::from_millis(from)..Duration::from_millis(below),
        });
    }
    plan
}
