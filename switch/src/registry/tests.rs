use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_engine::time::{Duration, Time};
use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{HashKey, Owner};
use quicket_wire::ClientHello;

use super::*;
use crate::testing::client_hello;

/// Each registration comes from a process of its own, unless a test says otherwise.
static NEXT: AtomicU64 = AtomicU64::new(1000);

const KEY: HashKey = HashKey::new([7; 8]);

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn registry() -> Registry {
    began(0, 1000, 100, false)
}

fn began(seconds: u64, uid: u32, incarnation: u64, takes_over: bool) -> Registry {
    let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], incarnation);
    Registry::new(at(seconds), uid, receipts, takes_over)
}

fn names(protocols: &[&str], servers: &[&str]) -> Names {
    let protocols = protocols.iter().map(|name| Protocol::new(name.as_bytes()).unwrap());
    let servers = servers.iter().map(|name| ServerName::new(name).unwrap());
    Names::new(protocols, servers).unwrap()
}

fn asks(program: &str, names: Names) -> Registration {
    Registration {
        address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
        uid: 1000,
        process: ProcessId(NEXT.fetch_add(1, Ordering::Relaxed)),
        program: program.to_owned(),
        names,
        workers: 4,
        reuse_port: false,
        replace: false,
        claim: None,
        family: None,
        attention: Attention::default(),
    }
}

fn active(registry: &mut Registry, new: Registration) -> ListenerId {
    let registered = registry.register(at(0), new).unwrap();
    registry.ready(at(0), registered.listener, None).unwrap();
    registered.listener
}

/// Who gets a client that asks for this.
fn who(registry: &Registry, server: Option<&str>, protocols: &[&str]) -> Option<ListenerId> {
    let address = *registry.addresses.keys().next().unwrap();
    let message = client_hello(server, protocols, 0);
    let hello = ClientHello::parse(&message).unwrap();
    let spread = Spread { key: &KEY, of: &[1; 8] };
    registry.choose(address, &hello, &spread).map(|place| place.listener)
}

#[test]
fn protocols_tell_programs_apart_and_overlapping_lists_are_in_use() {
    let mut registry = registry();
    let web = active(&mut registry, asks("web", names(&["h3", "h3-29"], &[])));
    let dns = active(&mut registry, asks("dns", names(&["doq"], &[])));
    assert_eq!(who(&registry, Some("a.org"), &["h3"]), Some(web));
    assert_eq!(who(&registry, None, &["doq", "h3"]), Some(dns), "the client's order counts");
    assert_eq!(who(&registry, None, &["smb"]), None);
    assert_eq!(who(&registry, None, &[]), None);
    let error = registry.register(at(0), asks("other", names(&["x", "h3"], &[]))).unwrap_err();
    assert!(error.is_in_use());
    assert!(error.to_string().contains("\"web\" serves protocol \"h3\""), "{error}");
    let mut stranger = asks("web", names(&["h3"], &[]));
    (stranger.uid, stranger.replace, stranger.reuse_port) = (1001, true, true);
    let error = registry.register(at(0), stranger).unwrap_err();
    assert_eq!(
        error,
        RegisterError::NamesInUse { names: "protocol \"h3\"".to_owned(), by: None },
        "another user's name says nothing of its program"
    );
}

#[test]
fn the_catch_all_gets_clients_without_protocols_and_all_where_nobody_has_any() {
    let mut registry = registry();
    let all = active(&mut registry, asks("all", Names::default()));
    assert_eq!(who(&registry, None, &["anything"]), Some(all));
    let h3 = active(&mut registry, asks("web", names(&["h3"], &[])));
    assert_eq!(who(&registry, None, &["anything"]), None);
    assert_eq!(who(&registry, None, &[]), Some(all));
    assert_eq!(who(&registry, None, &["h3"]), Some(h3));
    assert!(registry.register(at(0), asks("b", Names::default())).unwrap_err().is_in_use());
}

#[test]
fn the_most_specific_server_name_decides() {
    let mut registry = registry();
    let exact = active(&mut registry, asks("exact", names(&["h3"], &["www.example.org"])));
    let under = active(&mut registry, asks("under", names(&["h3"], &["*.example.org"])));
    let rest = active(&mut registry, asks("rest", names(&["h3", "doq"], &[])));
    assert_eq!(who(&registry, Some("WWW.Example.org"), &["h3"]), Some(exact));
    assert_eq!(who(&registry, Some("other.example.org"), &["h3"]), Some(under));
    assert_eq!(who(&registry, Some("a.b.example.org"), &["h3"]), Some(rest));
    assert_eq!(who(&registry, Some("example.org"), &["h3"]), Some(rest));
    assert_eq!(who(&registry, None, &["h3"]), Some(rest));
    assert_eq!(who(&registry, Some("www.example.org"), &["doq"]), Some(rest));
    let again = asks("again", names(&["h3"], &["WWW.example.org"]));
    assert!(registry.register(at(0), again).unwrap_err().is_in_use());
}

