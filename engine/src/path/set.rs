//! All paths of a connection and its moves between them (RFC 9000, Section 9).

mod moves;

use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::net::SocketAddr;

use quicket_wire::Side;

use super::mtu::MtuSettings;
use super::{FourTuple, Path, PathKey, PathPurpose, PathStart, ResponseOutcome, ValidationTimeout};
use crate::congestion::Congestion;
use crate::random::Random;
use crate::time::{Duration, Earliest, Time};

/// The most paths of a connection at a time: the active one, the one before and two candidates.
pub(crate) const MAX_PATHS: usize = 4;
/// PTOs that the path before is kept for packets that were reordered on the way.
const LINGER_PTOS: u64 = 3;

/// What every path begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSettings {
    /// Mark packets ECT(0).
    pub(crate) ecn: bool,
    /// The congestion controller (RFC 9002, Section 7).
    pub(crate) congestion: Congestion,
    /// Spread packets over the round trip (RFC 9002, Section 7.7).
    pub(crate) pacing: bool,
    /// The round trip time before it is measured (RFC 9002, Section 6.2.2).
    pub(crate) initial_rtt: Duration,
    /// Show the spin bit.
    pub(crate) spin_bit: bool,
    /// How to search for the MTU.
    pub(crate) mtu: MtuSettings,
    /// The peer may move to another address of its own will (RFC 9000, Section 9).
    pub(crate) peer_may_migrate: bool,
}

/// A received packet, as far as paths are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketContext {
    pub(crate) now: Time,
    /// It contained nothing but probing frames (RFC 9000, Section 9.1).
    pub(crate) is_probing: bool,
    /// Its number is the largest of the application data space so far.
    pub(crate) is_largest: bool,
    /// Sequence number of our connection ID that it was sent to.
    pub(crate) local_cid: u64,
    /// The PTO for path validation: see [`super::PathValidation::start`].
    pub(crate) pto: Duration,
}

/// The connection sends elsewhere from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathChange {
    pub(crate) from: PathKey,
    pub(crate) to: PathKey,
    /// Congestion state, round trip times and MTU went along, with the key: the peer's port
    /// changed and nothing else, as when a NAT forgets a binding (RFC 9000, Section 9.4).
    pub(crate) kept_state: bool,
}

/// What happened to the paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathEvent {
    /// Nothing to act on.
    None,
    /// The path is validated.
    Validated(PathKey),
    /// The connection moved, by the peer's or by our own will.
    Migrated(PathChange),
    /// The path that the peer seemed to move to did not answer: back to where it was
    /// (RFC 9000, Section 9.3.2).
    FellBack(PathChange),
    /// A path that the peer probed, or that we wanted to move to, did not answer. It is gone.
    Failed(PathKey),
    /// No validated path is left: the connection is to be closed silently
    /// (RFC 9000, Section 9.3.2).
    NoViablePath,
}

/// Why a connection cannot move to another path, or probe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationError {
    /// Only clients move (RFC 9000, Section 9).
    NotClient,
    /// Not before the handshake is confirmed (RFC 9000, Section 9).
    HandshakeNotConfirmed,
    /// The server sent disable_active_migration (RFC 9000, Section 18.2).
    DisabledByPeer,
    /// The connection is there already.
    AlreadyActive,
    /// Too many other paths are being validated.
    TooManyPaths,
    /// The peer has given us no connection ID to use there (RFC 9000, Section 9.5).
    NoConnectionId,
}

impl fmt::Display for MigrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotClient => "only clients can move a connection to another address",
            Self::HandshakeNotConfirmed => {
                "the connection can move only after the handshake; wait for it to be confirmed"
            }
            Self::DisabledByPeer => "the server does not let clients move to another address",
            Self::AlreadyActive => "the connection uses this address already",
            Self::NoConnectionId => {
                "the peer has provided no unused connection ID; wait for ConnectionIdsChanged"
            }
            Self::TooManyPaths => "too many paths are being probed; wait until one is decided",
        })
    }
}

impl core::error::Error for MigrationError {}

