//! Certificates that the gateway gets by itself (ACME, RFC 8555), by the library `instant-acme`.
//!
//! `plan` is what the file says. `schedule` says when something is due, and is pure; `state` is what is kept on disk;
//! `challenges` are the answers for an authority that looks whether names lead here; `client` reaches it, and `order` is
//! the talk with it. `keeper` is the task around all of that.

mod challenges;
mod client;
mod keeper;
mod order;
mod plan;
mod schedule;
mod state;

use std::sync::{Arc, OnceLock};

pub(crate) use self::challenges::Challenges;
pub(crate) use self::keeper::keep;
pub(crate) use self::plan::{External, Plan, Wanted};
use self::state::{Kept, State};
use crate::metrics::Metrics;
use crate::presented::{Ordered, Presented};
use quicket::{Identity, ServerTls};

/// Who is told what happens, besides the log.
pub(crate) type Hearer = Box<dyn Fn(&str) + Send + Sync>;

/// What the task works on. Clones are the same.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) tls: ServerTls,
    pub(crate) presented: Arc<Presented>,
    pub(crate) challenges: Arc<Challenges>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) hearer: Arc<OnceLock<Hearer>>,
}

impl Context {
    /// Tells what has happened, or gone wrong.
    fn tell(&self, is_bad: bool, what: &str) {
        match self.hearer.get() {
            Some(hear) => hear(&format!("ACME: {what}")),
            None if is_bad => log::warn!("ACME: {what}"),
            None => log::info!("ACME: {what}"),
        }
    }

    /// Has clients get a certificate from now on. Not for tasks: a reload may hold the certificates.
    fn present(&self, wanted: &Wanted, kept: &Kept) {
        let presented = self.presented.lock().order(wanted, kept.identity.clone(), self);
        if let Err(error) = presented {
            self.tell(
                true,
                &format!("the certificate for {} cannot be used: {error}", wanted.name()),
            );
        }
    }
}

/// The certificates of a plan as far as they are here, and for the others one that stands in its place. Those that
/// `before` has go on.
///
/// # Errors
///
/// If they could not be kept, in words.
pub(crate) fn begin(plan: &Plan, before: &[Ordered]) -> Result<Vec<Ordered>, String> {
    let state = State::open(&plan.state)?;
    let place = |wanted: &Arc<Wanted>| {
        let known = before.iter().find(|known| known.wanted.id == wanted.id);
        if let Some(known) = known.filter(|known| !known.stands_in) {
            return Ok(Ordered { wanted: Arc::clone(wanted), ..known.clone() });
        }
        let found = state.certificate(wanted).unwrap_or_else(|what| {
            log::warn!("ACME: {what}: there will be another one");
            None
        });
        let (identity, stands_in) = match (found, known) {
            (Some(kept), _) => (kept.identity, false),
            (None, Some(known)) => (known.identity.clone(), true),
            (None, None) => {
                log::warn!(
                    "ACME: there is no certificate for {} yet: until it comes, clients get a self-signed one, which \
                     they refuse",
                    wanted.names.join(", ")
                );
                let identity = Identity::self_signed(wanted.names.iter().map(String::as_str));
                (identity.map_err(|error| error.to_string())?, true)
            }
        };
        Ok(Ordered { wanted: Arc::clone(wanted), identity, stands_in })
    };
    plan.wanted.iter().map(place).collect()
}