#[test]
fn those_who_share_the_port_share_all_names_and_clients_keep_to_one_of_them() {
    let mut registry = registry();
    let shared = |names| Registration { reuse_port: true, ..asks("a", names) };
    let group: Vec<_> =
        (0..4).map(|_| active(&mut registry, shared(names(&["a", "b"], &[])))).collect();
    let address = group[0].address();
    let message = client_hello(None, &["b"], 0);
    let hello = ClientHello::parse(&message).unwrap();
    let place = |registry: &Registry, id: [u8; 8]| {
        registry.choose(address, &hello, &Spread { key: &KEY, of: &id }).unwrap()
    };
    let mut counts = [0; 16];
    let before: Vec<_> = (0..1600_u64).map(|n| place(&registry, n.to_be_bytes())).collect();
    for place in &before {
        let member = group.iter().position(|id| *id == place.listener).unwrap();
        counts[member * 4 + usize::from(place.worker)] += 1;
    }
    assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
    // One that goes takes its own clients with it, and nobody else's.
    registry.remove(at(0), group[2]);
    for (n, before) in before.iter().enumerate().filter(|(_, each)| each.listener != group[2]) {
        assert_eq!(place(&registry, (n as u64).to_be_bytes()), *before);
    }
    for wrong in [
        asks("a", names(&["a", "b"], &[])),
        shared(names(&["a"], &[])),
        shared(names(&["a", "b", "c"], &[])),
        Registration { uid: 7, ..shared(names(&["a", "b"], &[])) },
    ] {
        assert!(registry.register(at(0), wrong.clone()).unwrap_err().is_in_use(), "{wrong:?}");
    }
}

#[test]
fn a_new_generation_takes_all_first_packets_once_it_is_ready() {
    let mut registry = registry();
    let web = || Registration { replace: true, ..asks("web", names(&["h3"], &[])) };
    let mut newest = active(&mut registry, web());
    let mut old = Vec::new();
    for generation in 1..=20 {
        let next = registry.register(at(generation), web()).unwrap();
        assert_eq!(who(&registry, None, &["h3"]), Some(newest), "the new one is not ready");
        let replaced = registry.ready(at(generation), next.listener, None).unwrap();
        assert_eq!(replaced, [newest]);
        old.push(newest);
        newest = next.listener;
        assert_eq!(who(&registry, None, &["h3"]), Some(newest));
        for id in &old {
            let owner = Owner { generation: id.generation(), worker: 3 };
            assert_eq!(registry.standing(id.address(), owner), Standing::Living(*id));
        }
    }
    // One that does not come up changes nothing.
    let failed = registry.register(at(30), web()).unwrap();
    registry.remove(at(30), failed.listener);
    assert_eq!(who(&registry, None, &["h3"]), Some(newest));
    assert_eq!(registry.phase(newest), Some(Phase::Active));
    assert_eq!(registry.ready(at(30), failed.listener, None), Err(UnknownListener.into()));
    // An old one takes over again.
    assert_eq!(registry.ready(at(31), old[7], None).unwrap(), [newest]);
    assert_eq!(who(&registry, None, &["h3"]), Some(old[7]));
}

#[test]
fn a_new_generation_may_have_other_names_but_nobody_elses() {
    let mut registry = registry();
    let first = active(&mut registry, asks("web", names(&["h3"], &["a.org"])));
    active(&mut registry, asks("other", names(&["h3"], &["c.org"])));
    let replace =
        |servers: &[&str]| Registration { replace: true, ..asks("web", names(&["h3"], servers)) };
    assert!(registry.register(at(1), replace(&["a.org", "c.org"])).unwrap_err().is_in_use());
    let next = registry.register(at(1), replace(&["b.org"])).unwrap().listener;
    let taken = asks("late", names(&["h3"], &["b.org"]));
    assert!(registry.register(at(1), taken.clone()).unwrap_err().is_in_use(), "it is reserved");
    assert_eq!(registry.ready(at(1), next, None).unwrap(), [first]);
    assert_eq!(who(&registry, Some("a.org"), &["h3"]), None);
    assert_eq!(who(&registry, Some("b.org"), &["h3"]), Some(next));
    let late = active(&mut registry, asks("late", names(&["h3"], &["a.org"])));
    let error = registry.ready(at(2), first, None).unwrap_err();
    assert!(matches!(error, ReadyError::Names(error) if error.is_in_use()));
    assert_eq!(who(&registry, Some("a.org"), &["h3"]), Some(late));
}

