//! A socket with its descriptor.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};

use quicket::message::{PollId, Socket, Watched};

use crate::calls::options::Remembered;
use crate::keeper;
use crate::native::{self, Result};
use crate::shadow::Shadow;
use crate::table::{self, Locked};

/// A QUIC socket of the program.
pub(crate) struct Entry {
    pub(crate) socket: Socket,
    /// AF_INET6.
    pub(crate) is_v6: bool,
    /// SOCK_STREAM or SOCK_DGRAM, which makes no difference.
    pub(crate) kind: c_int,
    /// It has, or had, a connection: when that has ended, it is over.
    connected: AtomicBool,
    pub(crate) listening: AtomicBool,
    remembered: Mutex<Remembered>,
    /// What was wrong with a file or text that the program gave last.
    refusal: Mutex<Option<String>>,
    /// Connections that were accepted when the process had no descriptors for them: the last is the next to have one.
    unopened: Mutex<Vec<Socket>>,
    shadow: Mutex<Shadow>,
    /// How many calls of poll(2) or select(2) wait for it.
    pollers: AtomicUsize,
    /// It was given to epoll_ctl(2).
    in_epoll: AtomicBool,
    /// ... with EPOLLET.
    edges: AtomicBool,
    poll_id: PollId,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Rings when what poll(2) should say may have changed.
pub(crate) struct Bell {
    entry: Weak<Entry>,
    /// The keeper knows already.
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Whoever calls this may hold locks that a look at the socket takes: the keeper looks.
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::AcqRel) && !keeper::ring(&self.entry) {
            // The next news may find a keeper.
            self.rung.store(false, Ordering::Release);
        }
    }
}

impl Entry {
    /// Gives a socket a descriptor.
    pub(crate) fn open(socket: Socket, is_v6: bool, kind: c_int, flags: c_int) -> Result<c_int> {
        Self::open_behind(Shadow::new()?, socket, (is_v6, kind), None, flags)
    }

    /// Gives a connection that this listener has accepted a descriptor. It remembers what the listener does. Where
    /// there is none, the connection waits for the next who accepts.
    pub(crate) fn open_accepted(&self, socket: Socket, flags: c_int) -> Result<c_int> {
        let shadow = match Shadow::new() {
            Ok(shadow) => shadow,
            Err(error) => {
                self.unopened().push(socket);
                self.settle();
                return Err(error);
            }
        };
        let remembered = *self.remembered();
        Self::open_behind(shadow, socket, (self.is_v6, self.kind), Some(remembered), flags)
    }

    /// Connections that were accepted and have no descriptor.
    pub(crate) fn unopened(&self) -> MutexGuard<'_, Vec<Socket>> {
        self.unopened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_behind(
        (shadow, fd): (Shadow, c_int),
        socket: Socket,
        (is_v6, kind): (bool, c_int),
        remembered: Option<Remembered>,
        flags: c_int,
    ) -> Result<c_int> {
        let (connected, remembered) = (remembered.is_some(), remembered.unwrap_or_default());
        socket.set_interruptible(true);
        socket.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
        let entry = Self::make(socket, (is_v6, kind), (connected, false), remembered, shadow);
        // The flag of the front is what F_GETFL shows.
        let prepared = entry.show_nonblocking(fd);
        let cloexec = flags & libc::SOCK_CLOEXEC != 0;
        let entered = prepared.and_then(|()| table::lock().insert(fd, entry, cloexec));
        match entered {
            Ok(stale) => {
                drop(stale);
                Ok(fd)
            }
            Err(error) => {
                let _ = native::close(fd);
                Err(error)
            }
        }
    }

    /// Enters a listener that the process has from another one under the numbers that it had there, each with
    /// whether exec is to close it.
    pub(crate) fn open_inherited(
        socket: Socket,
        (is_v6, kind): (bool, c_int),
        remembered: Remembered,
        numbers: &[(c_int, bool)],
        table: &mut Locked,
    ) -> Result<()> {
        let fds: Vec<_> = numbers.iter().map(|(fd, _)| *fd).collect();
        let shadow = Shadow::in_place_of(&fds)?;
        let entry = Self::make(socket, (is_v6, kind), (false, true), remembered, shadow);
        for (fd, cloexec) in numbers {
            entry.show_nonblocking(*fd)?;
            table.insert(*fd, Arc::clone(&entry), *cloexec)?;
        }
        Ok(())
    }

    fn show_nonblocking(&self, fd: c_int) -> Result<()> {
        let status = if self.socket.is_nonblocking() { libc::O_NONBLOCK } else { 0 };
        native::fcntl(fd, libc::F_SETFL, status as usize).map(drop)
    }

