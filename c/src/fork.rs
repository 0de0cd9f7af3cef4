//! What becomes of sockets when the process forks (they stay with the parent), and when it ends.
//!
//! A connection is state in memory, with keys, packet numbers and timers: only one process can go on
//! with it. So in the child each descriptor of a QUIC socket fails with EBADFD, except that it can be
//! closed; the parent goes on undisturbed. The child may have sockets of its own.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use quicket::message::{ForkHold, Shutdown};

use crate::inside::Inside;
use crate::keeper;
use crate::native;
use crate::table::{self, Locked};

/// Everything that must not be half done in the child.
struct Held {
    keeper: keeper::Hold,
    addresses: ForkHold,
    table: Locked,
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
        native::at_exit(at_exit);
    });
}

/// Connections of a process that ends are closed, as the kernel does, and addresses given up: the switch is
/// not to take it for killed.
extern "C" fn at_exit() {
    let _inside = Inside::enter();
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let entries = table::all();
        for entry in &entries {
            // Those that have no connection say so.
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
        for entry in &entries {
            entry.socket.leave();
        }
    }));
}

extern "C" fn before() {
    // In the order in which calls take them. No other lock is needed: what else a thread of the
    // parent holds belongs to a socket, which the child never touches.
    let table = table::lock();
    let addresses = ForkHold::acquire();
    let keeper = keeper::Hold::acquire();
    let held = Held { keeper, addresses, table };
    let _ = HELD.try_with(|place| place.replace(Some(held)));
}

fn taken() -> Option<Held> {
    HELD.try_with(RefCell::take).ok().flatten()
}

extern "C" fn in_parent() {
    drop(taken());
}

extern "C" fn in_child() {
    if let Some(Held { keeper, addresses, mut table }) = taken() {
        table.disinherit();
        keeper.forget();
        addresses.forget();
    }
}
