//! What becomes of sockets when the process forks, and when it ends.
//!
//! A connection is state in memory, with keys, packet numbers and timers: only one process can go on
//! with it. So in the child the descriptor of a connection, and of a socket that is neither, fails with EBADFD,
//! except that it can be closed; the parent goes on undisturbed. The child may have sockets of its own.
//!
//! A listener goes on in the child as well, as one of its own: with a pair of descriptors (see `shadow.rs`) in place of
//! the parent's, under the same numbers. It uses nothing of the parent, and asks nobody before the program accepts or
//! polls. If the parent does not share the address through the switch by then, a thread of the parent's has it do so.

use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use quicket::message::{ForkHold, Heir, Shutdown, Steward};

use crate::calls::options::Remembered;
use crate::entry::Entry;
use crate::inside::Inside;
use crate::keeper;
use crate::native;
use crate::table::{self, Locked, Numbers};

/// How long a fork waits until switches have heard which listeners are passed on for the first time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The process ends, and connections are closed.
static ENDING: AtomicBool = AtomicBool::new(false);
/// What is to be called before.
static LAST_WORDS: OnceLock<fn()> = OnceLock::new();

/// A listener that the child has, too.
struct Listener {
    heir: Heir,
    is_v6: bool,
    kind: c_int,
    remembered: Remembered,
    numbers: Numbers,
}

/// Everything that must not be half done in the child.
struct Held {
    keeper: keeper::Hold,
    addresses: ForkHold,
    table: Locked,
    listeners: Vec<Listener>,
}

thread_local! {
    /// From before the fork until after it, in the thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Sees to it that forks are noticed, once there are sockets.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        table::set_owner();
        if let Err(error) = native::at_fork(before, in_parent, in_child) {
            log::error!("forks will go unnoticed: {}", std::io::Error::from_raw_os_error(error));
        }
    });
}

/// Has a function called before connections of a process that ends are closed: it may write what waits for them.
pub fn before_exit(last_words: fn()) {
    let _ = LAST_WORDS.set(last_words);
}

/// True once connections are closed because the process ends. Threads that go on until then are not to be told of it by
/// a signal.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Acquire)
}

/// Connections of a process that ends are closed, as the kernel does, and addresses given up: the switch is
/// not to take it for killed.
pub(crate) extern "C" fn at_exit() {
    if table::is_guest() || !table::has_sockets() {
        return;
    }
    let _ = catch_unwind(|| LAST_WORDS.get().inspect(|last_words| last_words()));
    ENDING.store(true, Ordering::Release);
    let _inside = Inside::enter();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let entries = table::all();
        for entry in &entries {
            let unopened = entry.unopened().clone();
            for socket in [&entry.socket].into_iter().chain(&unopened) {
                // Those that have no connection say so.
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
        for entry in &entries {
            entry.socket.leave();
        }
    }));
}

extern "C" fn before() {
    let inside = Inside::enter();
    // In the order in which calls take them. No other lock is needed: what else a thread of the
    // parent holds belongs to a socket, which the child never touches.
    let table = table::lock();
    let listeners = catch_unwind(AssertUnwindSafe(|| listeners(&table))).unwrap_or_default();
    let addresses = ForkHold::acquire();
    let keeper = keeper::Hold::acquire();
    drop(inside);
    let held = Held { keeper, addresses, table, listeners };
    let _ = HELD.try_with(|place| place.replace(Some(held)));
}

/// What the child is to have. The switch hears of it before there is a child.
fn listeners(table: &Locked) -> Vec<Listener> {
    let listeners = table.listeners().into_iter().filter_map(|(entry, numbers)| {
        let mut heir = entry.socket.bequeath(entry.watched())?;
        if let Some(steward) = heir.take_steward() {
            look_after(steward);
        }
        let remembered = *entry.remembered();
        Some(Listener { heir, is_v6: entry.is_v6, kind: entry.kind, remembered, numbers })
    });
    let mut listeners: Vec<_> = listeners.collect();
    // All are told by now. Nobody who stands still holds the process up for longer than this.
    let until = Instant::now() + PATIENCE;
    listeners.iter_mut().for_each(|listener| listener.heir.await_switch(until));
    listeners
}

/// Serves children that ask for a listener's address to be shared, on a thread that ends when one has.
fn look_after(steward: Steward) {
    // Children notice when the parent has gone.
    let descriptor = steward.descriptor();
    table::hide(descriptor);
    let steward = Arc::new(steward);
    let its = Arc::clone(&steward);
    let serve = move || {
        let _inside = Inside::enter();
        let entries = || table::all().into_iter();
        its.serve(|| entries().map(|entry| entry.socket.clone()).collect());
        table::unhide(descriptor);
        drop(its);
    };
    let thread = std::thread::Builder::new().name("quicket-heirs".to_owned());
    if let Err(error) = native::without_signals(|| thread.spawn(serve)) {
        log::error!("children will not have a listener: {error}");
        steward.give_up();
        // Were it closed, they would take the parent for gone, which reads the socket.
        std::mem::forget(steward);
    }
}

fn taken() -> Option<Held> {
    HELD.try_with(RefCell::take).ok().flatten()
}

extern "C" fn in_parent() {
    drop(taken());
}

extern "C" fn in_child() {
    let Some(Held { keeper, addresses, mut table, listeners }) = taken() else { return };
    let _inside = Inside::enter();
    let kept = listeners.iter().flat_map(|listener| listener.heir.descriptors());
    let kept: Vec<_> = kept.copied().collect();
    table.disinherit(&kept);
    keeper.forget();
    addresses.forget();
    for listener in listeners {
        let listens = catch_unwind(AssertUnwindSafe(|| listener.go_on(&mut table)));
        if !matches!(listens, Ok(Ok(()))) {
            log::error!("a child does not have a listener of its parent: {listens:?}");
        }
    }
}

impl Listener {
    /// In the child. Where it fails the descriptors are those of a socket that stays with the parent.
    fn go_on(self, table: &mut Locked) -> native::Result<()> {
        let Self { heir, is_v6, kind, remembered, numbers } = self;
        let descriptors = heir.descriptors().iter().copied().map(native::own).collect();
        let socket = heir.inherit(descriptors).ok_or(libc::EBADFD)?;
        Entry::open_inherited(socket, (is_v6, kind), remembered, &numbers, table)
    }
}