    fn make(
        socket: Socket,
        (is_v6, kind): (bool, c_int),
        (connected, listening): (bool, bool),
        remembered: Remembered,
        shadow: Shadow,
    ) -> Arc<Self> {
        Arc::new_cyclic(|entry| {
            let bell = Arc::new(Bell { entry: Weak::clone(entry), rung: AtomicBool::new(false) });
            Self {
                socket,
                is_v6,
                kind,
                connected: AtomicBool::new(connected),
                listening: AtomicBool::new(listening),
                remembered: Mutex::new(remembered),
                refusal: Mutex::default(),
                unopened: Mutex::default(),
                shadow: Mutex::new(shadow),
                pollers: AtomicUsize::new(0),
                in_epoll: AtomicBool::new(false),
                edges: AtomicBool::new(false),
                poll_id: PollId::unique(),
                waker: Waker::from(Arc::clone(&bell)),
                bell,
            }
        })
    }

    pub(crate) fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refusal(&self) -> MutexGuard<'_, Option<String>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what a program gave, and keeps why.
    pub(crate) fn refuse(&self, reason: impl fmt::Display) -> c_int {
        let reason = reason.to_string();
        log::error!("{reason}");
        *self.refusal() = Some(reason);
        libc::EINVAL
    }

    /// The socket has a connection from now on.
    pub(crate) fn set_connected(&self) {
        self.connected.store(true, Ordering::Release);
    }

    /// Who polls it, if the process forks now.
    pub(crate) fn watched(&self) -> Watched {
        Watched {
            polled: self.pollers.load(Ordering::Acquire) > 0,
            in_epoll: self.in_epoll.load(Ordering::Acquire),
        }
    }

    fn is_watched(&self) -> bool {
        self.in_epoll.load(Ordering::Acquire) || self.pollers.load(Ordering::Acquire) > 0
    }

    /// Has the kernel say what is the case now, if anybody looks.
    pub(crate) fn settle(&self) {
        if self.is_watched() {
            self.show(false);
        }
    }

    /// The bell has rung.
    pub(crate) fn on_bell(&self) {
        self.bell.rung.store(false, Ordering::Release);
        if self.is_watched() {
            self.show(self.edges.load(Ordering::Acquire));
        }
    }

    /// Looks and shows under one lock, so that what is shown is never older than what was.
    fn show(&self, anew: bool) {
        let mut shadow = self.shadow();
        let mut state = self.socket.poll_change(&self.poll_id, &self.waker);
        state.readable |= !self.unopened().is_empty();
        let ended = state.hup && self.connected.load(Ordering::Acquire);
        shadow.show(state, ended, anew);
    }

    /// Somebody polls, until [`Entry::unwatch`].
    pub(crate) fn watch(&self) {
        self.pollers.fetch_add(1, Ordering::AcqRel);
        self.attend();
        self.show(false);
    }

    /// The program polls: a listener that the process has from its parent is one of its own from now on.
    fn attend(&self) {
        if self.listening.load(Ordering::Acquire) {
            self.socket.attend();
        }
    }

    /// Somebody polls no more.
    pub(crate) fn unwatch(&self) {
        self.pollers.fetch_sub(1, Ordering::AcqRel);
    }

    /// It is given to epoll.
    pub(crate) fn watch_by_epoll(&self, edges: bool) {
        self.in_epoll.store(true, Ordering::Release);
        if edges {
            self.edges.store(true, Ordering::Release);
        }
        self.attend();
        self.show(false);
    }

    /// Closes a descriptor of the socket. With the last one the socket ends, once no call uses it.
    pub(crate) fn close(self: &Arc<Self>, fd: c_int) -> Result<()> {
        let mut shadow = self.shadow();
        let mut table = table::lock();
        if !table.remove(fd, self) {
            return Err(libc::EBADF);
        }
        shadow.remove(fd);
        native::close(fd)
    }

    /// Gives up a descriptor of the socket that is about to become something else.
    pub(crate) fn release(self: &Arc<Self>, fd: c_int) -> bool {
        let mut shadow = self.shadow();
        let removed = table::lock().remove(fd, self);
        if removed {
            shadow.remove(fd);
        }
        removed
    }

    /// Enters another descriptor of the socket.
    pub(crate) fn adopt(self: &Arc<Self>, fd: c_int, cloexec: bool) -> Result<()> {
        let mut shadow = self.shadow();
        let entered = table::lock().insert(fd, Arc::clone(self), cloexec);
        match entered {
            Ok(stale) => {
                shadow.add(fd);
                // It may be this one, by another number.
                drop(shadow);
                drop(stale);
                Ok(())
            }
            Err(error) => {
                let _ = native::close(fd);
                Err(error)
            }
        }
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("socket", &self.socket).finish_non_exhaustive()
    }
}
