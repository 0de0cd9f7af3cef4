//! Which connections over QUIC are passed on: a bounded table, without I/O. A flow is what comes from one address of a client for
//! one origin; several of a client's connections may be in it.
//!
//! Most packets only say a connection ID, and of these the gateway knows three kinds: those that clients made up for their
//! first packets; those of origins' long headers, which nobody can guess; and, where the origin's format is known, those
//! that say so themselves. All others go by the client's address.
//!
//! A flow is doubtful until its client has shown that it gets what the origin sends: its address may be made up.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use quicket_wire::ConnectionId;

/// How many flows there are at most.
pub(crate) const MAX_FLOWS: usize = 16_384;
/// ... of one client's address; an IPv6 network of /64 counts as one.
pub(crate) const MAX_FLOWS_PER_CLIENT: usize = 256;
/// How many connection IDs of each kind a flow remembers, the last ones.
pub(crate) const MAX_IDS: usize = 8;
/// How many origins one address and port of a client may have at a time.
const MAX_PER_PATH: usize = 16;

/// A flow that is silent for so long makes room, too, where there is none, in milliseconds: most connections end sooner
/// (RFC 9000, Section 10.1), and whether one has ended nobody can see.
const SILENCE: u64 = 30_000;

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
    /// This address and port has as many origins as it may have.
    Path,
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Packet<'a> {
    /// A long header with this Destination Connection ID.
    Long(&'a [u8]),
    /// A short header: what follows its first octet begins with the Destination Connection ID.
    Short(&'a [u8]),
}

/// What a flow has with it.
pub(crate) trait Heard: Clone {
    /// When something came last, in milliseconds; it never goes back.
    fn heard(&self) -> u64;
}

/// A flow that a packet names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    pub(crate) value: T,
    /// The flow, if this packet is the first that shows that its client is there.
    pub(crate) proves: Option<FlowId>,
}

/// All flows, each with a value; `K` says which origin it has.
#[derive(Debug)]
pub(crate) struct Flows<K, T> {
    most: usize,
    flows: HashMap<FlowId, Flow<K, T>>,
    /// The one that was used last is at the end.
    by_path: HashMap<Path, Vec<FlowId>>,
    by_client: HashMap<IpAddr, Vec<FlowId>>,
    /// Whose client may be made up, with a time at or before the one when something came last.
    doubtful: BTreeSet<(u64, FlowId)>,
    /// Until then none of those that are there is silent for long enough, unless it is doubtful.
    full_until: u64,
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
    /// Under which time it is among the doubtful ones.
    doubt: Option<u64>,
}

/// Who makes room: doubtful ones first, then by silence.
type Rank = (bool, u64, FlowId);

impl<K: PartialEq, T: Heard> Flows<K, T> {
    /// Room for so many, one at least and [`MAX_FLOWS`] at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.clamp(1, MAX_FLOWS),
            flows: HashMap::new(),
            by_path: HashMap::new(),
            by_client: HashMap::new(),
            doubtful: BTreeSet::new(),
            full_until: 0,
            next: 0,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow that a connection ID names, of those from an address. An ID of the origin's own shows that its client is there.
    pub(crate) fn named(&mut self, path: &Path, packet: Packet<'_>) -> Option<Named<T>> {
        let own = self.by_path.get(path)?;
        let is_said = |id: &ConnectionId| match packet {
            Packet::Long(dcid) => id.as_slice() == dcid,
            Packet::Short(rest) => !id.is_empty() && rest.starts_with(id.as_slice()),
        };
        let (id, is_learned) = own.iter().rev().find_map(|id| {
            let flow = self.flows.get(id)?;
            let is_learned = flow.learned.iter().any(is_said);
            let is_begun = || matches!(packet, Packet::Long(_)) && flow.begun.iter().any(is_said);
            (is_learned || is_begun()).then_some((*id, is_learned))
        })?;
        self.touch(path, id);
        let proves = (is_learned && self.prove(id)).then_some(id);
        Some(Named { value: self.flows.get(&id)?.value.clone(), proves })
    }

    /// The flow to an origin, of those from an address.
    pub(crate) fn to(&self, path: &Path, origin: &K) -> Option<(FlowId, T)> {
        let own = self.by_path.get(path)?;
        own.iter().find_map(|id| {
            let flow = self.flows.get(id).filter(|flow| flow.origin == *origin)?;
            Some((*id, flow.value.clone()))
        })
    }

    /// The flow from an address that was used last, one whose client is there if there is any.
    pub(crate) fn last(&self, path: &Path) -> Option<T> {
        let own = self.by_path.get(path)?;
        let mut flows = own.iter().rev().filter_map(|id| self.flows.get(id));
        let proven = flows.clone().find(|flow| flow.doubt.is_none());
        Some(proven.or_else(|| flows.next())?.value.clone())
    }

