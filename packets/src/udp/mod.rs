//! A port that carries the datagrams of a QUIC socket (`quicket-udp`).
//!
//! Bursts become frames with all checksums, and frames become trains again. What the poller of an endpoint waits for are
//! two descriptors that this has for its life, as the bell of a port ends with the switch and is one for both ways:
//! one is readable when frames are left or the bell has rung, the other one writable when there is room.

mod heard;
mod trains;

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quicket_ring::program::{Receiver, Sender};
use quicket_ring::{Bell, Layout};
use quicket_udp::{Arrival, Outgoing, Undelivered};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::client::{Parts, Port, Registrar};
use crate::compose;
use crate::frame::{ETHERNET_LEN, MIN_FRAME};
use heard::Heard;
pub(crate) use trains::Datagram;
use trains::Gather;

/// Octets of a slot: an MTU of 1,500 with room for tags, and what QUIC finds to pass beyond that in memory.
const SLOT: u32 = 2048;
/// Positions of a ring, whatever its size in octets was to be.
const ENTRIES: (u32, u32) = (64, 4096);
/// Between two attempts to find a switch that has gone.
const RETRY: Duration = Duration::from_millis(500);
/// So long an endpoint waits for a switch that is there again to answer: all its connections wait meanwhile.
const ANSWER: Duration = Duration::from_millis(100);
/// What fills an eventfd, so that it is not writable.
const FULL: u64 = u64::MAX - 1;

/// A port at the switch for packets for the address of one UDP socket.
///
/// While the switch is gone, receiving fails with `ConnectionReset`, and what is sent is lost once the ring is full of it.
/// Another switch at the same path is found by receiving, again and again, and has the same address
/// registered.
#[derive(Debug)]
pub struct UdpPort {
    path: PathBuf,
    layout: Layout,
    /// What proves the address, for the next switch.
    socket: UdpSocket,
    local: SocketAddr,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Somebody waits for room: it is looked for whenever the switch has rung.
    waits: AtomicBool,
    /// Full while somebody does (eventfd).
    room: OwnedFd,
    /// The bell, and `left` (epoll).
    readable: OwnedFd,
    /// Not empty while frames are left that had no room in the buffers (eventfd).
    left: OwnedFd,
    /// What ICMP has said.
    heard: Heard,
}

#[derive(Debug)]
struct Sending {
    sender: Sender,
    bell: Arc<Bell>,
}

#[derive(Debug)]
struct Receiving {
    receiver: Receiver,
    bell: Arc<Bell>,
    /// The port lives as long as this.
    _registrar: Registrar,
    is_left: bool,
    /// The switch has gone: when it was looked for last.
    gone: Option<Instant>,
}