#[test]
fn members_of_a_group_that_came_with_the_new_generation_stay() {
    let mut registry = registry();
    let member =
        |replace| Registration { reuse_port: true, replace, ..asks("web", names(&["h3"], &[])) };
    let old = [active(&mut registry, member(false)), active(&mut registry, member(false))];
    let first = registry.register(at(1), member(true)).unwrap().listener;
    let second = active(&mut registry, member(false));
    assert_eq!(registry.ready(at(1), first, None).unwrap(), old);
    assert_eq!(registry.phase(second), Some(Phase::Active));
}

/// Several listeners of one process are one generation: nothing is unserved in between.
#[test]
fn what_one_process_serves_is_replaced_together() {
    let mut registry = registry();
    let part = |process, protocol| Registration {
        process: ProcessId(process),
        replace: true,
        ..asks("web", names(&[protocol], &[]))
    };
    let mut generation = |process: u64| {
        let ids = ["h3", "doq"]
            .map(|protocol| registry.register(at(0), part(process, protocol)).unwrap().listener);
        let replaced = registry.ready(at(0), ids[1], None).unwrap();
        assert_eq!(registry.phase(ids[0]), Some(Phase::Active));
        assert_eq!(registry.ready(at(0), ids[0], None).unwrap(), []);
        (ids, replaced)
    };
    let (old, replaced) = generation(1);
    assert_eq!(replaced, []);
    let (new, replaced) = generation(2);
    assert_eq!(replaced, old);
    assert_eq!(who(&registry, None, &["h3"]), Some(new[0]));
    assert_eq!(who(&registry, None, &["doq"]), Some(new[1]));
    // The old one takes over again, with all that it had.
    assert_eq!(registry.ready(at(1), old[1], None).unwrap(), new);
    assert_eq!(who(&registry, None, &["h3"]), Some(old[0]));
    assert_eq!(registry.ready(at(1), new[0], None).unwrap(), old);
    // And nothing of its own is replaced by mistake.
    assert!(registry.register(at(0), part(2, "h3")).unwrap_err().is_in_use());
}

#[test]
fn generations_that_drain_have_a_deadline_and_some_grace() {
    let mut registry = registry();
    let web = || Registration { replace: true, ..asks("web", names(&["h3"], &[])) };
    let old = active(&mut registry, web());
    registry.note(old, |counters| counters.datagrams += 1);
    let new = registry.register(at(10), web()).unwrap().listener;
    registry.ready(at(10), new, Some(Duration::from_secs(30))).unwrap();
    assert_eq!((registry.next_deadline(), registry.poll(at(39))), (Some(at(40)), None));
    assert_eq!(registry.poll(at(40)), Some(Notice::DrainOver(old)));
    assert_eq!((registry.next_deadline(), registry.poll(at(44))), (Some(at(45)), None));
    assert_eq!(registry.poll(at(45)), Some(Notice::Removed(old)));
    let owner = Owner { generation: old.generation(), worker: 0 };
    assert_eq!(registry.standing(old.address(), owner), Standing::Dead { uid: 1000 });
    assert_eq!((registry.next_deadline(), registry.poll(at(99))), (None, None));
}

#[test]
fn the_death_of_a_process_removes_what_it_had_and_nothing_else() {
    let mut registry = registry();
    let process = ProcessId(7);
    let of_one = |names| Registration { process, ..asks("one", names) };
    let one = active(&mut registry, of_one(names(&["a"], &[])));
    let two = active(&mut registry, of_one(names(&["b"], &[])));
    let other = active(&mut registry, asks("other", names(&["c"], &[])));
    registry.note(one, |counters| counters.datagrams += 1);
    assert_eq!(registry.process(one), Some(process));
    assert_eq!(registry.remove_process(at(5), process), [one, two]);
    assert_eq!(registry.remove_process(at(5), process), []);
    let standing = |registry: &Registry, id: ListenerId| {
        registry.standing(id.address(), Owner { generation: id.generation(), worker: 0 })
    };
    assert_eq!(standing(&registry, one), Standing::Dead { uid: 1000 }, "peers may know it");
    assert_eq!(standing(&registry, two), Standing::Nobody, "nobody ever heard of it");
    assert_eq!(standing(&registry, other), Standing::Living(other));
    active(&mut registry, asks("next", names(&["a"], &[])));
    assert!(!registry.forget(other.address()));
    assert_eq!(registry.unused().count(), 0);
}

#[test]
fn a_program_comes_and_goes_a_thousand_times() {
    let mut registry = registry();
    let keeper = active(&mut registry, asks("keeper", names(&["k"], &[])));
    for round in 0..1000 {
        let id = registry.register(at(0), asks("a", names(&["a"], &[]))).unwrap().listener;
        registry.ready(at(0), id, None).unwrap();
        assert!(registry.remove(at(0), id), "{round}");
        assert!(!registry.remove(at(0), id));
    }
    assert_eq!(registry.status().addresses[0].listeners.len(), 1);
    assert_eq!(registry.status().addresses[0].dead, 0);
    assert_eq!(who(&registry, None, &["k"]), Some(keeper));
}

