//! Datagrams of connections over QUIC that are not ended here, both ways.
//!
//! Each flow has a socket of its own to the origin, so that the origin sees one client at each address, and validates the
//! next one when a client moves (RFC 9000, Section 9). What cannot be sent at once is lost and counted, as on any network.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

use quicket::{Arrived, HeldDatagram, Outlet, PassThrough, Whose};
use quicket_udp::ReceiveBuffers;
use quicket_wire::{ConnectionId, InvariantHeader, PacketKind};
use rustix::process::{Resource, getrlimit};
use tokio::runtime::Handle;

use super::Pass;
use super::flows::{Flows, Full, MAX_FLOWS, Named, Packet, Path};
use super::hello::{Hellos, Read};
use super::wire::Wire;
use crate::front::Shared;
use crate::protocol::Authority;
use crate::snapshot::Snapshot;

/// The smallest first datagram of a client, in bytes (RFC 9000, Section 14.1).
const MIN_FIRST: usize = 1200;
/// The shortest connection ID that a client may make up, in bytes (RFC 9000, Section 7.2).
const MIN_FIRST_ID: usize = 8;
/// Room for what origins send at once, kept for the next to read.
const BUFFERS: usize = 2;

/// Who has the datagrams that belong to no connection of the gateway.
pub(crate) struct Relay {
    /// Unknown until the gateway is there, and after its end.
    shared: OnceLock<Weak<Shared>>,
    active: AtomicBool,
    hellos: Mutex<Hellos>,
    /// How many of the datagrams that were held and lost are counted.
    lost: AtomicU64,
    flows: Mutex<Flows<Authority, Arc<Wire>>>,
    buffers: Mutex<Vec<ReceiveBuffers>>,
    runtime: Handle,
    began: Instant,
}

