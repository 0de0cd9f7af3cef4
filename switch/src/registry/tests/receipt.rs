//! Programs that come back to the next switch with their receipts.

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
    dead.addresses.values_mut().for_each(|each| each.slots = crate::registry::slots::Slots::new());
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
        let web = |claim| Registration { claim, replace: true, ..asks("web", names(&["w"], &[])) };
        let had = [(); 4].map(|()| dead.register(at(0), web(None)).unwrap());
        // The first two drain, the third serves, the last one is not ready.
        let mut next = began(100, 0, 200, true);
        let mut back = [None; 4];
        for which in order {
            let Registered { listener, receipt, .. } = had[which];
            let claim = Claim { generation: listener.generation(), receipt, draining: which < 2 };
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
    let claimed =
        |receipt| Some(Claim { generation: had.listener.generation(), receipt, draining: false });
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
