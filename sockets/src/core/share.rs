//! An endpoint's share of an address that the switch reads, and what becomes of its listener when a
//! newer generation takes its place.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use quicket_engine::time::Time;
use quicket_handshake::{
    Beginning, ServerTls, SharedBeginning, StrikeAnswer, StrikeRegister, TicketId,
};
use quicket_switch::Ledger;
use quicket_switch::client::{Family, Membership, Notice, Options};
use quicket_switch::protocol::{Attention, Serve};
use quicket_wire::ConnectionId;

use super::Core;
use super::background::spawn_quietly;
use super::waiters::Wakes;
use crate::switched::SwitchConfig;

/// How long datagrams may be on their way from the switch when the next generation has taken over.
const ON_THEIR_WAY: Duration = Duration::from_millis(500);
/// How long a client may need that was sent a Retry, and has a connection ID of this generation for its next Initial:
/// it sends that at once, and again after one second and after three (RFC 9002, Section 6.2).
const COMES_AGAIN: quicket_engine::time::Duration =
    quicket_engine::time::Duration::from_millis(4000);
/// How long a handshake may take that is under way then.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the listener of a generation that was superseded stays, whatever comes: nobody is to keep it.
const AT_MOST: Duration = ON_THEIR_WAY
    .saturating_add(Duration::from_millis(COMES_AGAIN.as_millis()))
    .saturating_add(HANDSHAKE);
/// How often the listener of a generation that was superseded looks whether that was all.
const LOOK: Duration = Duration::from_millis(20);

/// The share of an address; none for an endpoint with a socket of its own.
#[derive(Debug, Default)]
pub(super) struct Share {
    membership: Mutex<Option<(Arc<Membership>, SwitchConfig)>>,
    /// That of an endpoint that had the address to itself before: its connections go on, and it gets no clients.
    remainder: Mutex<Option<Membership>>,
    /// Where clients are noted that the kernel brings past the switch.
    ledger: OnceLock<Arc<Ledger>>,
    /// When the switch's register of used tickets began.
    beginning: SharedBeginning,
    /// A newer generation gets the clients.
    superseded: AtomicBool,
    /// ... and all that were on their way are there.
    retired: AtomicBool,
}

impl Share {
    fn lock(&self) -> MutexGuard<'_, Option<(Arc<Membership>, SwitchConfig)>> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the address.
    pub(super) fn leave(&self) {
        let mut share = self.lock();
        let membership = share.take();
        // Of an endpoint that has left nobody knows anything.
        self.beginning.set(Beginning::UNKNOWN);
        drop(share);
        drop(membership);
        drop(self.remainder().take());
    }

    fn remainder(&self) -> MutexGuard<'_, Option<Membership>> {
        self.remainder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, membership: Membership, config: SwitchConfig) {
        if let Some(ledger) = membership.ledger() {
            // Fails for none: it joins once.
            let _ = self.ledger.set(ledger);
        }
        *self.lock() = Some((Arc::new(membership), config));
        self.look_for_register();
    }

    /// The switch may be another one, with a register of its own, or with keys that other hosts have.
    fn look_for_register(&self) {
        // Under the lock: of two that look, who looks last has the last word.
        let share = self.lock();
        if let Some((membership, _)) = &*share {
            let register = membership.register();
            // Another host of the site, whose switch has another register, may have taken a ticket a moment ago.
            let began = match membership.secrets().are_of_site() {
                true => u64::MAX,
                false => register.began,
            };
            self.beginning.set(Beginning::known(register.name.0, began));
        }
    }

    fn membership(&self) -> Option<Arc<Membership>> {
        self.lock().as_ref().map(|(membership, _)| Arc::clone(membership))
    }
}

/// The switch's register of tickets that brought early data.
struct SwitchRegister(Weak<Membership>);

impl fmt::Debug for SwitchRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SwitchRegister")
    }
}

impl StrikeRegister for SwitchRegister {
    fn ask(&self, ticket: &TicketId, _: u64, answer: StrikeAnswer) {
        if let Some(membership) = self.0.upgrade() {
            membership.strike(*ticket, |first| answer.give(first));
        }
    }
}