/// Where several users are at an address none of them uses up its numbers, by listeners that come and die either.
#[test]
fn users_beside_the_switchs_own_have_a_few_numbers_each() {
    let mut registry = registry();
    registry.make_room_for_tenants();
    let register = |registry: &mut Registry, now, uid: u32| {
        let new = Registration { uid, ..asks("a", names(&[&format!("p{uid}")], &[])) };
        registry.register(now, new).map(|registered| registered.listener)
    };
    for _ in 0..MAX_LISTENERS_PER_TENANT {
        let id = register(&mut registry, at(0), 7).unwrap();
        registry.note(id, |counters| counters.datagrams += 1);
        registry.remove(at(0), id);
    }
    let full = RegisterError::TooManyListeners(MAX_LISTENERS_PER_TENANT);
    assert_eq!(register(&mut registry, at(59), 7), Err(full));
    let other = register(&mut registry, at(59), 8).unwrap();
    let own = register(&mut registry, at(59), 1000).unwrap();
    // Nobody reads what clients ask for where one program is alone; but for a user who has some names only.
    registry.remove(at(59), own);
    registry.ready(at(59), other, None).unwrap();
    let spread = Spread { key: &KEY, of: &[1; 8] };
    assert_eq!(registry.alone(at(59), other.address(), &spread), None);
    registry.remove(at(59), other);
    let own = active(&mut registry, asks("a", names(&["own"], &[])));
    let place = registry.alone(at(59), own.address(), &spread);
    assert_eq!(place.map(|place| place.listener), Some(own));
}

#[test]
fn numbers_that_peers_know_rest_before_they_are_used_again() {
    let mut registry = registry();
    let register = |registry: &mut Registry, now, uid: u32| {
        let new = Registration { uid, ..asks("a", names(&[&format!("p{uid}")], &[])) };
        registry.register(now, new).map(|registered| registered.listener)
    };
    for _ in 0..MAX_LISTENERS_PER_USER {
        let id = register(&mut registry, at(0), 1000).unwrap();
        registry.note(id, |counters| counters.datagrams += 1);
        registry.remove(at(0), id);
    }
    assert_eq!(
        register(&mut registry, at(59), 1000),
        Err(RegisterError::TooManyListeners(MAX_LISTENERS_PER_USER))
    );
    let again = register(&mut registry, at(60), 1000).unwrap();
    assert_eq!(again.generation(), 0);
    registry.note(again, |counters| counters.datagrams += 1);
    registry.remove(at(60), again);
    // What is left is for others, and then they wait longer.
    for _ in 0..super::slots::SLOTS - MAX_LISTENERS_PER_USER {
        let id = register(&mut registry, at(60), 1001).unwrap();
        registry.note(id, |counters| counters.datagrams += 1);
        registry.remove(at(60), id);
    }
    let error = register(&mut registry, at(61), 1003).unwrap_err();
    assert_eq!(error, RegisterError::NoSlot(Some(Duration::from_secs(539))));
    assert_eq!(register(&mut registry, at(600), 1003).unwrap().generation(), 1);
}

#[test]
fn what_can_never_be_is_refused() {
    let mut registry = registry();
    let mut refused = |change: fn(&mut Registration)| {
        let mut new = asks("a", names(&["a"], &[]));
        change(&mut new);
        registry.register(at(0), new).unwrap_err()
    };
    assert_eq!(refused(|new| new.workers = 0), RegisterError::Workers(0));
    assert_eq!(refused(|new| new.workers = 257), RegisterError::Workers(257));
    assert_eq!(refused(|new| new.program.clear()), RegisterError::ProgramName(0));
    let no_port = |new: &mut Registration| {
        new.address = ListenAddress::new("192.0.2.1:0".parse().unwrap(), false);
    };
    assert_eq!(refused(no_port), RegisterError::NoPort);
    active(&mut registry, asks("a", names(&["a"], &[])));
    let mut wild = asks("b", names(&["b"], &[]));
    wild.address = ListenAddress::new("[::]:443".parse().unwrap(), false);
    let error = registry.register(at(0), wild).unwrap_err();
    assert!(matches!(error, RegisterError::AddressInUse(_)) && error.is_in_use());
    for port in 1..MAX_ADDRESSES {
        let address = format!("192.0.2.2:{port}").parse().unwrap();
        let address = ListenAddress::new(address, false);
        registry
            .register(at(0), Registration { address, ..asks("a", names(&["a"], &[])) })
            .unwrap();
    }
    let address = ListenAddress::new("192.0.2.3:1".parse().unwrap(), false);
    let new = Registration { address, ..asks("a", names(&["a"], &[])) };
    assert_eq!(registry.register(at(0), new), Err(RegisterError::TooManyAddresses));
}

