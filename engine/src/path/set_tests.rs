use alloc::string::ToString;

use super::*;
use crate::cid::test_support::TestRandom;
use crate::config::MAX_UDP_PAYLOAD;
use crate::congestion::{CongestionAlgorithm, CongestionParameters};

const MS: Duration = Duration::from_millis(1);
const PTO: Duration = Duration::from_millis(100);
const START: Time = Time::from_nanos(9_000_000_000);

const SETTINGS: PathSettings = PathSettings {
    ecn: true,
    congestion: Congestion {
        algorithm: CongestionAlgorithm::NewReno,
        parameters: CongestionParameters::DEFAULT,
    },
    pacing: true,
    initial_rtt: Duration::from_millis(333),
    spin_bit: true,
    mtu: MtuSettings {
        initial: 1200,
        upper_bound: 1452,
        peer_limit: MAX_UDP_PAYLOAD,
        interval: Duration::from_secs(600),
    },
    peer_may_migrate: true,
};

const HOME: &str = "192.0.2.1:1000";
const NEW_PORT: &str = "192.0.2.1:2000";
const AWAY: &str = "198.51.100.7:1000";
const ELSEWHERE: &str = "203.0.113.9:1000";

/// A path from the server's usual address to a client at `remote`, or the other way round.
fn to(remote: &str) -> FourTuple {
    FourTuple { local: "192.0.2.254:443".parse().unwrap(), remote: remote.parse().unwrap() }
}

fn from(local: &str) -> FourTuple {
    let there = to(local);
    FourTuple { local: there.remote, remote: there.local }
}

struct Host {
    paths: Paths,
    random: TestRandom,
    now: Time,
}

impl Host {
    fn new(side: Side, tuple: FourTuple, settings: PathSettings) -> Self {
        let mut random = TestRandom::new(11);
        let paths = Paths::new(side, START, tuple, settings, &mut random);
        Self { paths, random, now: START }
    }

    /// A server after the handshake with a client at [`HOME`].
    fn server() -> Self {
        let mut host = Self::new(Side::Server, to(HOME), SETTINGS);
        host.paths.active_mut().set_validated();
        host.paths.set_handshake_confirmed();
        host
    }

    /// A client at [`HOME`] after the handshake.
    fn client() -> Self {
        let mut host = Self::new(Side::Client, from(HOME), SETTINGS);
        host.paths.set_handshake_confirmed();
        host
    }

    fn context(&self) -> PacketContext {
        PacketContext { now: self.now, is_probing: false, is_largest: true, local_cid: 0, pto: PTO }
    }

    /// A datagram of 1200 bytes arrives with an authenticated packet in it.
    fn arrives(&mut self, tuple: FourTuple, context: PacketContext) -> Option<PathEvent> {
        let key = match self.paths.on_datagram(&tuple, 1200) {
            Some(key) => key,
            None => self.paths.admit(tuple, 1200, &context, &mut self.random)?,
        };
        Some(self.paths.on_packet(key, &context))
    }

    /// The newest packet arrives, with more than probes in it.
    fn data_from(&mut self, remote: &str) -> Option<PathEvent> {
        self.arrives(to(remote), self.context())
    }

    fn probe_from(&mut self, remote: &str, local_cid: u64) -> Option<PathEvent> {
        let context = PacketContext { is_probing: true, local_cid, ..self.context() };
        self.arrives(to(remote), context)
    }

    fn key_of(&self, tuple: FourTuple) -> PathKey {
        self.paths.iter().find(|p| p.tuple() == tuple).expect("the path is there").key()
    }

    /// Sends the challenge that is due on the path and returns its data.
    fn challenge(&mut self, tuple: FourTuple) -> [u8; 8] {
        let (now, key) = (self.now, self.key_of(tuple));
        let path = self.paths.get_mut(key).unwrap();
        assert!(path.validation.is_challenge_due(now), "a challenge is due");
        path.validation.challenge(now, true, &mut self.random)
    }

    fn validate(&mut self, tuple: FourTuple) -> PathEvent {
        let data = self.challenge(tuple);
        self.now += MS.times(20);
        self.paths.on_path_response(self.now, data, PTO)
    }

    fn time_passes(&mut self, duration: Duration) -> PathEvent {
        self.now += duration;
        self.paths.on_timeout(self.now, PTO)
    }

