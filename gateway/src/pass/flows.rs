//! Which connections over QUIC are passed on: a bounded table, without I/O. A flow is what comes from one address of a client for
//! one origin; several of a client's connections may be in it.
//!
//! Most packets only say a connection ID, and of these the gateway knows three kinds: those that clients made up for their
//! first packets; those of origins' long headers, which nobody can guess; and, where the origin's format is known, those
//! that say so themselves. All others go by the client's address.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use quicket_wire::ConnectionId;

/// How many flows there are at most.
pub(crate) const MAX_FLOWS: usize = 16_384;
/// ... of one client's address; an IPv6 network of /64 counts as one.
pub(crate) const MAX_FLOWS_PER_CLIENT: usize = 256;
/// How many connection IDs of each kind a flow remembers, the last ones.
pub(crate) const MAX_IDS: usize = 8;
/// How many origins one address of a client may have at a time: the last ones.
const MAX_PER_PATH: usize = 4;
/// So many datagrams of an origin answer a flow that a connection ID has begun: then the client is believed to be there.
const ANSWERS: u32 = 4;

/// A flow that is silent for so long makes room, too, where there is none: most connections end sooner (RFC 9000, Section 10.1),
/// and whether one has ended nobody can see.
const SILENCE: Duration = Duration::from_secs(30);

/// A client's address, and the gateway's that it came to.
pub(crate) type Path = (SocketAddr, Option<SocketAddr>);

/// Names a flow; no other gets the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FlowId(u64);