impl Core {
    /// The endpoint has a share of its address.
    pub(crate) fn join(&self, membership: Membership, config: &SwitchConfig) {
        let first = self.this.clone();
        let (upgrade, superseded) = (config.upgrade.clone(), config.superseded.clone());
        membership.heed(move |notice| match notice {
            Notice::Superseded => {
                if on_superseded(&first) {
                    superseded.iter().for_each(|heed| heed());
                }
            }
            Notice::Upgrade => upgrade.iter().for_each(|start| start()),
            Notice::DrainOver => {
                if let Some(core) = first.upgrade() {
                    core.close_connections(0, b"the time of this generation is over");
                }
            }
            Notice::Register => {
                if let Some(core) = first.upgrade() {
                    core.switch.share.look_for_register();
                }
            }
            // Connections get new connection IDs, and those that the switch makes come on this thread.
            Notice::Secrets => {
                let core = first.clone();
                if let Err(error) = spawn_quietly("quicket-secrets", move || take_up_secrets(&core))
                {
                    log::error!("secrets of the switch are not taken up: {error}");
                }
            }
        });
        let counted = self.this.clone();
        membership.count_with(move || counted.upgrade().map_or(0, |core| core.connections()));
        self.switch.share.join(membership, config.clone());
        // They may have been rotated since it joined, when nobody heard of it.
        take_up_secrets(&self.this);
    }

    /// The endpoint had its address to itself, and leaves the socket to the switch from now on.
    pub(crate) fn remain(&self, membership: Membership) {
        let counted = self.this.clone();
        membership.count_with(move || counted.upgrade().map_or(0, |core| core.connections()));
        let before = self.switch.share.remainder().replace(membership);
        drop(before);
    }

    /// Whether it has left the socket to the switch, and gets no clients.
    pub(crate) fn remains(&self) -> bool {
        self.switch.share.remainder().is_some()
    }

    /// With this configuration clients of the endpoint resume with others of its site, and behind the switch with its
    /// other generations, early data included: these have one strike register. `None`: it is on its own.
    pub(crate) fn sharing_tickets(&self, tls: &ServerTls) -> Option<ServerTls> {
        let keys = self.switch.site.as_ref()?.ticket_keys();
        let Some(membership) = self.switch.share.membership() else {
            return Some(tls.sharing_ticket_keys(&keys));
        };
        let register = Arc::new(SwitchRegister(Arc::downgrade(&membership)));
        Some(tls.sharing_tickets(&keys, register, &self.switch.share.beginning))
    }

    /// How many connections all workers have.
    fn connections(&self) -> u64 {
        self.workers().iter().map(|core| core.routing().live() as u64).sum()
    }

    /// A client begins a connection that the switch has not seen: it is to know whose it is, should another program come
    /// before the client uses connection IDs of this side.
    pub(super) fn note_client(&self, first: &ConnectionId) {
        if let Some(ledger) = self.switch.share.ledger.get() {
            let worker = u16::try_from(self.number).unwrap_or(u16::MAX);
            ledger.note(worker, first);
        }
    }

    /// How the endpoint shares its address, if it does.
    pub(crate) fn switch_config(&self) -> Option<SwitchConfig> {
        self.switch.share.lock().as_ref().map(|(_, config)| config.clone())
    }

    /// Has the switch hand over clients.
    pub(crate) fn serve_through_switch(&self, serve: Serve) -> io::Result<()> {
        let Some(membership) = self.switch.share.membership() else { return Ok(()) };
        // Before it is asked for: a newer generation may take over at once.
        self.switch.share.superseded.store(false, Ordering::SeqCst);
        self.switch.share.retired.store(false, Ordering::SeqCst);
        membership.serve(serve)
    }

    /// The switch is to hand over no more clients.
    pub(crate) fn cease_through_switch(&self) {
        if let Some(membership) = self.switch.share.membership() {
            membership.cease();
        }
    }