    fn active(&self) -> FourTuple {
        self.paths.active().tuple()
    }

    fn removed(&mut self) -> usize {
        core::iter::from_fn(|| self.paths.take_removed()).count()
    }
}

fn migrated(event: Option<PathEvent>) -> PathChange {
    match event {
        Some(PathEvent::Migrated(change)) => change,
        other => panic!("expected a migration: {other:?}"),
    }
}

/// RFC 9000, Section 8.1.
#[test]
fn a_server_is_limited_until_its_client_is_validated_and_a_client_is_not() {
    let mut server = Host::new(Side::Server, to(HOME), SETTINGS);
    server.paths.on_datagram(&to(HOME), 1200);
    assert_eq!(server.paths.active().amplification.budget(), 3600);
    assert!(!server.paths.active().is_validated());
    server.paths.active_mut().set_validated();
    assert_eq!(server.paths.active().amplification.budget(), u64::MAX);
    let client = Host::client();
    assert!(client.paths.active().is_validated());
    assert_eq!(client.paths.active().amplification.budget(), u64::MAX);
}

/// RFC 9000, Section 9.3: only the newest packet that carries more than probes moves the peer.
#[test]
fn probes_and_reordered_packets_do_not_move_the_peer() {
    let mut server = Host::server();
    assert_eq!(server.probe_from(AWAY, 1), Some(PathEvent::None));
    let late = PacketContext { is_largest: false, ..server.context() };
    assert_eq!(server.arrives(to(AWAY), late), Some(PathEvent::None));
    assert_eq!(server.active(), to(HOME));
    let change = migrated(server.data_from(AWAY));
    assert_eq!(server.active(), to(AWAY));
    assert_eq!((change.from, change.to), (server.key_of(to(HOME)), server.key_of(to(AWAY))));
}

/// RFC 9000, Sections 9.3, 9.3.1 and 8.2.3.
#[test]
fn a_new_address_is_limited_until_it_answers() {
    let mut server = Host::server();
    let change = migrated(server.data_from(AWAY));
    assert_eq!(server.paths.active().amplification.budget(), 3600);
    assert!(!server.paths.active().is_validated());
    assert_eq!(server.validate(to(AWAY)), PathEvent::Validated(change.to));
    assert_eq!(server.paths.active().amplification.budget(), u64::MAX);
}

/// RFC 9000, Section 9.3.3: MUST validate the previously active path.
#[test]
fn the_old_path_is_challenged_when_the_peer_moves() {
    let mut server = Host::server();
    migrated(server.data_from(AWAY));
    server.challenge(to(HOME));
}

#[test]
fn the_old_path_lingers_for_late_packets_and_then_goes() {
    let mut server = Host::server();
    migrated(server.data_from(AWAY));
    server.validate(to(AWAY));
    let late = PacketContext { is_largest: false, ..server.context() };
    assert_eq!(server.arrives(to(HOME), late), Some(PathEvent::None));
    assert_eq!(server.time_passes(PTO.times(2)), PathEvent::None);
    assert_eq!(server.paths.iter().count(), 2);
    assert_eq!(server.time_passes(PTO), PathEvent::None);
    assert_eq!((server.paths.iter().count(), server.removed()), (1, 1));
    assert_eq!(server.paths.timeout(), None);
}

/// RFC 9000, Section 9.3.2.
#[test]
fn a_move_to_an_address_that_never_answers_is_undone() {
    let mut server = Host::server();
    let change = migrated(server.data_from(AWAY));
    server.validate(to(HOME));
    match server.time_passes(PTO.times(3)) {
        PathEvent::FellBack(back) => assert_eq!((back.from, back.to), (change.to, change.from)),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.active(), to(HOME));
    assert!(server.paths.active().is_validated());
    assert_eq!(server.paths.active().amplification.budget(), u64::MAX);
    assert_eq!((server.paths.iter().count(), server.removed()), (1, 1));
    assert_eq!(server.time_passes(PTO), PathEvent::None);
}

/// An outage that outlasts the validation of both must not end the connection.
#[test]
fn the_last_validated_path_is_kept_to_return_to_even_if_it_is_silent_too() {
    let mut server = Host::server();
    migrated(server.data_from(AWAY));
    assert!(matches!(server.time_passes(PTO.times(3)), PathEvent::FellBack(_)));
    assert_eq!(server.active(), to(HOME));
    assert_eq!(server.time_passes(PTO), PathEvent::None);
}