/// Why there is no further flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All have clients that are there.
    All,
    /// This client has as many as it may have.
    Client,
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet<'a> {
    /// A long header with this Destination Connection ID.
    Long(&'a [u8]),
    /// A short header: what follows its first octet begins with the Destination Connection ID.
    Short(&'a [u8]),
}

/// All flows, each with a value; `K` says which origin it has.
#[derive(Debug)]
pub(crate) struct Flows<K, T> {
    flows: HashMap<FlowId, Flow<K, T>>,
    by_path: HashMap<Path, Vec<FlowId>>,
    by_client: HashMap<IpAddr, usize>,
    /// Whose client may be made up, in the order in which they began.
    doubtful: BTreeSet<FlowId>,
    next: u64,
}

#[derive(Debug)]
struct Flow<K, T> {
    path: Path,
    origin: K,
    value: T,
    /// Of clients' first packets.
    begun: VecDeque<ConnectionId>,
    /// Of the origin's long headers.
    learned: VecDeque<ConnectionId>,
    /// Datagrams of the origin.
    answers: u32,
}

impl<K, T> Default for Flows<K, T> {
    fn default() -> Self {
        Self {
            flows: HashMap::new(),
            by_path: HashMap::new(),
            by_client: HashMap::new(),
            doubtful: BTreeSet::new(),
            next: 0,
        }
    }
}

impl<K: PartialEq, T: Clone> Flows<K, T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow that a connection ID names, of those from an address. An ID of the origin's own shows that its client is there.
    pub(crate) fn named(&mut self, path: &Path, packet: Packet<'_>) -> Option<T> {
        let own = self.by_path.get(path)?;
        let is_said = |id: &ConnectionId| match packet {
            Packet::Long(dcid) => id.as_slice() == dcid,
            Packet::Short(rest) => !id.is_empty() && rest.starts_with(id.as_slice()),
        };
        for id in own.iter().rev() {
            let Some(flow) = self.flows.get(id) else { continue };
            if flow.learned.iter().any(is_said) {
                self.doubtful.remove(id);
                return Some(flow.value.clone());
            }
            if matches!(packet, Packet::Long(_)) && flow.begun.iter().any(is_said) {
                return Some(flow.value.clone());
            }
        }
        None
    }

    /// The flow to an origin, of those from an address.
    pub(crate) fn to(&self, path: &Path, origin: &K) -> Option<(FlowId, T)> {
        let own = self.by_path.get(path)?;
        own.iter().find_map(|id| {
            let flow = self.flows.get(id).filter(|flow| flow.origin == *origin)?;
            Some((*id, flow.value.clone()))
        })
    }

    /// The last flow from an address.
    pub(crate) fn last(&self, path: &Path) -> Option<T> {
        let id = self.by_path.get(path)?.last()?;
        Some(self.flows.get(id)?.value.clone())
    }

    /// Begins a flow. Returns its number, and the values of those that had to make room. `silent` is how long nothing has come
    /// in a flow.
    pub(crate) fn open(
        &mut self,
        path: Path,
        origin: K,
        value: T,
        silent: impl Fn(&T) -> Duration,
    ) -> Result<(FlowId, Vec<T>), Full> {
        let client = network(path.0.ip());
        let mut gone = Vec::new();
        if self.by_client.get(&client).is_some_and(|own| *own >= MAX_FLOWS_PER_CLIENT) {
            let room = self.room(|flow| network(flow.path.0.ip()) == client, &silent);
            gone.extend(self.remove(room.ok_or(Full::Client)?));
        }
        if self.flows.len() >= MAX_FLOWS {
            let room = self.room(|_| true, &silent);
            gone.extend(self.remove(room.ok_or(Full::All)?));
        }
        let crowded = self.by_path.get(&path).filter(|own| own.len() >= MAX_PER_PATH);
        if let Some(first) = crowded.and_then(|own| own.first()).copied() {
            gone.extend(self.remove(first));
        }
        let id = FlowId(self.next);
        self.next += 1;
        let (begun, learned) = (VecDeque::new(), VecDeque::new());
        self.flows.insert(id, Flow { path, origin, value, begun, learned, answers: 0 });
        self.by_path.entry(path).or_default().push(id);
        *self.by_client.entry(client).or_default() += 1;
        self.doubtful.insert(id);
        Ok((id, gone))
    }

    /// Which of some flows makes room: the oldest whose client may be made up, else the one that is silent for longest.
    fn room(
        &self,
        is_one: impl Fn(&Flow<K, T>) -> bool,
        silent: impl Fn(&T) -> Duration,
    ) -> Option<FlowId> {
        let of = |id: &FlowId| self.flows.get(id).filter(|flow| is_one(flow));
        let doubtful = self.doubtful.iter().find(|id| of(id).is_some());
        doubtful.copied().or_else(|| {
            let all = self.flows.iter().filter(|(_, flow)| is_one(flow));
            let silent = all.map(|(id, flow)| (silent(&flow.value), *id));
            silent.filter(|(silent, _)| *silent >= SILENCE).max().map(|(_, id)| id)
        })
    }

    /// A client has begun a connection in this flow.
    pub(crate) fn begun(&mut self, id: FlowId, dcid: ConnectionId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            remember(&mut flow.begun, dcid);
        }
    }

    /// The origin has sent so many datagrams, and a long header with this Source Connection ID, if any.
    pub(crate) fn answered(&mut self, id: FlowId, datagrams: u32, scid: Option<ConnectionId>) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if let Some(scid) = scid.filter(|scid| !scid.is_empty()) {
            remember(&mut flow.learned, scid);
        }
        flow.answers = flow.answers.saturating_add(datagrams);
        // Whoever sends an origin's connection ID has it from a connection, which the origin answers only if it is there.
        if flow.begun.is_empty() && flow.answers >= ANSWERS {
            self.doubtful.remove(&id);
        }
    }

    /// Ends a flow.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<T> {
        let flow = self.flows.remove(&id)?;
        self.doubtful.remove(&id);
        if let Some(own) = self.by_path.get_mut(&flow.path) {
            own.retain(|other| *other != id);
            if own.is_empty() {
                self.by_path.remove(&flow.path);
            }
        }
        let client = network(flow.path.0.ip());
        if let Some(own) = self.by_client.get_mut(&client) {
            *own -= 1;
            if *own == 0 {
                self.by_client.remove(&client);
            }
        }
        Some(flow.value)
    }
}

fn remember(ids: &mut VecDeque<ConnectionId>, id: ConnectionId) {
    if ids.contains(&id) {
        return;
    }
    if ids.len() >= MAX_IDS {
        ids.pop_front();
    }
    ids.push_back(id);
}

