//! Connection IDs that say where a connection lives, so that a load balancer can route datagrams
//! without a table (draft-ietf-quic-load-balancers-21).
//!
//! ```
//! use quicket::EndpointConfig;
//! use quicket::steering::{Codec, ConfigId, Format, Place, RoutableConnectionIds, ServerId, aes_128};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // As the load balancer is configured: one octet of server ID, a nonce of 15, a key.
//! let format = Format::new(1, 15)?;
//! let id = ConfigId::new(0).ok_or("0 to 6")?;
//! let codec = Codec::new(id, format, Some(aes_128(&[0x5a; 16])), Default::default());
//! // This server is number 7.
//! let place = Place { server_id: ServerId::new(&[7]).ok_or("1 to 15 octets")?, owner: None };
//! let config = EndpointConfig::default().connection_ids(RoutableConnectionIds::new(codec, place)?);
//! # let _ = config;
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::io;
use std::sync::Arc;

use quicket_bpf::OwnerProgram;
use quicket_engine::random::Random;
use quicket_engine::{ConnectionIdGenerator, Neighbours, RandomConnectionIds, Reached, Stray};
use quicket_handshake::SystemRandom;
use quicket_wire::{ConnectionId, PacketKind};

use crate::config::EndpointConfig;
use crate::core::{Pin, Pins};
use crate::site::SiteKeys;
use quicket_switch::client::ConnectionIds;
use quicket_switch::protocol::ID_LEN;
use quicket_udp::{Complaints, UdpConfig};

pub use crate::switchable::{SwitchError, SwitchableConnectionIds};
pub use quicket_steering::{
    BlockCipher, Codec, ConfigId, FirstOctet, Format, FormatError, HashKey, Owner, OwnerBits,
    OwnerError, Place, ServerId,
};

/// AES-128 with this key, for [`Codec::new`].
#[must_use]
pub fn aes_128(key: &[u8; 16]) -> Arc<dyn BlockCipher> {
    Arc::new(quicket_handshake::Aes128::new(key))
}

/// Issues connection IDs that lead to one place: for
/// [`EndpointConfig::connection_ids`](crate::EndpointConfig::connection_ids).
#[derive(Clone, Debug)]
pub struct RoutableConnectionIds {
    source: Source,
    place: Place,
}

/// What connection IDs are written and read with.
#[derive(Clone, Debug)]
enum Source {
    Fixed(Codec),
    /// Those of a site, which rotate.
    Site(SiteKeys),
}

impl Source {
    /// The configuration of a connection ID, if it is one that is read here.
    fn of<R>(&self, id: &[u8], look: impl FnOnce(&Codec) -> Option<R>) -> Option<R> {
        match self {
            Self::Fixed(codec) => look(codec),
            Self::Site(keys) => keys.with_configurations(|all| look(all.of(id)?)),
        }
    }

    /// The one that writes.
    fn current<R>(&self, look: impl FnOnce(&Codec) -> R) -> R {
        match self {
            Self::Fixed(codec) => look(codec),
            Self::Site(keys) => keys.with_configurations(|all| look(all.current())),
        }
    }
}

impl RoutableConnectionIds {
    /// Connection IDs of a configuration that lead to `place`.
    ///
    /// # Errors
    ///
    /// When the place does not fit into the configuration's format.
    pub fn new(codec: Codec, place: Place) -> Result<Self, FormatError> {
        Self::from_source(Source::Fixed(codec), place)
    }

    fn from_source(source: Source, place: Place) -> Result<Self, FormatError> {
        source.current(|codec| codec.check(&place))?;
        Ok(Self { source, place })
    }

    /// Connection IDs of a site that lead to the first worker of a generation on a host.
    pub(crate) fn of_site(keys: &SiteKeys, server_id: ServerId, generation: u8) -> Self {
        let owner = Some(Owner { generation, worker: 0 });
        let ids = Self::from_source(Source::Site(keys.clone()), Place { server_id, owner });
        ids.expect("a site's format has room for a host of one octet and 256 generations")
    }
}

