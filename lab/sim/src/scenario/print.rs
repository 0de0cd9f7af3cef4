//! From [`Scenario`] to text.

use std::fmt;

use super::{Action, Change, Scenario, Way};
use crate::link::{EcnTreatment, LinkSettings, Setting};
use crate::units::{print_rate, print_time};

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(delay) => write!(f, "delay={}", print_time(*delay)),
            Self::Jitter(jitter) => write!(f, "jitter={}", print_time(*jitter)),
            Self::Rate(rate) => write!(f, "rate={}", or_off(rate.map(print_rate))),
            Self::Queue(queue) => write!(f, "queue={}", or_off(*queue)),
            Self::Loss(loss) => write!(f, "loss={loss}"),
            Self::LossRun(packets) => write!(f, "loss-run={}", or_off(*packets)),
            Self::BurstLoss(loss) => write!(f, "burst-loss={}", or_off(*loss)),
            Self::Drop(list) => write!(f, "drop={list}"),
            Self::Corrupt(probability) => write!(f, "corrupt={probability}"),
            Self::CorruptRun(packets) => write!(f, "corrupt-run={}", or_off(*packets)),
            Self::Reorder(reorder) => write!(f, "reorder={}", or_off(*reorder)),
            Self::Duplicate(probability) => write!(f, "duplicate={probability}"),
            Self::Mtu(mtu) => write!(f, "mtu={}", or_off(*mtu)),
            Self::Mark(probability) => write!(f, "mark={probability}"),
            Self::MarkAbove(length) => write!(f, "mark-above={}", or_off(*length)),
            Self::Ecn(EcnTreatment::Keep) => f.write_str("ecn=keep"),
            Self::Ecn(EcnTreatment::Bleach) => f.write_str("ecn=bleach"),
            Self::Ecn(EcnTreatment::Mangle) => f.write_str("ecn=mangle"),
        }
    }
}

fn or_off(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "off".to_owned(), |value| value.to_string())
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(setting) => setting.fmt(f),
            Self::Blackhole(length) => write!(f, "blackhole={}", print_time(*length)),
            Self::Rebind(rebind) => write!(f, "rebind={rebind}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.when)?;
        if let Some(way) = self.way {
            write!(f, "{way} ")?;
        }
        self.action.fmt(f)
    }
}

/// The settings of `settings` that differ from the default, as words.
fn words(settings: impl Iterator<Item = Setting>) -> String {
    settings.map(|setting| setting.to_string()).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = LinkSettings::default()
            .list()
            .into_iter()
            .zip(self.up.list())
            .zip(self.down.list())
            .collect();
        let both = rows.iter().filter(|((default, up), down)| up == down && up != default);
        let up = rows.iter().filter(|((default, up), down)| up != down && up != default);
        let down = rows.iter().filter(|((default, up), down)| up != down && down != default);
        let mut clauses = vec![
            words(both.map(|((_, up), _)| up.clone())),
            words(up.map(|((_, up), _)| up.clone())),
            words(down.map(|(_, down)| down.clone())),
        ];
        for (clause, way) in clauses.iter_mut().skip(1).zip([Way::Up, Way::Down]) {
            if !clause.is_empty() {
                *clause = format!("{way} {clause}");
            }
        }
        clauses.extend(self.changes.iter().map(Change::to_string));
        clauses.retain(|clause| !clause.is_empty());
        f.write_str(&clauses.join("; "))
    }
}