mod claims {
    use super::*;

    /// A program's registration with a switch that is gone.
    fn had(registry: &mut Registry, uid: u32, program: &str) -> Claim {
        let new = Registration { uid, ..asks(program, names(&[program], &[])) };
        let had = registry.register(at(0), new).unwrap();
        registry.note(had.listener, |counters| counters.datagrams += 1);
        Claim { generation: had.listener.generation(), receipt: had.receipt, draining: false }
    }

    fn claim(registry: &mut Registry, uid: u32, program: &str, claim: Claim) -> Registered {
        let claim = Some(claim);
        let new = Registration { uid, claim, ..asks(program, names(&[program], &[])) };
        registry.register(at(102), new).unwrap()
    }

    #[test]
    fn programs_keep_their_numbers_over_the_death_of_the_switch() {
        let mut dead = began(0, 0, 100, false);
        let (a, b) = (had(&mut dead, 1000, "a"), had(&mut dead, 1001, "b"));
        let mut next = began(100, 0, 200, true);
        // One that is new in between does not get the number of one that comes back.
        let error = next.register(at(101), asks("new", names(&["new"], &[]))).unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)), "{error}");
        let claimed = Registration { claim: Some(b), uid: 1001, ..asks("b", names(&["b"], &[])) };
        let back = next.register(at(101), claimed.clone()).unwrap();
        assert!(back.kept);
        next.remove(at(101), back.listener);
        let back = claim(&mut next, 1001, "b", b);
        assert!(back.kept && back.displaced.is_none());
        assert_eq!(back.listener.generation(), b.generation);
        assert_eq!(claim(&mut next, 1000, "a", a).listener.generation(), a.generation);
        let new = asks("late", names(&["late"], &[]));
        assert_eq!(next.register(at(200), new).unwrap().listener.generation(), 2);
    }

    /// A claim of an address that is not known shows that a switch has died; others have nothing to do
    /// with that.
    #[test]
    fn only_the_address_of_who_comes_back_waits_for_others() {
        let mut dead = began(0, 1000, 100, false);
        let a = had(&mut dead, 1000, "a");
        let mut next = began(100, 1000, 200, false);
        let other = ListenAddress::new("192.0.2.9:443".parse().unwrap(), false);
        let elsewhere = |name| Registration { address: other, ..asks(name, names(&[name], &[])) };
        let there = next.register(at(101), elsewhere("x")).unwrap().listener.address();
        let back = claim(&mut next, 1000, "a", a);
        let here = back.listener.address();
        assert!(back.kept && !next.is_settled(at(103), here) && next.is_settled(at(102), there));
        let error = next.register(at(103), asks("new", names(&["new"], &[]))).unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(1)), "{error}");
        next.register(at(103), elsewhere("y")).unwrap();
        assert!(next.is_settled(at(104), here));
        next.register(at(104), asks("new", names(&["new"], &[]))).unwrap();
        // One that comes back later finds the address: nobody waits again.
        assert!(next.is_settled(at(105), here));
    }

    #[test]
    fn nobody_gets_a_number_that_he_did_not_have() {
        let mut dead = began(0, 0, 100, false);
        let (a, b) = (had(&mut dead, 1000, "a"), had(&mut dead, 1001, "b"));
        let mut next = began(100, 0, 200, true);
        let lies = [
            Claim { receipt: b.receipt, ..a },
            a,
            Claim { generation: 9, ..b },
            Claim { receipt: Receipt { incarnation: 999, ..b.receipt }, ..a },
        ];
        for lie in lies {
            let got = claim(&mut next, 1001, "b", lie);
            assert!(!got.kept && got.listener.generation() < 2, "{lie:?}");
            next.remove(at(102), got.listener);
        }
        assert!(claim(&mut next, 1000, "a", a).kept);
        assert!(!claim(&mut next, 1000, "other", a).kept, "somebody has it");
    }

    #[test]
    fn who_had_a_number_last_has_it() {
        let mut dead = began(0, 0, 100, false);
        let old = had(&mut dead, 1001, "old");
        let id = dead.addresses.values().next().unwrap().slots.listener(old.generation).unwrap().id;
        dead.remove(at(0), id);
        let new = asks("new", names(&["new"], &[]));
        dead.addresses.values_mut().for_each(|each| each.slots = slots::Slots::new());
        let had = dead.register(at(0), new).unwrap();
        assert_eq!(had.listener.generation(), old.generation);
        let newer = Claim { receipt: had.receipt, ..old };
        let mut next = began(100, 0, 200, true);
        let robber = claim(&mut next, 1001, "old", old);
        assert!(robber.kept, "nobody else is there yet");
        let back = claim(&mut next, 1000, "new", newer);
        assert!(back.kept);
        assert_eq!(back.displaced, Some(robber.listener));
        assert_eq!(next.phase(robber.listener), None);
    }

    /// Each of them comes back in its own time, and the newest is the newest again.
    #[test]
    fn generations_keep_their_order_over_the_death_of_the_switch() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut dead = began(0, 0, 100, false);
            let web =
                |claim| Registration { claim, replace: true, ..asks("web", names(&["w"], &[])) };
            let had = [(); 4].map(|()| dead.register(at(0), web(None)).unwrap());
            // The first two drain, the third serves, the last one is not ready.
            let mut next = began(100, 0, 200, true);
            let mut back = [None; 4];
            for which in order {
                let Registered { listener, receipt, .. } = had[which];
                let claim =
                    Claim { generation: listener.generation(), receipt, draining: which < 2 };
                let registered = next.register(at(100), web(Some(claim))).unwrap();
                assert!(registered.kept);
                back[which] = Some(registered.listener);
                if which >= 2 {
                    next.ready(at(100), registered.listener, None).unwrap();
                }
            }
            assert_eq!(who(&next, None, &["w"]), back[3], "{order:?}");
            let phases = back.map(|id| next.phase(id.unwrap()).unwrap());
            assert_eq!(phases[3], Phase::Active);
            assert_eq!(phases[..3], [Phase::Draining { deadline: None }; 3], "{order:?}");
        }
    }

    /// The time of day that incarnations begin with was set back.
    #[test]
    fn who_comes_after_those_who_came_back_is_newer_whatever_the_clock_says() {
        let mut dead = began(0, 0, 1000, false);
        let web = |claim| Registration { claim, replace: true, ..asks("web", names(&["w"], &[])) };
        let had = dead.register(at(0), web(None)).unwrap();
        let mut next = began(100, 0, 10, true);
        let lie = Receipt { incarnation: u64::MAX, ..had.receipt };
        let claimed = |receipt| {
            Some(Claim { generation: had.listener.generation(), receipt, draining: false })
        };
        assert!(next.register(at(100), web(claimed(lie))).is_err(), "nobody believes it");
        let back = next.register(at(100), web(claimed(had.receipt))).unwrap();
        assert!(back.kept);
        next.ready(at(100), back.listener, None).unwrap();
        let new = next.register(at(200), web(None)).unwrap();
        assert!(new.receipt.incarnation > had.receipt.incarnation);
        assert_eq!(next.ready(at(200), new.listener, None).unwrap(), [back.listener]);
        assert_eq!(who(&next, None, &["w"]), Some(new.listener));
    }

    #[test]
    fn who_drained_comes_back_though_its_names_are_anothers() {
        let mut dead = began(0, 0, 100, false);
        had(&mut dead, 1000, "first");
        let claimed = Claim { draining: true, ..had(&mut dead, 1000, "a") };
        let mut next = began(0, 0, 200, false);
        let other = active(&mut next, asks("other", names(&["a"], &[])));
        let back = claim(&mut next, 1000, "a", claimed);
        assert!(back.kept, "{back:?}");
        assert_eq!(who(&next, None, &["a"]), Some(other));
        assert_eq!(next.phase(back.listener), Some(Phase::Draining { deadline: None }));
    }

    fn claim_of(had: &Registered) -> Option<Claim> {
        let generation = had.listener.generation();
        Some(Claim { generation, receipt: had.receipt, draining: false })
    }

    /// Who had joined is back before who served, and wants its names.
    #[test]
    fn names_come_back_with_the_number_and_nobody_takes_them_meanwhile() {
        let served = || names(&["w"], &["w.org"]);
        let web = |claim| Registration { claim, ..asks("web", served()) };
        let idle = |claim| Registration { claim, ..asks("idle", Names::default()) };
        let mut dead = began(0, 1000, 100, false);
        let had = dead.join(at(0), web(None)).unwrap();
        assert_eq!(dead.deed(had.listener), None, "it has not served yet");
        dead.serve(at(0), had.listener, served(), false, false).unwrap();
        let deed = dead.deed(had.listener).unwrap();
        let waited = dead.join(at(0), idle(None)).unwrap();
        let mut next = began(100, 1000, 200, false);
        let robber = next.rejoin(at(100), idle(claim_of(&waited)), None).unwrap().listener;
        let error = next.serve(at(101), robber, served(), false, false).unwrap_err();
        let left = Duration::from_secs(1);
        assert_eq!(error, ReadyError::Names(RegisterError::Reclaiming(left)));
        // A deed is about one program, and all that it served.
        for lie in [
            asks("other", served()),
            asks("web", names(&["w", "x"], &["w.org"])),
            asks("web", names(&["w"], &[])),
            Registration { reuse_port: true, ..asks("web", served()) },
            Registration { replace: true, ..asks("web", served()) },
        ] {
            let lie = Registration { claim: claim_of(&had), ..lie };
            let liar = next.rejoin(at(101), lie, Some(&deed)).unwrap().listener;
            assert_eq!(next.phase(liar), Some(Phase::Joined));
            next.remove(at(101), liar);
        }
        let back = next.rejoin(at(101), web(claim_of(&had)), Some(&deed)).unwrap();
        assert!(back.kept);
        next.ready(at(101), back.listener, None).unwrap();
        assert_eq!(who(&next, Some("w.org"), &["w"]), Some(back.listener));
        // It may say so itself, too; the other one waits, and is told then.
        next.serve(at(101), back.listener, served(), false, false).unwrap();
        next.ready(at(101), back.listener, None).unwrap();
        let error = next.serve(at(102), robber, served(), false, false).unwrap_err();
        assert!(matches!(error, ReadyError::Names(error) if error.is_in_use()));
        // Who comes when they are another's keeps its number.
        let deed = next.deed(back.listener).unwrap();
        let mut third = began(200, 1000, 300, false);
        // Its number is free, and its names are not.
        let other = third.register(at(300), asks("other", names(&["o"], &[]))).unwrap().listener;
        let quick = third.register(at(300), asks("quick", served())).unwrap().listener;
        third.ready(at(300), quick, None).unwrap();
        third.remove(at(300), other);
        let late = third.rejoin(at(300), web(claim_of(&back)), Some(&deed)).unwrap();
        assert_eq!((late.kept, third.phase(late.listener)), (true, Some(Phase::Joined)));
    }

    /// The switch died before the older one had heard, and the next one has no key to know them by.
    #[test]
    fn a_generation_that_had_been_replaced_learns_it_from_the_next_switch() {
        let mut dead = began(0, 1000, 100, false);
        let web = |claim| Registration { claim, ..asks("web", Names::default()) };
        let had = [(); 2].map(|()| dead.join(at(0), web(None)).unwrap());
        let mut next = began(100, 1000, 200, false);
        let back = had.each_ref().map(|had| next.rejoin(at(100), web(claim_of(had)), None));
        let [older, newer] = back.map(|back| back.unwrap().listener);
        next.serve(at(103), newer, names(&["w"], &[]), false, true).unwrap();
        next.ready(at(103), newer, None).unwrap();
        next.serve(at(103), older, names(&["w"], &[]), false, false).unwrap();
        assert_eq!(next.ready(at(103), older, None), Ok(vec![older]));
        assert_eq!(who(&next, None, &["w"]), Some(newer));
    }

    #[test]
    fn the_switchs_own_user_needs_no_receipt() {
        let nothing = Receipt { incarnation: 0, proof: [0; 16] };
        let mut registry = began(100, 1000, 200, true);
        let claimed = Claim { generation: 40, receipt: nothing, draining: false };
        assert!(claim(&mut registry, 1000, "a", claimed).kept);
        let mut refused = |uid, program, claimed| {
            let claim = Some(claimed);
            let new = Registration { uid, claim, ..asks(program, names(&[program], &[])) };
            // Others who had numbers there come back first.
            let error = registry.register(at(102), new).unwrap_err();
            assert_eq!(error.retry_after(), Some(RECLAIM_TIME), "{error}");
        };
        refused(1000, "b", claimed);
        refused(1001, "c", Claim { generation: 41, ..claimed });
    }
}

