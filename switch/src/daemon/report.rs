//! What the switch tells of itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::address::{Address, Counters};
use super::door::Doors;
use super::group::Steering;
use super::lifetime::Lifetime;
use super::loan::Lending;
use super::program::refused;
use super::programs::Programs;
use super::users::Users;
use super::{Daemon, MAX_QUEUED};
use crate::ledger::LedgerReader;
use crate::protocol::{Message, Notice, Refusal, Reply, Secrets};
use crate::registry::{AddressId, Attention, ListenerStatus, Phase, Place, ProcessId, Registry};
use crate::router::{DropReason, Router};

/// The length of a part of a report, in bytes; as text in a message it may be twice as long.
const PART: usize = 32 << 10;
/// Server names of a program that a report has.
const SHOWN_NAMES: usize = 32;

/// What a report is made of.
struct Report<'a> {
    registry: &'a Registry,
    addresses: &'a BTreeMap<AddressId, Address>,
    programs: &'a Programs,
    router: &'a Router,
    users: &'a Users,
    lifetime: &'a Lifetime,
    doors: &'a Doors,
}

/// The numbers of the keys in use: 0 for random ones. Nothing of the keys.
fn secrets(secrets: &Secrets) -> Value {
    let numbers: Vec<_> = secrets.keys.iter().map(|keys| keys.number).collect();
    json!({ "current": numbers.first(), "accepted": numbers, "server_id": secrets.server_id })
}

impl Daemon {
    /// Somebody wants a report: programs are asked first what only they know.
    pub(super) fn ask_for_status(&mut self, process: ProcessId, number: u32) {
        if self.counting.is_under_way() {
            if let Err(reply) = self.counting.join(process, number) {
                self.tell(process, &Message::Answer { number, reply });
            }
            return;
        }
        let listeners = self.programs.listeners();
        let waits_for: BTreeSet<_> = listeners.map(|(_, process)| process).collect();
        self.counting.begin((process, number), waits_for.clone());
        for program in waits_for {
            self.tell(program, &Message::Notice(Notice::Count));
        }
        self.end_counting();
    }

    /// A program says how many connections it has.
    pub(super) fn on_connections(&mut self, process: ProcessId, count: Option<u64>) {
        if let Some(listener) = self.programs.seat(process).map(|seat| seat.listener) {
            self.registry.set_connections(listener, count);
        }
        self.count_no_more(process);
    }

    /// A program is not waited for any more.
    pub(super) fn count_no_more(&mut self, process: ProcessId) {
        self.counting.count_no_more(process);
        self.end_counting();
    }

    /// Answers those who asked, once all have counted, or time is up.
    pub(super) fn end_counting(&mut self) {
        let mut reports: BTreeMap<Option<u32>, String> = BTreeMap::new();
        for (process, number) in self.counting.take_over() {
            let Some(uid) = self.programs.uid(process) else { continue };
            let only = Some(uid).filter(|uid| self.users.is_tenant(*uid) && *uid != 0);
            let report = reports.entry(only).or_insert_with(|| self.report().of(only).to_string());
            let report = report.clone();
            self.tell_report(process, number, &report);
        }
    }

    fn tell_report(&mut self, process: ProcessId, number: u32, report: &str) {
        if report.len() / PART >= MAX_QUEUED {
            let reply = refused(Refusal::Full, "the report is longer than reports are");
            return self.tell(process, &Message::Answer { number, reply });
        }
        let mut rest = report;
        loop {
            let (part, more) = rest.split_at(floor_char_boundary(rest, PART));
            let reply = Reply::Status { text: part.to_owned(), last: more.is_empty() };
            self.tell(process, &Message::Answer { number, reply });
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    const fn report(&self) -> Report<'_> {
        Report {
            registry: &self.registry,
            addresses: &self.addresses,
            programs: &self.programs,
            router: &self.traffic.router,
            users: &self.users,
            lifetime: &self.lifetime,
            doors: &self.doors,
        }
    }
}

impl Report<'_> {
    /// All that there is, as JSON; for a user who is not to know of others, what his programs have.
    fn of(&self, only: Option<u32>) -> Value {
        let status = self.registry.status_of(only, SHOWN_NAMES);
        if only.is_some() {
            let addresses = status.addresses.iter().filter_map(|each| {
                let own: Vec<_> = each.listeners.iter().map(|each| self.program(each)).collect();
                let address = each.address.to_string();
                (!own.is_empty()).then(|| json!({ "address": address, "programs": own }))
            });
            return json!({
                "pid": std::process::id(),
                "uid": self.users.own(),
                "uptime_seconds": self.lifetime.seconds(),
                "addresses": addresses.collect::<Vec<_>>(),
            });
        }
        let addresses = status.addresses.iter().map(|each| {
            let id = self.registry.address_id(&each.address);
            let address = id.and_then(|id| self.addresses.get(&id));
            let own = address.map(|address| address.counters).unwrap_or_default();
            let routed = id.and_then(|id| self.router.counters(id)).unwrap_or_default();
            json!({
                "address": each.address.to_string(),
                "programs": each.listeners.iter().map(|each| self.program(each)).collect::<Vec<_>>(),
                "generations_known_dead": each.dead,
                "kernel": address.map(|address| kernel(&address.steering, self.doors.are_kept_shut())),
                "loan": address.map(|address| loan(&address.lending)),
                "secrets": address.map(|address| secrets(&address.secrets)),
                "datagrams": datagrams(own, &routed),
                "dropped": dropped(&routed),
            })
        });
        json!({
            "pid": std::process::id(),
            "uid": self.users.own(),
            "system": self.users.tenants().is_some(),
            "uptime_seconds": self.lifetime.seconds(),
            "pins": self.router.pins.len(),
            "half_read_first_packets": self.router.first_packets().len(),
            "addresses": addresses.collect::<Vec<_>>(),
        })
    }

