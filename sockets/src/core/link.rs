//! The sockets that an endpoint uses now: one, or for a while several, when it moves.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quicket_engine::time::{Duration, Time};

use quicket_packets::udp::UdpPort;

use crate::config::MAX_SOCKETS;
use quicket_udp::{BindError, Port, Sender, UdpConfig, UdpSocket};

/// How long a socket that was replaced still receives.
const RETIRING: Duration = Duration::from_secs(10);

/// A socket with its two halves.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: Arc<UdpSocket>,
    pub(crate) sender: Sender,
    /// How much may wait in the socket, in bytes as the system counts them; 0 if it is not known.
    pub(super) room: usize,
    /// The kernel's send buffer is full, and somebody waits for room.
    full: AtomicBool,
}

impl Link {
    /// Binds a socket.
    pub(crate) fn bind(address: SocketAddr, config: &UdpConfig) -> Result<Self, BindError> {
        let refused = |source| BindError::new(address, source);
        if let Some(path) = &config.port_of {
            check_port(config).map_err(refused)?;
            if address.ip().is_unspecified() {
                let text = "a port of the switch for packets has one address of this host, not all: name it";
                return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, text)));
            }
            // Without options: with receive offload, a device in generic mode would have trains for it, and not frames.
            let socket = std::net::UdpSocket::bind(address).map_err(refused)?;
            return Self::carried(path, socket, config).map_err(refused);
        }
        let socket = UdpSocket::bind(address, config)?;
        Self::of(socket, config).map_err(refused)
    }

    /// Takes a socket that is bound already.
    pub(crate) fn adopt(io: std::net::UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        if let Some(path) = &config.port_of {
            check_port(config)?;
            return Self::carried(path, io, config);
        }
        Self::of(UdpSocket::adopt(io, config)?, config)
    }

    /// A port of the switch for packets that has the address of a socket.
    fn carried(path: &Path, io: std::net::UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        let (send, receive) = (config.send_buffer, config.receive_buffer);
        let port = UdpPort::open(path, io, send, receive)?;
        let local = port.local_addr();
        Self::of(UdpSocket::through(Box::new(port), local, local.is_ipv6())?, config)
    }

    /// A socket that the switch reads.
    pub(crate) fn behind(
        io: std::net::UdpSocket,
        port: Box<dyn Port>,
        config: &UdpConfig,
    ) -> io::Result<Self> {
        Self::of(UdpSocket::behind(io, port)?, config)
    }

    /// No socket: the switch reads and sends at this address.
    pub(crate) fn through(
        port: Box<dyn Port>,
        local: SocketAddr,
        config: &UdpConfig,
    ) -> io::Result<Self> {
        Self::of(UdpSocket::through(port, local, config.only_v6)?, config)
    }

    /// A socket beside those of other programs; what the switch reads of this one's comes by `port`.
    pub(crate) fn beside(
        io: std::net::UdpSocket,
        port: Box<dyn Port>,
        config: &UdpConfig,
    ) -> io::Result<Self> {
        Self::of(UdpSocket::beside(io, port)?, config)
    }

    fn of(socket: UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let sender = Sender::new(Arc::clone(&socket), config)?;
        let room = socket.receive_room();
        Ok(Self { socket, sender, room, full: AtomicBool::new(false) })
    }

    /// Somebody waits for room from now on; true if nobody did.
    pub(super) fn set_full(&self) -> bool {
        !self.full.swap(true, Ordering::SeqCst)
    }

    /// There is room, or there may be: whoever finds that there is none says so again.
    pub(super) fn set_writable(&self) {
        self.full.store(false, Ordering::SeqCst);
    }

    /// True if somebody waits for room.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// True if packets from `local` can go out here.
    fn serves(&self, local: SocketAddr) -> bool {
        let bound = self.socket.local_addr();
        let any = bound.ip().is_unspecified() && self.socket.reaches(local);
        bound.port() == local.port() && (any || bound.ip() == local.ip())
    }
}