/// RFC 9000, Section 9.3.2: "the last validated peer address" across several moves.
#[test]
fn after_several_moves_the_last_validated_address_is_returned_to() {
    let mut server = Host::server();
    migrated(server.data_from(AWAY));
    server.validate(to(AWAY));
    migrated(server.data_from(ELSEWHERE));
    migrated(server.data_from(NEW_PORT));
    let event = (0..5).map(|_| server.time_passes(PTO.times(3))).find(|e| *e != PathEvent::None);
    assert!(matches!(event, Some(PathEvent::FellBack(_))), "{event:?}");
    assert_eq!(server.active(), to(AWAY));
}

/// RFC 9000, Section 9.3.2: nothing to return to.
#[test]
fn without_any_validated_path_the_connection_is_over() {
    let mut server = Host::new(Side::Server, to(HOME), SETTINGS);
    server.paths.set_handshake_confirmed();
    migrated(server.data_from(AWAY));
    server.paths.remove(server.key_of(to(HOME)));
    assert_eq!(server.time_passes(PTO.times(3)), PathEvent::NoViablePath);
}

/// RFC 9000, Section 9.3.2: the address that was left before it was validated, and that answers.
#[test]
fn an_address_that_is_validated_after_it_was_left_is_returned_to() {
    let mut server = Host::new(Side::Server, to(HOME), SETTINGS);
    server.paths.set_handshake_confirmed();
    migrated(server.data_from(AWAY));
    let validated = server.validate(to(HOME));
    assert!(matches!(validated, PathEvent::Validated(_)), "{validated:?}");
    let event = server.time_passes(PTO.times(3));
    assert!(matches!(event, PathEvent::FellBack(_)), "{event:?}");
    assert_eq!(server.active(), to(HOME));
}

#[test]
fn a_peer_that_returns_to_a_validated_address_goes_on_at_once() {
    let mut server = Host::server();
    migrated(server.data_from(AWAY));
    migrated(server.data_from(HOME));
    assert_eq!(server.active(), to(HOME));
    assert_eq!(server.paths.active().amplification.budget(), u64::MAX);
    assert_eq!(server.time_passes(PTO.times(3)), PathEvent::None, "the other one just goes");
    assert_eq!(server.active(), to(HOME));
    assert_eq!(server.paths.iter().count(), 1);
}

/// RFC 9000, Section 9.4.
#[test]
fn state_is_kept_when_only_the_port_changed_and_reset_otherwise() {
    let mut server = Host::server();
    let sample = MS.times(20);
    server.paths.active_mut().rtt.update(START, sample, Duration::ZERO, None);
    let first = server.paths.active().key();
    let change = migrated(server.data_from(NEW_PORT));
    assert!(change.kept_state);
    assert_eq!((change.to, server.active()), (first, to(NEW_PORT)), "the key goes along");
    assert_ne!(change.from, first);
    assert_eq!(server.paths.active().rtt.latest(), sample);
    assert!(!server.paths.active().is_validated(), "the address is still to be validated");
    assert!(server.paths.active().amplification.budget() < 5000);
    server.validate(to(NEW_PORT));
    let change = migrated(server.data_from(AWAY));
    assert!(!change.kept_state);
    assert_eq!(server.paths.active().rtt.latest(), SETTINGS.initial_rtt);
}

#[test]
fn kept_state_returns_with_the_address() {
    let mut server = Host::server();
    let first = server.paths.active().key();
    migrated(server.data_from(NEW_PORT));
    match server.time_passes(PTO.times(3)) {
        PathEvent::FellBack(back) => assert!(back.kept_state && back.to == first),
        other => panic!("{other:?}"),
    }
    assert_eq!((server.active(), server.paths.active().key()), (to(HOME), first));
}

/// RFC 9000, Section 9.4: a move by choice, with another connection ID, is no rebinding.
#[test]
fn another_connection_id_at_another_port_is_not_taken_for_the_same_path() {
    let mut server = Host::server();
    let context = PacketContext { local_cid: 1, ..server.context() };
    let change = migrated(server.arrives(to(NEW_PORT), context));
    assert!(!change.kept_state);
}

