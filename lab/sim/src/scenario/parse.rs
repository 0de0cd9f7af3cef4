//! From text to [`Scenario`].

use std::fmt;
use std::str::FromStr;

use quicket_engine::time::Duration;

use super::{Action, Change, Scenario, Way};
use crate::link::{EcnTreatment, Setting};
use crate::schedule::When;
use crate::units::{parse_rate, parse_time};

/// Why a text is not a scenario, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    pub(super) clause: String,
    pub(super) reason: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scenario clause `{}`: {}", self.clause, self.reason)
    }
}

impl std::error::Error for ScenarioError {}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        if let Some(scenario) = super::runner::parse(text)? {
            return Ok(scenario);
        }
        let mut scenario = Self::default();
        let clauses = text.split(';').map(str::trim).enumerate().filter(|(_, c)| !c.is_empty());
        for (position, clause) in clauses {
            if position == 0 && !clause.contains(['=', ' ']) {
                scenario = Self::named(clause).ok_or_else(|| unknown_name(clause))?;
                continue;
            }
            let add = |reason| ScenarioError { clause: clause.to_owned(), reason };
            scenario.add_clause(clause).map_err(add)?;
        }
        Ok(scenario)
    }
}

fn unknown_name(name: &str) -> ScenarioError {
    let reason = format!("no scenario has this name; use one of {}", Scenario::NAMES.join(", "));
    ScenarioError { clause: name.to_owned(), reason }
}

impl Scenario {
    fn add_clause(&mut self, clause: &str) -> Result<(), String> {
        let mut words: Vec<&str> = clause.split_whitespace().collect();
        let when = take_when(&mut words)?;
        let way = match words.first() {
            Some(&"up") => Some(Way::Up),
            Some(&"down") => Some(Way::Down),
            _ => None,
        };
        let settings = words.get(usize::from(way.is_some())..).unwrap_or(&[]);
        if settings.is_empty() {
            return Err("nothing is set here; write at least one `key=value`".to_owned());
        }
        for word in settings {
            self.add_action(when, way, parse_action(word)?)?;
        }
        Ok(())
    }

    fn add_action(
        &mut self,
        when: Option<When>,
        way: Option<Way>,
        action: Action,
    ) -> Result<(), String> {
        if matches!(action, Action::Rebind(_)) && way.is_some() {
            return Err("a rebinding concerns the whole path; leave `up` or `down` away".to_owned());
        }
        match (when, action) {
            (None, Action::Set(setting)) => {
                if way != Some(Way::Down) {
                    self.up.set(setting.clone());
                }
                if way != Some(Way::Up) {
                    self.down.set(setting);
                }
            }
            (None, Action::Rebind(_)) => {
                return Err("say when to rebind: `at TIME` or `every TIME` before it".to_owned());
            }
            (when, action) => {
                let when = when.unwrap_or(When::At(Duration::ZERO));
                self.changes.push(Change { when, way, action });
            }
        }
        Ok(())
    }
}

/// Takes `at TIME`, `every TIME` or `every TIME from TIME` from the front.
fn take_when(words: &mut Vec<&str>) -> Result<Option<When>, String> {
    let time = |i: usize| match words.get(i) {
        Some(word) => parse_time(word),
        None => Err("a time is missing, such as `5s`".to_owned()),
    };
    let (taken, when) = match words.first() {
        Some(&"at") => (2, When::At(time(1)?)),
        Some(&"every") => {
            let period = time(1)?;
            if period.is_zero() {
                return Err("`every` needs a time above 0".to_owned());
            }
            if words.get(2) == Some(&"from") {
                (4, When::Every { period, first: time(3)? })
            } else {
                (2, When::every(period))
            }
        }
        _ => return Ok(None),
    };
    words.drain(..taken);
    Ok(Some(when))
}

fn parse_action(word: &str) -> Result<Action, String> {
    let (key, value) = word.split_once('=').ok_or_else(|| {
        format!("`{word}` is neither a direction (`up`, `down`) nor a `key=value`")
    })?;
    let setting = match key {
        "blackhole" => return Ok(Action::Blackhole(parse_time(value)?)),
        "rebind" => return Ok(Action::Rebind(value.parse()?)),
        "delay" => Setting::Delay(parse_time(value)?),
        "jitter" => Setting::Jitter(parse_time(value)?),
        "rate" => Setting::Rate(optional(value, parse_rate)?),
        "queue" => Setting::Queue(optional(value, str::parse)?),
        "loss" => Setting::Loss(value.parse()?),
        "loss-run" => Setting::LossRun(optional(value, parse_run)?),
        "burst-loss" => Setting::BurstLoss(optional(value, str::parse)?),
        "drop" => Setting::Drop(value.parse()?),
        "corrupt" => Setting::Corrupt(value.parse()?),
        "corrupt-run" => Setting::CorruptRun(optional(value, parse_run)?),
        "reorder" => Setting::Reorder(optional(value, str::parse)?),
        "duplicate" => Setting::Duplicate(value.parse()?),
        "mtu" => Setting::Mtu(optional(value, parse_mtu)?),
        "mark" => Setting::Mark(value.parse()?),
        "mark-above" => Setting::MarkAbove(optional(value, str::parse)?),
        "ecn" => Setting::Ecn(parse_ecn(value)?),
        _ => {
            return Err(format!(
                "`{key}` is not a setting; use one of blackhole, rebind, delay, jitter, rate, queue, loss, loss-run, burst-loss, drop, corrupt, corrupt-run, reorder, duplicate, mtu, mark, mark-above, ecn"
            ));
        }
    };
    Ok(Action::Set(setting))
}

fn optional<T>(
    value: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if value == "off" { Ok(None) } else { parse(value).map(Some) }
}

fn parse_mtu(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| {
        format!(
            "`{value}` is not an MTU: write the bytes of an IP packet, such as `1500`, or `off`"
        )
    })
}

fn parse_run(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| {
        format!("`{value}` is not a number of packets in a row: write it as `3`, or `off`")
    })
}

fn parse_ecn(value: &str) -> Result<EcnTreatment, String> {
    match value {
        "keep" => Ok(EcnTreatment::Keep),
        "bleach" => Ok(EcnTreatment::Bleach),
        "mangle" => Ok(EcnTreatment::Mangle),
        _ => Err(format!("`{value}` is not what can happen to ECN: write keep, bleach or mangle")),
    }
}
