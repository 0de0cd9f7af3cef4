//! A look at the network: what becomes of each connection of an endpoint that follows it.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::{fmt, io};

use quicket_engine::time::Time;
use quicket_engine::{EarlyData, MigrationError};
use quicket_packets::device::Labels;
use quicket_udp::{BindError, UdpOption};

use super::decision::{Seen, Step};
use super::system::{System, labels, way_to};
use crate::common::unspecified_for;
use crate::core::Core;
use crate::core::cell::{Cell, Conn};
use crate::core::link::{Link, Links};

/// A socket that connections move to in one look.
#[derive(Clone, Copy)]
struct Taken {
    port: u16,
    /// One has moved there.
    is_used: bool,
}

/// Why a step came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undone {
    /// There is no socket to move to.
    NoSocket,
    /// The connection is not what it was when it was looked at.
    Overtaken,
    /// It cannot do it.
    Refused(MigrationError),
}

impl fmt::Display for Undone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSocket => f.write_str("there is no socket for it"),
            Self::Overtaken => {
                f.write_str("the connection is not what it was; it is looked at again")
            }
            Self::Refused(error) => error.fmt(f),
        }
    }
}

/// A connection that follows the network, and how things are with it.
struct Followed<'a> {
    cell: &'a Arc<Cell>,
    remote: SocketAddr,
    seen: Seen,
}

/// One look.
struct Look<'a> {
    core: &'a Core,
    system: &'a System,
    options: Vec<UdpOption>,
    /// What these say to rules of routing.
    labels: Labels,
    /// From where the system would send to each server.
    ways: HashMap<SocketAddr, Option<IpAddr>>,
    /// Of each IP family one: of IPv4, of IPv6.
    taken: [Option<Taken>; 2],
    /// Something is under way, or not known.
    unsettled: bool,
    /// A connection has no network: whatever was under way may go on when there is one.
    is_lost: bool,
}

impl Core {
    /// Looks what the network is for each connection that follows it. True if it is to be looked at again without
    /// anything having changed: something is under way.
    pub(super) fn look_at_network(&self, system: &System) -> bool {
        let options = self.udp_config().options;
        let (labels, ways) = (labels(&options), HashMap::new());
        let mut look = Look {
            core: self,
            system,
            options,
            labels,
            ways,
            taken: [None; 2],
            unsettled: false,
            is_lost: false,
        };
        let cells = self.routing().all();
        let followed = look.see_all(&cells);
        look.hold_all(&followed);
        for one in &followed {
            look.settle(one);
        }
        look.end()
    }

