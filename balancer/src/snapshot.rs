//! All that decisions are made of, checked and immutable: a change puts another one in its place.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use quicket_steering::{Backend, Configurations, HashKey, Maglev, ServerId};

use crate::config::Config;
use crate::counters::ServerCounters;
use crate::health::{Health, Standing};

/// Numbers of servers, the same for a name as long as the program runs: flows remember them.
#[derive(Debug, Default)]
pub struct Numbers {
    known: HashMap<String, (u32, Arc<ServerCounters>)>,
    next: u32,
}

impl Numbers {
    fn of(&mut self, name: &str) -> (u32, Arc<ServerCounters>) {
        if let Some((number, counters)) = self.known.get(name) {
            return (*number, counters.clone());
        }
        // A number is not given again: a flow may remember who had it.
        let number = self.next;
        self.next += 1;
        let counters = Arc::<ServerCounters>::default();
        self.known.insert(name.to_owned(), (number, counters.clone()));
        (number, counters)
    }
}

/// A server in a snapshot.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it is called.
    pub name: String,
    /// Where encapsulated packets go.
    pub address: SocketAddr,
    /// What becomes of datagrams for it.
    pub standing: Standing,
    /// Its weight in hundredths of those of the file.
    pub weight: u32,
    /// What went to it.
    pub counters: Arc<ServerCounters>,
    pub(crate) number: u32,
}

/// All that decisions are made of.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) reader: Option<Configurations>,
    members: Vec<Member>,
    by_id: HashMap<ServerId, usize>,
    by_number: HashMap<u32, usize>,
    maglev: Option<Maglev>,
    hash_key: HashKey,
    /// Nobody is up as far as is known: all are tried.
    pub(crate) desperate: bool,
    /// MTU of the path to the servers, in bytes.
    pub(crate) mtu: u16,
    /// After how many seconds of silence a flow is forgotten.
    pub(crate) lifetime: u32,
}

impl Snapshot {
    /// Puts together what the file, the connection IDs and reports say. Takes as long as the
    /// consistent hash of all servers: milliseconds for hundreds, a second for ten thousand.
    #[must_use]
    pub fn new(
        config: &Config,
        reader: Option<Configurations>,
        health: &Health,
        numbers: &mut Numbers,
        now: u64,
    ) -> Self {
        let timeout = config.reports.map_or(u32::MAX, |reports| reports.timeout);
        let member = |server: &crate::config::Server| {
            let (standing, weight) = health.of(server, timeout, now);
            let (number, counters) = numbers.of(&server.name);
            let name = server.name.clone();
            Member { name, address: server.address, standing, weight, counters, number }
        };
        let members: Vec<Member> = config.servers.iter().map(member).collect();
        // Names that are gone are forgotten, their numbers are not given again.
        let names: HashSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
        numbers.known.retain(|name, _| names.contains(name.as_str()));
        let ids = config.servers.iter().enumerate();
        let by_id = ids.flat_map(|(at, server)| server.ids.iter().map(move |id| (*id, at)));
        let by_number = members.iter().enumerate().map(|(at, member)| (member.number, at));
        let serving = |member: &Member| member.standing == Standing::Serving;
        let first = table(&members, serving);
        let desperate = first.is_none();
        // Where all are down, reports rather than all of them are wrong.
        let wanted = |member: &Member| {
            let wish = config.servers.iter().find(|server| server.name == member.name);
            wish.is_some_and(|server| server.wish == crate::config::Wish::Serve)
        };
        let maglev = first.or_else(|| table(&members, wanted));
        Self {
            reader,
            by_id: by_id.collect(),
            by_number: by_number.collect(),
            maglev,
            members,
            hash_key: config.hash_key,
            desperate,
            mtu: config.mtu,
            lifetime: config.lifetime,
        }
    }

    /// The servers, in the order of the file.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether all servers are down as far as is known, so that all are tried.
    #[must_use]
    pub const fn is_desperate(&self) -> bool {
        self.desperate
    }

    /// Server IDs, and the servers that they name.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (&ServerId, usize)> {
        self.by_id.iter().map(|(id, at)| (id, *at))
    }

    pub(crate) fn by_id(&self, id: &ServerId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The server with a number, if it still takes flows that it has.
    pub(crate) fn keeper(&self, number: u32) -> Option<usize> {
        let at = *self.by_number.get(&number)?;
        let standing = self.members.get(at)?.standing;
        (standing != Standing::Down).then_some(at)
    }

    /// Whether the server of this number takes new flows.
    pub(crate) fn takes_new(&self, number: u32) -> bool {
        let member = self.by_number.get(&number).and_then(|at| self.members.get(*at));
        member.is_some_and(|member| member.standing == Standing::Serving)
    }

    /// The server that the consistent hash gives a new flow.
    pub(crate) fn pick(&self, flow: &crate::flows::Flow) -> Option<usize> {
        let at = self.maglev.as_ref()?.pick(flow.hash(&self.hash_key));
        (at < self.members.len()).then_some(at)
    }
}

/// The table of those that take new flows.
fn table(members: &[Member], takes: impl Fn(&Member) -> bool) -> Option<Maglev> {
    let backends = members.iter().map(|member| {
        let weight = if takes(member) { member.weight } else { 0 };
        Backend { name: member.name.as_bytes(), weight }
    });
    Maglev::new(&backends.collect::<Vec<_>>()).ok()
}
