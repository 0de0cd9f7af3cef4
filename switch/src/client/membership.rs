//! A share of an address, and what keeps it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::unistd::{Uid, geteuid};

use super::connect::Connection;
use super::{Options, unexpected};
use crate::channel::{Handover, Inlet, channel};
use crate::protocol::{Join, Refusal, Reply, Request, Resume, Secrets, Serve, VERSION};

/// How long others that have just bound an address may take to tell the switch.
const RACE: Duration = Duration::from_secs(2);
/// Between attempts to have what another program has for a moment, or to find a switch again.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a call waits while the switch is away.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a program wants to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The local UDP address; of port 0, any that is free.
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// How many workers: 1 to [`MAX_WORKERS`](crate::protocol::MAX_WORKERS).
    pub workers: usize,
}

/// What the switch tells without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A newer generation gets the clients from now on; connections go on.
    Superseded,
    /// Somebody wants the next generation to be started.
    Upgrade,
}

type Heed = Box<dyn Fn(Notice) + Send + Sync>;

/// A share of an address. Whoever drops it leaves.
pub struct Membership(Arc<Shared>);

struct Shared {
    options: Options,
    /// Who joined. A program that has given privileges up starts no switch of that name.
    user: Uid,
    place: Place,
    socket: UdpSocket,
    channels: Vec<Handover>,
    resume: Resume,
    /// Interrupts the thread.
    bell: EventFd,
    heed: OnceLock<Heed>,
    /// One question at a time.
    asking: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// None while the switch is away.
    connection: Option<Arc<Connection>>,
    /// What was asked for and granted.
    serve: Option<Serve>,
    answer: Option<Reply>,
    leaving: bool,
}