    /// The ports that are in use, by the paths that connections have, or by those that they use.
    fn ports(&self, of: impl Fn(&Conn) -> Vec<u16>) -> Vec<u16> {
        // Bound first: connections are locked before the routing, never under it.
        let cells = self.routing().all();
        let mut ports: Vec<_> = cells.iter().flat_map(|cell| of(&cell.lock())).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    fn all_ports(&self) -> Vec<u16> {
        self.ports(|conn| conn.engine.local_ports().collect())
    }
}

impl Look<'_> {
    fn see_all<'c>(&mut self, cells: &'c [Arc<Cell>]) -> Vec<Followed<'c>> {
        let links = self.core.links();
        let mut followed = Vec::new();
        for cell in cells {
            let seen = see(&cell.lock(), &links);
            let Some((remote, mut seen, held)) = seen else { continue };
            match self.complete(remote, &mut seen, held.as_deref()) {
                Ok(()) => followed.push(Followed { cell, remote, seen }),
                Err(error) => {
                    log::debug!("the way to {remote} is not known: {error}");
                    self.unsettled = true;
                }
            }
        }
        followed
    }

    /// Adds what the system says. `held` is the device to which the connection's socket is bound.
    fn complete(
        &mut self,
        remote: SocketAddr,
        seen: &mut Seen,
        held: Option<&str>,
    ) -> io::Result<()> {
        seen.wanted = match self.ways.get(&remote) {
            Some(way) => *way,
            None => {
                let way = way_to(remote, &self.options)?;
                self.ways.insert(remote, way);
                way
            }
        };
        seen.wanted_works = match seen.wanted {
            Some(wanted) => self.system.is_up(wanted)?,
            None => false,
        };
        let Some(used) = seen.used else { return Ok(()) };
        seen.used_works = if seen.wanted == Some(used) && held.is_none() {
            seen.wanted_works
        } else {
            self.system.device_towards(remote.ip(), used, self.labels, held)?.is_some()
        };
        Ok(())
    }

    /// Has what is sent from an address go by its device, although the system would use another one now: elsewhere,
    /// nobody takes packets of that address.
    fn hold_all(&mut self, followed: &[Followed<'_>]) {
        let elsewhere =
            |one: &&Followed<'_>| one.seen.used_works && one.seen.used != one.seen.wanted;
        let used = followed.iter().filter(elsewhere);
        let used: BTreeMap<_, _> =
            used.filter_map(|one| Some((one.seen.used?, one.remote.ip()))).collect();
        if used.is_empty() {
            return;
        }
        let all = self.core.routing().all();
        let locals: Vec<_> = all.iter().map(|cell| cell.lock().engine.local()).collect();
        let links = self.core.links();
        let is_alone = !self.core.reception().was_found() && self.core.workers().len() == 1;
        for link in links.iter().filter(|link| links.may_be_held(link, is_alone)) {
            let is_here = |local: &&Option<SocketAddr>| {
                links.for_path(**local).is_some_and(|its| Arc::ptr_eq(its, link))
            };
            // Those of other addresses would be cut off.
            let mut here = locals.iter().filter(is_here).map(|local| local.map(|local| local.ip()));
            let Some(Some(ip)) = here.next() else { continue };
            let Some(remote) = used.get(&ip) else { continue };
            if !here.all(|other| other == Some(ip)) {
                continue;
            }
            match self.hold(&links, link, ip, *remote) {
                // Who came to that socket meanwhile is looked at once more.
                Ok(is_new) => self.unsettled |= is_new,
                Err(error) => log::debug!("{ip} does not stay with its device: {error}"),
            }
        }
    }

    /// Binds a socket to the device of an address that leads to a server. New connections, which the system would have
    /// elsewhere, get another one.
    fn hold(
        &self,
        links: &Links,
        link: &Arc<Link>,
        ip: IpAddr,
        remote: IpAddr,
    ) -> io::Result<bool> {
        let Some(device) = self.system.device_towards(remote, ip, self.labels, None)? else {
            return Ok(false);
        };
        if link.held().is_some() {
            return Ok(false);
        }
        if !links.is_current(link) {
            return link.hold(device);
        }
        let any = match ip {
            IpAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            IpAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
        };
        let any = if link.socket.local_addr().ip().is_unspecified() {
            SocketAddr::new(link.socket.local_addr().ip(), 0)
        } else {
            any
        };
        let new = Link::bind(any, &self.core.udp_config()).map_err(BindError::into_io_error)?;
        let used = self.core.all_ports();
        // First: there is no way back from a device, and new connections must not begin there.
        let mut is_fronted = false;
        self.core.change_links(|links, _| {
            let fronted = links.fronted(new, &used);
            is_fronted = fronted.is_some();
            fronted
        });
        if !is_fronted {
            return Err(io::Error::other("too many sockets are in use"));
        }
        link.hold(device)
    }

    /// Does what is to be done for a connection. What comes to nothing is not remembered as done.
    fn settle(&mut self, one: &Followed<'_>) {
        let Some(mut follow) = one.cell.lock().follow else { return };
        let step = follow.decide(&one.seen);
        if step != Step::Stay {
            log::debug!("towards {}: {step:?}, as it is {:?}", one.remote, one.seen);
        }
        match self.take_step(one, step) {
            Ok(()) => {
                self.unsettled |= step.is_unsettled();
                self.is_lost |= step == Step::Lost;
                one.cell.lock().follow = Some(follow);
            }
            Err(Undone::Refused(MigrationError::NoConnectionId | MigrationError::TooManyPaths)) => {
                self.unsettled |= follow.could_not_ask();
                one.cell.lock().follow = Some(follow);
            }
            Err(_) => {
                self.unsettled = true;
                if step == Step::Leave && one.seen.used == one.seen.wanted && one.seen.used_works {
                    // From the port that it has, then.
                    let _ = self.act(one, Step::Return, None);
                }
            }
        }
    }

    fn take_step(&mut self, one: &Followed<'_>, step: Step) -> Result<(), Undone> {
        let wanted = one.seen.wanted;
        match step {
            Step::Stay | Step::Wait | Step::Lost => Ok(()),
            Step::Return | Step::Restart => self.act(one, step, None),
            Step::Begin => {
                let port = self.core.local_addr().port();
                self.act(one, step, wanted.map(|ip| SocketAddr::new(ip, port)))
            }
            Step::Probe | Step::Leave | Step::Rebind => {
                let ip = wanted.ok_or(Undone::Overtaken)?;
                let port = self.take_socket(one.remote).ok_or(Undone::NoSocket)?;
                self.act(one, step, Some(SocketAddr::new(ip, port)))?;
                if let Some(taken) = self.taken(one.remote) {
                    taken.is_used = true;
                }
                Ok(())
            }
        }
    }

    fn act(&self, one: &Followed<'_>, step: Step, local: Option<SocketAddr>) -> Result<(), Undone> {
        let done = self.core.act_on(one.cell, |conn, now| (go(conn, now, step, local), true));
        done.inspect_err(|error| {
            log::debug!("{step:?} towards {} comes to nothing, at {local:?}: {error}", one.remote);
        })
    }

    const fn taken(&mut self, remote: SocketAddr) -> Option<&mut Taken> {
        self.taken[remote.is_ipv6() as usize].as_mut()
    }

    /// The port of a socket to move to.
    fn take_socket(&mut self, remote: SocketAddr) -> Option<u16> {
        if let Some(taken) = self.taken(remote) {
            return Some(taken.port);
        }
        let core = self.core;
        let link = match Link::bind(unspecified_for(remote), &core.udp_config()) {
            Ok(link) => link,
            Err(error) => {
                core.complaints.warn(format_args!("no connection to {remote} moves: {error}"));
                return None;
            }
        };
        let (port, used) = (link.socket.local_addr().port(), core.all_ports());
        let mut is_there = false;
        core.change_links(|links, _| {
            let moved = links.moved(link, &used);
            is_there = moved.is_some();
            moved
        });
        if !is_there {
            core.complaints
                .warn(format_args!("no connection to {remote} moves: too many sockets are in use"));
            return None;
        }
        self.taken[usize::from(remote.is_ipv6())] = Some(Taken { port, is_used: false });
        Some(port)
    }

    fn end(self) -> bool {
        for taken in self.taken.into_iter().flatten().filter(|taken| !taken.is_used) {
            self.core.change_links(|links, _| links.without(taken.port));
        }
        if !self.unsettled && !self.is_lost {
            let used = self
                .core
                .ports(|conn| conn.engine.local().map(|local| local.port()).into_iter().collect());
            self.core.change_links(|links, now| links.left(&used, now));
        }
        self.unsettled
    }
}