    /// How a process that has a listener from this one finds the switch, if the address is shared.
    pub(crate) fn switch_options(&self) -> Option<Options> {
        self.switch.share.membership().map(|membership| membership.options().clone())
    }

    /// The process is about to fork, and passes its listener on. Waits for nothing.
    pub(crate) fn bequeath(&self, family: &Family, attention: Attention) {
        if let Some(membership) = self.switch.share.membership() {
            membership.bequeath(family, attention);
        }
    }

    /// Waits until the switch has heard what it was told, until then at most.
    pub(crate) fn await_switch(&self, until: Instant) {
        if let Some(membership) = self.switch.share.membership() {
            membership.await_heard(until);
        }
    }

    /// Tells the switch how far the process is from accepting. Waits for nothing.
    pub(crate) fn attend(&self, attention: Attention) {
        if let Some(membership) = self.switch.share.membership() {
            membership.attend(attention);
        }
    }

    /// Leaves the address in good order, for good: nothing comes in any more.
    pub(crate) fn leave_switch(&self) {
        self.switch.share.leave();
    }

    /// When a client was last asked to come again, by any worker.
    fn last_retry(&self) -> Option<Time> {
        self.workers().iter().filter_map(|core| core.routing().endpoint.last_retry()).max()
    }

    /// Whether a client may be about to come again that was asked to then.
    fn expects_again(&self, asked: Option<Time>) -> bool {
        asked.is_some_and(|asked| self.clock().now().since(asked) < COMES_AGAIN)
    }

    /// True once a newer generation has taken over and all clients that were on their way are there.
    pub(crate) fn is_retired(&self) -> bool {
        self.switch.share.retired.load(Ordering::SeqCst)
    }
}

/// What the programs of the address have in common was rotated.
fn take_up_secrets(first: &Weak<Core>) {
    let Some(core) = first.upgrade() else { return };
    let membership = core.switch.share.membership();
    let (Some(site), Some(membership)) = (&core.switch.site, membership) else { return };
    // Before tickets of others are opened.
    core.switch.share.look_for_register();
    match membership.secrets().ring() {
        Ok(ring) => site.replace_ring(ring),
        Err(error) => log::error!("secrets of the switch are not taken up: {error}"),
    }
}

/// Has the listener end; true at the first of several words.
fn on_superseded(first: &Weak<Core>) -> bool {
    let Some(core) = first.upgrade() else { return false };
    if core.switch.share.superseded.swap(true, Ordering::SeqCst) {
        return false;
    }
    let first = first.clone();
    let spawned = spawn_quietly("quicket-retire", move || retire(&first));
    if let Err(error) = spawned {
        log::warn!("no thread looks after the last clients of a listener: {error}");
        retire_now(&core);
    }
    true
}

/// Ends the listener once nothing is on its way to it any more; after [`AT_MOST`] in any case.
fn retire(first: &Weak<Core>) {
    let begun = Instant::now();
    let (mut quiet_since, mut asked) = (begun, None);
    loop {
        std::thread::sleep(LOOK);
        let Some(core) = first.upgrade() else { return };
        if core.is_over() || !core.switch.share.superseded.load(Ordering::SeqCst) {
            return;
        }
        // Who is asked later knows a connection ID of this generation, and comes for it: that could go on for ever.
        if begun.elapsed() < ON_THEIR_WAY {
            asked = core.last_retry();
        }
        let is_busy = core.reception().is_busy() || core.expects_again(asked);
        if is_busy && begun.elapsed() < AT_MOST {
            quiet_since = Instant::now();
        } else if is_busy || quiet_since.elapsed() > ON_THEIR_WAY {
            retire_now(&core);
            return;
        }
    }
}

fn retire_now(core: &Core) {
    core.switch.share.retired.store(true, Ordering::SeqCst);
    let mut wakes = Wakes::default();
    core.reception().wake(&mut wakes);
    wakes.fire();
    if let Some(greeter) = core.reception().greeter() {
        greeter.on_retired();
    }
}