    /// Which flow makes room for one more from an address; none if there is room.
    pub(crate) fn room(&mut self, path: &Path, now: u64) -> Result<Option<FlowId>, Full> {
        let crowded = self.by_path.get(path).filter(|own| own.len() >= MAX_PER_PATH);
        if let Some(own) = crowded {
            return self.first(own.iter(), now).map(Some).map_err(|_| Full::Path);
        }
        let crowded = self.by_client.get(&network(path.0.ip()));
        if let Some(own) = crowded.filter(|own| own.len() >= MAX_FLOWS_PER_CLIENT) {
            return self.first(own.iter(), now).map(Some).map_err(|_| Full::Client);
        }
        if self.flows.len() < self.most {
            return Ok(None);
        }
        if let Some(id) = self.quietest_doubtful() {
            return Ok(Some(id));
        }
        if now < self.full_until {
            return Err(Full::All);
        }
        let first = self.first(self.flows.keys(), now);
        first.map(Some).map_err(|until| {
            self.full_until = until;
            Full::All
        })
    }

    /// Begins a flow. Returns its number, and the one that had to make room.
    pub(crate) fn open(
        &mut self,
        path: Path,
        origin: K,
        value: T,
        now: u64,
    ) -> Result<(FlowId, Option<T>), Full> {
        let room = self.room(&path, now)?;
        let gone = room.and_then(|id| self.remove(id));
        let id = FlowId(self.next);
        self.next += 1;
        let (begun, learned) = (VecDeque::new(), VecDeque::new());
        self.flows.insert(id, Flow { path, origin, value, begun, learned, doubt: Some(now) });
        self.by_path.entry(path).or_default().push(id);
        self.by_client.entry(network(path.0.ip())).or_default().push(id);
        self.doubtful.insert((now, id));
        Ok((id, gone))
    }

    /// Which of some flows makes room; else until when none does.
    fn first<'a>(&self, ids: impl Iterator<Item = &'a FlowId>, now: u64) -> Result<FlowId, u64> {
        let rank = |id: &FlowId| -> Option<Rank> {
            let flow = self.flows.get(id)?;
            Some((flow.doubt.is_none(), flow.value.heard(), *id))
        };
        let (is_proven, heard, id) = ids.filter_map(rank).min().ok_or(now)?;
        let until = heard.saturating_add(SILENCE);
        if is_proven && now < until { Err(until) } else { Ok(id) }
    }

    /// The doubtful flow that is silent for longest. Times are put right only where that matters: so each packet costs little, and
    /// each flow is moved once for packets that have come.
    fn quietest_doubtful(&mut self) -> Option<FlowId> {
        for _ in 0..=self.doubtful.len() {
            let (noted, id) = *self.doubtful.first()?;
            let flow = self.flows.get_mut(&id)?;
            let heard = flow.value.heard();
            if heard <= noted {
                break;
            }
            flow.doubt = Some(heard);
            self.doubtful.pop_first();
            self.doubtful.insert((heard, id));
        }
        self.doubtful.first().map(|(_, id)| *id)
    }

    /// A client has begun a connection in this flow.
    pub(crate) fn begun(&mut self, id: FlowId, dcid: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        remember(&mut flow.begun, dcid);
        let path = flow.path;
        self.touch(&path, id);
    }

    /// The origin has sent a long header with this Source Connection ID.
    pub(crate) fn answered(&mut self, id: FlowId, scid: ConnectionId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        // Nothing is proven by what the client has chosen itself.
        if !scid.is_empty() && !flow.begun.contains(&scid) {
            remember(&mut flow.learned, scid);
        }
    }

    /// A flow's client is there. True if that was not known.
    pub(crate) fn prove(&mut self, id: FlowId) -> bool {
        let noted = self.flows.get_mut(&id).and_then(|flow| flow.doubt.take());
        noted.is_some_and(|noted| self.doubtful.remove(&(noted, id)))
    }

    /// Ends a flow.
    pub(crate) fn remove(&mut self, id: FlowId) -> Option<T> {
        let flow = self.flows.remove(&id)?;
        if let Some(noted) = flow.doubt {
            self.doubtful.remove(&(noted, id));
        }
        take(&mut self.by_path, &flow.path, id);
        take(&mut self.by_client, &network(flow.path.0.ip()), id);
        Some(flow.value)
    }

    /// A flow is used.
    fn touch(&mut self, path: &Path, id: FlowId) {
        let Some(own) = self.by_path.get_mut(path) else { return };
        if let Some(at) = own.iter().position(|other| *other == id) {
            own[at..].rotate_left(1);
        }
    }
}

