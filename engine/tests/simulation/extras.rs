//! What only some of the random simulations do beside the rest: 0-RTT, migration, preferred
//! addresses, tiny windows, little that is written ahead of the peer, very many streams, silence.

use std::net::SocketAddr;
use std::sync::Arc;

use quicket_engine::time::Duration;
use quicket_engine::{ClientConfig, Event, TransportConfig};
use quicket_sim::app::{WorkApp, Workload};
use quicket_sim::network::HostId;
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_sim::rng::SimRng;
use quicket_sim::scenario::Scenario;
use quicket_sim::sim::{CLIENT, CLIENT_2, Failure, Pair, PairOptions, SERVER_2, Sim};

use crate::support::{CLEAN, secs};

/// What a server makes of 0-RTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resumption {
    Accepted,
    /// The session is resumed, but its early data is refused.
    EarlyRefused,
    /// The ticket is of another key.
    Unknown,
}

/// The extras of one seed, from chances of their own.
pub(crate) struct Extras {
    rng: SimRng,
    resumption: Option<Resumption>,
    migrations: Option<Duration>,
    preferred: bool,
    tiny: bool,
    many: bool,
    pause: Option<Duration>,
    ahead: Option<usize>,
}

impl Extras {
    pub(crate) fn new(mut rng: SimRng) -> Self {
        let resumptions = [Resumption::Accepted, Resumption::EarlyRefused, Resumption::Unknown];
        Self {
            resumption: rng.one_in(4).then(|| *rng.pick(&resumptions)),
            migrations: rng.one_in(5).then(|| Duration::from_millis(rng.between(100, 2_000))),
            preferred: rng.one_in(8),
            tiny: rng.one_in(8),
            many: rng.one_in(12),
            pause: rng.one_in(6).then(|| Duration::from_millis(rng.between(900, 8_000))),
            ahead: rng.one_in(2).then(|| rng.between(0, 20_000) as usize),
            rng,
        }
    }

    /// Changes what the seed has drawn; `path` draws another path.
    pub(crate) fn apply(&mut self, options: &mut PairOptions, path: fn(&mut SimRng) -> Scenario) {
        if self.migrations.is_some() || self.preferred {
            let mut second = path(&mut self.rng);
            second.changes.clear();
            options.second_path = Some(second);
        }
        if self.preferred {
            let SocketAddr::V4(preferred) = SocketAddr::new(SERVER_2, 443) else { unreachable!() };
            options.server.preferred_address_v4 = Some(preferred);
        }
        if self.many {
            let streams = self.rng.between(40, 300);
            Arc::make_mut(&mut options.server.transport).max_streams_bidi = streams;
            Arc::make_mut(&mut options.server.transport).max_streams_uni = streams;
        }
        if let Some(ahead) = self.ahead {
            Arc::make_mut(&mut options.client.transport).send_ahead = ahead;
            Arc::make_mut(&mut options.server.transport).send_ahead = ahead / 2;
        }
        if self.tiny {
            let mut tiny = |t: &mut TransportConfig| {
                t.initial_stream_window = self.rng.between(1, 300);
                t.initial_receive_window = self.rng.between(1, 500);
                t.stream_send_buffer = self.rng.between(1, 300) as usize;
            };
            tiny(Arc::make_mut(&mut options.client.transport));
            tiny(Arc::make_mut(&mut options.server.transport));
            options.server_work = Workload::none();
        }
    }

    /// The work, changed to what a seed of this kind can do in time.
    pub(crate) fn work(&mut self, work: Workload) -> Workload {
        if self.tiny {
            let most = self.rng.between(1, 3_000);
            return Workload {
                requests: self.rng.between(1, 5),
                request_len: (0, most),
                response_len: (0, most),
                ..work
            };
        }
        if self.many {
            return Workload {
                requests: 1_500,
                parallel: self.rng.between(20, 300) as usize,
                request_len: (0, 60),
                response_len: (0, 60),
                ..work
            };
        }
        if let Some(pause) = self.pause {
            return Workload { requests: self.rng.between(2, 10), parallel: 2, pause, ..work };
        }
        work
    }

    /// Connects, with a session of an earlier connection if there is to be one. `same` draws the
    /// seed's options once more.
    pub(crate) fn connect(
        &self,
        pair: &mut Pair,
        work: Workload,
        same: impl FnOnce() -> PairOptions,
    ) -> Result<(), Failure> {
        let session = self.resumption.map(|_| session(same())).transpose()?.flatten();
        if session.is_none() {
            pair.connect(work);
            return Ok(());
        }
        let config = ClientConfig { session, early_data: true, ..pair.config() };
        pair.connect_with(config, Box::new(WorkApp::new(Workload { early: true, ..work })));
        Ok(())
    }

    /// How the server treats the session that the client brings.
    pub(crate) fn refuse(&self, options: &mut PairOptions) {
        match self.resumption {
            Some(Resumption::EarlyRefused) => options.server.early_data = false,
            Some(Resumption::Unknown) => {
                let other = NullTlsOptions { ticket_key: 77, ..NullTlsOptions::default() };
                options.server.tls = Arc::new(NullTls::new(77, other));
            }
            Some(Resumption::Accepted) | None => {}
        }
    }

    /// Moves the client to and fro between its addresses.
    pub(crate) fn migrate(&self, pair: &mut Pair) {
        let Some(period) = self.migrations else { return };
        let to = SocketAddr::new(CLIENT_2, 50_000);
        migrate_again(&mut pair.sim, pair.client, period, to, 8);
    }

    /// True if the client may be where the server cannot know it to be.
    pub(crate) fn moves(&self) -> bool {
        self.migrations.is_some() || self.preferred
    }
}

fn migrate_again(sim: &mut Sim, client: HostId, period: Duration, to: SocketAddr, left: u32) {
    sim.after(period, move |sim| {
        let now = sim.now();
        let handles: Vec<_> = sim.host(client).sessions().map(|(handle, _)| handle).collect();
        for handle in handles {
            if let Some(session) = sim.host_mut(client).session_mut(handle) {
                // Refused before the handshake is confirmed or without a connection ID to use.
                let _ = session.connection.migrate(now, to);
            }
        }
        let other = if to.ip() == CLIENT { CLIENT_2 } else { CLIENT };
        if left > 0 {
            migrate_again(sim, client, period, SocketAddr::new(other, 50_000), left - 1);
        }
    });
}

/// A session of a connection with these options over a path without faults; `None` if the server
/// sends none.
fn session(mut options: PairOptions) -> Result<Option<Vec<u8>>, Failure> {
    options.scenario = CLEAN.parse().expect("a fixed text");
    options.second_path = None;
    options.server_work = Workload::none();
    options.server.preferred_address_v4 = None;
    let mut pair = Pair::new(1, options);
    pair.connect(Workload {
        request_len: (0, 10),
        response_len: (0, 10),
        ..Workload::requests(1, 1)
    });
    pair.run(secs(60))?;
    pair.close()?;
    let events = &pair.ended(pair.client).events;
    Ok(events.iter().find_map(|(_, event)| match event {
        Event::SessionTicket(ticket) => Some(ticket.clone()),
        _ => None,
    }))
}