/// How things are with a connection, and the device to which its socket is bound; nothing if it does not follow the
/// network, or has ended.
fn see(conn: &Conn, links: &Links) -> Option<(SocketAddr, Seen, Option<String>)> {
    let follow = conn.follow.as_ref().filter(|_| conn.end().is_none())?;
    let engine = &conn.engine;
    let forbids =
        |parameters: quicket_wire::TransportParameters| parameters.disable_active_migration;
    let seen = Seen {
        wanted: None,
        wanted_works: false,
        used: engine.local().map(|local| local.ip()).filter(|ip| !ip.is_unspecified()),
        used_works: false,
        is_confirmed: engine.is_confirmed(),
        may_restart: follow.restarts() && may_restart(conn.established, engine.early_data()),
        moving_to: engine.migrating_to().map(|local| local.ip()),
        is_validating: engine.is_validating(),
        is_forbidden: engine.peer_transport_parameters().is_some_and(forbids),
    };
    let link = links.for_path(engine.local());
    let held = link.and_then(|link| link.held()).map(str::to_owned);
    Some((engine.remote(), seen, held))
}

/// True if the handshake can begin again: early data that the program has written would be lost with it.
const fn may_restart(established: bool, early: EarlyData) -> bool {
    !established && matches!(early, EarlyData::None)
}

fn go(conn: &mut Conn, now: Time, step: Step, local: Option<SocketAddr>) -> Result<(), Undone> {
    let engine = &mut conn.engine;
    match (step, local) {
        (Step::Return, _) => engine.on_network_returned(now),
        // What it has become meanwhile is not ended.
        (Step::Restart, _) => {
            if !may_restart(conn.established, engine.early_data()) {
                return Err(Undone::Overtaken);
            }
            conn.stranded = true;
            engine.close(now, 0, b"the network changed during the handshake");
        }
        (Step::Begin | Step::Rebind, Some(local)) => engine.rebind(now, local),
        (Step::Probe, Some(local)) => engine.migrate(now, local).map_err(Undone::Refused)?,
        (Step::Leave, Some(local)) => engine.move_at_once(now, local).map_err(Undone::Refused)?,
        (Step::Begin | Step::Rebind | Step::Probe | Step::Leave, None) => {
            return Err(Undone::Overtaken);
        }
        (Step::Stay | Step::Wait | Step::Lost, _) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_begins_again_only_while_nothing_would_be_lost() {
        assert!(may_restart(false, EarlyData::None));
        // Established, or with early data, since it was looked at.
        assert!(!may_restart(true, EarlyData::None));
        for early in [EarlyData::Offered, EarlyData::Accepted, EarlyData::Rejected] {
            assert!(!may_restart(false, early));
        }
    }
}
