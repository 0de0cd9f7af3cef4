//! Sending: bursts of equal datagrams in one system call, and what to make of refusals.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use nix::errno::Errno;
use quicket_wire::EcnCodepoint;

use crate::address::{for_socket, ip_for_socket};
use crate::{Complaints, MAX_SEGMENTS, UdpConfig, UdpSocket, marked, offload_state};

/// One burst: datagrams of `segment_size` bytes each, the last perhaps shorter.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The receiver.
    pub remote: SocketAddr,
    /// The address of ours to send from, if it matters.
    pub local: Option<IpAddr>,
    /// The mark for the IP headers.
    pub ecn: EcnCodepoint,
    /// Size of each datagram but the last.
    pub segment_size: usize,
    /// All of them.
    pub bytes: &'a [u8],
}

/// What the address is worth from which a burst is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Any other one does if this host has it no more.
    Rather,
    /// None other does.
    Only,
}

/// What became of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// The kernel has it, or (as with any datagram) it is lost on the way; QUIC repairs that.
    Done,
    /// The burst's datagrams are too large for the interface or the path, and none is sent.
    TooLarge,
    /// The kernel's buffer is full: offer what follows the first `sent` bytes again when the
    /// socket is writable.
    Blocked {
        /// How much is out.
        sent: usize,
    },
}

/// What the operating system refused; for people who wonder where packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Datagrams longer than the path or the interface takes (EMSGSIZE): MTU probes, mostly.
    pub too_large: u64,
    /// Bursts refused for any other reason: no route, a firewall, no memory.
    pub refused: u64,
    /// Bursts whose source address this host no longer has, sent from another one.
    pub source_lost: u64,
}

impl AddAssign for UdpStats {
    fn add_assign(&mut self, other: Self) {
        self.too_large += other.too_large;
        self.refused += other.refused;
        self.source_lost += other.source_lost;
    }
}

/// The sending half of a socket; any number of threads may send at once.
#[derive(Debug)]
pub struct Sender {
    socket: Arc<UdpSocket>,
    /// Apart from the receiving half's, as quinn-udp gives up offload and ECN in here for good
    /// when a send is refused; it is made anew when the refusal had another cause.
    state: RwLock<quinn_udp::UdpSocketState>,
    offload: bool,
    stats: Mutex<UdpStats>,
    complaints: Complaints,
}

impl Sender {
    /// The sending half of a socket.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that QUIC needs.
    pub fn new(socket: Arc<UdpSocket>, config: &UdpConfig) -> io::Result<Self> {
        let state = RwLock::new(offload_state(&socket.io)?);
        Ok(Self {
            socket,
            state,
            offload: config.segmentation_offload,
            stats: Mutex::default(),
            complaints: Complaints::default(),
        })
    }

    /// How many datagrams a burst may have now.
    pub fn max_segments(&self) -> usize {
        if self.offload && self.socket.sends_by_port {
            return MAX_SEGMENTS;
        }
        if self.offload { self.state().max_gso_segments().clamp(1, MAX_SEGMENTS) } else { 1 }
    }

    /// What was refused so far.
    pub fn stats(&self) -> UdpStats {
        *lock(&self.stats)
    }

    /// Sends a burst. Nothing that the operating system may say ends the endpoint.
    pub fn send(&self, burst: &Outgoing<'_>) -> SendOutcome {
        self.send_from(burst, Source::Rather)
    }

    /// Sends a burst from the address that it names, or not at all: for who moves to another one
    /// of his own accord.
    pub fn send_strictly(&self, burst: &Outgoing<'_>) -> SendOutcome {
        self.send_from(burst, Source::Only)
    }

