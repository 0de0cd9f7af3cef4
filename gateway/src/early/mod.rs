//! The register of tickets that brought early data, in common with the gateways of a cluster (docs/site.md).
//!
//! What is decided is in `quicket-register`; here are the store's connection and the clocks. TLS asks about a ticket by
//! [`ClusterRegister`], with nothing locked and without waiting; [`Keeper`] is the one task that speaks with the store.

mod batch;
mod bounded;
mod keeper;
mod place;
mod secured;
mod store;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quicket::{Beginning, SharedBeginning, StrikeAnswer, StrikeRegister, TicketId, Unasked};
use quicket_register::{
    BreakerState, Config, Failure, MAX_ASKED, Millis, Refusal, Register, SetReply,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::batch::Batch;
pub(crate) use self::keeper::Keeper;
pub(crate) use self::place::{Address, Place};
pub(crate) use self::secured::Secured;
use crate::metrics::RegisterMetrics;

/// What is hashed before the name that a register has in tickets.
const LABEL: &[u8] = b"quicket cluster register 2\0";

/// The register as TLS asks it.
pub(crate) struct ClusterRegister {
    register: Mutex<Register>,
    questions: mpsc::Sender<Asked>,
    /// Which store is asked, as tickets have it.
    beginning: SharedBeginning,
    /// How the store is asked from the next connection on.
    credentials: watch::Sender<Credentials>,
    began: Instant,
    metrics: RegisterMetrics,
}

/// What may change while the store stays the same.
#[derive(Clone)]
struct Credentials {
    password: Option<String>,
    secured: Option<Secured>,
}

impl Credentials {
    fn of(place: &Place) -> Self {
        Self { password: place.password.clone(), secured: place.secured.clone() }
    }
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
        let (credentials, beginning) =
            (watch::Sender::new(Credentials::of(&place)), SharedBeginning::default());
        let began = Instant::now();
        let this = Arc::new(Self { register, questions, beginning, credentials, began, metrics });
        let keeper = Keeper::new(Arc::clone(&this), asked, place);
        (this, keeper)
    }

    /// Which store is asked, for TLS to know: it changes with the store, whatever that is called.
    pub(crate) const fn shared_beginning(&self) -> &SharedBeginning {
        &self.beginning
    }

    /// The store is to be asked with this place's password and certificates, when it is next connected with.
    pub(crate) fn change_credentials(&self, place: &Place) {
        self.credentials.send_replace(Credentials::of(place));
    }

    /// The store with this ID is asked from now on.
    ///
    /// A ticket of another register may have been used where this one heard nothing of it, whatever its age: servers
    /// that ask different stores share keys while one of them is being exchanged for another, or by mistake. So only
    /// tickets count that were made where this store is asked.
    fn asks(&self, name: &str, id: &StoreId) {
        self.beginning.set(Beginning::known(register_name(name, id), u64::MAX));
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
    fn fail(self: &Arc<Self>, questions: Vec<Asked>) {
        if let Some(first) = questions.first().map(|asked| asked.at) {
            drop(Batch::new(Arc::clone(self), questions.len(), first));
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
            // There is room for all that may be asked; the keeper has ended, and with it all that is asked.
            let judged = self.lock().judge(self.at(at), 1, self.at(at), Err(Failure::Error));
            self.answer(error.into_inner().answer, judged.of(SetReply::Held));
        }
    }

    fn refused(&self, why: Unasked) {
        self.metrics.refused(why);
    }

    /// [`Self::shared_beginning`] says more; without it no ticket counts.
    fn beginning(&self) -> Option<Beginning> {
        Some(Beginning::UNKNOWN)
    }
}

impl fmt::Debug for ClusterRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterRegister").finish_non_exhaustive()
    }
}

/// What a store is known by, whatever its address: it is drawn when there is none, and lost with its data.
type StoreId = [u8; 16];

/// The name in tickets.
fn register_name(name: &str, id: &StoreId) -> [u8; 8] {
    let all = [LABEL, id, name.as_bytes()].concat();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &all);
    let mut out = [0; 8];
    out.iter_mut().zip(digest.as_ref()).for_each(|(out, octet)| *out = *octet);
    out
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_in_tickets_is_that_of_a_store_under_a_name() {
        let name = register_name("a", &[1; 16]);
        assert_eq!(name, register_name("a", &[1; 16]));
        assert_ne!(name, register_name("b", &[1; 16]));
        assert_ne!(name, register_name("a", &[2; 16]));
    }
}
