//! Trains of datagrams between the switch and a worker of a program, over a pair of local sockets.
//!
//! A message is a train: a head of [`HEAD`] octets, then the datagrams. Numbers are in network byte
//! order.
//!
//! | Octets | What |
//! | --- | --- |
//! | 1 | bits 0 and 1: the ECN mark; bit 2: the sender's address is of IPv6; bit 3: the address that it was sent to is known; the others are 0 |
//! | 1 | 0; of a `Word`, which has no datagrams and zeros in all other octets, which one it is |
//! | 2 | size of each datagram but the last, in bytes; not 0 |
//! | 2 | the sender's port |
//! | 2 | the port that it was sent to |
//! | 4 | the scope of the sender's address; 0 for IPv4 |
//! | 16 | the sender's address; of IPv4, its four octets and zeros |
//! | 16 | the address that it was sent to, of the same family; zeros if it is not known |
//!
//! A worker that has a socket of its own beside the switch sends what came there and belongs to another
//! program the other way, in the same form.
//!
//! A worker of a program that has no socket of the address, since it is of another user than the switch, sends
//! that way what the switch is to send for it: the sender's address is the receiver's then, and the address that
//! it was sent to is the one to send from.
//!
//! The switch lends a worker the address's socket (`Word::Lend`), which that reads then beside the channel; what
//! belongs to another program it sends the other way, too.
//!
//! The program makes the pair and keeps a handle of the switch's end: if the switch dies, nothing that
//! waits in the channel is lost, and nobody who reads needs to know. The next switch is given the end
//! again. Who may write into it is who was given it, over a connection whose other end the system names.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt};
use quicket_clerk::Clerk;
use quicket_udp::{Arrival, Outgoing, Port};
use quicket_wire::EcnCodepoint;

use crate::borrower::Borrower;
use crate::sys::{self, BATCH, Rights};

/// Octets before the datagrams of a train.
pub const HEAD: usize = 44;
/// The most that waits for one worker beside what the system keeps, in bytes. What comes while it is full
/// is lost.
pub const BACKLOG_BYTES: usize = 4 << 20;
/// What the system is asked to keep for one worker, in bytes.
const BUFFER: usize = 4 << 20;

const ECN: u8 = 0b11;
const IPV6: u8 = 0b100;
const LOCAL: u8 = 0b1000;

/// What the two sides say to each other beside trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The switch has stopped to read the address's socket: the worker is to read it.
    Lend = 1,
    /// The switch reads it again, and the worker is to stop.
    Recall = 2,
    /// The worker does not read it, and will not.
    Decline = 3,
    /// The worker has read something from it of late.
    Reads = 4,
}

impl Word {
    const ALL: [Self; 4] = [Self::Lend, Self::Recall, Self::Decline, Self::Reads];

    const fn encode(self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[1] = self as u8;
        head
    }

    /// Reads a message of so many octets; `None` if it is none.
    fn decode(head: &[u8; HEAD], len: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|word| len == HEAD && word.encode() == *head)
    }
}

/// Writes what is known of a train.
///
/// The two addresses are of one family; a stride of more than 65,535 is none.
#[must_use]
pub fn encode(arrival: &Arrival) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let stride = u16::try_from(arrival.stride).unwrap_or(u16::MAX).max(1);
    let remote = arrival.remote;
    let local = arrival.local.filter(|local| local.is_ipv4() == remote.is_ipv4());
    head[0] = arrival.ecn.bits();
    if remote.is_ipv6() {
        head[0] |= IPV6;
    }
    head[2..4].copy_from_slice(&stride.to_be_bytes());
    head[4..6].copy_from_slice(&remote.port().to_be_bytes());
    if let SocketAddr::V6(v6) = remote {
        head[8..12].copy_from_slice(&v6.scope_id().to_be_bytes());
    }
    write_ip(&mut head[12..28], remote.ip());
    if let Some(local) = local {
        head[0] |= LOCAL;
        head[6..8].copy_from_slice(&local.port().to_be_bytes());
        write_ip(&mut head[28..44], local.ip());
    }
    head
}

