//! Scenarios as the simulator of the QUIC interop runner takes them.
//!
//! Names, options and their defaults are those of `quic-network-simulator`. Its links carry
//! packets of 1500 bytes. Where it replaces one byte of the first 50, bits flip here.

use super::parse::ScenarioError;
use super::{Action, Change, Scenario, Way};
use crate::link::LinkSettings;
use crate::nat::Rebind;
use crate::schedule::When;
use crate::units::{Probability, parse_rate, parse_time};

/// The MTU of the simulator's links, in bytes of an IP packet.
const MTU: u32 = 1500;
/// Most black holes in a row that are written down.
const MAX_REPEATS: u64 = 1000;

/// Parses `NAME --OPTION=VALUE ...`; `None` if `text` is not of that form.
pub(super) fn parse(text: &str) -> Result<Option<Scenario>, ScenarioError> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    if !text.contains(" --") || name.contains('=') {
        return Ok(None);
    }
    let fail = |reason| ScenarioError { clause: text.trim().to_owned(), reason };
    let mut options = Options::new(words).map_err(fail)?;
    let scenario = named(name, &mut options).map_err(fail)?;
    options.finish().map_err(fail)?;
    Ok(Some(scenario))
}

fn named(name: &str, options: &mut Options<'_>) -> Result<Scenario, String> {
    let base = LinkSettings {
        delay: options.required("delay", parse_time)?,
        rate: Some(options.required("bandwidth", bandwidth)?),
        queue: Some(options.required("queue", str::parse)?),
        mtu: Some(MTU),
        ..LinkSettings::default()
    };
    let mut scenario = Scenario { up: base.clone(), down: base, changes: Vec::new() };
    let Scenario { up, down, changes } = &mut scenario;
    match name {
        "simple-p2p" => {}
        "droplist" => {
            up.drop = options.optional("drops_to_server", str::parse)?.unwrap_or_default();
            down.drop = options.optional("drops_to_client", str::parse)?.unwrap_or_default();
        }
        "drop-rate" => {
            up.loss = options.required("rate_to_server", percent)?;
            down.loss = options.required("rate_to_client", percent)?;
            up.loss_run = options.optional("burst_to_server", number)?;
            down.loss_run = options.optional("burst_to_client", number)?;
        }
        "corrupt-rate" => {
            up.corrupt = options.required("rate_to_server", percent)?;
            down.corrupt = options.required("rate_to_client", percent)?;
            up.corrupt_run = options.optional("burst_to_server", number)?;
            down.corrupt_run = options.optional("burst_to_client", number)?;
        }
        "blackhole" => *changes = blackholes(options)?,
        "rebind" => changes.push(rebinding(options)?),
        _ => {
            return Err(format!(
                "`{name}` is not a scenario of the interop runner; use one of simple-p2p, \
                 droplist, drop-rate, corrupt-rate, blackhole, rebind"
            ));
        }
    }
    Ok(scenario)
}

fn blackholes(options: &mut Options<'_>) -> Result<Vec<Change>, String> {
    let on = options.required("on", parse_time)?;
    let off = options.required("off", parse_time)?;
    let repeat = options.optional("repeat", number)?.unwrap_or(1).min(MAX_REPEATS);
    let way = options.optional("direction", direction)?.unwrap_or(None);
    let at = |index: u64| on + (on + off).times(index);
    let change = |index| Change { when: When::At(at(index)), way, action: Action::Blackhole(off) };
    Ok((0..repeat).map(change).collect())
}

fn rebinding(options: &mut Options<'_>) -> Result<Change, String> {
    let first = options.required("first-rebind", parse_time)?;
    let period = options.optional("rebind-freq", parse_time)?.filter(|period| !period.is_zero());
    let when = period.map_or(When::At(first), |period| When::Every { period, first });
    let rebind = if options.flag("rebind-addr") { Rebind::Address } else { Rebind::Port };
    Ok(Change { when, way: None, action: Action::Rebind(rebind) })
}