impl ConnectionIdGenerator for RoutableConnectionIds {
    fn generate(&self, random: &mut dyn Random) -> ConnectionId {
        let minted =
            self.source.current(|codec| codec.mint(&self.place, &mut |out| random.fill(out)));
        minted.expect("a place that was checked fits")
    }

    fn len(&self) -> usize {
        self.source.current(|codec| codec.format().id_len())
    }
}

/// The configuration of connection IDs that no configuration routes (draft-ietf-quic-load-balancers-21, Section
/// 3.1), in the first octet.
const UNROUTABLE: u8 = 0b1110_0000;

/// Connection IDs that the switch makes for a program that has no key for that.
#[derive(Clone, Debug)]
pub(crate) struct MintedConnectionIds(pub(crate) ConnectionIds);

impl ConnectionIdGenerator for MintedConnectionIds {
    fn generate(&self, random: &mut dyn Random) -> ConnectionId {
        static DRY: Complaints = Complaints::new();
        let mut octets = [0; ID_LEN];
        match self.0.take() {
            Some(minted) => octets = minted,
            // As good as any that leads nowhere: the connection goes on with those that it has.
            None => {
                random.fill(&mut octets);
                octets[0] |= UNROUTABLE;
                DRY.warn(format_args!(
                    "the switch has made no connection IDs for a while: connections that are new or move may be \
                     lost; is it there?"
                ));
            }
        }
        ConnectionId::new(&octets).expect("fourteen octets are no more than twenty")
    }

    fn len(&self) -> usize {
        ID_LEN
    }
}

/// How the connection IDs of an endpoint are divided among its workers.
#[derive(Debug)]
pub(crate) struct Division {
    /// None for an endpoint with one worker, which takes what it is given.
    ids: Option<RoutableConnectionIds>,
    /// Those that the switch makes, for a program that has no key for that, in place of the ones above.
    minted: Option<ConnectionIds>,
    workers: usize,
    /// Whether workers hand the switch what belongs to other programs.
    steered: bool,
}