/// Takes a flow out of a list, and the list away with the last one.
fn take<Q: std::hash::Hash + Eq>(lists: &mut HashMap<Q, Vec<FlowId>>, of: &Q, id: FlowId) {
    if let Some(own) = lists.get_mut(of) {
        own.retain(|other| *other != id);
        if own.is_empty() {
            lists.remove(of);
        }
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
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// When something came last.
    type Value = Rc<(u32, Cell<u64>)>;

    impl Heard for Value {
        fn heard(&self) -> u64 {
            self.1.get()
        }
    }

    fn path(client: u16) -> Path {
        let [high, low] = client.to_be_bytes();
        (SocketAddr::from(([10, 0, high, low], 9)), "192.0.2.1:443".parse().ok())
    }

    fn id(octet: u8) -> ConnectionId {
        ConnectionId::new(&[octet; 8]).unwrap()
    }

    /// A value with a name.
    fn value(name: u32, heard: u64) -> Value {
        Rc::new((name, Cell::new(heard)))
    }

    fn flows() -> Flows<&'static str, Value> {
        Flows::new(MAX_FLOWS)
    }

    /// The name of the one that a packet is of, and whether it proves its client.
    fn named(
        flows: &mut Flows<&'static str, Value>,
        client: u16,
        packet: Packet<'_>,
    ) -> Option<(u32, bool)> {
        let named = flows.named(&path(client), packet)?;
        Some((named.value.0, named.proves.is_some()))
    }

    #[test]
    fn a_flow_is_found_by_the_connection_ids_that_are_known() {
        let mut flows = flows();
        let (one, _) = flows.open(path(1), "a", value(1, 0), 0).unwrap();
        let (two, _) = flows.open(path(1), "b", value(2, 0), 0).unwrap();
        flows.begun(one, id(1));
        flows.begun(two, id(2));
        assert_eq!(named(&mut flows, 1, Packet::Long(&[1; 8])), Some((1, false)));
        assert_eq!(named(&mut flows, 1, Packet::Long(&[2; 8])), Some((2, false)));
        assert_eq!(named(&mut flows, 2, Packet::Long(&[1; 8])), None, "it is another client's");
        assert_eq!(named(&mut flows, 1, Packet::Short(&[1; 20])), None, "no server has chosen it");
        flows.answered(one, id(7));
        assert_eq!(named(&mut flows, 1, Packet::Short(&[7; 20])), Some((1, true)));
        assert_eq!(named(&mut flows, 1, Packet::Long(&[7; 8])), Some((1, false)), "that is known");
        assert_eq!(flows.to(&path(1), &"a").unwrap().0, one);
        assert_eq!(flows.remove(one).unwrap().0, 1);
        assert_eq!(flows.to(&path(1), &"a"), None);
        assert_eq!(flows.remove(two).unwrap().0, 2);
        assert_eq!((flows.len(), flows.by_path.len(), flows.by_client.len()), (0, 0, 0));
        assert!(flows.doubtful.is_empty());
    }

    #[test]
    fn what_nobody_names_is_of_the_flow_that_was_used_last() {
        let mut flows = flows();
        let (one, _) = flows.open(path(1), "a", value(1, 0), 0).unwrap();
        let (two, _) = flows.open(path(1), "b", value(2, 0), 0).unwrap();
        let last = |flows: &Flows<_, Value>| flows.last(&path(1)).unwrap().0;
        assert_eq!(last(&flows), 2);
        flows.begun(one, id(1));
        assert_eq!(last(&flows), 1);
        flows.begun(two, id(2));
        assert_eq!(last(&flows), 2);
        flows.prove(one);
        assert_eq!(last(&flows), 1, "its client is there");
        flows.prove(two);
        assert_eq!(last(&flows), 2);
        flows.answered(one, id(7));
        named(&mut flows, 1, Packet::Short(&[7; 20]));
        assert_eq!(last(&flows), 1);
    }

    #[test]
    fn a_client_proves_nothing_by_what_it_has_chosen_itself() {
        let mut flows = flows();
        let (flow, _) = flows.open(path(1), "a", value(1, 0), 0).unwrap();
        flows.begun(flow, id(1));
        // As Version Negotiation repeats it (RFC 8999, Section 6).
        flows.answered(flow, id(1));
        assert_eq!(named(&mut flows, 1, Packet::Long(&[1; 8])), Some((1, false)));
        assert_eq!(named(&mut flows, 1, Packet::Short(&[1; 20])), None);
    }

    #[test]
    fn clients_that_may_be_made_up_make_room_for_others() {
        let mut flows = flows();
        let (first, _) = flows.open(path(0), "a", value(0, 0), 0).unwrap();
        flows.begun(first, id(1));
        flows.answered(first, id(9));
        // It has seen what the origin sent.
        assert_eq!(named(&mut flows, 0, Packet::Long(&[9; 8])), Some((0, true)));
        let second = value(1, 1);
        flows.open(path(1), "a", Rc::clone(&second), 1).unwrap();
        for client in 2..MAX_FLOWS as u32 {
            flows.open(path(client as u16), "a", value(client, 2), 2).unwrap();
        }
        // It is the oldest, and goes on.
        second.1.set(3);
        let (_, gone) = flows.open(path(20_000), "a", value(20_000, 4), 4).unwrap();
        assert_eq!(gone.unwrap().0, 2, "silent for longest of those that nobody has proven");
        assert_eq!(flows.len(), MAX_FLOWS);
        for client in 3..MAX_FLOWS as u32 {
            let (_, gone) =
                flows.open(path(20_000 + client as u16), "a", value(client, 5), 5).unwrap();
            assert_eq!(gone.unwrap().0, client);
        }
        let (_, gone) = flows.open(path(50_000), "a", value(0, 5), 5).unwrap();
        assert_eq!(gone.unwrap().0, 1);
    }

    #[test]
    fn where_all_are_there_only_silence_makes_room() {
        const MOST: u16 = 100;
        let mut flows = Flows::new(MOST.into());
        for client in 0..MOST {
            let one = value(client.into(), u64::from(client) + 1);
            let (flow, _) = flows.open(path(client), "a", one, 1).unwrap();
            flows.prove(flow);
        }
        assert_eq!(flows.open(path(20_000), "a", value(0, 0), SILENCE), Err(Full::All));
        assert_eq!(flows.room(&path(20_000), SILENCE), Err(Full::All));
        for client in 0..3 {
            let now = SILENCE + client + 1;
            let (next, gone) = flows.open(path(20_000), "a", value(0, now), now).unwrap();
            assert_eq!(u64::from(gone.unwrap().0), client, "it is silent for long");
            flows.prove(next);
            assert_eq!(flows.room(&path(20_001), now), Err(Full::All));
        }
        assert_eq!(flows.len(), usize::from(MOST));
    }

    #[test]
    fn a_client_has_its_share() {
        let mut flows = flows();
        let from =
            |address: &str, port: u16| (SocketAddr::new(address.parse().unwrap(), port), None);
        let mut first = Vec::new();
        for port in 0..MAX_FLOWS_PER_CLIENT as u16 {
            let one = value(port.into(), if port == 20 { 1 } else { 2 });
            first.push(flows.open(from("2001:db8::1", port + 1), "a", one, 1).unwrap().0);
        }
        let (next, gone) = flows.open(from("2001:db8::2", 1), "a", value(0, 2), 2).unwrap();
        assert_eq!(gone.unwrap().0, 20, "its own quietest, as its address may be made up");
        for flow in first.into_iter().chain([next]) {
            flows.prove(flow);
        }
        assert_eq!(flows.room(&from("2001:db8::3", 1), 2), Err(Full::Client));
        assert_eq!(flows.room(&from("2001:db8:0:1::2", 1), 2), Ok(None));
        flows.open(from("2001:db8:0:1::2", 1), "a", value(0, 2), 2).unwrap();
        assert_eq!(flows.len(), MAX_FLOWS_PER_CLIENT + 1);
    }

    #[test]
    fn what_a_flow_remembers_is_bounded() {
        let mut flows = flows();
        let (flow, _) = flows.open(path(1), "a", value(1, 0), 0).unwrap();
        for octet in 0..100 {
            flows.begun(flow, id(octet));
            flows.answered(flow, id(octet + 100));
        }
        let kept = &flows.flows[&flow];
        assert_eq!((kept.begun.len(), kept.learned.len()), (MAX_IDS, MAX_IDS));
    }

    #[test]
    fn one_more_origin_of_an_address_ends_none_that_is_used() {
        const ORIGINS: [&str; MAX_PER_PATH] =
            ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
        let mut flows = flows();
        for (n, origin) in (0..).zip(ORIGINS) {
            let (flow, gone) = flows.open(path(1), origin, value(n, 9), 9).unwrap();
            assert_eq!(gone, None);
            if n != 5 {
                flows.prove(flow);
            }
        }
        let (next, gone) = flows.open(path(1), "q", value(20, 10), 10).unwrap();
        assert_eq!(gone.unwrap().0, 5, "its client may be made up");
        flows.prove(next);
        assert_eq!(flows.open(path(1), "r", value(21, 10), 10), Err(Full::Path));
        flows.open(path(2), "r", value(21, 10), 10).unwrap();
        let (_, gone) = flows.open(path(1), "r", value(21, 0), 9 + SILENCE).unwrap();
        assert_eq!(gone.unwrap().0, 0, "it is silent for long");
    }
}