/// RFC 9000, Section 9.5.
#[test]
fn a_connection_id_is_shared_only_when_the_peer_kept_its_own() {
    let mut server = Host::server();
    server.data_from(NEW_PORT);
    server.probe_from(AWAY, 1);
    let home = server.key_of(to(HOME));
    assert_eq!(server.paths.shares_cid_with(server.key_of(to(NEW_PORT))), Some(home));
    assert_eq!(server.paths.shares_cid_with(server.key_of(to(AWAY))), None);
}

/// RFC 9000, Section 9: not before the handshake is confirmed.
#[test]
fn packets_from_new_addresses_are_dropped_during_the_handshake() {
    let mut server = Host::new(Side::Server, to(HOME), SETTINGS);
    assert_eq!(server.data_from(AWAY), None);
    assert_eq!(server.data_from(HOME), Some(PathEvent::None));
    assert_eq!(server.paths.iter().count(), 1);
}

/// RFC 9000, Section 9: a client discards packets from servers it does not know.
#[test]
fn a_client_knows_its_server_by_address_alone() {
    let mut client = Host::client();
    let stranger = FourTuple { remote: AWAY.parse().unwrap(), ..from(HOME) };
    assert_eq!(client.arrives(stranger, client.context()), None);
    assert_eq!(client.arrives(from(AWAY), client.context()), Some(PathEvent::None));
    assert_eq!(client.active(), from(HOME));
}

/// RFC 9000, Section 18.2, disable_active_migration: what we asked of the peer.
#[test]
fn a_forbidden_move_is_ignored_but_rebinding_is_not() {
    let settings = PathSettings { peer_may_migrate: false, ..SETTINGS };
    let mut server = Host::new(Side::Server, to(HOME), settings);
    server.paths.active_mut().set_validated();
    server.paths.set_handshake_confirmed();
    assert_eq!(server.probe_from(AWAY, 1), None);
    migrated(server.data_from(AWAY));
}

/// RFC 9000, Section 18.2: disable_active_migration does not forbid to act on preferred_address, nor moves after that.
#[test]
fn a_client_that_must_not_move_is_taken_at_the_preferred_address() {
    let settings = PathSettings { peer_may_migrate: false, ..SETTINGS };
    let at = |local: &str, remote| FourTuple { local: local.parse().unwrap(), ..to(remote) };
    let preferred = "192.0.2.253:443";
    let probe = |server: &mut Host, tuple, local_cid| {
        let context = PacketContext { is_probing: true, local_cid, ..server.context() };
        server.arrives(tuple, context)
    };
    for has_preferred in [false, true] {
        let mut server = Host::new(Side::Server, to(HOME), settings);
        server.paths.active_mut().set_validated();
        server.paths.set_handshake_confirmed();
        if has_preferred {
            server.paths.set_preferred_address();
        }
        let taken = probe(&mut server, at(preferred, HOME), 1).is_some();
        assert_eq!(taken, has_preferred);
        assert_eq!(probe(&mut server, to(AWAY), 2), None, "the address of the handshake");
        if has_preferred {
            let context = PacketContext { local_cid: 1, ..server.context() };
            migrated(server.arrives(at(preferred, HOME), context));
            assert!(probe(&mut server, at(preferred, AWAY), 2).is_some());
            assert_eq!(probe(&mut server, to(ELSEWHERE), 3), None);
        }
    }
}

/// RFC 9000, Section 9.6.3: the address that counts is the peer's.
#[test]
fn the_same_client_at_our_other_address_is_not_limited() {
    let mut server = Host::server();
    let preferred = FourTuple { local: "192.0.2.253:443".parse().unwrap(), ..to(HOME) };
    let context = PacketContext { local_cid: 1, ..server.context() };
    migrated(server.arrives(preferred, context));
    assert!(server.paths.active().amplification.budget() >= 100_000);
    assert!(!server.paths.active().is_validated());
    let validated = server.validate(preferred);
    assert_eq!(validated, PathEvent::Validated(server.paths.active().key()));
}