impl Division {
    /// As an endpoint is configured.
    pub(crate) fn new(config: &EndpointConfig) -> io::Result<Self> {
        let workers = config.workers.count()?;
        if workers == 1 {
            return Ok(Self { ids: None, minted: None, workers, steered: false });
        }
        let generator: &dyn Any = &*config.protocol.cid_generator;
        let ids = if let Some(ids) = generator.downcast_ref::<RoutableConnectionIds>() {
            ids.for_worker(workers - 1).map(|_| ids.clone())
        } else {
            let random = generator.downcast_ref::<RandomConnectionIds>();
            random.filter(|ids| !ids.is_empty()).map(|_| own_ids())
        };
        let ids = ids.ok_or_else(|| {
            let message = format!(
                "with {workers} workers, connection IDs must say which worker they lead to, and those \
                 that were configured do not: leave EndpointConfig::connection_ids out, or give it \
                 RoutableConnectionIds of a format with an owner (Format::with_owner) that has room \
                 for {workers} workers"
            );
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        Ok(Self { ids: Some(ids), minted: None, workers, steered: false })
    }

    /// For workers with sockets of their own at an address of several programs, whose connection IDs `ids`
    /// are.
    pub(crate) fn steered(self, ids: RoutableConnectionIds) -> Self {
        Self { ids: Some(ids), steered: true, ..self }
    }

    /// For workers whose connection IDs the switch makes, and reads.
    pub(crate) const fn minted(workers: usize, ids: ConnectionIds) -> Self {
        Self { ids: None, minted: Some(ids), workers, steered: false }
    }

    pub(crate) const fn workers(&self) -> usize {
        self.workers
    }

    /// What issues connection IDs for a worker; none if there is but one.
    pub(crate) fn ids(&self, worker: usize) -> Option<RoutableConnectionIds> {
        self.ids.as_ref()?.for_worker(worker)
    }

    /// The same as what an endpoint is configured with.
    pub(crate) fn generator(&self, worker: usize) -> Option<Arc<dyn ConnectionIdGenerator>> {
        if let Some(minted) = self.minted.as_ref().filter(|_| self.workers > 1) {
            let worker = u16::try_from(worker).ok()?;
            return Some(Arc::new(MintedConnectionIds(minted.for_worker(worker))));
        }
        let ids: Arc<dyn ConnectionIdGenerator> = Arc::new(self.ids(worker)?);
        Some(ids)
    }

    /// How the kernel is to choose among the workers' sockets, unless it is to choose by address.
    pub(crate) fn choice(&self, udp: &UdpConfig) -> Option<KernelChoice> {
        // Sockets of others at the address would be counted with ours.
        if !udp.route_by_connection_id || udp.reuse_port {
            return None;
        }
        let ids = self.ids.clone()?;
        let choice = KernelChoice { ids, workers: u16::try_from(self.workers).ok()? };
        choice.program().map(|_| choice)
    }

    /// What a worker knows of the others.
    pub(crate) fn neighbours(&self, worker: usize, pins: &Arc<Pins>) -> Option<Neighbourhood> {
        let ids = self.ids(worker);
        // What the switch hands to a worker is that worker's.
        if ids.is_none() && (self.minted.is_none() || self.workers == 1) {
            return None;
        }
        let (workers, steered, pins) = (self.workers, self.steered, Arc::clone(pins));
        Some(Neighbourhood { ids, worker, workers, steered, pins })
    }
}

/// How the kernel chooses among the workers' sockets: by connection IDs of the keys that are in use.
#[derive(Clone, Debug)]
pub(crate) struct KernelChoice {
    ids: RoutableConnectionIds,
    workers: u16,
}

impl KernelChoice {
    /// What the kernel is told now.
    pub(crate) fn program(&self) -> Option<OwnerProgram> {
        let generation = self.ids.generation()?;
        let program = match &self.ids.source {
            Source::Fixed(codec) => OwnerProgram::new([codec], generation, self.workers),
            Source::Site(keys) => keys.with_configurations(|configurations| {
                OwnerProgram::new(configurations.all(), generation, self.workers)
            }),
        };
        program.ok()
    }
}

/// Connection IDs that name a worker, of a process that no load balancer knows: twelve octets, of
/// which 69 bits are random before they are enciphered, so that they repeat themselves as rarely as
/// random ones of eight octets do. The server ID has the one octet that it must have.
fn own_ids() -> RoutableConnectionIds {
    let mut random = SystemRandom::new();
    let (mut key, mut mask) = ([0; 16], [0; 8]);
    random.fill(&mut key);
    random.fill(&mut mask);
    let bits = OwnerBits::new(0, 8).expect("eight bits");
    let format = Format::new(1, 9).and_then(|format| format.with_owner(bits));
    let format = format.expect("twelve octets");
    let id = ConfigId::new(0).expect("below seven");
    let codec = Codec::new(id, format, Some(aes_128(&key)), HashKey::new(mask));
    let owner = Some(Owner { generation: 0, worker: 0 });
    let server_id = ServerId::new(&[0]).expect("one octet");
    RoutableConnectionIds { source: Source::Fixed(codec), place: Place { server_id, owner } }
}

impl RoutableConnectionIds {
    /// The same for a worker; `None` if the format has no room for its number.
    fn for_worker(&self, worker: usize) -> Option<Self> {
        let owner = Owner { worker: u16::try_from(worker).ok()?, ..self.place.owner? };
        Self::from_source(self.source.clone(), Place { owner: Some(owner), ..self.place }).ok()
    }

    /// The worker to which a connection ID leads, if it names one of this generation here. `proven`:
    /// only if it is one of ours beyond doubt.
    fn worker_of(&self, id: &ConnectionId, proven: bool) -> Option<usize> {
        let octets = id.as_slice();
        let owner = if proven {
            let place = self.source.of(octets, |codec| codec.place(octets))?;
            place.owner.filter(|_| place.server_id == self.place.server_id)
        } else {
            self.source.of(octets, |codec| codec.owner(octets))
        };
        let owner = owner.filter(|owner| Some(owner.generation) == self.generation())?;
        Some(owner.worker.into())
    }

    fn generation(&self) -> Option<u8> {
        self.place.owner.map(|owner| owner.generation)
    }
}

/// What a worker of an endpoint knows of the others.
#[derive(Debug)]
pub(crate) struct Neighbourhood {
    /// None where the switch alone can read them.
    ids: Option<RoutableConnectionIds>,
    worker: usize,
    workers: usize,
    steered: bool,
    pins: Arc<Pins>,
}

impl Neighbourhood {
    /// The worker that issued a connection ID, as far as that can be read here.
    fn worker_of(&self, id: &ConnectionId, proven: bool) -> Option<usize> {
        self.ids.as_ref()?.worker_of(id, proven)
    }

    /// Which of the other workers a datagram belongs to.
    fn neighbour(&self, stray: &Stray<'_>) -> Option<usize> {
        let dcid = &stray.dcid;
        let owner = match stray.kind {
            // To a connection ID of the client's choice, which looks like one of ours by chance
            // perhaps, or to that of a Retry.
            PacketKind::Initial | PacketKind::ZeroRtt => {
                let pinned = self.pins.find(&Pin::First(*dcid));
                pinned.or_else(|| self.worker_of(dcid, true))
            }
            PacketKind::OneRtt => {
                let reset = self.pins.find_reset(stray.remote, stray.data);
                reset.or_else(|| self.worker_of(dcid, false))
            }
            // It may begin a connection here.
            PacketKind::UnknownVersion => None,
            _ => self.worker_of(dcid, false),
        };
        // An owner that there is not: nobody's.
        owner.filter(|&owner| owner != self.worker && owner < self.workers)
    }

    /// Whether a datagram is to be treated here though no connection takes it: its connection has ended,
    /// the switch says that it is this program's, or the kernel does: that brings first packets to a program that is
    /// alone. One whose connection ID has an owner of this program may have come for that reason, and is the switch's to
    /// judge.
    fn is_ours(&self, stray: &Stray<'_>) -> bool {
        let owner = self.worker_of(&stray.dcid, false);
        let ours = match stray.kind {
            PacketKind::OneRtt | PacketKind::Handshake => owner == Some(self.worker),
            PacketKind::Initial | PacketKind::ZeroRtt => {
                owner.is_none() && stray.reached == Reached::Chosen
            }
            _ => false,
        };
        !self.steered || stray.reached == Reached::HandedOn || ours
    }
}

impl Neighbours for Neighbourhood {
    /// A worker by its number; the switch is behind the last one.
    fn owner(&self, stray: &Stray<'_>) -> Option<usize> {
        self.neighbour(stray).or_else(|| (!self.is_ours(stray)).then_some(self.workers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Workers;

    const WORKERS: usize = 4;

    fn neighbourhood(worker: usize) -> (Division, Neighbourhood) {
        let config = EndpointConfig::default().workers(Workers::Count(WORKERS));
        let division = Division::new(&config).unwrap();
        let neighbours = division.neighbours(worker, &Arc::default()).unwrap();
        (division, neighbours)
    }

    fn stray(kind: PacketKind, dcid: ConnectionId) -> Stray<'static> {
        let remote = "192.0.2.1:9".parse().unwrap();
        Stray { kind, dcid, remote, data: &[0x40; 40], reached: Reached::Chosen }
    }

    /// What comes to the socket of a worker beside the switch, whose own connections do not take it.
    #[test]
    fn what_is_no_workers_goes_to_the_switch_once() {
        let config = EndpointConfig::default().workers(Workers::Count(WORKERS));
        let own = own_ids();
        let division = Division::new(&config).unwrap().steered(own.clone());
        let neighbours = division.neighbours(1, &Arc::default()).unwrap();
        let mut random = SystemRandom::new();
        let place =
            |generation, worker| Place { owner: Some(Owner { generation, worker }), ..own.place };
        let mut id = |generation, worker| {
            let place = place(generation, worker);
            let minted =
                own.source.current(|codec| codec.mint(&place, &mut |out| random.fill(out)));
            minted.unwrap()
        };
        let (ours, other, nobodys) = (id(0, 1), id(0, 2), id(0, 9));
        let owner = |kind, id: &ConnectionId| neighbours.owner(&stray(kind, *id));
        let handed = |kind, id: &ConnectionId| {
            neighbours.owner(&Stray { reached: Reached::HandedOn, ..stray(kind, *id) })
        };
        for kind in [PacketKind::OneRtt, PacketKind::Handshake] {
            assert_eq!(owner(kind, &ours), None, "its connection has ended");
            assert_eq!((owner(kind, &other), handed(kind, &other)), (Some(2), Some(2)));
            assert_eq!((owner(kind, &nobodys), handed(kind, &nobodys)), (Some(WORKERS), None));
        }
        for kind in [PacketKind::Initial, PacketKind::ZeroRtt, PacketKind::UnknownVersion] {
            assert_eq!(
                (owner(kind, &ours), handed(kind, &ours)),
                (Some(WORKERS), None),
                "{kind:?}"
            );
        }
        // What a client chose: of this program, where the kernel has looked at it.
        let random = RandomConnectionIds::new(8).generate(&mut random);
        for kind in [PacketKind::Initial, PacketKind::ZeroRtt] {
            assert_eq!(owner(kind, &random), None, "{kind:?}");
            let behind = Stray { reached: Reached::Behind, ..stray(kind, random) };
            assert_eq!(neighbours.owner(&behind), Some(WORKERS), "{kind:?}");
        }
        assert_eq!(owner(PacketKind::UnknownVersion, &random), Some(WORKERS));
    }

    #[test]
    fn connection_ids_lead_to_the_worker_that_issued_them() {
        let (division, neighbours) = neighbourhood(1);
        let mut random = SystemRandom::new();
        for worker in 0..WORKERS {
            let ids = division.ids(worker).unwrap();
            assert_eq!(ids.len(), 12);
            for _ in 0..50 {
                let id = ids.generate(&mut random);
                for kind in [PacketKind::Initial, PacketKind::Handshake, PacketKind::OneRtt] {
                    let owner = neighbours.owner(&stray(kind, id));
                    assert_eq!(owner, (worker != 1).then_some(worker), "{kind:?}");
                }
            }
        }
    }

    /// A client chose it: hardly ever is it taken for one of ours.
    #[test]
    fn random_connection_ids_of_first_packets_lead_nowhere() {
        let (_, neighbours) = neighbourhood(1);
        let mut random = SystemRandom::new();
        let ids = RandomConnectionIds::new(12);
        let led = (0..4000).filter(|_| {
            let id = ids.generate(&mut random);
            neighbours.owner(&stray(PacketKind::Initial, id)).is_some()
        });
        // One in 8 · 256 · 256 names the configuration, a server ID and an owner twice.
        assert!(led.count() < 4);
    }

    #[test]
    fn an_owner_that_there_is_not_is_nobody() {
        let config = EndpointConfig::default().workers(Workers::Count(256));
        let mut division = Division::new(&config).unwrap();
        let id = division.ids(9).unwrap().generate(&mut SystemRandom::new());
        division.workers = WORKERS;
        let neighbours = division.neighbours(1, &Arc::default()).unwrap();
        assert_eq!(neighbours.owner(&stray(PacketKind::OneRtt, id)), None);
        assert_eq!(neighbours.owner(&stray(PacketKind::Initial, id)), None);
    }

    #[test]
    fn a_balancers_connection_ids_keep_their_server_and_generation() {
        let format = Format::new(2, 10).unwrap().with_owner(OwnerBits::ONE_OCTET).unwrap();
        let mask = HashKey::new([9; 8]);
        let codec = Codec::new(ConfigId::new(3).unwrap(), format, Some(aes_128(&[5; 16])), mask);
        let server_id = ServerId::new(&[1, 2]).unwrap();
        let owner = Some(Owner { generation: 7, worker: 15 });
        let ids = RoutableConnectionIds::new(codec.clone(), Place { server_id, owner }).unwrap();
        let config = EndpointConfig::default().connection_ids(ids);
        let division = Division::new(&config.clone().workers(Workers::Count(16))).unwrap();
        let id = division.ids(5).unwrap().generate(&mut SystemRandom::new());
        let owner = Some(Owner { generation: 7, worker: 5 });
        assert_eq!(codec.place(id.as_slice()), Some(Place { server_id, owner }));
        let error = Division::new(&config.workers(Workers::Count(17))).unwrap_err();
        assert!(error.to_string().contains("room for 17 workers"), "{error}");
    }
}
