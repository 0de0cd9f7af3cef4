//! The sockets that an endpoint uses now: one, or for a while several, when it moves.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use quicket_engine::time::{Duration, Time};

use quicket_packets::udp::UdpPort;

use crate::config::MAX_SOCKETS;
use quicket_udp::{BindError, Port, Sender, UdpConfig, UdpOption, UdpSocket};

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
    /// The system has chosen its port: nobody else need find it there.
    any_port: bool,
    /// The device to which it was bound for a connection that follows the network; never another one after that.
    held: OnceLock<String>,
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
        let link = Self::of(socket, config).map_err(refused)?;
        Ok(Self { any_port: address.port() == 0, ..link })
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
        Ok(Self {
            socket,
            sender,
            room,
            full: AtomicBool::new(false),
            any_port: false,
            held: OnceLock::new(),
        })
    }

    /// Binds the socket to a device, once; true if it was not before.
    pub(super) fn hold(&self, device: &str) -> io::Result<bool> {
        if self.held.get().is_some() {
            return Ok(false);
        }
        self.socket.set_option(&UdpOption::Device(device.as_bytes().to_vec()))?;
        Ok(self.held.set(device.to_owned()).is_ok())
    }

    /// The device to which [`Link::hold`] has bound it.
    pub(crate) fn held(&self) -> Option<&str> {
        self.held.get().map(String::as_str)
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
    /// It was made for connections that follow the network, and is of no use without them.
    follows: bool,
}

impl Member {
    fn new(link: Link) -> Self {
        Self { link: Arc::new(link), until: None, follows: false }
    }

    fn port(&self) -> u16 {
        self.link.socket.local_addr().port()
    }
}

impl Links {
    pub(super) fn new(link: Link) -> Self {
        Self { list: vec![Member::new(link)] }
    }

    /// With `link` for new connections; the present one receives for a while.
    pub(crate) fn replaced(&self, link: Link, now: Time) -> Self {
        let mut list = self.list.clone();
        if let Some(first) = list.first_mut() {
            first.until = Some(now + RETIRING);
        }
        list.insert(0, Member::new(link));
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
        list.insert(1.min(list.len()), Member::new(link));
        list.truncate(MAX_SOCKETS);
        Self { list }
    }

    /// With `link` beside the others, for connections that follow the network. Where there are too many, one makes room
    /// that is to be closed anyway, or the oldest that was made for such connections and whose port is not among `used`.
    /// `None` if there is none of these.
    pub(super) fn moved(&self, link: Link, used: &[u16]) -> Option<Self> {
        let mut list = self.list.clone();
        if list.len() >= MAX_SOCKETS {
            let is_over = |member: &Member| member.until.is_some();
            let is_unused = |member: &Member| member.follows && !used.contains(&member.port());
            let oldest =
                list.iter().rposition(is_over).or_else(|| list.iter().rposition(is_unused));
            list.remove(oldest.filter(|&place| place > 0)?);
        }
        let member = Member { follows: true, ..Member::new(link) };
        list.insert(1.min(list.len()), member);
        Some(Self { list })
    }

    /// Without one that [`Links::moved`] has brought and to which no connection has moved.
    pub(super) fn without(&self, port: u16) -> Option<Self> {
        let is_it = |member: &Member| member.follows && member.port() == port;
        let place = self.list.iter().skip(1).position(is_it)? + 1;
        let mut list = self.list.clone();
        list.remove(place);
        Some(Self { list })
    }

    /// Whether a socket may be bound to a device: it was made for connections that follow the network, or `is_alone`, the
    /// endpoint is theirs alone, and the system has chosen its port.
    pub(super) fn may_be_held(&self, link: &Arc<Link>, is_alone: bool) -> bool {
        let is_it = |member: &&Member| Arc::ptr_eq(&member.link, link);
        self.list.iter().find(is_it).is_some_and(|member| {
            member.follows || (is_alone && link.any_port && self.is_current(link))
        })
    }

    pub(super) fn is_current(&self, link: &Arc<Link>) -> bool {
        self.current().is_some_and(|current| Arc::ptr_eq(current, link))
    }

    /// With `link` for new connections; the present one stays as long as connections that follow the network use it.
    pub(super) fn fronted(&self, link: Link, used: &[u16]) -> Option<Self> {
        let mut links = self.moved(link, used)?;
        if links.list.len() > 1 {
            links.list.swap(0, 1);
            for (place, member) in links.list.iter_mut().take(2).enumerate() {
                member.follows = place == 1;
            }
        }
        Some(links)
    }

