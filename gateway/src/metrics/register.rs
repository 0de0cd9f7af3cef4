//! Counters of the register of tickets that brought early data.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use quicket::Unasked;
use quicket_register::{BreakerState, Refusal};

use super::add;
use super::histogram::Histogram;

/// Those of the register that gateways have in common.
#[derive(Clone, Debug)]
pub(crate) struct RegisterMetrics {
    tickets: Family<Outcome, Counter>,
    questions: Counter,
    seconds: Histogram,
    breaker: Gauge,
    takes: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

impl RegisterMetrics {
    pub(super) fn new(all: &mut Registry) -> Self {
        Self {
            tickets: add(
                all,
                "early_data",
                "Tickets that came with early data, by what the register of the site said",
            ),
            questions: add(all, "register_questions", "Tickets about which the store was asked"),
            seconds: add(all, "register_seconds", "Time from a question to the store's answer"),
            breaker: add(
                all,
                "register_breaker",
                "0: the store is asked; 1: it is tried; 2: it has failed, and is left alone",
            ),
            takes: add(
                all,
                "register_takes",
                "1 where early data is taken, 0 where all is refused",
            ),
        }
    }

    /// Counts a ticket.
    pub(crate) fn answered(&self, verdict: Result<(), Refusal>) {
        let outcome = verdict.map_or_else(Refusal::name, |()| "first");
        self.tickets.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a ticket about which the register was not asked.
    pub(crate) fn refused(&self, why: Unasked) {
        let outcome = match why {
            Unasked::NotResumed => "not_resumed",
            Unasked::Promised => "promised_more",
            Unasked::Future => "future",
            Unasked::OtherRegister => "other_register",
            _ => "other",
        };
        self.tickets.get_or_create(&Outcome { outcome }).inc();
    }

    /// Counts a question.
    pub(crate) fn asked(&self) {
        self.questions.inc();
    }

    /// Counts how long an answer took.
    pub(crate) fn took(&self, took: Duration) {
        self.seconds.observe(took);
    }

    /// How the store is.
    pub(crate) fn state(&self, breaker: BreakerState, standing: Result<(), Refusal>) {
        self.breaker.set(match breaker {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        });
        self.takes.set(standing.is_ok().into());
    }
}