/// Whoever has one address of an IPv6 network of /64 has all.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(client: u16) -> Path {
        let [high, low] = client.to_be_bytes();
        (SocketAddr::from(([10, 0, high, low], 9)), "192.0.2.1:443".parse().ok())
    }

    fn id(octet: u8) -> ConnectionId {
        ConnectionId::new(&[octet; 8]).unwrap()
    }

    /// Values are seconds of silence, in tests that look at it.
    fn silent(value: &u32) -> Duration {
        Duration::from_secs((*value).into())
    }

    fn flows() -> Flows<&'static str, u32> {
        Flows::default()
    }

    #[test]
    fn a_flow_is_found_by_the_connection_ids_that_are_known() {
        let mut flows = flows();
        let (one, _) = flows.open(path(1), "a", 1, silent).unwrap();
        let (two, _) = flows.open(path(1), "b", 2, silent).unwrap();
        flows.begun(one, id(1));
        flows.begun(two, id(2));
        assert_eq!(flows.named(&path(1), Packet::Long(&[1; 8])), Some(1));
        assert_eq!(flows.named(&path(1), Packet::Long(&[2; 8])), Some(2));
        assert_eq!(flows.named(&path(2), Packet::Long(&[1; 8])), None, "it is another client's");
        assert_eq!(flows.named(&path(1), Packet::Short(&[1; 20])), None, "no server has chosen it");
        flows.answered(one, 1, Some(id(7)));
        assert_eq!(flows.named(&path(1), Packet::Short(&[7; 20])), Some(1));
        assert_eq!(flows.named(&path(1), Packet::Long(&[7; 8])), Some(1));
        assert_eq!(flows.last(&path(1)), Some(2));
        assert_eq!(flows.to(&path(1), &"a"), Some((one, 1)));
        assert_eq!(flows.remove(one), Some(1));
        assert_eq!(flows.to(&path(1), &"a"), None);
        assert_eq!(flows.remove(two), Some(2));
        assert_eq!((flows.len(), flows.by_path.len(), flows.by_client.len()), (0, 0, 0));
    }

    #[test]
    fn clients_that_may_be_made_up_make_room_for_others() {
        let mut flows = flows();
        let (first, _) = flows.open(path(0), "a", 0, silent).unwrap();
        flows.begun(first, id(1));
        flows.answered(first, 100, Some(id(9)));
        let second = flows.open(path(1), "a", 1, silent).unwrap().0;
        flows.begun(second, id(1));
        flows.answered(second, 100, Some(id(9)));
        // It has seen what the origin sent.
        assert_eq!(flows.named(&path(0), Packet::Long(&[9; 8])), Some(0));
        for client in 2..MAX_FLOWS as u32 {
            flows.open(path(client as u16), "a", client, silent).unwrap();
        }
        let (_, gone) = flows.open(path(20_000), "a", 20_000, silent).unwrap();
        assert_eq!(gone, [1], "the oldest of those that nobody has proven");
        assert_eq!(flows.len(), MAX_FLOWS);
    }

    #[test]
    fn where_all_are_there_only_silence_makes_room() {
        let mut flows = flows();
        for client in 0..MAX_FLOWS as u32 {
            let (flow, _) = flows.open(path(client as u16), "a", 29, silent).unwrap();
            flows.answered(flow, ANSWERS, None);
        }
        assert_eq!(flows.open(path(20_000), "a", 0, silent), Err(Full::All));
        for (value, expected) in [(31, 31), (40, 40)] {
            let id = *flows.flows.keys().next().unwrap();
            flows.flows.get_mut(&id).unwrap().value = value;
            let (next, gone) = flows.open(path(20_000), "a", 0, silent).unwrap();
            assert_eq!(gone, [expected], "it is silent for long");
            flows.answered(next, ANSWERS, None);
        }
    }

    #[test]
    fn a_client_has_its_share() {
        let mut flows = flows();
        let from =
            |address: &str, port: u16| (SocketAddr::new(address.parse().unwrap(), port), None);
        let mut first = Vec::new();
        for port in 0..MAX_FLOWS_PER_CLIENT as u16 {
            let value = if port == 0 { 20 } else { 1 };
            first.push(flows.open(from("2001:db8::1", port + 1), "a", value, silent).unwrap().0);
        }
        let (next, gone) = flows.open(from("2001:db8::2", 1), "a", 1, silent).unwrap();
        assert_eq!(gone, [20], "its own oldest, as its address may be made up");
        for flow in first.into_iter().chain([next]) {
            flows.answered(flow, ANSWERS, None);
        }
        assert_eq!(flows.open(from("2001:db8::3", 1), "a", 0, silent), Err(Full::Client));
        assert!(flows.open(from("2001:db8:0:1::2", 1), "a", 0, silent).is_ok());
        assert_eq!(flows.len(), MAX_FLOWS_PER_CLIENT + 1);
    }

    #[test]
    fn what_a_flow_remembers_is_bounded() {
        let mut flows = flows();
        let (flow, _) = flows.open(path(1), "a", 1, silent).unwrap();
        for octet in 0..100 {
            flows.begun(flow, id(octet));
            flows.answered(flow, 1, Some(id(octet)));
        }
        let kept = &flows.flows[&flow];
        assert_eq!((kept.begun.len(), kept.learned.len()), (MAX_IDS, MAX_IDS));
        for origin in ["b", "c", "d", "e", "f"] {
            flows.open(path(1), origin, 1, silent).unwrap();
        }
        assert_eq!(flows.len(), MAX_PER_PATH);
    }
}