/// All paths of one connection.
///
/// There always is an active path. Others are candidates, or what was active before. After calls
/// that can drop paths, drain [`Self::take_removed`].
#[derive(Debug)]
pub(crate) struct Paths {
    side: Side,
    settings: PathSettings,
    active: Path,
    others: Vec<Path>,
    /// The path to return to until the active one is validated (RFC 9000, Section 9.3.2).
    fallback: Option<PathKey>,
    removed: Vec<PathKey>,
    next_key: u8,
    handshake_confirmed: bool,
    migration_disabled_by_peer: bool,
    /// The server's address during the handshake, whichever side is the server.
    handshake_server: SocketAddr,
    /// Server: the client was told of another address of ours.
    has_preferred_address: bool,
    /// The peer may not come from another IP address, whatever moved it.
    is_peer_fixed: bool,
}

impl Paths {
    /// The key of every connection's first path.
    pub(crate) const FIRST: PathKey = PathKey(0);

    /// Begins with the path of the first datagram. A server's is limited until the client's
    /// address is validated (RFC 9000, Section 8.1); a client's is not.
    pub(crate) fn new(
        side: Side,
        now: Time,
        tuple: FourTuple,
        settings: PathSettings,
        random: &mut dyn Random,
    ) -> Self {
        let start = PathStart {
            now,
            settings: &settings,
            purpose: PathPurpose::Active,
            validated: side.is_client(),
            limited: !side.is_client(),
            local_cid: 0,
        };
        Self {
            side,
            active: Path::new(Self::FIRST, tuple, &start, random),
            settings,
            others: Vec::new(),
            fallback: None,
            removed: Vec::new(),
            next_key: 1,
            handshake_confirmed: false,
            migration_disabled_by_peer: false,
            handshake_server: server_of(side, &tuple),
            has_preferred_address: false,
            is_peer_fixed: false,
        }
    }

    /// Takes other settings before anything that counts was sent: the first path forgets what it
    /// has learnt, but not whether the peer's address is proved.
    pub(crate) fn begin_anew(&mut self, settings: PathSettings, random: &mut dyn Random) {
        self.settings = settings;
        self.active.begin_anew(&self.settings, random);
    }

    /// Has another controller decide on all paths, and on those to come.
    pub(crate) fn set_congestion(
        &mut self,
        congestion: Congestion,
        now: Time,
        random: &mut dyn Random,
    ) {
        if self.settings.congestion == congestion {
            return;
        }
        self.settings.congestion = congestion;
        for path in self.iter_mut() {
            path.exchange_controller(congestion, now, random);
        }
    }

    /// From now on the peer is at the IP address that it has, or nowhere.
    pub(crate) fn fix_peer(&mut self) {
        self.is_peer_fixed = true;
    }

    /// Server: the client is told of another address of ours (RFC 9000, Section 9.6).
    pub(crate) fn set_preferred_address(&mut self) {
        self.has_preferred_address = true;
    }

    /// The handshake is confirmed: paths may change (RFC 9000, Section 9; RFC 9001,
    /// Section 4.1.2).
    pub(crate) fn set_handshake_confirmed(&mut self) {
        self.handshake_confirmed = true;
    }

    /// The peer's transport parameters that concern paths.
    pub(crate) fn on_peer_parameters(
        &mut self,
        disable_active_migration: bool,
        max_udp_payload_size: u64,
    ) {
        self.migration_disabled_by_peer = disable_active_migration;
        let limit = u16::try_from(max_udp_payload_size).unwrap_or(u16::MAX);
        self.settings.mtu.peer_limit = limit;
        for path in self.iter_mut() {
            let before = path.mtu.current();
            path.mtu.set_peer_limit(max_udp_payload_size);
            if path.mtu.current() != before {
                path.congestion.on_mtu_changed(path.mtu.current());
            }
        }
    }

    /// The path that the connection sends on.
    #[inline]
    pub(crate) fn active(&self) -> &Path {
        &self.active
    }