impl UdpPort {
    /// Opens a port at the switch that listens at `path`, with the address that a socket is bound to: one address and
    /// port, without SO_REUSEADDR and SO_REUSEPORT. `send` and `receive` are the sizes of its rings in octets, rounded up to a
    /// power of two from 128 KiB to 8 MiB each.
    ///
    /// # Errors
    ///
    /// Those of [`Port::open`] and [`Port::register`], with what to do.
    pub fn open(path: &Path, socket: UdpSocket, send: usize, receive: usize) -> io::Result<Self> {
        let (least, most) = ENTRIES;
        let entries = |octets: usize| {
            let wanted = u32::try_from(octets.div_ceil(SLOT as usize)).unwrap_or(most);
            wanted.clamp(least, most).next_power_of_two()
        };
        let layout = Layout::new(entries(send), entries(receive), SLOT)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let (port, local) = registered(path, layout, &socket, None)?;
        let Parts { registrar, bell, sender, receiver } = port.into_parts();
        let bell = Arc::new(bell);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let (room, left) = (eventfd(0, flags)?, eventfd(0, flags)?);
        let readable = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&readable, &*bell, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&readable, &left, EventData::new_u64(1), EventFlags::IN)?;
        let this = Self {
            path: path.to_owned(),
            layout,
            socket,
            local,
            sending: Mutex::new(Sending { sender, bell: Arc::clone(&bell) }),
            receiving: Mutex::new(Receiving {
                receiver,
                bell,
                _registrar: registrar,
                is_left: false,
                gone: None,
            }),
            waits: AtomicBool::new(false),
            room,
            readable,
            left,
            heard: Heard::default(),
        };
        // Nobody has looked yet whether something is there: the first who does says that he waits.
        this.leave(&mut lock(&this.receiving))?;
        Ok(this)
    }

    /// The address that it has.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Octets of a frame before those of a datagram.
    const fn header(&self) -> usize {
        ETHERNET_LEN + if self.local.is_ipv4() { 20 } else { 40 } + 8
    }

    /// Has `readable` tell of frames that are left.
    fn leave(&self, receiving: &mut Receiving) -> io::Result<()> {
        if !receiving.is_left {
            write(&self.left, 1)?;
            receiving.is_left = true;
        }
        Ok(())
    }

    /// Says that somebody waits for room, unless there is some. Returns whether he is to wait.
    fn wait_for_room(&self, sending: &mut Sending) -> io::Result<bool> {
        self.waits.store(true, Ordering::SeqCst);
        write(&self.room, FULL)?;
        self.look_for_room(sending)
    }

    /// Returns whether there is still none. Otherwise whoever waits hears of it.
    fn look_for_room(&self, sending: &mut Sending) -> io::Result<bool> {
        if sending.sender.wait().map_err(io::Error::other)? {
            return Ok(true);
        }
        self.waits.store(false, Ordering::SeqCst);
        drain(&self.room)?;
        Ok(false)
    }

    /// Looks for room for who waits, if anybody does.
    fn see_to_room(&self) -> io::Result<()> {
        if self.waits.load(Ordering::SeqCst) {
            self.look_for_room(&mut lock(&self.sending))?;
        }
        Ok(())
    }

    /// Opens another port if the switch has gone and is there again.
    fn reopen(&self, receiving: &mut Receiving) -> io::Result<()> {
        let Some(last) = receiving.gone else { return Ok(()) };
        if last.elapsed() < RETRY {
            return Err(gone());
        }
        receiving.gone = Some(Instant::now());
        let until = Instant::now() + ANSWER;
        let (port, _) = registered(&self.path, self.layout, &self.socket, Some(until))?;
        let Parts { registrar, bell, sender, receiver } = port.into_parts();
        let bell = Arc::new(bell);
        epoll::add(&self.readable, &*bell, EventData::new_u64(0), EventFlags::IN)?;
        // Closing it is not enough while a child of this process has it too.
        epoll::delete(&self.readable, &*receiving.bell)?;
        let is_left = receiving.is_left;
        *receiving = Receiving {
            receiver,
            bell: Arc::clone(&bell),
            _registrar: registrar,
            is_left,
            gone: None,
        };
        *lock(&self.sending) = Sending { sender, bell };
        // Who has been warned that it had gone hears it.
        log::warn!("the switch for packets at {} is there again", self.path.display());
        self.see_to_room()
    }

    /// Takes rings, and says that this side waits. Returns false if frames have come.
    fn fall_asleep(&self, receiving: &mut Receiving) -> io::Result<bool> {
        if receiving.bell.hush().is_err() {
            receiving.gone = Some(Instant::now());
            return Err(gone());
        }
        if std::mem::take(&mut receiving.is_left) {
            drain(&self.left)?;
        }
        // The ring may have been for that.
        self.see_to_room()?;
        receiving.receiver.sleep().map_err(io::Error::other)
    }

    /// Reads frames until there are no more, or no room for them.
    fn gather(&self, receiving: &mut Receiving, gather: &mut Gather<'_, '_>) -> io::Result<()> {
        loop {
            let receiver = &mut receiving.receiver;
            let ready = receiver.ready().map_err(io::Error::other)?;
            let mut taken = 0;
            while taken < ready {
                let frame = receiver.frame(taken).ok_or(io::ErrorKind::InvalidData)?;
                match Datagram::read(frame) {
                    None => self.heard.hear(frame, self.local),
                    Some(datagram) if datagram.destination != self.local => {}
                    Some(datagram) if !gather.add(&datagram) => break,
                    _ => {}
                }
                taken += 1;
            }
            receiver.release(taken);
            if taken < ready {
                return self.leave(receiving);
            }
            if self.fall_asleep(receiving)? {
                return Ok(());
            }
        }
    }

    /// Writes as many datagrams of a burst into slots as have room, and publishes them at once. Returns how many bytes
    /// they have, or that the burst can be none of this port.
    fn publish(
        &self,
        sending: &mut Sending,
        burst: &Outgoing<'_>,
        bytes: &[u8],
    ) -> io::Result<usize> {
        let mut datagrams = bytes.chunks(burst.segment_size.max(1));
        let wanted = u32::try_from(datagrams.len()).unwrap_or(u32::MAX);
        let room = sending.sender.room(wanted).map_err(io::Error::other)?;
        let (mut n, mut sent) = (0, 0);
        while n < room {
            let Some(datagram) = datagrams.next() else { break };
            let slot = sending.sender.slot(n).ok_or(io::ErrorKind::InvalidData)?;
            let (from, to, mark) = (self.local, burst.remote, burst.ecn);
            let len =
                compose::marked_udp(slot, from, to, mark, datagram).ok_or(Errno::AFNOSUPPORT)?;
            sending.sender.set_len(n, u16::try_from(len).unwrap_or(u16::MAX));
            sent += datagram.len();
            n += 1;
        }
        if n > 0 && sending.sender.publish(n) {
            // Of a switch that has gone, who receives hears.
            let _ = sending.bell.ring();
        }
        Ok(sent)
    }
}

