//! Which descriptors are QUIC sockets.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::entry::Entry;
use crate::native::{self, Result};

/// How many descriptors a process may have here: as many as Linux allows by default. The memory of
/// the array below is zeros until a page of it is touched.
pub(crate) const MOST: usize = 1 << 20;

static KINDS: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
/// One more than the highest descriptor that was ever ours.
static END: AtomicUsize = AtomicUsize::new(0);
/// How many QUIC sockets there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The process that this is about.
static OWNER: AtomicI32 = AtomicI32::new(0);
static SLOTS: RwLock<Vec<Option<Slot>>> = RwLock::new(Vec::new());

/// What a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// None of our business.
    Other,
    /// A QUIC socket.
    Socket,
    /// A descriptor that this library has for itself.
    Hidden,
    /// A QUIC socket of the process from which this one was forked.
    Inherited,
}

/// A number under which the program has a socket.
#[derive(Clone)]
struct Slot {
    entry: Arc<Entry>,
    /// The program wants it closed by exec. It is, whatever the program wants.
    cloexec: bool,
}

/// Numbers under which the program has one socket, each with whether exec is to close it.
pub(crate) type Numbers = Vec<(c_int, bool)>;

/// The table, for as long as nobody else may touch it.
pub(crate) struct Locked(RwLockWriteGuard<'static, Vec<Option<Slot>>>);

fn index(fd: c_int) -> Option<usize> {
    usize::try_from(fd).ok().filter(|fd| *fd < MOST)
}

/// What a descriptor is: one look into an array.
#[inline]
#[must_use]
pub fn kind(fd: c_int) -> Kind {
    match KINDS.get(fd as usize).map_or(0, |kind| kind.load(Ordering::Acquire)) {
        0 => Kind::Other,
        1 => Kind::Socket,
        2 => Kind::Hidden,
        _ => Kind::Inherited,
    }
}

/// True if there are QUIC sockets, so that sets of descriptors are worth a look.
#[inline]
#[must_use]
pub fn has_sockets() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// One more than the highest descriptor that was ever ours.
pub(crate) fn end() -> c_int {
    END.load(Ordering::Relaxed) as c_int
}

/// True in a child that shares memory with its parent (vfork): it must not change the table.
pub(crate) fn is_guest() -> bool {
    native::pid() != OWNER.load(Ordering::Relaxed)
}

/// Says whose table it is.
pub(crate) fn set_owner() {
    OWNER.store(native::pid(), Ordering::Relaxed);
}

fn set_kind(fd: c_int, kind: Kind) {
    let Some(index) = index(fd) else { return };
    END.fetch_max(index + 1, Ordering::Relaxed);
    let Some(place) = KINDS.get(index) else { return };
    let before = place.swap(kind as u8, Ordering::AcqRel);
    match (before == Kind::Socket as u8, kind == Kind::Socket) {
        (false, true) => {
            COUNT.fetch_add(1, Ordering::Relaxed);
        }
        (true, false) => {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        _ => {}
    }
}

/// The descriptor is the library's own from now on.
pub fn hide(fd: c_int) {
    set_kind(fd, Kind::Hidden);
}

/// The library's own descriptor is closed.
pub fn unhide(fd: c_int) {
    if kind(fd) == Kind::Hidden {
        set_kind(fd, Kind::Other);
    }
}

fn slots() -> RwLockReadGuard<'static, Vec<Option<Slot>>> {
    SLOTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the table.
pub(crate) fn lock() -> Locked {
    Locked(SLOTS.write().unwrap_or_else(PoisonError::into_inner))
}

/// The socket of a descriptor.
///
/// EBADF if there is none; EBADFD if it is that of the process from which this one was forked.
pub(crate) fn get(fd: c_int) -> Result<Arc<Entry>> {
    match kind(fd) {
        Kind::Socket => {
            let slots = slots();
            let slot = slots.get(fd as usize).and_then(Option::as_ref);
            slot.map(|slot| Arc::clone(&slot.entry)).ok_or(libc::EBADF)
        }
        Kind::Inherited => Err(libc::EBADFD),
        Kind::Other | Kind::Hidden => Err(libc::EBADF),
    }
}

/// All sockets of this process, some of them more than once.
pub(crate) fn all() -> Vec<Arc<Entry>> {
    if is_guest() {
        return Vec::new();
    }
    slots().iter().flatten().map(|slot| Arc::clone(&slot.entry)).collect()
}

/// Whether the program wants a descriptor closed by exec.
pub(crate) fn cloexec(fd: c_int) -> Option<bool> {
    slots().get(index(fd)?)?.as_ref().map(|slot| slot.cloexec)
}

impl Locked {
    /// Enters a descriptor. What the table had under its number is returned: it was closed by ways
    /// that lead around this library, and ends once the table is free again.
    pub(crate) fn insert(
        &mut self,
        fd: c_int,
        entry: Arc<Entry>,
        cloexec: bool,
    ) -> Result<Option<Arc<Entry>>> {
        let index = index(fd).ok_or(libc::EMFILE)?;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        let Some(place) = self.0.get_mut(index) else { return Err(libc::EMFILE) };
        let stale = place.replace(Slot { entry, cloexec });
        set_kind(fd, Kind::Socket);
        Ok(stale.map(|stale| stale.entry))
    }

    /// Takes a descriptor out, if it is this socket's.
    pub(crate) fn remove(&mut self, fd: c_int, entry: &Arc<Entry>) -> bool {
        let Some(place) = index(fd).and_then(|index| self.0.get_mut(index)) else { return false };
        let is_it = place.as_ref().is_some_and(|slot| Arc::ptr_eq(&slot.entry, entry));
        if is_it {
            *place = None;
            set_kind(fd, Kind::Other);
        }
        is_it
    }

    /// Notes whether the program wants a descriptor closed by exec.
    pub(crate) fn set_cloexec(&mut self, fd: c_int, cloexec: bool) {
        let place = index(fd).and_then(|index| self.0.get_mut(index));
        if let Some(Some(slot)) = place {
            slot.cloexec = cloexec;
        }
    }

    /// The listeners with their numbers.
    pub(crate) fn listeners(&self) -> Vec<(Arc<Entry>, Numbers)> {
        let mut listeners: Vec<(Arc<Entry>, Numbers)> = Vec::new();
        for (number, slot) in (0..).zip(self.0.iter()) {
            let Some(Slot { entry, cloexec }) = slot else { continue };
            if !entry.listening.load(Ordering::Acquire) {
                continue;
            }
            match listeners.iter_mut().find(|(known, _)| Arc::ptr_eq(known, entry)) {
                Some((_, numbers)) => numbers.push((number, *cloexec)),
                None => listeners.push((Arc::clone(entry), vec![(number, *cloexec)])),
            }
        }
        listeners
    }

    /// In a forked child: sockets belong to the parent, and what the library had for itself is
    /// closed here, but for what is `kept`.
    pub(crate) fn disinherit(&mut self, kept: &[c_int]) {
        // Their locks may be held by threads that do not exist here.
        std::mem::forget(std::mem::take(&mut *self.0));
        for fd in 0..end() {
            match kind(fd) {
                Kind::Socket => set_kind(fd, Kind::Inherited),
                Kind::Hidden if kept.contains(&fd) => {}
                Kind::Hidden => {
                    let _ = native::close(fd);
                    set_kind(fd, Kind::Other);
                }
                Kind::Other | Kind::Inherited => {}
            }
        }
        set_owner();
    }
}

/// An inherited descriptor is closed.
pub(crate) fn forget_inherited(fd: c_int) {
    if kind(fd) == Kind::Inherited {
        set_kind(fd, Kind::Other);
    }
}