/// `10Mbps`, in bits per second.
fn bandwidth(value: &str) -> Result<u64, String> {
    let units = [("Gbps", "gbit"), ("Mbps", "mbit"), ("kbps", "kbit"), ("bps", "bit")];
    let of = |(theirs, ours): (&str, &str)| {
        value.strip_suffix(theirs).and_then(|number| parse_rate(&format!("{number}{ours}")).ok())
    };
    units.into_iter().find_map(of).ok_or_else(|| {
        format!("`{value}` is not a bandwidth: write a number above 0 as `10Mbps` or `1Gbps`")
    })
}

fn percent(value: &str) -> Result<Probability, String> {
    format!("{value}%").parse().map_err(|_| {
        format!("`{value}` is not a rate: write percents from 0 to 100 without a sign")
    })
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("`{value}` is not a whole number"))
}

fn direction(value: &str) -> Result<Option<Way>, String> {
    match value {
        "both" => Ok(None),
        "toserver" => Ok(Some(Way::Up)),
        "toclient" => Ok(Some(Way::Down)),
        _ => Err(format!("`{value}` is not a direction: write both, toclient or toserver")),
    }
}

/// Options that were written and not asked for yet.
struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    fn new(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let option = |word: &'a str| -> Result<(&'a str, &'a str), String> {
            let option = word
                .strip_prefix("--")
                .ok_or_else(|| format!("`{word}` is not an option: write `--NAME=VALUE`"))?;
            Ok(option.split_once('=').unwrap_or((option, "")))
        };
        words.map(option).collect::<Result<_, String>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<&'a str> {
        let index = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.remove(index).1)
    }

    fn flag(&mut self, name: &str) -> bool {
        self.take(name).is_some()
    }

    fn optional<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.take(name)
            .map(|value| parse(value).map_err(|why| format!("--{name}: {why}")))
            .transpose()
    }

    fn required<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        self.optional(name, parse)?.ok_or_else(|| format!("--{name} is missing; it has no default"))
    }

    fn finish(&self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!("this scenario has no option --{name}; leave it away")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(text: &str) -> Scenario {
        text.parse().unwrap()
    }

    #[test]
    fn the_scenarios_of_the_runner_say_the_same_in_our_words() {
        const P2P: &str = "--delay=15ms --bandwidth=10Mbps --queue=25";
        let base = "delay=15ms rate=10mbit queue=25 mtu=1500";
        let cases = [
            (format!("simple-p2p {P2P}"), base.to_owned()),
            (
                format!("droplist {P2P} --drops_to_server=2,3,4,5,6,7"),
                format!("{base}; up drop=2,3,4,5,6,7"),
            ),
            (
                format!(
                    "drop-rate {P2P} --rate_to_server=30 --rate_to_client=20 \
                         --burst_to_server=3 --burst_to_client=4"
                ),
                format!("{base}; up loss=30% loss-run=3; down loss=20% loss-run=4"),
            ),
            (
                format!("corrupt-rate {P2P} --rate_to_server=2 --rate_to_client=2"),
                format!("{base} corrupt=2%"),
            ),
            (format!("blackhole {P2P} --on=5s --off=2s"), format!("{base}; at 5s blackhole=2s")),
            (
                format!("blackhole {P2P} --on=5s --off=2s --repeat=2 --direction=toclient"),
                format!("{base}; at 5s down blackhole=2s; at 12s down blackhole=2s"),
            ),
            (
                format!("rebind {P2P} --first-rebind=1s --rebind-freq=5s --rebind-addr"),
                format!("{base}; every 5s from 1s rebind=address"),
            ),
            (format!("rebind {P2P} --first-rebind=1s"), format!("{base}; at 1s rebind=port")),
        ];
        for (theirs, ours) in cases {
            assert_eq!(scenario(&theirs), scenario(&ours), "{theirs}");
        }
    }

    #[test]
    fn errors_say_what_is_missing_wrong_or_too_much() {
        const P2P: &str = "simple-p2p --delay=15ms --bandwidth=10Mbps";
        let cases = [
            (P2P.to_owned(), "--queue is missing"),
            (format!("{P2P} --queue=25 --rate=3"), "no option --rate"),
            (format!("{P2P} --queue=25 rate"), "write `--NAME=VALUE`"),
            ("star --delay=1ms --bandwidth=1Mbps --queue=1".to_owned(), "use one of simple-p2p"),
            ("simple-p2p --delay=1ms --bandwidth=1Mb --queue=1".to_owned(), "as `10Mbps`"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Scenario>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