impl Membership {
    /// Gets a share of an address: the inlets of its workers, in order, and the address's socket to send
    /// by. `bind` makes the socket if nobody has it.
    ///
    /// # Errors
    ///
    /// When there is no switch and none can be started; when the address cannot be had, which is what
    /// `bind` says; when the switch refuses.
    pub fn join(
        options: &Options,
        place: Place,
        mut bind: impl FnMut() -> io::Result<UdpSocket>,
    ) -> io::Result<(Self, Vec<Inlet>, UdpSocket)> {
        let (mut inlets, mut channels) = (Vec::new(), Vec::new());
        for _ in 0..place.workers {
            let (inlet, handover) = channel()?;
            inlets.push(inlet);
            channels.push(handover);
        }
        let begun = Instant::now();
        let mut bound = None;
        let mut place = place;
        let mut lost = false;
        loop {
            if place.address.port() == 0 && bound.is_none() {
                bound = Some(bind()?);
            }
            if let Some(socket) = &bound {
                place.address.set_port(UdpSocket::local_addr(socket)?.port());
            }
            let joined = join_once(options, place, bound.as_ref(), &channels, None);
            match joined {
                Ok(Joined::At { connection, generation, secrets, socket }) => {
                    let ours = bound.map_or(socket, Ok)?;
                    let resume = Resume { generation, secrets };
                    let shared = Shared::new(options, place, &ours, channels, resume, connection)?;
                    let keeper = Arc::clone(&shared);
                    spawn_quietly(move || keeper.keep())?;
                    return Ok((Self(shared), inlets, ours));
                }
                Ok(Joined::Bind) => match bind() {
                    Ok(socket) => bound = Some(socket),
                    // Another program has bound it and has yet to say so, or has it for itself.
                    Err(error)
                        if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < RACE =>
                    {
                        std::thread::sleep(PAUSE);
                    }
                    Err(error) => return Err(error),
                },
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(PAUSE);
                }
                // It has ended since it was found, for want of work.
                Err(error) if has_ended(&error) && !lost => lost = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// What all programs of this user at the address have in common.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.0.resume.secrets
    }

    /// The generation for connection IDs.
    #[must_use]
    pub fn generation(&self) -> u8 {
        self.0.resume.generation
    }

    /// Who hears of notices: on a thread that does little else. The first one given stays.
    pub fn heed(&self, heed: impl Fn(Notice) + Send + Sync + 'static) {
        let _ = self.0.heed.set(Box::new(heed));
    }

    /// Gets clients from now on, in place of what was served before.
    ///
    /// # Errors
    ///
    /// `AddrInUse` when others have some of the names.
    pub fn serve(&self, serve: Serve) -> io::Result<()> {
        // Noted before it is asked for: that a newer generation has it may be heard before the answer.
        let before = self.0.state().serve.replace(serve.clone());
        self.0.ask(&Request::Serve(serve.clone())).inspect_err(|_| {
            let mut state = self.0.state();
            if state.serve.as_ref() == Some(&serve) {
                state.serve = before;
            }
        })
    }

    /// Gets no more clients. Connections go on.
    pub fn cease(&self) {
        self.0.state().serve = None;
        if let Err(error) = self.0.ask(&Request::Cease) {
            log::debug!("the switch was not told that there is no listener: {error}");
        }
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("place", &self.0.place).finish_non_exhaustive()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.leaving = true;
        // The thread has it, too, and lets go of it at once.
        state.connection = None;
        drop(state);
        self.0.changed.notify_all();
        let _ = self.0.bell.write(1);
    }
}

/// Starts the thread, which signals leave alone: they are for the program's threads.
fn spawn_quietly(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // Inherited by the thread.
    let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let spawned = std::thread::Builder::new().name("quicket-switch".into()).spawn(work);
    if let Ok(mask) = mask {
        // Fails for no mask that there was.
        let _ = mask.thread_set_mask();
    }
    spawned.map(drop)
}

/// The switch ended when it was found.
fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// An answer to who wants to join.
enum Joined {
    At {
        connection: Connection,
        generation: u8,
        secrets: Secrets,
        /// What came along.
        socket: io::Result<UdpSocket>,
    },
    Bind,
}

fn join_once(
    options: &Options,
    place: Place,
    socket: Option<&UdpSocket>,
    channels: &[Handover],
    resume: Option<Resume>,
) -> io::Result<Joined> {
    let connection = Connection::open_or_start(options)?;
    let join = Join {
        version: VERSION,
        address: place.address,
        only_v6: place.only_v6,
        workers: u16::try_from(place.workers).unwrap_or(u16::MAX),
        label: options.label.clone(),
        has_socket: socket.is_some(),
        resume,
    };
    let mut descriptors: Vec<BorrowedFd<'_>> = channels.iter().map(AsFd::as_fd).collect();
    descriptors.extend(socket.map(AsFd::as_fd));
    match connection.ask(&Request::Join(join), &descriptors)? {
        (Reply::Joined { generation, secrets }, mut came) => {
            let text = "the switch did not hand over the address's socket";
            let none = || io::Error::new(io::ErrorKind::InvalidData, text);
            let socket = came.pop().map(UdpSocket::from).ok_or_else(none);
            Ok(Joined::At { connection, generation, secrets, socket })
        }
        (Reply::Bind, _) => Ok(Joined::Bind),
        (other, _) => Err(unexpected(&other)),
    }
}

impl Shared {
    fn new(
        options: &Options,
        place: Place,
        socket: &UdpSocket,
        channels: Vec<Handover>,
        resume: Resume,
        connection: Connection,
    ) -> io::Result<Arc<Self>> {
        let connection = Some(Arc::new(connection));
        Ok(Arc::new(Self {
            options: options.clone(),
            user: geteuid(),
            place,
            socket: socket.try_clone()?,
            channels,
            resume,
            bell: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            heed: OnceLock::new(),
            asking: Mutex::default(),
            state: Mutex::new(State { connection, ..State::default() }),
            changed: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer; over the end of the switch, too.
    fn ask(&self, request: &Request) -> io::Result<()> {
        let _one_at_a_time = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + PATIENCE;
        let mut asked: Option<Arc<Connection>> = None;
        let mut state = self.state();
        state.answer = None;
        loop {
            if state.leaving {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match (&state.connection, &asked) {
                (Some(now), Some(then)) if Arc::ptr_eq(now, then) => {
                    if let Some(answer) = state.answer.take() {
                        return match answer {
                            Reply::Done => Ok(()),
                            other => Err(unexpected(&other)),
                        };
                    }
                }
                (Some(now), _) => {
                    let now = Arc::clone(now);
                    // What the switch before answered is not the answer of this one.
                    state.answer = None;
                    // Who has gone says so to the thread.
                    let _ = now.send(request, &[]);
                    asked = Some(now);
                }
                (None, _) => {}
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the switch does not answer: see quicket switch status",
                ));
            };
            let wait = self.changed.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The thread that hears the switch, and finds the next one.
    fn keep(&self) {
        loop {
            let Some(connection) = self.state().connection.clone() else { return };
            let ended = self.hear(&connection);
            drop(connection);
            if ended.is_none() || !self.find_again() {
                return;
            }
        }
    }

    /// Hears the switch until it has gone; `None` if the program leaves.
    fn hear(&self, connection: &Connection) -> Option<()> {
        loop {
            if !self.wait(Some(connection), PollTimeout::NONE) {
                return None;
            }
            match connection.receive() {
                Ok(Some((Reply::Superseded, _))) => self.notify(Notice::Superseded),
                Ok(Some((Reply::Upgrade, _))) => self.notify(Notice::Upgrade),
                Ok(Some((reply, _))) => {
                    self.state().answer = Some(reply);
                    self.changed.notify_all();
                }
                Ok(None) => return Some(()),
                Err(error) => {
                    log::warn!("the switch {}: {error}", self.options.name);
                    return Some(());
                }
            }
        }
    }

    fn notify(&self, notice: Notice) {
        if notice == Notice::Superseded {
            self.state().serve = None;
        }
        if let Some(heed) = self.heed.get() {
            heed(notice);
        }
    }

    /// Waits for a message, or until the program leaves: false.
    fn wait(&self, connection: Option<&Connection>, timeout: PollTimeout) -> bool {
        let first = connection.map_or_else(|| self.bell.as_fd(), AsFd::as_fd);
        let mut fds = [
            PollFd::new(first, PollFlags::POLLIN),
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => {}
                _ => return !self.state().leaving,
            }
        }
    }

    /// Finds the next switch, or starts it, and has there what there was; false if the program leaves.
    fn find_again(&self) -> bool {
        let mut said = false;
        loop {
            let mut state = self.state();
            state.connection = None;
            let serve = state.serve.clone();
            drop(state);
            match self.resume(serve) {
                Ok(connection) => {
                    let mut state = self.state();
                    if state.leaving {
                        return false;
                    }
                    state.connection = Some(Arc::new(connection));
                    drop(state);
                    self.changed.notify_all();
                    return true;
                }
                Err(error) if !said => {
                    said = true;
                    log::warn!(
                        "the switch {} has gone, and there is no other yet: {error}; nothing comes in \
                         on {} until there is",
                        self.options.name,
                        self.place.address
                    );
                }
                Err(_) => {}
            }
            let pause = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
            if !self.wait(None, pause) {
                return false;
            }
        }
    }

    fn resume(&self, serve: Option<Serve>) -> io::Result<Connection> {
        let resume = Some(self.resume.clone());
        let mut options = self.options.clone();
        if geteuid() != self.user {
            options.program = None;
        }
        let joined = join_once(&options, self.place, Some(&self.socket), &self.channels, resume)?;
        let Joined::At { connection, .. } = joined else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Some(serve) = serve {
            match connection.ask(&Request::Serve(serve), &[])?.0 {
                Reply::Done => {}
                // A newer generation has come first.
                Reply::Refused { why: Refusal::InUse, .. } => self.notify(Notice::Superseded),
                other => return Err(unexpected(&other)),
            }
        }
        Ok(connection)
    }
}
