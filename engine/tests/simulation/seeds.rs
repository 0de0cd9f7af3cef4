//! Random paths, configurations and workloads, one per seed.
//!
//! `QUICKET_SIM_RUNS` says how many seeds to try, `QUICKET_SIM_FIRST` which is the first;
//! `QUICKET_SIM_SEED` repeats one.

use std::sync::Arc;

use quicket_engine::random::Random;
use quicket_engine::time::Duration;
use quicket_engine::{CongestionAlgorithm, RetryPolicy, TransportConfig};
use quicket_sim::app::{DatagramLoad, Workload};
use quicket_sim::link::LinkSettings;
use quicket_sim::nat::Rebind;
use quicket_sim::network::{HostId, PathId};
use quicket_sim::null_tls::{NullTls, NullTlsOptions};
use quicket_sim::offload::{LateCrypto, LateTls};
use quicket_sim::rng::SimRng;
use quicket_sim::scenario::Scenario;
use quicket_sim::sim::{Failure, Pair, PairOptions, Sim, from_env};
use quicket_sim::test_crypto::TestCrypto;
use quicket_sim::units::{Probability, QueueLength};
use quicket_wire::Version;

use crate::extras::Extras;
use crate::support::ok;

/// Runs unless the environment says otherwise.
const RUNS: u64 = 320;

fn probability(rng: &mut SimRng, most_percent: u64) -> Probability {
    // Half of the paths do without.
    if rng.one_in(2) {
        return Probability::NEVER;
    }
    Probability::ppm(rng.below(most_percent * 10_000) as u32)
}

fn link(rng: &mut SimRng) -> LinkSettings {
    let delay = Duration::from_micros(rng.between(0, 60_000));
    let mut link = LinkSettings {
        delay,
        jitter: if rng.one_in(3) { delay.scale(rng.below(100), 100) } else { Duration::ZERO },
        rate: (!rng.one_in(3)).then(|| rng.between(2_000_000, 80_000_000)),
        queue: Some(QueueLength::Packets(rng.between(12, 300))),
        loss: probability(rng, 8),
        corrupt: probability(rng, 3),
        duplicate: probability(rng, 10),
        mark: probability(rng, 5),
        mtu: (!rng.one_in(3)).then(|| rng.between(1_228, 3_000) as u32),
        ..LinkSettings::default()
    };
    if rng.one_in(3) {
        link.burst_loss = format!("0.{}%,{}%", rng.between(1, 9), rng.between(50, 90)).parse().ok();
    }
    if rng.one_in(3) {
        link.reorder = format!("{}%,{}ms", rng.between(1, 15), rng.between(1, 40)).parse().ok();
    }
    if rng.one_in(6) {
        let text = if rng.one_in(2) { "ecn=bleach" } else { "ecn=mangle" };
        let scenario: Scenario = text.parse().expect("a fixed text");
        link.ecn = scenario.up.ecn;
    }
    link
}

fn scenario(rng: &mut SimRng) -> Scenario {
    let mut scenario = Scenario { up: link(rng), down: link(rng), changes: Vec::new() };
    let extra = match rng.below(8) {
        0 => format!("at {}ms blackhole={}ms", rng.between(50, 900), rng.between(50, 1_500)),
        1 => format!("at {}ms mtu={}", rng.between(100, 1_500), rng.between(1_228, 1_500)),
        2 => format!("at {}ms rate={}mbit", rng.between(100, 1_500), rng.between(1, 20)),
        _ => return scenario,
    };
    let extra: Scenario = extra.parse().expect("a generated text");
    scenario.changes = extra.changes;
    scenario
}