#[test]
fn the_status_says_who_is_there() {
    let mut registry = registry();
    let id = active(&mut registry, asks("web", names(&["h3"], &["a.org", "*.a.org"])));
    registry.note(id, |counters| counters.first_packets += 3);
    let status = registry.status();
    let [address] = &status.addresses[..] else { panic!("one address") };
    let [listener] = &address.listeners[..] else { panic!("one listener") };
    assert_eq!((address.dead, address.free), (0, 255));
    assert_eq!((&*listener.program, listener.generation, listener.workers), ("web", 0, 4));
    assert_eq!((&listener.protocols[..], listener.servers.len()), (&["h3".to_owned()][..], 2));
    assert_eq!((listener.phase, listener.counters.first_packets), (Phase::Active, 3));
}

#[test]
fn who_joins_has_a_number_and_reserves_nothing_until_it_serves() {
    let mut registry = registry();
    let web = active(&mut registry, asks("web", names(&["h3"], &[])));
    // What it names does not count.
    let joined = registry.join(at(0), asks("late", names(&["h3"], &[]))).unwrap().listener;
    assert_eq!(registry.phase(joined), Some(Phase::Joined));
    assert_eq!(
        registry.standing(joined.address(), Owner { generation: joined.generation(), worker: 3 }),
        Standing::Living(joined)
    );
    assert_eq!(who(&registry, None, &["h3"]), Some(web));
    let error = registry.serve(at(0), joined, names(&["x", "h3"], &[]), false, false).unwrap_err();
    assert!(matches!(error, ReadyError::Names(error) if error.is_in_use()));
    assert_eq!(registry.phase(joined), Some(Phase::Joined));
    registry.serve(at(0), joined, names(&["x"], &[]), false, false).unwrap();
    assert_eq!(who(&registry, None, &["x"]), None, "it is not ready");
    assert_eq!(registry.ready(at(0), joined, None), Ok(Vec::new()));
    assert_eq!(who(&registry, None, &["x"]), Some(joined));
    // It may change its mind: what it served is free again.
    registry.serve(at(0), joined, names(&["y", "x"], &[]), false, false).unwrap();
    registry.ready(at(0), joined, None).unwrap();
    registry.serve(at(0), joined, names(&["y"], &[]), false, false).unwrap();
    registry.ready(at(0), joined, None).unwrap();
    assert_eq!((who(&registry, None, &["x"]), who(&registry, None, &["y"])), (None, Some(joined)));
    active(&mut registry, asks("other", names(&["x"], &[])));
}