impl quicket_udp::Port for UdpPort {
    fn readable(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn writable(&self) -> BorrowedFd<'_> {
        self.room.as_fd()
    }

    fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> io::Result<usize> {
        let receiving = &mut *lock(&self.receiving);
        self.reopen(receiving)?;
        self.see_to_room()?;
        let mut trains = Gather::new(buffers, arrivals);
        match self.gather(receiving, &mut trains) {
            // What has come is not lost.
            result if trains.count() == 0 => result.and(Err(io::ErrorKind::WouldBlock.into())),
            _ => Ok(trains.count()),
        }
    }

    fn keep_errors(&self, on: bool) {
        self.heard.keep(on);
    }

    fn has_errors(&self) -> bool {
        self.heard.is_some()
    }

    fn take_errors(&self, each: &mut dyn FnMut(Undelivered<'_>)) {
        self.heard.take(each);
    }

    fn hand_back(&self, _: &Arrival, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn send_through(&self, burst: &Outgoing<'_>) -> io::Result<usize> {
        if burst.local.is_some_and(|local| local != self.local.ip()) {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        let longest = burst.segment_size.min(burst.bytes.len());
        if (self.header() + longest).max(MIN_FRAME) > SLOT as usize {
            return Err(Errno::MSGSIZE.into());
        }
        let mut sending = lock(&self.sending);
        let mut sent = 0;
        while let Some(rest) = burst.bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.publish(&mut sending, burst, rest)? {
                0 if self.wait_for_room(&mut sending)? => break,
                n => sent += n,
            }
        }
        if sent == 0 && !burst.bytes.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(sent)
    }
}

/// A port that has the address of a socket, by some time, or however long it takes.
fn registered(
    path: &Path,
    layout: Layout,
    socket: &UdpSocket,
    until: Option<Instant>,
) -> io::Result<(Port, SocketAddr)> {
    let mut port = Port::open_until(path, layout, until).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                "; quicket switch packets starts one"
            }
            io::ErrorKind::PermissionDenied => "; it is another user's, without --all-users",
            _ => "",
        };
        let what = format!("no switch for packets answers at {}: {error}{advice}", path.display());
        io::Error::new(error.kind(), what)
    })?;
    let tuple = port.register_until(socket, until)?;
    Ok((port, (tuple.address, tuple.port).into()))
}

fn gone() -> io::Error {
    let text = "the switch for packets has gone: a port of the next one at its path is opened as soon as it is there";
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

/// Adds to an eventfd, unless it is full.
fn write(eventfd: &OwnedFd, n: u64) -> io::Result<()> {
    match rustix::io::write(eventfd, &n.to_ne_bytes()) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Empties an eventfd.
fn drain(eventfd: &OwnedFd) -> io::Result<()> {
    match rustix::io::read(eventfd, &mut [0; 8]) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