impl Relay {
    /// Passes nothing on yet.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub(crate) fn new() -> Arc<Self> {
        let mut secret = [0; 8];
        // Without it a source could find others with which it shares a limit.
        let _ = aws_lc_rs::rand::fill(&mut secret);
        Arc::new(Self {
            shared: OnceLock::new(),
            active: AtomicBool::new(false),
            hellos: Mutex::new(Hellos::new(secret)),
            lost: AtomicU64::new(0),
            flows: Mutex::new(Flows::new(most_flows())),
            buffers: Mutex::default(),
            runtime: Handle::current(),
            began: Instant::now(),
        })
    }

    /// From now on it passes on what the current snapshot says.
    pub(crate) fn serve(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
        self.take_up(&shared.current().0);
    }

    /// Another snapshot counts. Flows keep the origin that they began with.
    pub(crate) fn take_up(&self, snapshot: &Snapshot) {
        let has_flows = self.flows().len() > 0;
        self.active.store(snapshot.passes.has_quic() || has_flows, Ordering::Relaxed);
        // Names are known when the first client comes.
        for address in snapshot.passes.quic() {
            let _ = address.get(&self.runtime);
        }
    }

    pub(super) fn flows(&self) -> MutexGuard<'_, Flows<Authority, Arc<Wire>>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since it began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Counts what is not passed on.
    pub(super) fn refused(&self, reason: &'static str) {
        if let Some(shared) = self.shared.get().and_then(Weak::upgrade) {
            shared.metrics.refused(reason);
        }
    }

    /// Runs something with buffers for what an origin has sent.
    pub(super) fn with_buffers<R>(&self, read: impl FnOnce(&mut ReceiveBuffers) -> R) -> R {
        let pool = || self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = pool().pop();
        let mut buffers = taken.unwrap_or_default();
        let result = read(&mut buffers);
        let mut pool = pool();
        if pool.len() < BUFFERS {
            pool.push(buffers);
        }
        result
    }

    // Functions of their own, as a lock in the condition of an `if let` is held while what follows is sent.
    fn named(&self, path: &Path, packet: Packet<'_>) -> Option<Named<Arc<Wire>>> {
        self.flows().named(path, packet)
    }

    fn last(&self, path: &Path) -> Option<Arc<Wire>> {
        self.flows().last(path)
    }

    fn look_at(&self, shared: &Arc<Shared>, stray: &Arrived<'_>, outlet: &Outlet) -> Whose {
        let own = || Whose::Own { held: Vec::new() };
        let path = (stray.remote, stray.local);
        let Some((first, behind)) = stray.bytes.split_first() else { return own() };
        let snapshot = shared.current().0;
        let context = Context { relay: self, shared, snapshot: &snapshot, outlet, path };
        if first & 0x80 == 0 {
            if let Some(named) = self.named(&path, Packet::Short(behind)) {
                return context.pass_on_named(named, stray);
            }
            let wire = context.by_id(behind).or_else(|| self.last(&path));
            return wire.map_or_else(own, |wire| context.pass_on(&wire, stray));
        }
        let Ok(header) = InvariantHeader::parse(stray.bytes) else { return own() };
        let kind = header.kind();
        if matches!(kind, PacketKind::UnknownVersion | PacketKind::VersionNegotiation) {
            return own();
        }
        if let Some(named) = self.named(&path, Packet::Long(header.dcid)) {
            return context.pass_on_named(named, stray);
        }
        let later = || {
            let wire = context.by_id(header.dcid).or_else(|| self.last(&path));
            wire.map_or_else(own, |wire| context.pass_on(&wire, stray))
        };
        let begins = matches!(kind, PacketKind::Initial | PacketKind::ZeroRtt)
            && header.dcid.len() >= MIN_FIRST_ID
            && (kind == PacketKind::ZeroRtt || stray.bytes.len() >= MIN_FIRST);
        let Some(dcid) = ConnectionId::new(header.dcid).filter(|_| begins) else { return later() };
        let read = {
            let mut hellos = self.hellos.lock().unwrap_or_else(PoisonError::into_inner);
            let read = hellos.read(stray, kind, header.version, dcid);
            let lost = hellos.lost();
            let before = self.lost.swap(lost, Ordering::Relaxed);
            shared.metrics.first_packets_lost(lost.saturating_sub(before));
            read
        };
        match read {
            Read::Name { name, held } => context.begin(name, held, dcid, stray),
            Read::Held => Whose::Others,
            Read::Later => later(),
            Read::Unreadable => own(),
            Read::Dropped(reason) => {
                shared.metrics.refused(reason);
                Whose::Others
            }
        }
    }
}

/// What a datagram is looked at with.
struct Context<'a> {
    relay: &'a Relay,
    shared: &'a Arc<Shared>,
    snapshot: &'a Snapshot,
    outlet: &'a Outlet,
    path: Path,
}