    fn program(&self, listener: &ListenerStatus) -> Value {
        let program = self.programs.get(listener.process);
        let pid = program.map(|program| program.pid);
        let ledger = program.and_then(|program| program.seat.as_ref()?.ledger.as_ref());
        let by_kernel = ledger.map_or(0, LedgerReader::count);
        let state = match listener.phase {
            Phase::Joined => "joined",
            Phase::Preparing => "preparing",
            Phase::Active if listener.attention == Attention::Away => "waiting",
            Phase::Active => "serving",
            Phase::Draining { .. } => "draining",
        };
        let left = match listener.phase {
            Phase::Draining { deadline } => deadline,
            _ => None,
        };
        let left =
            left.map(|deadline| deadline.since(self.lifetime.now()).as_nanos() / 1_000_000_000);
        json!({
            "program": listener.program,
            "pid": pid,
            "uid": listener.uid,
            "generation": listener.generation,
            "state": state,
            "attention": match listener.attention {
                Attention::Accepting => "accepting",
                Attention::Busy => "busy",
                Attention::Away => "away",
            },
            "workers": listener.workers,
            "protocols": listener.protocols,
            "connections": listener.counters.connections,
            "drain_seconds_left": left,
            "server_names": listener.servers,
            "more_server_names": listener.more_servers,
            "first_packets": listener.counters.first_packets,
            "first_packets_by_kernel": by_kernel,
            "datagrams": listener.counters.datagrams,
            "lost": listener.counters.lost,
        })
    }
}

/// [`str::floor_char_boundary`], which is younger than the Rust that is asked for.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// To whom an address's socket is lent, and how often it was to anybody.
fn loan(lending: &Lending) -> Value {
    let to = lending.to().map(|Place { listener, worker }| {
        json!({ "generation": listener.generation(), "worker": worker })
    });
    json!({ "to": to, "count": lending.count })
}

/// What the kernel does at an address.
fn kernel(steering: &Steering, forwards: bool) -> Value {
    let off = if forwards { Some("the switch was told to forward everything") } else { None };
    json!({
        "helps": steering.is_on(),
        "brings_first_packets": steering.door().is_some(),
        "owners": steering.owners,
        "sockets": steering.sockets(),
        "trouble": off.or(steering.trouble.as_deref()),
    })
}

/// What became of datagrams that were not dropped.
fn datagrams(own: Counters, routed: &crate::router::Counters) -> Value {
    json!({
        "received": own.received,
        "forwarded": own.forwarded,
        "lost": own.lost,
        "handed_back": own.handed_back,
        "sent_for_programs": own.sent,
        "not_sent": own.not_sent,
        "by_owner": routed.by_owner,
        "by_pin": routed.by_pin,
        "remainder": routed.remainder,
        "ahead_of_first_packets": routed.ahead,
        "first_packets": routed.first_packets,
        "held": routed.held,
        "waited": routed.waited,
        "stateless_resets": routed.resets,
        "version_negotiations": routed.version_negotiations,
        "refusals": routed.refusals,
    })
}

/// How many were dropped for which reason.
fn dropped(routed: &crate::router::Counters) -> Value {
    let reasons = DropReason::ALL.into_iter();
    let counted = reasons.map(|why| (why.name().to_owned(), routed.dropped(why).into()));
    Value::Object(counted.collect::<Map<_, _>>())
}