    /// The path that the connection sends on.
    #[inline]
    pub(crate) fn active_mut(&mut self) -> &mut Path {
        &mut self.active
    }

    /// The path of this name, unless it is gone.
    #[inline]
    pub(crate) fn get(&self, key: PathKey) -> Option<&Path> {
        self.iter().find(|p| p.key == key)
    }

    /// The path of this name, unless it is gone.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: PathKey) -> Option<&mut Path> {
        self.iter_mut().find(|p| p.key == key)
    }

    /// All paths, the active one first.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> {
        core::iter::once(&self.active).chain(&self.others)
    }

    /// All paths, the active one first.
    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        core::iter::once(&mut self.active).chain(&mut self.others)
    }

    /// The path of these addresses. A client tells paths by the server's address alone if no
    /// path matches exactly: its own address may change under it without a word.
    #[inline]
    pub(crate) fn find(&self, tuple: &FourTuple) -> Option<PathKey> {
        if self.active.tuple == *tuple {
            return Some(self.active.key);
        }
        let exact = self.others.iter().find(|p| p.tuple == *tuple);
        let by_remote =
            || self.iter().find(|p| self.side.is_client() && p.tuple.remote == tuple.remote);
        exact.or_else(by_remote).map(|p| p.key)
    }

    /// A datagram arrived: counts its bytes for the anti-amplification limit, whether or not its
    /// packets can be processed (RFC 9000, Section 8.1).
    #[inline]
    pub(crate) fn on_datagram(&mut self, tuple: &FourTuple, bytes: usize) -> Option<PathKey> {
        let key = self.find(tuple)?;
        self.get_mut(key)?.amplification.on_received(bytes);
        Some(key)
    }

    /// The path for an authenticated packet from an address that [`Self::on_datagram`] does not
    /// know, in a datagram of `bytes`: a new candidate, whose validation starts at once. `None`
    /// if the packet must be dropped.
    pub(crate) fn admit(
        &mut self,
        tuple: FourTuple,
        bytes: usize,
        context: &PacketContext,
        random: &mut dyn Random,
    ) -> Option<PathKey> {
        if let Some(key) = self.find(&tuple) {
            return Some(key);
        }
        // RFC 9000, Section 9: clients discard packets from server addresses they do not know,
        // and addresses are stable during the handshake.
        if self.side.is_client() || !self.handshake_confirmed {
            return None;
        }
        // Involuntary moves (NAT rebinding) keep the connection ID, others change it
        // (RFC 9000, Section 9.5). Those to the preferred address, and once there, are not forbidden (Section 18.2).
        let is_preferred = self.has_preferred_address && !self.is_at_handshake_server(&tuple);
        let may_move = self.settings.peer_may_migrate || is_preferred;
        if !may_move && context.local_cid != self.active.local_cid {
            return None;
        }
        if self.is_peer_fixed && tuple.remote.ip() != self.active.tuple.remote.ip() {
            return None;
        }
        let known_address = self.iter().any(|p| p.tuple.remote == tuple.remote && p.is_validated());
        let key = self.make_room()?;
        let start = PathStart {
            now: context.now,
            settings: &self.settings,
            purpose: PathPurpose::Probe,
            validated: false,
            limited: !known_address,
            local_cid: context.local_cid,
        };
        let mut path = Path::new(key, tuple, &start, random);
        path.amplification.on_received(bytes);
        path.validation.start(context.now, context.pto);
        self.others.push(path);
        Some(key)
    }

    /// True if these addresses have that of the server which the handshake had: where disable_active_migration
    /// forbids moves (RFC 9000, Section 18.2).
    fn is_at_handshake_server(&self, tuple: &FourTuple) -> bool {
        server_of(self.side, tuple) == self.handshake_server
    }

    /// A free key, after dropping the path that is missed least if there are too many.
    fn make_room(&mut self) -> Option<PathKey> {
        if self.others.len() >= MAX_PATHS - 1 {
            let spare = self
                .others
                .iter()
                .filter(|p| Some(p.key) != self.fallback)
                .filter(|p| p.purpose != PathPurpose::MigrateWhenValid)
                .min_by_key(|p| (p.is_validated(), p.created))
                .map(|p| p.key)?;
            self.remove(spare);
        }
        self.others.try_reserve(1).ok()?;
        loop {
            let key = PathKey(self.next_key);
            self.next_key = self.next_key.wrapping_add(1);
            if self.get(key).is_none() && !self.removed.contains(&key) {
                return Some(key);
            }
            if self.removed.len() >= usize::from(u8::MAX).saturating_sub(MAX_PATHS) {
                return None;
            }
        }
    }

    /// An authenticated packet of the application data space was processed on path `key`.
    /// The peer has moved if it is the newest and carries more than probes
    /// (RFC 9000, Section 9.3).
    pub(crate) fn on_packet(&mut self, key: PathKey, context: &PacketContext) -> PathEvent {
        if context.is_largest
            && let Some(path) = self.get_mut(key)
        {
            path.local_cid = context.local_cid;
        }
        let moved = key != self.active.key
            && !self.side.is_client()
            && !context.is_probing
            && context.is_largest;
        if !moved {
            return PathEvent::None;
        }
        let Some(change) = self.switch_to(key) else { return PathEvent::None };
        if self.active.is_validated() {
            self.settle(context.now, context.pto);
        } else if !self.active.validation.is_validating() {
            self.active.validation.start(context.now, context.pto);
        }
        // RFC 9000, Section 9.3.3: MUST validate the previously active path, in case an attacker
        // forwarded the packet.
        if let Some(previous) = self.get_mut(change.from) {
            previous.validation.start(context.now, context.pto);
        }
        PathEvent::Migrated(change)
    }

    /// Makes a path the active one and remembers where to return to. When state is kept, the two
    /// paths trade keys too, so that packets in flight still count where the state went.
    fn switch_to(&mut self, key: PathKey) -> Option<PathChange> {
        let previous = self.others.iter_mut().find(|p| p.key == key)?;
        mem::swap(&mut self.active, previous);
        // A client that moves does so of its own will, with another connection ID for each of the
        // two paths, even if only the port differs (RFC 9000, Section 9.5).
        let kept_state = !self.side.is_client() && self.active.is_rebinding_of(previous);
        if kept_state {
            self.active.swap_state(previous);
        }
        previous.purpose = PathPurpose::Previous;
        self.active.purpose = PathPurpose::Active;
        self.active.expires = None;
        if self.fallback == Some(key) {
            self.fallback = None;
        }
        if previous.is_validated() {
            self.fallback = Some(previous.key);
        }
        Some(PathChange { from: previous.key, to: self.active.key, kept_state })
    }

    /// The active path is validated: those before it are dropped after a while.
    fn settle(&mut self, now: Time, pto: Duration) {
        self.fallback = None;
        for path in self.others.iter_mut().filter(|p| p.purpose == PathPurpose::Previous) {
            let expires = now + pto.times(LINGER_PTOS);
            path.expires = Some(path.expires.map_or(expires, |e| e.min(expires)));
        }
    }

    /// A PATH_RESPONSE arrived, on any path (RFC 9000, Section 8.2.3).
    pub(crate) fn on_path_response(
        &mut self,
        now: Time,
        data: [u8; 8],
        pto: Duration,
    ) -> PathEvent {
        let mut answered = None;
        for path in self.iter_mut() {
            match path.validation.on_response(now, data, pto) {
                ResponseOutcome::NotOurs => {}
                ResponseOutcome::AddressOnly => {
                    path.amplification.lift();
                    return PathEvent::None;
                }
                ResponseOutcome::Validated => {
                    path.amplification.lift();
                    answered = Some((path.key, path.purpose));
                    break;
                }
            }
        }
        match answered {
            None => PathEvent::None,
            Some((key, PathPurpose::Active)) => {
                self.settle(now, pto);
                PathEvent::Validated(key)
            }
            Some((key, PathPurpose::MigrateWhenValid)) => match self.switch_to(key) {
                Some(change) => {
                    self.settle(now, pto);
                    PathEvent::Migrated(change)
                }
                None => PathEvent::Validated(key),
            },
            Some((key, purpose)) => {
                // "The last validated address" of RFC 9000, Section 9.3.2 is this one now, or is known at last.
                let wanted = self.fallback.is_some() || !self.active.is_validated();
                if purpose == PathPurpose::Previous && wanted {
                    self.fallback = Some(key);
                    if let Some(path) = self.get_mut(key) {
                        path.expires = None;
                    }
                }
                PathEvent::Validated(key)
            }
        }
    }

    /// Another path than `key` on which the peer uses the same connection ID of ours: then `key`
    /// may share the peer's connection ID with it, otherwise it needs one of its own
    /// (RFC 9000, Section 9.5).
    pub(crate) fn shares_cid_with(&self, key: PathKey) -> Option<PathKey> {
        if self.side.is_client() {
            return None;
        }
        let local_cid = self.get(key)?.local_cid;
        self.iter().find(|p| p.key != key && p.local_cid == local_cid).map(|p| p.key)
    }

    fn remove(&mut self, key: PathKey) {
        let Some(index) = self.others.iter().position(|p| p.key == key) else { return };
        self.others.swap_remove(index);
        self.removed.push(key);
        if self.fallback == Some(key) {
            self.fallback = None;
        }
    }

    /// A path that is gone: its connection ID is to be released.
    pub(crate) fn take_removed(&mut self) -> Option<PathKey> {
        self.removed.pop()
    }

    /// When to call [`Self::on_timeout`].
    pub(crate) fn timeout(&self) -> Option<Time> {
        let first = self.iter().fold(Earliest::NEVER, |first, path| {
            first.or(path.validation.timeout()).or(path.expires)
        });
        first.get()
    }

    /// Time passed. Call again until it returns [`PathEvent::None`].
    pub(crate) fn on_timeout(&mut self, now: Time, pto: Duration) -> PathEvent {
        let expired = |p: &&Path| p.expires.is_some_and(|t| t <= now);
        while let Some(key) = self.others.iter().find(expired).map(|p| p.key) {
            self.remove(key);
        }
        while let Some(key) = self.next_failed(now) {
            let event = if key == self.active.key {
                self.on_active_failed(now, pto)
            } else {
                self.on_other_failed(key)
            };
            if event != PathEvent::None {
                return event;
            }
        }
        PathEvent::None
    }

    /// The next path whose validation is given up now; the active one last.
    fn next_failed(&mut self, now: Time) -> Option<PathKey> {
        let paths = self.others.iter_mut().chain(core::iter::once(&mut self.active));
        let mut failed = paths.filter_map(|p| {
            (p.validation.on_timeout(now) == ValidationTimeout::Failed).then_some(p.key)
        });
        failed.next()
    }

    /// RFC 9000, Section 9.3.2: back to the last validated address, and without one the
    /// connection is over.
    fn on_active_failed(&mut self, now: Time, pto: Duration) -> PathEvent {
        match self.fallback.and_then(|key| self.switch_to(key)) {
            Some(change) => {
                self.remove(change.from);
                self.settle(now, pto);
                PathEvent::FellBack(change)
            }
            // It answered before: better than nothing.
            None if self.active.is_validated() => PathEvent::None,
            None => PathEvent::NoViablePath,
        }
    }

    fn on_other_failed(&mut self, key: PathKey) -> PathEvent {
        // Kept to return to, answer or not: nothing better is known.
        if self.fallback == Some(key) {
            return PathEvent::None;
        }
        let was_previous = self.get(key).is_some_and(|p| p.purpose == PathPurpose::Previous);
        self.remove(key);
        if was_previous { PathEvent::None } else { PathEvent::Failed(key) }
    }
}

/// The server's of these addresses.
fn server_of(side: Side, tuple: &FourTuple) -> SocketAddr {
    if side.is_client() { tuple.remote } else { tuple.local }
}

#[cfg(test)]
#[path = "set_tests.rs"]
mod tests;