fn transport(rng: &mut SimRng, t: &mut TransportConfig) {
    t.congestion = *rng.pick(&[
        CongestionAlgorithm::NewReno,
        CongestionAlgorithm::Cubic,
        CongestionAlgorithm::Bbr,
    ]);
    t.handshake_timeout = Duration::from_secs(120).into();
    t.max_idle_timeout = Duration::from_secs(120).into();
    t.initial_stream_window = rng.between(2_000, 300_000);
    t.initial_receive_window = rng.between(2_000, 600_000);
    t.max_streams_bidi = rng.between(1, 60);
    t.max_streams_uni = rng.between(1, 60);
    t.stream_send_buffer = rng.between(2_000, 200_000) as usize;
    t.send_fairness = rng.one_in(2);
    t.pacing = !rng.one_in(4);
    t.ecn = !rng.one_in(4);
    t.ack_frequency = rng.one_in(2);
    t.ack_eliciting_threshold = rng.between(1, 10);
    t.max_ack_delay = Duration::from_millis(rng.between(1, 60)).into();
    t.active_connection_id_limit = rng.between(2, 8);
    t.grease = rng.one_in(2);
    t.key_update_after = if rng.one_in(4) { rng.between(30, 500) } else { 1 << 22 };
    t.initial_rtt = Duration::from_millis(*rng.pick(&[50, 100, 333])).into();
    if rng.one_in(6) {
        t.mtu_discovery = None;
    }
}

fn tls(rng: &mut SimRng) -> NullTlsOptions {
    NullTlsOptions {
        client_hello_len: rng.between(200, 1_800) as usize,
        certificate_len: rng.between(300, 7_000) as usize,
        hello_retry: rng.one_in(8),
        tickets: rng.below(4) as usize,
        ..NullTlsOptions::default()
    }
}

fn work(rng: &mut SimRng) -> Workload {
    let size = *rng.pick(&[200, 3_000, 40_000, 150_000]);
    let mut work = Workload {
        requests: rng.between(1, (600_000 / size).min(40)),
        parallel: rng.between(1, 12) as usize,
        request_len: (0, rng.between(0, size)),
        response_len: (0, rng.between(0, size)),
        unidirectional: rng.below(4),
        key_update_every: if rng.one_in(4) { rng.between(1, 5) } else { 0 },
        ..Workload::default()
    };
    if rng.one_in(3) {
        work.reset_one_in = rng.between(2, 6);
        work.stop_one_in = rng.between(2, 6);
    }
    work
}

fn options(rng: &mut SimRng) -> PairOptions {
    let mut options = PairOptions::on(scenario(rng));
    let (client_tls, server_tls) = (tls(rng), tls(rng));
    options.client.tls = Arc::new(NullTls::new(rng.next_u64(), client_tls));
    options.server.tls = Arc::new(NullTls::new(rng.next_u64(), server_tls));
    options = options.client_transport(|t| transport(rng, t));
    options = options.server_transport(|t| transport(rng, t));
    if rng.one_in(4) {
        options.server.retry = RetryPolicy::Always;
    }
    if rng.one_in(6) {
        options.client.version = Version::V2;
    }
    if rng.one_in(6) {
        // The client's first version, for there is no second attempt here.
        options.server_endpoint.versions = vec![options.client.version];
    }
    let late = |rng: &mut SimRng, options: &PairOptions| {
        let every = rng.between(2, 9);
        Arc::new(LateCrypto::new(Arc::new(TestCrypto), every, options.clock.clone()))
    };
    if rng.one_in(6) {
        options.client_crypto = late(rng, &options);
    }
    if rng.one_in(6) {
        options.server_crypto = late(rng, &options);
    }
    if rng.one_in(6) {
        let delay = Duration::from_millis(rng.between(1, 200));
        let tls = options.server.tls.clone();
        options.server.tls = Arc::new(LateTls::new(tls, options.clock.clone(), delay));
    }
    if rng.one_in(3) {
        options.server_work = work(rng);
    }
    options
}