/// RFC 9000, Sections 9.1 and 9.2.
#[test]
fn a_client_moves_when_the_new_path_is_validated_and_not_before() {
    let mut client = Host::client();
    let key = client.paths.migrate(from(AWAY), START, PTO, &mut client.random).unwrap();
    assert_eq!(client.active(), from(HOME));
    let event = client.validate(from(AWAY));
    assert!(matches!(event, PathEvent::Migrated(c) if c.to == key && !c.kept_state), "{event:?}");
    assert_eq!(client.active(), from(AWAY));
    assert_eq!(client.time_passes(PTO.times(4)), PathEvent::None);
    assert_eq!((client.paths.iter().count(), client.removed()), (1, 1));
}

#[test]
fn a_client_stays_when_the_new_path_does_not_answer() {
    let mut client = Host::client();
    let key = client.paths.migrate(from(AWAY), START, PTO, &mut client.random).unwrap();
    assert_eq!(client.time_passes(PTO.times(3)), PathEvent::Failed(key));
    assert_eq!((client.active(), client.removed()), (from(HOME), 1));
    assert!(client.paths.get(key).is_none());
}

#[test]
fn a_client_can_return_to_a_path_that_lingers() {
    let mut client = Host::client();
    client.paths.migrate(from(AWAY), START, PTO, &mut client.random).unwrap();
    client.validate(from(AWAY));
    let home = client.key_of(from(HOME));
    let now = client.now;
    assert_eq!(client.paths.migrate(from(HOME), now, PTO, &mut client.random), Ok(home));
    assert!(matches!(client.validate(from(HOME)), PathEvent::Migrated(_)));
    assert_eq!(client.active(), from(HOME));
}

/// RFC 9000, Sections 9 and 18.2.
#[test]
fn moves_that_are_not_allowed_say_why() {
    let away = from(AWAY);
    let mut server = Host::server();
    let refused = server.paths.migrate(to(AWAY), START, PTO, &mut server.random);
    assert_eq!(refused, Err(MigrationError::NotClient));
    let mut client = Host::new(Side::Client, from(HOME), SETTINGS);
    let refused = client.paths.migrate(away, START, PTO, &mut client.random);
    assert_eq!(refused, Err(MigrationError::HandshakeNotConfirmed));
    client.paths.set_handshake_confirmed();
    let refused = client.paths.migrate(from(HOME), START, PTO, &mut client.random);
    assert_eq!(refused, Err(MigrationError::AlreadyActive));
    client.paths.on_peer_parameters(true, 65_527);
    let refused = client.paths.migrate(away, START, PTO, &mut client.random);
    assert_eq!(refused, Err(MigrationError::DisabledByPeer));
    assert!(MigrationError::DisabledByPeer.to_string().contains("server"));
}

/// RFC 9000, Section 9.6.1: allowed even with disable_active_migration (Section 18.2).
#[test]
fn a_client_moves_to_the_preferred_address_if_it_answers() {
    let mut client = Host::client();
    client.paths.on_peer_parameters(true, 65_527);
    let preferred = FourTuple { remote: AWAY.parse().unwrap(), ..from(HOME) };
    let begun = client.paths.move_when_valid(preferred, START, PTO, &mut client.random);
    assert!(begun.is_ok());
    assert_eq!(client.arrives(preferred, client.context()), Some(PathEvent::None));
    assert!(matches!(client.validate(preferred), PathEvent::Migrated(_)));
    assert_eq!(client.active(), preferred);
    // Once there, the client may move on.
    let (now, onwards) = (client.now, FourTuple { remote: preferred.remote, ..from(ELSEWHERE) });
    assert!(client.paths.migrate(onwards, now, PTO, &mut client.random).is_ok());
    let back = client.paths.migrate(from(ELSEWHERE), now, PTO, &mut client.random);
    assert_eq!(back, Err(MigrationError::DisabledByPeer));
}

/// RFC 9000, Section 21.9: an attacker on the path can make packets come from anywhere.
#[test]
fn paths_are_bounded_whatever_addresses_packets_come_from() {
    let mut server = Host::server();
    for n in 0..5000u32 {
        server.now += MS;
        let tuple = FourTuple { remote: (n.to_be_bytes(), 1000).into(), ..to(HOME) };
        let context = PacketContext { is_probing: n % 3 != 0, ..server.context() };
        server.arrives(tuple, context);
        server.paths.on_timeout(server.now, PTO);
        assert!(server.paths.iter().count() <= MAX_PATHS);
        assert!(server.paths.iter().any(|p| p.tuple() == to(HOME)), "the way back is kept");
        if n % 7 == 0 {
            server.removed();
        }
    }
    assert_eq!(server.data_from(HOME).map(|e| e != PathEvent::None), Some(true));
    assert_eq!(server.active(), to(HOME));
}