fn write_ip(to: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => to[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => to.copy_from_slice(&ip.octets()),
    }
}

/// Reads what is known of a train of `len` bytes; `None` if it is not what [`encode`] writes.
#[must_use]
pub fn decode(head: &[u8; HEAD], len: usize) -> Option<Arrival> {
    let flags = head[0];
    let stride = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if flags & !(ECN | IPV6 | LOCAL) != 0 || head[1] != 0 || stride == 0 {
        return None;
    }
    let is_v6 = flags & IPV6 != 0;
    let remote_port = u16::from_be_bytes([head[4], head[5]]);
    let local_port = u16::from_be_bytes([head[6], head[7]]);
    let scope = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
    let remote = match read_ip(&head[12..28], is_v6)? {
        IpAddr::V6(ip) => SocketAddr::V6(SocketAddrV6::new(ip, remote_port, 0, scope)),
        ip if scope == 0 => SocketAddr::new(ip, remote_port),
        IpAddr::V4(_) => return None,
    };
    let local = SocketAddr::new(read_ip(&head[28..44], is_v6)?, local_port);
    let known = flags & LOCAL != 0;
    let zero = local_port == 0 && head[28..44] == [0; 16];
    if !known && !zero {
        return None;
    }
    let ecn = EcnCodepoint::from_bits(flags);
    Some(Arrival { remote, local: known.then_some(local), ecn, stride, len })
}

fn read_ip(octets: &[u8], is_v6: bool) -> Option<IpAddr> {
    let octets: [u8; 16] = octets.try_into().ok()?;
    if is_v6 {
        return Some(IpAddr::V6(Ipv6Addr::from(octets)));
    }
    let [a, b, c, d, rest @ ..] = octets;
    (rest == [0; 12]).then_some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
}

/// The program's end of a channel: what a worker's socket receives from.
#[derive(Debug)]
pub struct Inlet {
    ours: OwnedFd,
    socket: Option<UdpSocket>,
    borrower: Option<Borrower>,
}

impl Inlet {
    /// The worker's own socket at the address, to which the kernel brings what is for its connections; none
    /// where everything comes by the channel. It is here once.
    pub fn take_socket(&mut self) -> Option<UdpSocket> {
        self.socket.take()
    }

    pub(crate) fn set_socket(&mut self, socket: UdpSocket) {
        self.socket = Some(socket);
    }

    /// Lets the switch lend the worker the address's socket, of which `socket` is a handle: from now on the inlet tells
    /// when that is so, and is readable by either ([`Port::is_lent`]).
    ///
    /// # Errors
    ///
    /// When no descriptor is left.
    pub fn may_borrow(&mut self, socket: &UdpSocket) -> io::Result<()> {
        // Room for what is handed back, as for what comes.
        setsockopt(&self.ours, sockopt::SndBuf, &BUFFER)?;
        self.borrower = Some(Borrower::new(self.ours.as_fd(), socket)?);
        Ok(())
    }

    /// The switch has said something.
    fn hear(&self, word: Word) {
        let borrowed = match (word, &self.borrower) {
            (Word::Lend, Some(borrower)) => borrower.borrow(),
            (Word::Lend, None) => Err(io::ErrorKind::Unsupported.into()),
            (Word::Recall, Some(borrower)) => return borrower.give_back(),
            _ => return,
        };
        if let Err(error) = borrowed {
            log::debug!("the address's socket is not read here: {error}");
            // The switch takes it back from who says nothing and does not read.
            let _ = say(self.ours.as_fd(), Word::Decline);
        }
    }
}

/// Says a word, without waiting.
fn say(to: BorrowedFd<'_>, word: Word) -> io::Result<()> {
    let head = word.encode();
    sys::send_many(to, &[[IoSlice::new(&head), IoSlice::new(&[])]]).map(drop)
}