/// Rebinds the client's NAT again and again, once the handshake is confirmed: before that a
/// connection does not survive a move (RFC 9000, Section 9).
fn rebind_at_times(pair: &mut Pair, rebind: Rebind, period: Duration) {
    fn again(sim: &mut Sim, server: HostId, path: PathId, rebind: Rebind, period: Duration) {
        sim.after(period, move |sim| {
            let host = sim.host(server);
            if host.sessions().any(|(_, session)| session.connection.is_confirmed()) {
                sim.network_mut().nat_mut(path).rebind(rebind);
            }
            if sim.now().as_nanos() < 60_000_000_000 {
                again(sim, server, path, rebind, period);
            }
        });
    }
    again(&mut pair.sim, pair.server, pair.path, rebind, period);
}

fn run(seed: u64) -> Result<(), Failure> {
    let base = SimRng::new(seed);
    let mut rng = base.stream("options");
    let mut options = options(&mut rng);
    let mut work = work(&mut rng);
    let rebind = rng.one_in(4).then(|| *rng.pick(&[Rebind::Port, Rebind::Address]));
    let mut extras = Extras::new(base.stream("extras"));
    extras.apply(&mut options, scenario);
    extras.refuse(&mut options);
    if rebind.is_some() || extras.moves() {
        // A client that only listens must say something now and then: when the packet is lost
        // that shows its new address, the server cannot know where it is.
        options = options.client_transport(|t| t.keep_alive = Duration::from_secs(5).into());
    }
    if rng.one_in(4) {
        let interval = Duration::from_millis(rng.between(1, 30));
        work.datagrams =
            Some(DatagramLoad { count: rng.between(1, 60), len: (8, 1_100), interval });
    }
    let work = extras.work(work);
    let mut pair = Pair::new(seed, options);
    if let Some(rebind) = rebind {
        let period = Duration::from_millis(rng.between(400, 3_000));
        rebind_at_times(&mut pair, rebind, period);
    }
    extras.connect(&mut pair, work, || {
        let mut options = self::options(&mut base.stream("options"));
        Extras::new(base.stream("extras")).apply(&mut options, scenario);
        options
    })?;
    extras.migrate(&mut pair);
    pair.run(Duration::from_secs(300))?;
    // Early work may be done before the server knows of it.
    pair.run_to_handshake(Duration::from_secs(120))?;
    if rebind.is_some() || extras.moves() || rng.one_in(2) {
        pair.close()?;
        pair.check_sums()
    } else {
        pair.run_to_end(Duration::from_secs(400))
    }
}

/// What went wrong with a seed: a failure, or a panic, which names no seed by itself.
fn outcome(seed: u64) -> Option<String> {
    match std::panic::catch_unwind(|| run(seed)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(_) => Some(format!("SEED={seed}: panicked, see above")),
    }
}

#[test]
fn every_seed_delivers_everything() {
    let seeds = match from_env("QUICKET_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = from_env("QUICKET_SIM_FIRST").unwrap_or(0);
            first..first + from_env("QUICKET_SIM_RUNS").unwrap_or(RUNS)
        }
    };
    let failures: Vec<(u64, String)> =
        seeds.filter_map(|seed| outcome(seed).map(|what| (seed, what))).collect();
    if let Some((_, first)) = failures.first() {
        let line = |(seed, what): &(u64, String)| {
            format!("{seed}: {}", what.lines().next().unwrap_or_default())
        };
        let all: Vec<String> = failures.iter().map(line).collect();
        panic!("{} seeds failed:\n{}\nThe first:\n{first}", all.len(), all.join("\n"));
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let trace = |seed| {
        let mut rng = SimRng::new(seed).stream("options");
        let options = options(&mut rng);
        let mut pair = Pair::new(seed, options);
        pair.connect(work(&mut rng));
        ok(pair.sim.run_for(Duration::from_millis(500)));
        pair.sim.network().log().tail(usize::MAX)
    };
    let first = trace(11);
    assert!(first.lines().count() > 10);
    assert_eq!(first, trace(11));
    assert_ne!(first, trace(12));
}