    fn send_from(&self, burst: &Outgoing<'_>, source: Source) -> SendOutcome {
        if burst.bytes.len() > burst.segment_size && self.max_segments() == 1 {
            return self.send_one_by_one(burst, source);
        }
        match self.try_send(burst, burst.local) {
            Ok(sent) if sent < burst.bytes.len() => SendOutcome::Blocked { sent },
            Ok(_) => SendOutcome::Done,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                SendOutcome::Blocked { sent: 0 }
            }
            Err(error) => self.refused(burst, source, &error),
        }
    }

    fn state(&self) -> RwLockReadGuard<'_, quinn_udp::UdpSocketState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes are out: the kernel takes all or nothing, a port perhaps a part.
    fn try_send(&self, burst: &Outgoing<'_>, local: Option<IpAddr>) -> io::Result<usize> {
        if let Some(port) = self.socket.port.as_deref().filter(|_| self.socket.sends_by_port) {
            return port.send_through(&Outgoing { local, ..*burst });
        }
        #[cfg(any(test, feature = "faults"))]
        self.socket.faults.check_send(burst.segment_size.min(burst.bytes.len()))?;
        let is_v6 = self.socket.is_v6;
        let transmit = quinn_udp::Transmit {
            destination: for_socket(burst.remote, is_v6),
            ecn: ecn_to(burst.ecn),
            contents: burst.bytes,
            segment_size: (burst.bytes.len() > burst.segment_size).then_some(burst.segment_size),
            src_ip: local.map(|ip| ip_for_socket(ip, is_v6)),
        };
        let class = self.socket.classes.of(transmit.destination);
        let send = || match class {
            Some(class) => marked::send(&self.socket.io, &transmit, class),
            None => self.state().try_send((&self.socket.io).into(), &transmit),
        };
        match send() {
            Err(error) if self.socket.icmp.explains(&error) => send(),
            result => result,
        }
        .map(|()| burst.bytes.len())
    }

    /// Without offload, or after the kernel refused it: one datagram at a time.
    fn send_one_by_one(&self, burst: &Outgoing<'_>, source: Source) -> SendOutcome {
        let mut sent = 0;
        for datagram in burst.bytes.chunks(burst.segment_size.max(1)) {
            match self.send_from(&Outgoing { bytes: datagram, ..*burst }, source) {
                SendOutcome::Done => sent += datagram.len(),
                SendOutcome::Blocked { .. } => return SendOutcome::Blocked { sent },
                // The others are no larger.
                SendOutcome::TooLarge => return SendOutcome::TooLarge,
            }
        }
        SendOutcome::Done
    }

    fn refused(&self, burst: &Outgoing<'_>, source: Source, error: &io::Error) -> SendOutcome {
        let is_burst = burst.bytes.len() > burst.segment_size;
        match error.raw_os_error().map(Errno::from_raw) {
            // The device cannot do offload, of which Linux tells only now.
            Some(Errno::EIO | Errno::EINVAL) if is_burst && self.offload_is_given_up(burst) => {
                return self.send_one_by_one(burst, source);
            }
            Some(Errno::EMSGSIZE) => {
                lock(&self.stats).too_large += 1;
                return SendOutcome::TooLarge;
            }
            // The source address is gone, as after a change of networks: go on from another, so
            // that the peer sees a migration instead of silence.
            Some(Errno::EINVAL | Errno::EADDRNOTAVAIL | Errno::ENETUNREACH)
                if burst.local.is_some() =>
            {
                self.begin_anew();
                match source {
                    Source::Rather => return self.without_source(burst, error),
                    Source::Only => self.count_refusal(burst, error),
                }
            }
            _ => self.count_refusal(burst, error),
        }
        SendOutcome::Done
    }

    /// True if bursts go out one by one from now on; with a class of their own, this one.
    fn offload_is_given_up(&self, burst: &Outgoing<'_>) -> bool {
        let destination = for_socket(burst.remote, self.socket.is_v6);
        self.max_segments() == 1 || self.socket.classes.of(destination).is_some()
    }

    /// The refusal was about the address, and says nothing about what the kernel can do.
    fn begin_anew(&self) {
        if let Ok(state) = offload_state(&self.socket.io) {
            *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        }
    }

    fn without_source(&self, burst: &Outgoing<'_>, error: &io::Error) -> SendOutcome {
        match self.try_send(burst, None) {
            Ok(sent) => {
                lock(&self.stats).source_lost += 1;
                if sent < burst.bytes.len() {
                    return SendOutcome::Blocked { sent };
                }
            }
            Err(again) if again.kind() == io::ErrorKind::WouldBlock => {
                return SendOutcome::Blocked { sent: 0 };
            }
            Err(_) => self.count_refusal(burst, error),
        }
        SendOutcome::Done
    }

    fn count_refusal(&self, burst: &Outgoing<'_>, error: &io::Error) {
        lock(&self.stats).refused += 1;
        let from = burst.local.unwrap_or_else(|| self.socket.local_addr().ip());
        let hint = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM) => "; does a firewall of this host drop it?",
            Some(Errno::ENOBUFS | Errno::ENOMEM) => "; the device's queue or memory is full",
            _ => "",
        };
        self.complaints.warn(format_args!(
            "the system refuses to send from {from} (port {}) to {}: {error}{hint}; connections \
             there go on if it recovers before their idle timeout",
            self.socket.local_addr().port(),
            burst.remote
        ));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const fn ecn_to(ecn: EcnCodepoint) -> Option<quinn_udp::EcnCodepoint> {
    match ecn {
        EcnCodepoint::NotEct => None,
        EcnCodepoint::Ect0 => Some(quinn_udp::EcnCodepoint::Ect0),
        EcnCodepoint::Ect1 => Some(quinn_udp::EcnCodepoint::Ect1),
        EcnCodepoint::Ce => Some(quinn_udp::EcnCodepoint::Ce),
    }
}
