//! The task that has certificates ordered: one at a time, each when it is due.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use quicket::Identity;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Context;
use super::order::{Authority, Failure};
use super::plan::{Plan, Wanted};
use super::schedule::{self, Window};
use super::state::{Kept, State, Tried, Turn};
use crate::stage::Ending;

/// How often a process that may not order looks whether it may, and what another one has ordered.
const LOOK: Duration = Duration::from_secs(1);
/// How long is slept at once: a clock that is set, or a machine that was suspended, is noticed by then.
const NAP: Duration = Duration::from_secs(60);
/// How often an authority is asked when to renew, unless it says otherwise; and how often at most, and at least.
const ASK: Duration = Duration::from_secs(6 * 60 * 60);
const ASK_OFTEN: Duration = Duration::from_secs(60);
const ASK_SELDOM: Duration = Duration::from_secs(24 * 60 * 60);

/// Keeps the certificates of the plan that counts, until nothing new is taken by this process.
pub(crate) async fn keep(
    mut plan: watch::Receiver<Option<Arc<Plan>>>,
    context: Context,
    mut ending: Ending,
) {
    loop {
        let now = plan.borrow_and_update().clone();
        let keeping = async {
            match now {
                Some(plan) => run(plan, &context).await,
                None => std::future::pending().await,
            }
        };
        // Whatever is under way ends here: answers to challenges are withdrawn, and the lock is free.
        tokio::select! {
            never = keeping => match never {},
            changed = plan.changed() => if changed.is_err() { return },
            () = ending.takes_nothing_new() => return,
        }
    }
}

/// A certificate, and when something is to be done for it.
struct Entry {
    wanted: Arc<Wanted>,
    kept: Option<Kept>,
    tried: Tried,
    /// What the authority suggests.
    window: Option<Window>,
    /// When it is asked next.
    ask: SystemTime,
    /// Failures in a row, in this process.
    failures: u32,
    /// Not tried before.
    rests: SystemTime,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Order,
    Ask,
}

impl Entry {
    fn load(state: &State, wanted: &Arc<Wanted>, now: SystemTime) -> Self {
        // What is damaged was told when it was taken up.
        let kept = state.certificate(wanted).ok().flatten();
        let tried = state.tried(wanted);
        let rests = schedule::first_attempt(now, tried.failed());
        let wanted = Arc::clone(wanted);
        Self { wanted, kept, tried, window: None, ask: now, failures: 0, rests }
    }

    fn next(&self) -> (SystemTime, Step) {
        let Some(kept) = &self.kept else { return (self.rests, Step::Order) };
        let share = share(&kept.identity);
        let due = schedule::due(kept.life, self.tried.ordered(), self.window, share);
        (due.max(self.rests), Step::Order).min((self.ask, Step::Ask))
    }
}

/// Where a certificate comes in the window of the authority: by its hash, the same after a restart.
fn share(identity: &Identity) -> u16 {
    let [first, second, ..] = identity.fingerprint().0;
    u16::from_be_bytes([first, second])
}

fn jitter() -> u16 {
    let mut bytes = [0; 2];
    // Without it, those who failed together try again together.
    let _ = SystemRandom::new().fill(&mut bytes);
    u16::from_be_bytes(bytes)
}

async fn run(plan: Arc<Plan>, context: &Context) -> Infallible {
    let state = loop {
        let path = plan.state.clone();
        match spawn_blocking(move || State::open(&path)).await {
            Ok(Ok(state)) => break state,
            Ok(Err(error)) => context.tell(true, &error),
            Err(error) => context.tell(true, &error.to_string()),
        }
        sleep(NAP).await;
    };
    let turn = turn(&plan, &state, context).await;
    let state = state.holding(turn);
    let mut entries = load(&plan, &state, context).await;
    loop {
        let next = entries.iter_mut().map(|entry| (entry.next(), entry)).min_by_key(|(at, _)| *at);
        let Some(((at, step), entry)) = next else {
            // A plan has one certificate at least.
            std::future::pending::<()>().await;
            continue;
        };
        if let Ok(left) = at.duration_since(SystemTime::now()) {
            sleep(left.min(NAP)).await;
            if left > NAP {
                continue;
            }
        }
        match step {
            Step::Order => order(&plan, &state, context, entry).await,
            Step::Ask => ask(&plan, &state, context, entry).await,
        }
    }
}

/// Waits for the right to order. What another process has ordered meanwhile is taken up.
async fn turn(plan: &Arc<Plan>, state: &State, context: &Context) -> Turn {
    let mut known = Vec::new();
    let mut is_told = false;
    loop {
        let of_disk = state.clone();
        match spawn_blocking(move || of_disk.turn()).await {
            Ok(Ok(Some(turn))) => return turn,
            Ok(Ok(None)) if !is_told => {
                is_told = true;
                log::info!(
                    "another process orders certificates in {}: they are taken up",
                    plan.state.display()
                );
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) if !is_told => {
                is_told = true;
                context.tell(true, &format!("cannot lock {}: {error}", plan.state.display()));
            }
            _ => {}
        }
        let (of_disk, of_plan) = (state.clone(), Arc::clone(plan));
        let written = spawn_blocking(move || {
            of_plan.wanted.iter().map(|wanted| of_disk.written(wanted)).collect::<Vec<_>>()
        });
        let written = written.await.unwrap_or_default();
        if written != known {
            known = written;
            load(plan, state, context).await;
        }
        sleep(LOOK).await;
    }
}