#[test]
fn a_generation_that_joined_replaces_the_one_before_once_it_serves() {
    let mut registry = registry();
    let first = active(&mut registry, asks("web", names(&["h3"], &[])));
    let next = registry.join(at(0), asks("web", Names::default())).unwrap().listener;
    assert!(registry.serve(at(0), next, names(&["h3"], &[]), false, false).is_err());
    registry.serve(at(0), next, names(&["h3"], &[]), false, true).unwrap();
    assert_eq!(who(&registry, None, &["h3"]), Some(first));
    assert_eq!(registry.ready(at(0), next, None), Ok(vec![first]));
    assert_eq!(who(&registry, None, &["h3"]), Some(next));
    assert_eq!(registry.phase(first), Some(Phase::Draining { deadline: None }));
}

/// A process that has its listener from another one over fork(2) shares what that serves.
#[test]
fn a_family_shares_its_names_with_nobody_else() {
    let mut registry = registry();
    let of = |family| Registration { family, ..asks("web", names(&["h3"], &[])) };
    let parent = active(&mut registry, of(Some([1; 16])));
    for stranger in [of(None), of(Some([2; 16]))] {
        assert!(registry.register(at(0), stranger).unwrap_err().is_in_use());
    }
    let other_names =
        Registration { family: Some([1; 16]), ..asks("web", names(&["h3", "x"], &[])) };
    assert!(registry.register(at(0), other_names).unwrap_err().is_in_use());
    let other_user = Registration { uid: 7, ..of(Some([1; 16])) };
    assert!(registry.register(at(0), other_user).unwrap_err().is_in_use());
    let child = active(&mut registry, of(Some([1; 16])));
    assert_eq!(registry.phase(parent), Some(Phase::Active), "nobody is replaced");
    let address = parent.address();
    assert_eq!(registry.members(address, [1; 16]), [parent, child]);
    // One that joins first and serves then, as programs do.
    let late = registry.join(at(0), of(Some([1; 16]))).unwrap().listener;
    registry.serve(at(0), late, names(&["h3"], &[]), false, false).unwrap();
    // Who serves no more is a member no more, and one that serves again shares as before.
    registry.drain(child, None).unwrap();
    assert_eq!(registry.members(address, [1; 16]), [parent, late]);
    assert_eq!(registry.member_of(address, [1; 16]).unwrap().names, names(&["h3"], &[]));
    assert!(registry.member_of(address, [2; 16]).is_none());
    registry.remove(at(0), parent);
    registry.remove(at(0), late);
    assert!(registry.member_of(address, [1; 16]).is_none());
}

#[test]
fn clients_go_to_those_who_accept_then_to_those_who_come_back() {
    let mut registry = registry();
    let of = |attention| {
        let family = Some([1; 16]);
        Registration { family, attention, ..asks("web", names(&["h3"], &[])) }
    };
    let away = active(&mut registry, of(Attention::Away));
    assert_eq!(who(&registry, None, &["h3"]), Some(away));
    assert!(registry.is_away(away));
    let busy = active(&mut registry, of(Attention::Busy));
    let chosen = |registry: &Registry| {
        let of = |id: u64| {
            let id = id.to_be_bytes();
            let spread = Spread { key: &KEY, of: &id };
            registry.alone(at(0), away.address(), &spread).unwrap().listener
        };
        (0..64).map(of).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(chosen(&registry), [busy].into());
    let accepts = active(&mut registry, of(Attention::Accepting));
    assert_eq!(chosen(&registry), [accepts].into());
    assert!(registry.set_attention(away, Attention::Accepting));
    assert!(!registry.set_attention(away, Attention::Accepting));
    assert_eq!(chosen(&registry), [away, accepts].into());
    for id in [away, accepts] {
        registry.set_attention(id, Attention::Busy);
    }
    assert_eq!(chosen(&registry).len(), 3);
}