/// The switch's end of a channel, as a program keeps and hands it over.
#[derive(Debug)]
pub struct Handover(OwnedFd);

/// Makes a channel.
///
/// # Errors
///
/// When no descriptor is left.
pub fn channel() -> io::Result<(Inlet, Handover)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    // What is granted is at most net.core.wmem_max; the switch keeps the rest.
    setsockopt(&theirs, sockopt::SndBuf, &BUFFER)?;
    Ok((Inlet { ours, socket: None, borrower: None }, Handover(theirs)))
}

impl Handover {
    /// Says a word to the worker, as the switch would, and without waiting.
    pub(crate) fn say(&self, word: Word) -> io::Result<()> {
        say(self.0.as_fd(), word)
    }
}

impl AsFd for Handover {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Port for Inlet {
    fn readable(&self) -> BorrowedFd<'_> {
        self.borrower.as_ref().map_or_else(|| self.ours.as_fd(), Borrower::readable)
    }

    fn writable(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    fn is_lent(&self) -> bool {
        self.borrower.as_ref().is_some_and(Borrower::has_it)
    }

    fn on_read_lent(&self) {
        if self.borrower.as_ref().is_some_and(Borrower::is_to_tell) {
            // Where there is no room the switch has something to read as well, and is told the next time.
            let _ = say(self.ours.as_fd(), Word::Reads);
        }
    }

    fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> io::Result<usize> {
        loop {
            let mut words = 0;
            let hear = |word| {
                words += 1;
                self.hear(word);
            };
            match receive_trains(self.ours.as_fd(), buffers, arrivals, None, hear)? {
                // The switch's end is kept by the program itself.
                0 => return Err(io::ErrorKind::WouldBlock.into()),
                // Nothing but words: who receives need not know.
                count if count == words => {}
                count => return Ok(count),
            }
        }
    }

    fn hand_back(&self, train: &Arrival, bytes: &[u8]) -> io::Result<()> {
        let head = encode(train);
        let message = [IoSlice::new(&head), IoSlice::new(bytes)];
        sys::send_many(self.ours.as_fd(), &[message]).map(drop)
    }

    fn send_through(&self, burst: &Outgoing<'_>) -> io::Result<usize> {
        self.hand_back(&Arrival::of(burst), burst.bytes).map(|()| burst.bytes.len())
    }
}

/// Receives what the other end has sent; none at its end.
fn receive_trains(
    from: BorrowedFd<'_>,
    buffers: &mut [IoSliceMut<'_>],
    arrivals: &mut [Arrival],
    rights: Option<&mut Rights>,
    mut hear: impl FnMut(Word),
) -> io::Result<usize> {
    let mut heads = [[0; HEAD]; BATCH];
    let mut lens = [0; BATCH];
    let count = sys::receive_many(from, &mut heads, buffers, rights, |at, len| lens[at] = len)?;
    for ((arrival, head), len) in arrivals.iter_mut().zip(&heads).zip(lens).take(count) {
        Word::decode(head, len).into_iter().for_each(&mut hear);
        // What is no train is an empty one: nothing comes of it.
        let read = len.checked_sub(HEAD).and_then(|len| decode(head, len));
        *arrival = read.unwrap_or_default();
    }
    Ok(count)
}

/// A train that waits.
type Waiting = ([u8; HEAD], Box<[u8]>);

/// The switch's end of a channel: bounded, and never waited for.
#[derive(Debug)]
pub(crate) struct Outlet {
    channel: OwnedFd,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// The program hands back what its workers' own sockets get of others, or has what it sends sent.
    hears: bool,
    /// What was to be sent for it and found no room: what came at once. No more is heard until that is sent.
    unsent: VecDeque<(Arrival, Box<[u8]>)>,
    /// How much may wait for it.
    backlog: usize,
    /// What the switch waits for here.
    pub(crate) watched: EpollFlags,
    /// The worker has said that it does not read the address's socket.
    declined: AtomicBool,
    /// ... that it has read something from it.
    reads: AtomicBool,
    /// What closes descriptors that come along. None: nobody here needs one, and the system closes them.
    clerk: Option<Clerk>,
    /// Some have come.
    has_handed: AtomicBool,
}

/// What became of trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Datagrams that are on their way, or wait for room.
    pub(crate) datagrams: u64,
    /// Datagrams for which there was no room.
    pub(crate) lost: u64,
}

impl Outlet {
    /// Whether what a program has handed over can be the end of a channel. Anything else may have any other question
    /// wait.
    pub(crate) fn check(channel: BorrowedFd<'_>) -> io::Result<()> {
        if sys::kind(channel).is_ok_and(|kind| kind == (libc::AF_UNIX, libc::SOCK_SEQPACKET)) {
            return Ok(());
        }
        let message = "a channel is not a local socket of messages (SOCK_SEQPACKET)";
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Takes what a program has handed over, which is the end of a channel ([`Self::check`]).
    pub(crate) fn new(channel: OwnedFd) -> Self {
        let (waiting, watched) = (VecDeque::new(), EpollFlags::empty());
        let (hears, unsent, backlog) = (false, VecDeque::new(), BACKLOG_BYTES);
        let (declined, reads) = (AtomicBool::new(false), AtomicBool::new(false));
        let (waiting_bytes, clerk, has_handed) = (0, None, AtomicBool::new(false));
        Self {
            channel,
            waiting,
            waiting_bytes,
            hears,
            unsent,
            backlog,
            watched,
            declined,
            reads,
            clerk,
            has_handed,
        }
    }

    /// The program may hand descriptors over that wait when they are closed: they are received, and closed there.
    pub(crate) fn set_clerk(&mut self, clerk: Clerk) {
        self.clerk = Some(clerk);
    }

    /// Whether descriptors have come.
    pub(crate) fn has_handed(&self) -> bool {
        self.has_handed.load(Ordering::Relaxed)
    }

    /// The program has gone. Closing the channel may wait for what is in it.
    pub(crate) fn into_channel(self) -> OwnedFd {
        self.channel
    }

    /// Says a word to the worker, behind all that was sent to it. False if there is no room for now.
    pub(crate) fn say(&mut self, word: Word) -> bool {
        self.waiting.is_empty() && say(self.channel.as_fd(), word).is_ok()
    }

    /// The same for one that must not be lost: where there is no room it waits.
    pub(crate) fn say_for_sure(&mut self, word: Word) {
        if !self.say(word) {
            self.waiting_bytes += HEAD;
            self.waiting.push_back((word.encode(), Box::default()));
        }
    }

    /// Whether the worker has said since the last call that it does not read the address's socket.
    pub(crate) fn has_declined(&mut self) -> bool {
        std::mem::take(self.declined.get_mut())
    }

    /// Whether it has said since the last call that it has read something from that.
    pub(crate) fn has_read(&mut self) -> bool {
        std::mem::take(self.reads.get_mut())
    }

    /// Lets less wait for the program than for those of the switch's own user.
    pub(crate) const fn set_backlog(&mut self, bytes: usize) {
        self.backlog = bytes;
    }

    /// Whether something that is to be sent for the program waits for room.
    pub(crate) fn is_stuck(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Keeps a burst until there is room.
    pub(crate) fn keep(&mut self, burst: &Outgoing<'_>) {
        self.unsent.push_back((Arrival::of(burst), burst.bytes.into()));
    }

    /// Offers what was kept again, the oldest first, until `send` says how much of one it has taken.
    pub(crate) fn retry(&mut self, mut send: impl FnMut(&Outgoing<'_>) -> Option<usize>) {
        while let Some((train, bytes)) = self.unsent.pop_front() {
            if let Some(sent) = send(&train.outgoing(&bytes)) {
                let rest = bytes.get(sent..).unwrap_or_default();
                return self.unsent.push_front((train, rest.into()));
            }
        }
    }

    /// Whether anything is to be heard here from now on.
    pub(crate) const fn set_hears(&mut self, hears: bool) {
        self.hears = hears;
    }

    /// What is to be waited for here.
    pub(crate) fn wants(&self) -> EpollFlags {
        let mut wants = EpollFlags::empty();
        wants.set(EpollFlags::EPOLLIN, self.hears && !self.is_stuck());
        wants.set(EpollFlags::EPOLLOUT, self.is_full());
        wants
    }

    /// True if something waits for room.
    pub(crate) fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends trains, in order; what finds no room waits, or is lost. Never waits itself.
    pub(crate) fn send(&mut self, trains: &[([u8; HEAD], &[u8])]) -> Sent {
        let mut sent = Sent::default();
        let mut rest = trains;
        while self.waiting.is_empty() && !rest.is_empty() {
            let batch: Vec<_> = rest
                .iter()
                .take(BATCH)
                .map(|(head, bytes)| [IoSlice::new(head), IoSlice::new(bytes)])
                .collect();
            match sys::send_many(self.channel.as_fd(), &batch) {
                Ok(0) => break,
                Ok(count) => {
                    let (gone, more) = rest.split_at(count.min(rest.len()));
                    sent.datagrams += gone.iter().map(count_of).sum::<u64>();
                    rest = more;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The other end is gone, which its connection tells, or the message does not fit.
                Err(_) => {
                    let (refused, more) = rest.split_at(1);
                    sent.lost += refused.iter().map(count_of).sum::<u64>();
                    rest = more;
                }
            }
        }
        for train in rest {
            let (head, bytes) = train;
            if self.waiting_bytes + HEAD + bytes.len() > self.backlog {
                sent.lost += count_of(train);
            } else {
                sent.datagrams += count_of(train);
                self.waiting_bytes += HEAD + bytes.len();
                self.waiting.push_back((*head, (*bytes).into()));
            }
        }
        sent
    }

    /// Sends what waits, as far as there is room. Returns how many datagrams were lost.
    pub(crate) fn flush(&mut self) -> u64 {
        let mut lost = 0;
        while !self.waiting.is_empty() {
            let batch: Vec<_> = self
                .waiting
                .iter()
                .take(BATCH)
                .map(|(head, bytes)| [IoSlice::new(head), IoSlice::new(bytes)])
                .collect();
            let gone = match sys::send_many(self.channel.as_fd(), &batch) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(_) => {
                    lost += self.waiting.front().map_or(0, |(h, b)| count_of(&(*h, &**b)));
                    1
                }
            };
            if gone == 0 {
                break;
            }
            for (_, bytes) in self.waiting.drain(..gone) {
                self.waiting_bytes -= HEAD + bytes.len();
            }
        }
        lost
    }
}

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// What a program hands back.
impl Port for Outlet {
    fn readable(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    fn receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> io::Result<usize> {
        let hear = |word| match word {
            Word::Decline => self.declined.store(true, Ordering::Relaxed),
            Word::Reads => self.reads.store(true, Ordering::Relaxed),
            Word::Lend | Word::Recall => {}
        };
        let mut rights = Rights::default();
        let room = self.clerk.is_some().then_some(&mut rights);
        let received = receive_trains(self.channel.as_fd(), buffers, arrivals, room, hear);
        if let Some(clerk) = self.clerk.as_ref().filter(|_| !rights.is_none()) {
            self.has_handed.store(true, Ordering::Relaxed);
            clerk.close(rights.descriptors);
        }
        match received? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }

    fn hand_back(&self, _: &Arrival, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// How many datagrams a train has.
fn count_of((head, bytes): &([u8; HEAD], &[u8])) -> u64 {
    let stride = u16::from_be_bytes([head[2], head[3]]).max(1);
    bytes.len().div_ceil(stride.into()) as u64
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