/// Reads all certificates, and has clients get them.
async fn load(plan: &Arc<Plan>, state: &State, context: &Context) -> Vec<Entry> {
    let (of_plan, state, context) = (Arc::clone(plan), state.clone(), context.clone());
    let load = move || {
        let now = SystemTime::now();
        let all = of_plan.wanted.iter().map(|wanted| Entry::load(&state, wanted, now));
        let all: Vec<Entry> = all.collect();
        for entry in &all {
            if let Some(kept) = &entry.kept {
                context.present(&entry.wanted, kept);
            }
        }
        all
    };
    spawn_blocking(load).await.unwrap_or_default()
}

/// Orders a certificate, and has clients get it.
async fn order(plan: &Plan, state: &State, context: &Context, entry: &mut Entry) {
    let mut ordered = attempt(plan, state, context, entry).await;
    if ordered.as_ref().is_err_and(|failure| failure.has_no_account) {
        // The authority has forgotten it, or begun anew.
        let (of_disk, id) = (state.clone(), plan.account());
        let _ = spawn_blocking(move || of_disk.discard_account(&id)).await;
        context.tell(true, "the authority does not know the account: there will be another one");
        ordered = attempt(plan, state, context, entry).await;
    }
    context.metrics.ordered(ordered.is_ok());
    let now = SystemTime::now();
    match ordered {
        Ok(kept) => {
            entry.failures = 0;
            entry.window = None;
            entry.rests = now;
            entry.tried.succeed(now);
            entry.ask =
                now + (kept.life.not_after.duration_since(now).unwrap_or_default() / 4).min(ASK);
            let until = httpdate::fmt_http_date(kept.life.not_after);
            let names = entry.wanted.names.join(", ");
            keep_certificate(state, context, entry, kept).await;
            // Clients get it by now.
            context.tell(false, &format!("there is a new certificate for {names}, until {until}"));
        }
        Err(failure) => {
            entry.failures = entry.failures.saturating_add(1);
            let (failures, trouble) = (entry.failures, failure.trouble);
            let pause = schedule::pause(failures, trouble, failure.asked, jitter());
            entry.rests = now + pause;
            entry.tried.fail(now);
            let stays = match &entry.kept {
                Some(_) => "the one that is here stays",
                None => "there is none yet",
            };
            context.tell(
                true,
                &format!(
                    "no new certificate for {}: {failure}; {stays}, and the next attempt is in {} s",
                    entry.wanted.name(),
                    pause.as_secs()
                ),
            );
        }
    }
    let (of_disk, wanted, tried) = (state.clone(), Arc::clone(&entry.wanted), entry.tried);
    let kept = spawn_blocking(move || of_disk.keep_tried(&wanted, tried)).await;
    if let Ok(Err(error)) = kept {
        context.tell(true, &error);
    }
}

async fn attempt(
    plan: &Plan,
    state: &State,
    context: &Context,
    entry: &Entry,
) -> Result<Kept, Failure> {
    let warn = |what: String| context.tell(true, &what);
    let authority = Authority::reach(plan, state, warn).await?;
    let before = entry.kept.as_ref().map(|kept| &kept.identity);
    authority.order(plan, &entry.wanted, before, &context.challenges).await
}

/// What cannot be written down is used all the same, and another one is ordered after a restart.
async fn keep_certificate(state: &State, context: &Context, entry: &mut Entry, kept: Kept) {
    let (of_disk, of_context) = (state.clone(), context.clone());
    let (wanted, identity) = (Arc::clone(&entry.wanted), kept.clone());
    let keep = move || {
        let written = of_disk.keep_certificate(&wanted, &identity.identity);
        of_context.present(&wanted, &identity);
        written
    };
    if let Ok(Err(error)) = spawn_blocking(keep).await {
        context.tell(true, &format!("{error}: the certificate will be gone after a restart"));
    }
    entry.kept = Some(kept);
}

/// Asks when to renew. An authority that does not say, or is not reached, is asked again later: two thirds of the life
/// count then.
async fn ask(plan: &Plan, state: &State, context: &Context, entry: &mut Entry) {
    let now = SystemTime::now();
    entry.ask = now + ASK;
    let Some(kept) = &entry.kept else { return };
    let warn = |what: String| context.tell(true, &what);
    let Ok(authority) = Authority::reach(plan, state, warn).await else { return };
    if let Some((window, again)) = authority.suggestion(&kept.identity).await {
        entry.window = Some(window);
        entry.ask = now + again.clamp(ASK_OFTEN, ASK_SELDOM);
    }
}