impl Context<'_> {
    /// A client begins a connection.
    fn begin(
        &self,
        name: Option<String>,
        held: Vec<HeldDatagram>,
        dcid: ConnectionId,
        stray: &Arrived<'_>,
    ) -> Whose {
        let Some(pass) = self.snapshot.passes.find(name.as_deref()) else {
            return Whose::Own { held };
        };
        if pass.quic.is_none() {
            return Whose::Own { held };
        }
        let client = stray.remote.ip();
        let allowed = &self.snapshot.limits.client;
        if let Err(exceeded) = self.shared.clients.handshake(client, allowed, false) {
            self.shared.metrics.refused(exceeded.reason);
            return Whose::Others;
        }
        if let Some(wire) = self.flow(pass, name, Some(dcid)) {
            for datagram in &held {
                wire.to_origin(
                    self.relay.now(),
                    datagram.ecn,
                    datagram.bytes.len(),
                    &datagram.bytes,
                );
            }
            self.pass_on(&wire, stray);
        }
        Whose::Others
    }

    /// Passes on what names a flow, which may show that its client is there.
    fn pass_on_named(&self, named: Named<Arc<Wire>>, stray: &Arrived<'_>) -> Whose {
        let Named { value: wire, proves } = named;
        if let Some(id) = proves
            && let Err(reason) = wire.prove()
        {
            self.shared.metrics.refused(reason);
            self.relay.flows().remove(id);
            wire.end(reason);
            return Whose::Others;
        }
        self.pass_on(&wire, stray)
    }

    fn pass_on(&self, wire: &Wire, stray: &Arrived<'_>) -> Whose {
        wire.to_origin(self.relay.now(), stray.ecn, stray.segment_size, stray.bytes);
        Whose::Others
    }

    /// The flow to the origin that a connection ID names.
    fn by_id(&self, octets: &[u8]) -> Option<Arc<Wire>> {
        let pass = self.snapshot.passes.by_id(octets)?;
        self.flow(pass, None, None)
    }

    /// The flow to an origin, which begins if there is none.
    fn flow(
        &self,
        pass: &Arc<Pass>,
        name: Option<String>,
        begins: Option<ConnectionId>,
    ) -> Option<Arc<Wire>> {
        let address = pass.quic.as_ref()?;
        let origin = address.authority();
        {
            let mut flows = self.relay.flows();
            if let Some((id, wire)) = flows.to(&self.path, origin) {
                begins.into_iter().for_each(|dcid| flows.begun(id, dcid));
                return Some(wire);
            }
        }
        let opened = self.open(pass, name, address.get(&self.relay.runtime), begins);
        opened.inspect_err(|reason| self.shared.metrics.refused(reason)).ok()
    }

    fn open(
        &self,
        pass: &Arc<Pass>,
        name: Option<String>,
        to: Option<SocketAddr>,
        begins: Option<ConnectionId>,
    ) -> Result<Arc<Wire>, &'static str> {
        let origin = pass.quic.as_ref().map(|address| address.authority().clone());
        let (to, origin) =
            to.zip(origin).ok_or("the origin of a connection to pass on has no address")?;
        let (shared, client, relay) = (self.shared, self.path.0.ip(), self.shared.relay());
        let may_connect = shared.clients.may_connect(client, &self.snapshot.limits.client);
        may_connect.map_err(|exceeded| exceeded.reason)?;
        // Whoever gets no room costs no socket.
        relay.flows().room(&self.path, relay.now()).map_err(why)?;
        let wire = Wire::new(pass, name, (self.path, to), self.outlet, shared, relay.now());
        let wire = Arc::new(wire.map_err(|error| {
            log::debug!("{client}: no socket to {to}: {error}");
            "no socket for a connection to pass on"
        })?);
        let (id, gone) = {
            let mut flows = relay.flows();
            // Another worker may have been faster.
            if let Some((id, other)) = flows.to(&self.path, &origin) {
                begins.into_iter().for_each(|dcid| flows.begun(id, dcid));
                return Ok(other);
            }
            let opened = flows.open(self.path, origin, Arc::clone(&wire), relay.now());
            let opened = opened.map_err(why)?;
            begins.into_iter().for_each(|dcid| flows.begun(opened.0, dcid));
            opened
        };
        if let Some(other) = gone {
            shared.metrics.refused("a connection to pass on that made room for another");
            other.end("others needed the room");
        }
        let serving = Arc::clone(&wire).serve(id, Arc::clone(&relay), Arc::clone(shared));
        relay.runtime.spawn(serving);
        Ok(wire)
    }
}

const fn why(full: Full) -> &'static str {
    match full {
        Full::All => "too many connections are passed on",
        Full::Client => "too many connections of one address are passed on",
        Full::Path => "too many origins of one address and port",
    }
}

/// Each has a descriptor; half of those that the process may have are for others.
fn most_flows() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let half = limit.map_or(usize::MAX, |most| usize::try_from(most / 2).unwrap_or(usize::MAX));
    half.min(MAX_FLOWS)
}

impl PassThrough for Relay {
    fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    fn look(&self, stray: &Arrived<'_>, outlet: &Outlet) -> Whose {
        match self.shared.get().and_then(Weak::upgrade) {
            Some(shared) => self.look_at(&shared, stray, outlet),
            None => Whose::Own { held: Vec::new() },
        }
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("most", &MAX_FLOWS).finish_non_exhaustive()
    }
}
