//! The register of tickets that brought early data, in common with the gateways of a cluster (docs/site.md).
//!
//! What is decided is in `quicket-register`; here are the store's connection and the clocks. TLS asks about a ticket by
//! [`ClusterRegister`], with nothing locked and without waiting; [`Keeper`] is the one task that speaks with the store.

mod keeper;
mod place;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quicket::{Beginning, StrikeAnswer, StrikeRegister, TicketId, Unasked};
use quicket_register::{BreakerState, Config, Failure, MAX_ASKED, Millis, Refusal, Register};
use tokio::sync::mpsc;
use tokio::time::Instant;

pub(crate) use self::keeper::Keeper;
pub(crate) use self::place::{Address, Place};
use crate::metrics::RegisterMetrics;

/// What is hashed before the name that a register has in tickets.
const LABEL: &[u8] = b"quicket cluster register 1\0";

/// The register as TLS asks it.
pub(crate) struct ClusterRegister {
    register: Mutex<Register>,
    questions: mpsc::Sender<Asked>,
    name: [u8; 8],
    began: Instant,
    metrics: RegisterMetrics,
}

/// A question that waits for the store's answer.
struct Asked {
    ticket: TicketId,
    at: Instant,
    answer: StrikeAnswer,
}

impl ClusterRegister {
    /// One that knows nothing of its store until its keeper runs.
    pub(crate) fn new(place: Place, metrics: RegisterMetrics) -> (Arc<Self>, Keeper) {
        let (questions, asked) = mpsc::channel(MAX_ASKED);
        let deadline = millis(place.deadline);
        let config = Config { deadline, replicas: place.replicas };
        let register = Mutex::new(Register::new(0, config));
        let name = name(&place.name);
        let this = Arc::new(Self { register, questions, name, began: Instant::now(), metrics });
        let keeper = Keeper::new(Arc::clone(&this), asked, place);
        (this, keeper)
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time by which all is decided.
    fn now(&self) -> Millis {
        self.at(Instant::now())
    }

    fn at(&self, instant: Instant) -> Millis {
        millis(instant.saturating_duration_since(self.began))
    }

    /// When a time comes.
    fn instant(&self, at: Millis) -> Instant {
        self.began + Duration::from_millis(at)
    }

    /// Gives an answer, and counts it.
    fn answer(&self, answer: StrikeAnswer, verdict: Result<(), Refusal>) {
        self.metrics.answered(verdict);
        answer.give(verdict.is_ok());
    }

    /// Questions come to their end without answers.
    fn fail(&self, questions: Vec<Asked>) {
        let Some(first) = questions.first().map(|asked| self.at(asked.at)) else { return };
        let now = self.now();
        let judged = self.lock().judge(now, questions.len(), first, Err(Failure::Error));
        for asked in questions {
            self.answer(asked.answer, judged.of(quicket_register::SetReply::Held));
        }
    }

    /// What the breaker does, and whether the store would be asked.
    fn state(&self) -> (BreakerState, Result<(), Refusal>) {
        let (now, register) = (self.now(), self.lock());
        (register.breaker(now), register.standing(now))
    }
}

impl StrikeRegister for ClusterRegister {
    fn ask(&self, ticket: &TicketId, now: u64, answer: StrikeAnswer) {
        let at = Instant::now();
        let asked = self.lock().ask(self.at(at), now, ticket);
        if let Err(why) = asked {
            return self.answer(answer, Err(why));
        }
        self.metrics.asked();
        let asked = Asked { ticket: *ticket, at, answer };
        if let Err(error) = self.questions.try_send(asked) {
            // There is room for all that may be asked; the keeper has ended.
            self.fail(vec![error.into_inner()]);
        }
    }

    fn refused(&self, why: Unasked) {
        self.metrics.refused(why);
    }

    /// A ticket of another register may have been used where this one heard nothing of it, whatever its age: servers
    /// that ask different stores share keys while one of them is being exchanged for another. So only tickets count
    /// that were made where this register is asked.
    fn beginning(&self) -> Option<Beginning> {
        Some(Beginning::known(self.name, u64::MAX))
    }
}

impl fmt::Debug for ClusterRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterRegister").finish_non_exhaustive()
    }
}

/// The name in tickets.
fn name(name: &str) -> [u8; 8] {
    let digest =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &[LABEL, name.as_bytes()].concat());
    let mut out = [0; 8];
    out.iter_mut().zip(digest.as_ref()).for_each(|(out, octet)| *out = *octet);
    out
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
