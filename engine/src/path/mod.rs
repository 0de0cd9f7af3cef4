//! Network paths of a connection (RFC 9000, Sections 8 and 9): validation, limits, ECN, MTU.

mod amplification;
mod ecn;
mod feedback;
mod frames;
mod mtu;
mod responses;
mod set;
mod spin;
mod validation;

use core::mem;
use core::net::SocketAddr;

pub(crate) use amplification::AmplificationLimit;
pub(crate) use ecn::{EcnOutcome, EcnSpace, EcnValidation};
pub(crate) use mtu::PathMtu;
pub(crate) use responses::PathResponses;
pub use set::MigrationError;
pub(crate) use set::{MAX_PATHS, PacketContext, PathChange, PathEvent, PathSettings, Paths};
pub(crate) use spin::SpinBit;
pub(crate) use validation::{PathValidation, ResponseOutcome, ValidationTimeout};

pub(crate) use crate::recovery::PathKey;
pub(crate) use mtu::MtuSettings;

use crate::congestion::{Congestion, PathCongestion};
use crate::random::Random;
use crate::recovery::RttEstimator;
use crate::time::Time;

/// The addresses of a path. `local` is unspecified where the platform does not tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FourTuple {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// What a path is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathPurpose {
    /// The connection sends here.
    Active,
    /// The connection sent here until it moved; kept to fall back on, or for late packets.
    Previous,
    /// The peer probes it, or we do: nothing but probing packets (RFC 9000, Section 9.1).
    Probe,
    /// We move here as soon as it is validated.
    MigrateWhenValid,
}

/// Room for a packet that carries a PATH_CHALLENGE, in bytes: first byte, connection ID, packet
/// number, frame and tag at their longest.
pub(crate) const CHALLENGE_ROOM: usize = 1 + 20 + 4 + 9 + 16;

/// One network path: a 4-tuple with everything that is learned about it.
#[derive(Debug)]
pub(crate) struct Path {
    key: PathKey,
    tuple: FourTuple,
    pub(crate) purpose: PathPurpose,
    pub(crate) validation: PathValidation,
    pub(crate) responses: PathResponses,
    pub(crate) amplification: AmplificationLimit,
    pub(crate) ecn: EcnValidation,
    pub(crate) mtu: PathMtu,
    pub(crate) spin: SpinBit,
    pub(crate) rtt: RttEstimator,
    pub(crate) congestion: PathCongestion,
    /// Sequence number of our connection ID in the peer's newest packet on this path.
    local_cid: u64,
    /// When a previous path is dropped.
    expires: Option<Time>,
    created: Time,
}

impl Path {
    fn new(key: PathKey, tuple: FourTuple, start: &PathStart<'_>, random: &mut dyn Random) -> Self {
        let settings = start.settings;
        let mtu = PathMtu::new(&settings.mtu);
        let rtt = RttEstimator::new(settings.initial_rtt);
        let (algorithm, pacing, seed) = (settings.congestion, settings.pacing, random.next_u64());
        let congestion = PathCongestion::new(algorithm, mtu.current(), &rtt, pacing, seed);
        Self {
            key,
            tuple,
            purpose: start.purpose,
            validation: if start.validated {
                PathValidation::validated()
            } else {
                PathValidation::unvalidated()
            },
            responses: PathResponses::default(),
            amplification: if start.limited {
                AmplificationLimit::limited()
            } else {
                AmplificationLimit::unlimited()
            },
            ecn: EcnValidation::new(settings.ecn),
            mtu,
            spin: SpinBit::new(settings.spin_bit, random),
            rtt,
            congestion,
            local_cid: start.local_cid,
            expires: None,
            created: start.now,
        }
    }

    /// Starts to learn about the network from nothing.
    fn begin_anew(&mut self, settings: &PathSettings, random: &mut dyn Random) {
        self.mtu = PathMtu::new(&settings.mtu);
        self.rtt = RttEstimator::new(settings.initial_rtt);
        self.congestion = PathCongestion::new(
            settings.congestion,
            self.mtu.current(),
            &self.rtt,
            settings.pacing,
            random.next_u64(),
        );
        self.ecn = EcnValidation::new(settings.ecn);
        self.spin = SpinBit::new(settings.spin_bit, random);
    }

    /// Has another controller decide.
    fn exchange_controller(&mut self, congestion: Congestion, now: Time, random: &mut dyn Random) {
        self.congestion.exchange(congestion, now, &self.rtt, random.next_u64());
    }

    /// The path's name.
    #[inline]
    pub(crate) fn key(&self) -> PathKey {
        self.key
    }

    /// The path's addresses.
    #[inline]
    pub(crate) fn tuple(&self) -> FourTuple {
        self.tuple
    }

    /// The peer's address.
    #[inline]
    pub(crate) fn remote(&self) -> SocketAddr {
        self.tuple.remote
    }

    /// This side's address.
    #[inline]
    pub(crate) fn local(&self) -> SocketAddr {
        self.tuple.local
    }

    /// True once the peer is known to be reachable here (RFC 9000, Section 8).
    #[inline]
    pub(crate) fn is_validated(&self) -> bool {
        self.validation.is_validated()
    }

    /// True if the connection has moved away for good, and the path is there for late packets.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.purpose == PathPurpose::Previous && self.expires.is_some()
    }

    /// The largest datagram to send, in bytes of UDP payload.
    #[inline]
    pub(crate) fn max_datagram(&self) -> u16 {
        self.mtu.current()
    }

    /// How long a datagram may be sent now under the anti-amplification limit, in bytes.
    #[inline]
    pub(crate) fn sendable(&self) -> usize {
        usize::try_from(self.amplification.budget()).unwrap_or(usize::MAX)
    }

    /// How long a datagram may be under the anti-amplification limit, in bytes, if something is to
    /// be left for two more challenges. Were all of it spent and the PATH_RESPONSE lost, nobody
    /// would have anything left to say.
    #[inline]
    pub(crate) fn sendable_data(&self) -> usize {
        let limited = self.validation.is_validating() && !self.amplification.is_lifted();
        self.sendable().saturating_sub(if limited { 2 * CHALLENGE_ROOM } else { 0 })
    }

    /// True if this is where a NAT moved `other`: the same hosts, the same connection ID of ours,
    /// another port of the peer's.
    fn is_rebinding_of(&self, other: &Self) -> bool {
        self.tuple.remote.ip() == other.tuple.remote.ip()
            && self.tuple.local == other.tuple.local
            && self.local_cid == other.local_cid
    }

    /// Trades what was learned about the network, and the keys that packets in flight know it by.
    fn swap_state(&mut self, other: &mut Self) {
        mem::swap(&mut self.key, &mut other.key);
        mem::swap(&mut self.rtt, &mut other.rtt);
        mem::swap(&mut self.congestion, &mut other.congestion);
        mem::swap(&mut self.mtu, &mut other.mtu);
        mem::swap(&mut self.ecn, &mut other.ecn);
    }

    /// The handshake, a token or a PATH_RESPONSE proved the peer's address
    /// (RFC 9000, Sections 8.1 and 8.2.3).
    pub(crate) fn set_validated(&mut self) {
        self.validation.set_validated();
        self.amplification.lift();
    }
}

/// How a path begins.
struct PathStart<'a> {
    now: Time,
    settings: &'a PathSettings,
    purpose: PathPurpose,
    validated: bool,
    /// Subject to the anti-amplification limit (RFC 9000, Section 8.1).
    limited: bool,
    local_cid: u64,
}
