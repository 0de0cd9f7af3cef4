//! What a socket says of the address that it is to have, most of it before it is bound.

use std::io;

use quicket_udp::UdpOption;
use socket2::SockRef;

use super::{Control, Socket};
use crate::config::Workers;
use crate::message::errno::Errno;
use crate::switched::SwitchConfig;

impl Socket {
    /// Lets listeners with the same protocols share an address (SO_REUSEPORT): those of the process, or
    /// through the switch those of all programs of the user.
    pub fn set_reuse_port(&self, reuse: bool) {
        self.control().settings.reuse_port = reuse;
    }

    /// Has so many workers receive at the socket's address, each with a thread and connections of its
    /// own; sockets that are bound to an address that this process has already share what there is.
    ///
    /// # Errors
    ///
    /// EINVAL once the socket is bound, for none, and for more than
    /// [`MAX_WORKERS`](crate::MAX_WORKERS).
    pub fn set_workers(&self, workers: Workers) -> Result<(), Errno> {
        let count = workers.count().map_err(|_| Errno::EINVAL)?;
        let mut control = self.control();
        if control.is_bound() {
            return Err(Errno::EINVAL);
        }
        control.settings.workers = count;
        Ok(())
    }

    /// Has the connection of a client whose socket is not bound by the program follow this host from network to
    /// network: see [`ClientConfig::follow_network`](crate::ClientConfig::follow_network). A handshake whose address
    /// goes ends with ECONNABORTED.
    ///
    /// # Errors
    ///
    /// EINVAL once the socket is bound, listens or is connected.
    pub fn set_follow_network(&self, follow: bool) -> Result<(), Errno> {
        let mut control = self.control();
        if control.is_bound() {
            return Err(Errno::EINVAL);
        }
        control.settings.follow_network = follow;
        Ok(())
    }

    /// True if the connection follows this host from network to network, or will.
    #[must_use]
    pub fn follows_network(&self) -> bool {
        self.control().settings.follow_network
    }

    /// How many workers receive at the socket's address, or will once it is bound.
    #[must_use]
    pub fn workers(&self) -> usize {
        let control = self.control();
        match &control.bound {
            Some(bound) => bound.core.core().workers().len(),
            None => control.settings.workers,
        }
    }

    /// Shares the address that the socket will be bound to with other programs, through the switch: see
    /// [`SwitchConfig`]. Binding takes nothing from anybody; listening takes the socket's protocols, and
    /// fails with EADDRINUSE if another program has some of them. A socket that is not bound before it
    /// connects has an address of its own all the same. Clients are told a stateless reset token
    /// ([`TransportParam::stateless_reset`](crate::message::TransportParam)): the switch resets their
    /// connections when the program has died.
    ///
    /// # Errors
    ///
    /// EINVAL once the socket is bound, and for a program's name that is longer than 64 bytes or not
    /// printable.
    pub fn set_switch(&self, switch: SwitchConfig) -> Result<(), Errno> {
        let mut control = self.control();
        if control.is_bound() || !switch.has_valid_name() {
            return Err(Errno::EINVAL);
        }
        control.settings.switch = Some(switch);
        // Whatever becomes of the program, there is somebody who resets its connections.
        control.settings.local.stateless_reset = 1;
        Ok(())
    }

    /// What the program is called at the switch; `None` if the socket does not share its address.
    #[must_use]
    pub fn program(&self) -> Option<String> {
        self.control().settings.switch.as_ref().map(|switch| switch.options.label.clone())
    }

    /// Keeps a socket for IPv6 from IPv4 (IPV6_V6ONLY): another socket may have the same port there.
    ///
    /// # Errors
    ///
    /// EINVAL once the socket is bound; ENOPROTOOPT for one of IPv4.
    pub fn set_only_v6(&self, only: bool) -> Result<(), Errno> {
        let mut control = self.control();
        match (control.is_v6, control.is_bound()) {
            (false, _) => Err(Errno::ENOPROTOOPT),
            (true, true) => Err(Errno::EINVAL),
            (true, false) => {
                control.settings.only_v6 = only;
                Ok(())
            }
        }
    }

    /// Whether the socket keeps to IPv6.
    #[must_use]
    pub fn only_v6(&self) -> bool {
        self.control().settings.only_v6
    }

    /// Sets an option of the UDP socket below, which sockets that are bound to the same address
    /// share, and of those that take its place.
    ///
    /// # Errors
    ///
    /// What the system says; ENOPROTOOPT for one of IPv6 on a socket for IPv4; EINVAL for a value that the socket of an
    /// address has not which [programs share](Socket::set_switch): who binds it first sets it for all, before bind.
    pub fn set_udp_option(&self, option: UdpOption) -> Result<(), Errno> {
        let mut control = self.control();
        if option.is_for_v6() && !control.is_v6 {
            return Err(Errno::ENOPROTOOPT);
        }
        let set = match &control.bound {
            Some(bound) => bound.set_udp_option(&option),
            // There is none yet: what it would refuse is refused now.
            None => control.sample().and_then(|sample| option.set(SockRef::from(&sample))),
        };
        if let Err(error) = set {
            // The system's own words are those of its number.
            control.refusal = error.get_ref().map(ToString::to_string);
            return Err(Errno::from(&error));
        }
        option.put_into(&mut control.settings.udp_options);
        Ok(())
    }

    /// An option of the UDP socket below: of the kind of `option`, whose value does not matter.
    ///
    /// # Errors
    ///
    /// As [`Socket::set_udp_option`].
    pub fn udp_option(&self, option: &UdpOption) -> Result<UdpOption, Errno> {
        let control = self.control();
        if option.is_for_v6() && !control.is_v6 {
            return Err(Errno::ENOPROTOOPT);
        }
        let links = control.bound.as_ref().map(|bound| bound.core.core().links());
        let got = match links.as_ref().and_then(|links| links.current()) {
            Some(link) => option.get(SockRef::from(&*link.socket)),
            None => control.sample().and_then(|sample| option.get(SockRef::from(&sample))),
        };
        got.map_err(|error| Errno::from(&error))
    }
}

impl Control {
    /// A UDP socket as this one would be bound to.
    fn sample(&self) -> io::Result<socket2::Socket> {
        let domain = if self.is_v6 { socket2::Domain::IPV6 } else { socket2::Domain::IPV4 };
        let sample = socket2::Socket::new(domain, socket2::Type::DGRAM, None)?;
        for option in &self.settings.udp_options {
            option.set(SockRef::from(&sample))?;
        }
        Ok(sample)
    }
}
