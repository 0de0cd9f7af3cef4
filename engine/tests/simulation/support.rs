//! What several tests need.

use quicket_engine::time::{Duration, Time};
use quicket_engine::{ConnectionError, Event};
use quicket_sim::app::Workload;
use quicket_sim::network::HostId;
use quicket_sim::sim::{Failure, Pair, PairOptions, seed_or};

/// The base of the QUIC interop runner: 15 ms each way, 10 Mbit/s.
pub(crate) const P2P: &str = "simple-p2p";
/// 50 ms each way and nothing else.
pub(crate) const CLEAN: &str = "delay=50ms";
/// The round trip time of [`CLEAN`].
pub(crate) const RTT: Duration = Duration::from_millis(100);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A pair with the options of the test, on the seed of the environment or 1.
pub(crate) fn pair(options: PairOptions) -> Pair {
    Pair::new(seed_or(1), options)
}

/// Unwraps with the whole report.
pub(crate) fn ok<T>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

/// Connects without any work and runs until all connections are gone; returns how they ended at
/// the client and at the server.
pub(crate) fn fate(options: PairOptions) -> (Option<ConnectionError>, Option<ConnectionError>) {
    let mut pair = pair(options);
    pair.connect(Workload::none());
    ok(pair.run_to_end(secs(300)));
    (error_of(&pair, pair.client), error_of(&pair, pair.server))
}

pub(crate) fn error_of(pair: &Pair, host: HostId) -> Option<ConnectionError> {
    pair.sim.host(host).ended().last().and_then(|ended| ended.error.clone())
}

/// Runs until both sides have completed the handshake.
pub(crate) fn establish(pair: &mut Pair) {
    let hosts = [pair.client, pair.server];
    ok(pair.sim.run_until(secs(30), "the handshake", |sim| {
        hosts.iter().all(|host| {
            let mut sessions = sim.host(*host).sessions();
            sessions.next().is_some_and(|(_, session)| {
                session.events.iter().any(|(_, event)| *event == Event::HandshakeConfirmed)
            })
        })
    }));
}

/// When the first event that fits happened.
pub(crate) fn time_of(events: &[(Time, Event)], fits: impl Fn(&Event) -> bool) -> Option<Time> {
    events.iter().find(|(_, event)| fits(event)).map(|(at, _)| *at)
}

/// A session from a first connection, as kept for the next.
pub(crate) fn session(options: PairOptions) -> Vec<u8> {
    let mut pair = pair(options);
    pair.transfer(Workload::requests(1, 1), secs(30));
    let events = &pair.ended(pair.client).events;
    let ticket = events.iter().find_map(|(_, event)| match event {
        Event::SessionTicket(ticket) => Some(ticket.clone()),
        _ => None,
    });
    ticket.expect("the server sent a ticket")
}