/// Whether a port can be as it is wanted.
fn check_port(config: &UdpConfig) -> io::Result<()> {
    let what = if config.reuse_port {
        "reuse_port: nobody else has its address"
    } else if !config.options.is_empty() {
        "options of UDP and IP: they are those of the kernel's sockets"
    } else {
        return Ok(());
    };
    let text = format!("a port of the switch for packets has no {what}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// All sockets of an endpoint. A value never changes; another takes its place.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// The one for new connections first, then others, the newest first.
    list: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    link: Arc<Link>,
    /// When it may be closed.
    until: Option<Time>,
}

impl Links {
    pub(super) fn new(link: Link) -> Self {
        Self { list: vec![Member { link: Arc::new(link), until: None }] }
    }

    /// With `link` for new connections; the present one receives for a while.
    pub(crate) fn replaced(&self, link: Link, now: Time) -> Self {
        let mut list = self.list.clone();
        if let Some(first) = list.first_mut() {
            first.until = Some(now + RETIRING);
        }
        list.insert(0, Member { link: Arc::new(link), until: None });
        list.truncate(MAX_SOCKETS);
        Self { list }
    }

    /// With `link` in place of the present one, at the same address.
    pub(crate) fn exchanged(&self, link: Link) -> Self {
        let mut list = self.list.clone();
        if let Some(first) = list.first_mut() {
            first.link = Arc::new(link);
        }
        Self { list }
    }

    /// With `link` beside the others, for a connection that moves there.
    pub(crate) fn added(&self, link: Link) -> Self {
        let mut list = self.list.clone();
        list.insert(1.min(list.len()), Member { link: Arc::new(link), until: None });
        list.truncate(MAX_SOCKETS);
        Self { list }
    }

    /// Without those whose time is over; `None` if all stay.
    pub(super) fn pruned(&self, now: Time) -> Option<Self> {
        let over = |member: &Member| member.until.is_some_and(|until| until <= now);
        if !self.list.iter().any(over) {
            return None;
        }
        Some(Self { list: self.list.iter().filter(|member| !over(member)).cloned().collect() })
    }

    /// When the next one may be closed.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.list.iter().filter_map(|member| member.until).min()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Link>> {
        self.list.iter().map(|member| &member.link)
    }

    /// All of them, to receive from: those to which connections move before the one that they come
    /// from. The peer answers a challenge before its application answers what was sent later, on the
    /// former path: so a move is heard of before its consequences.
    pub(crate) fn in_order_of_moves(&self) -> impl Iterator<Item = &Arc<Link>> {
        let beside = |replaced: bool| {
            let others = self.list.iter().skip(1);
            others.filter(move |member| member.until.is_some() == replaced)
        };
        let members = beside(false).chain(self.list.first()).chain(beside(true));
        members.map(|member| &member.link)
    }

    /// The one for new connections.
    pub(crate) fn current(&self) -> Option<&Arc<Link>> {
        self.iter().next()
    }

    /// The one for packets from `local`.
    pub(crate) fn for_path(&self, local: Option<SocketAddr>) -> Option<&Arc<Link>> {
        match (&*self.list, local) {
            ([_, _, ..], Some(local)) => {
                self.iter().find(|link| link.serves(local)).or_else(|| self.current())
            }
            _ => self.current(),
        }
    }

    /// How many datagrams a burst may have on any of them.
    pub(super) fn max_segments(&self) -> usize {
        self.iter().map(|link| link.sender.max_segments()).min().unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link::bind("127.0.0.1:0".parse().unwrap(), &UdpConfig::default()).unwrap()
    }

    #[test]
    fn packets_leave_by_the_socket_of_their_path() {
        let (first, second) = (link(), link());
        let (a, b) = (first.socket.local_addr(), second.socket.local_addr());
        let links = Links::new(first).added(second);
        let port = |local| links.for_path(local).unwrap().socket.local_addr().port();
        assert_eq!(port(Some(a)), a.port());
        assert_eq!(port(Some(b)), b.port());
        assert_eq!(port(None), a.port());
        assert_eq!(port(Some("127.0.0.1:1".parse().unwrap())), a.port());
    }

    #[test]
    fn an_address_of_a_family_goes_by_the_socket_of_that_family() {
        let config = UdpConfig { only_v6: true, ..UdpConfig::default() };
        let any_v6 = Link::bind("[::]:0".parse().unwrap(), &config).unwrap();
        let port = any_v6.socket.local_addr().port();
        let any_v4 = Link::bind(SocketAddr::from(([0, 0, 0, 0], port)), &config).unwrap();
        let links = Links::new(any_v6).added(any_v4);
        for (ip, is_v4) in [("127.0.0.1", true), ("::1", false)] {
            let local = SocketAddr::new(ip.parse().unwrap(), port);
            let link = links.for_path(Some(local)).unwrap();
            assert_eq!(link.socket.local_addr().is_ipv4(), is_v4, "{ip}");
            assert_eq!(link.socket.reaches("192.0.2.1:1".parse().unwrap()), is_v4);
        }
    }

    #[test]
    fn what_comes_where_connections_move_to_is_received_first() {
        let links = [link(), link(), link()];
        let ports = links.each_ref().map(|link| link.socket.local_addr().port());
        let [first, second, third] = links;
        let links = Links::new(first).added(second).added(third);
        let order = links.in_order_of_moves().map(|link| link.socket.local_addr().port());
        assert_eq!(order.collect::<Vec<_>>(), [ports[2], ports[1], ports[0]]);
        let fourth = link();
        let port = fourth.socket.local_addr().port();
        let links = links.replaced(fourth, Time::ZERO);
        let order = links.in_order_of_moves().map(|link| link.socket.local_addr().port());
        assert_eq!(order.collect::<Vec<_>>(), [ports[2], ports[1], port, ports[0]]);
    }

    #[test]
    fn a_replaced_socket_receives_for_a_while_and_is_closed_then() {
        let (first, second) = (link(), link());
        let new = second.socket.local_addr();
        let now = Time::from_nanos(5);
        let links = Links::new(first).replaced(second, now);
        assert_eq!(links.current().unwrap().socket.local_addr(), new);
        assert_eq!(links.iter().len(), 2);
        assert!(links.pruned(now).is_none());
        let later = links.next_end().unwrap();
        let links = links.pruned(later).unwrap();
        assert_eq!((links.iter().len(), links.next_end()), (1, None));
        assert_eq!(links.current().unwrap().socket.local_addr(), new);
    }

    #[test]
    fn sockets_are_bounded() {
        let mut links = Links::new(link());
        for _ in 0..MAX_SOCKETS + 2 {
            links = links.added(link());
        }
        assert_eq!(links.iter().len(), MAX_SOCKETS);
    }
}