    /// After connections have left all ports but `used`: what was made for them receives for a
    /// while and is closed then, unless one comes back. `None` if nothing changes.
    pub(super) fn left(&self, used: &[u16], now: Time) -> Option<Self> {
        let is_used = |member: &Member| used.contains(&member.port());
        let changes = |member: &Member| member.follows && member.until.is_some() == is_used(member);
        if !self.list.iter().any(changes) {
            return None;
        }
        let mut list = self.list.clone();
        for member in list.iter_mut().filter(|member| changes(member)) {
            member.until = (!is_used(member)).then(|| now + RETIRING);
        }
        Some(Self { list })
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
    fn sockets_that_connections_have_left_are_closed_after_a_while_and_others_stay() {
        let (first, second, third) = (link(), link(), link());
        let [a, b, c] = [&first, &second, &third].map(|link| link.socket.local_addr().port());
        let links = Links::new(first).moved(second, &[]).unwrap().moved(third, &[]).unwrap();
        let now = Time::from_nanos(5);
        assert!(links.left(&[a, b, c], now).is_none());
        let links = links.left(&[c], now).unwrap();
        assert!(links.left(&[c], now).is_none(), "its end is settled");
        // What a connection has come back to stays.
        assert_eq!(links.left(&[b, c], now).unwrap().next_end(), None);
        let links = links.pruned(links.next_end().unwrap()).unwrap();
        let ports: Vec<_> = links.iter().map(|link| link.socket.local_addr().port()).collect();
        assert_eq!(ports, [a, c]);
    }

    #[test]
    fn a_socket_that_is_held_back_is_used_by_no_new_connection() {
        let (first, second) = (link(), link());
        let [a, b] = [&first, &second].map(|link| link.socket.local_addr().port());
        let links = Links::new(first).fronted(second, &[]).unwrap();
        let ports = |links: &Links| -> Vec<_> {
            links.iter().map(|link| link.socket.local_addr().port()).collect()
        };
        assert_eq!(ports(&links), [b, a]);
        let now = Time::from_nanos(5);
        assert!(links.left(&[a], now).is_none());
        let links = links.left(&[], now).unwrap();
        let links = links.pruned(links.next_end().unwrap()).unwrap();
        assert_eq!(ports(&links), [b]);
    }

    #[test]
    fn moves_displace_no_socket_of_the_application() {
        let mut links = Links::new(link());
        let own = link();
        let port = own.socket.local_addr().port();
        links = links.added(own);
        for _ in 0..2 * MAX_SOCKETS {
            links = links.moved(link(), &[]).unwrap();
        }
        assert_eq!(links.iter().len(), MAX_SOCKETS);
        let ports = |links: &Links| -> Vec<_> {
            links.iter().map(|link| link.socket.local_addr().port()).collect()
        };
        assert!(ports(&links).contains(&port));
        // Nor any that is in use; what is to be closed anyway goes first.
        let all = ports(&links);
        assert!(links.moved(link(), &all).is_none());
        let unused = all[5];
        let others: Vec<_> = all.iter().copied().filter(|port| *port != unused).collect();
        let now = Time::from_nanos(5);
        for links in
            [links.moved(link(), &others), links.left(&others, now).unwrap().moved(link(), &all)]
        {
            let links = links.unwrap();
            assert!(others.iter().all(|port| ports(&links).contains(port)));
            assert!(!ports(&links).contains(&unused));
        }
    }

    #[test]
    fn only_sockets_that_nobody_else_need_find_are_bound_to_a_device() {
        let port = link().socket.local_addr().port();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let chosen = Links::new(Link::bind(at, &UdpConfig::default()).unwrap());
        assert!(!chosen.may_be_held(chosen.current().unwrap(), true));
        let links = Links::new(link()).moved(link(), &[]).unwrap();
        let [first, moved]: [_; 2] = links.iter().collect::<Vec<_>>().try_into().unwrap();
        assert!(links.may_be_held(first, true) && !links.may_be_held(first, false));
        assert!(links.may_be_held(moved, false));
        // What nobody has moved to is not kept.
        let port = moved.socket.local_addr().port();
        assert_eq!(links.without(port).unwrap().iter().len(), 1);
        assert!(links.without(first.socket.local_addr().port()).is_none());
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