#[test]
fn a_caller_that_never_drains_removed_paths_gets_no_more() {
    let mut server = Host::server();
    for n in 0..1000u32 {
        server.now += MS;
        let tuple = FourTuple { remote: (n.to_be_bytes(), 1000).into(), ..to(HOME) };
        let context = PacketContext { is_probing: true, ..server.context() };
        server.arrives(tuple, context);
        assert!(server.paths.removed.len() <= 256);
    }
    server.removed();
    assert_eq!(server.probe_from(AWAY, 1), Some(PathEvent::None));
}

#[test]
fn the_peers_packet_limit_reaches_every_path() {
    let mut client = Host::client();
    client.paths.on_peer_parameters(false, 1200);
    let key = client.paths.migrate(from(AWAY), START, PTO, &mut client.random).unwrap();
    for path in [Paths::FIRST, key] {
        let path = client.paths.get_mut(path).unwrap();
        assert_eq!(path.mtu.poll_probe(START), None);
        assert_eq!(path.max_datagram(), 1200);
    }
}

/// Random moves, probes, answers and pauses: there is always an active path, keys are unique,
/// paths bounded, unvalidated addresses limited, and time never stands still.
#[test]
fn random_histories_keep_the_rules() {
    let places = [HOME, NEW_PORT, AWAY, ELSEWHERE, "192.0.2.1:3000", "203.0.113.10:1"];
    for seed in 0..300 {
        let mut server = Host::server();
        let mut dice = TestRandom::new(seed);
        for _ in 0..200 {
            let place = to(places[dice.below(places.len() as u64) as usize]);
            let context = PacketContext {
                is_probing: dice.below(2) == 0,
                is_largest: dice.below(3) != 0,
                local_cid: dice.below(2),
                ..server.context()
            };
            match dice.below(4) {
                0 | 1 => drop(server.arrives(place, context)),
                2 => {
                    let due = server
                        .paths
                        .iter()
                        .find(|p| p.tuple() == place && p.validation.is_challenge_due(server.now));
                    if due.is_some() {
                        server.validate(place);
                    }
                }
                _ => {
                    let event = server.time_passes(MS.times(dice.below(150)));
                    assert_ne!(event, PathEvent::NoViablePath, "seed {seed}: HOME was validated");
                }
            }
            while server.paths.on_timeout(server.now, PTO) != PathEvent::None {}
            server.removed();
            check(&server, seed);
        }
    }
}

fn check(host: &Host, seed: u64) {
    let paths: Vec<&Path> = host.paths.iter().collect();
    assert!(paths.len() <= MAX_PATHS, "seed {seed}");
    for (n, path) in paths.iter().enumerate() {
        assert_eq!(path.purpose == PathPurpose::Active, n == 0, "seed {seed}");
        assert!(paths[..n].iter().all(|p| p.key() != path.key()), "seed {seed}");
        assert!(paths[..n].iter().all(|p| p.tuple() != path.tuple()), "seed {seed}");
        let free = path.amplification.budget() == u64::MAX;
        let known = path.is_validated() || paths.iter().any(|p| p.remote() == path.remote());
        assert!(!free || known, "seed {seed}");
    }
    assert!(host.paths.timeout().is_none_or(|t| t > host.now), "seed {seed}");
    if let Some(fallback) = host.paths.fallback {
        let path = host.paths.get(fallback).expect("the fallback exists");
        assert!(path.is_validated(), "seed {seed}");
    }
}

/// Packets without encryption prove nothing of who sent them.
#[test]
fn a_peer_that_is_fixed_has_no_other_ip_address() {
    let mut server = Host::server();
    server.paths.active_mut().set_validated();
    server.paths.set_handshake_confirmed();
    server.paths.fix_peer();
    assert_eq!(server.data_from(AWAY), None);
    assert_eq!(server.probe_from(AWAY, 1), None);
    migrated(server.data_from(NEW_PORT));
}
