//! Congestion control in the file, and its check.

use std::time::Duration;

use ipnet::IpNet;
use quicket::{CongestionAlgorithm, CongestionParameters};
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
    /// How much may be in flight before anything is acknowledged, in full datagrams, 2 to 100.
    #[serde(default)]
    pub initial_window: Option<u16>,
    /// What CUBIC leaves of its window after a loss, 0.5 to 0.9.
    #[serde(default)]
    pub cubic_beta: Option<f64>,
    /// CUBIC gives way to new flows after a loss.
    #[serde(default)]
    pub cubic_fast_convergence: Option<bool>,
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
        let parameters = parameters(one, &place, problems);
        let algorithm = match one.algorithm {
            Algorithm::NewReno => CongestionAlgorithm::NewReno,
            Algorithm::Cubic => CongestionAlgorithm::Cubic,
            Algorithm::Bbr => CongestionAlgorithm::Bbr,
        };
        plan.0.push(Rule {
            congestion: quicket::Congestion { algorithm, parameters },
            names: one.names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            alpn: one.alpn.clone(),
            networks: one.networks.clone(),
            rtt: Duration::from_millis(from)..Duration::from_millis(below),
        });
    }
    plan
}

fn parameters(one: &Congestion, place: &str, problems: &mut Problems) -> CongestionParameters {
    let mut parameters = CongestionParameters::DEFAULT;
    if let Some(window) = one.initial_window {
        let range = CongestionParameters::INITIAL_WINDOW;
        if !range.contains(&window) {
            let what = format!("is not within {} and {} datagrams", range.start(), range.end());
            problems.add(format!("{place}.initial_window"), what);
        }
        parameters.initial_window = window;
    }
    let of_cubic = [
        ("cubic_beta", one.cubic_beta.is_some()),
        ("cubic_fast_convergence", one.cubic_fast_convergence.is_some()),
    ];
    for (field, _) in of_cubic.iter().filter(|(_, is_there)| *is_there) {
        if one.algorithm != Algorithm::Cubic {
            problems.add(format!("{place}.{field}"), "has no effect: algorithm is not \"cubic\"");
        }
    }
    if let Some(beta) = one.cubic_beta {
        // What is no number is not within them either.
        let percent = (beta * 100.0).round();
        let (low, high) = CongestionParameters::CUBIC_BETA.into_inner();
        if (f64::from(low)..=f64::from(high)).contains(&percent) {
            parameters.cubic_beta = percent as u8;
        } else {
            problems.add(format!("{place}.cubic_beta"), "is not within 0.5 and 0.9");
        }
    }
    parameters.cubic_fast_convergence = one.cubic_fast_convergence.unwrap_or(true);
    parameters
}
