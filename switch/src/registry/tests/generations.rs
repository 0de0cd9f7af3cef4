//! Generations of a program, and who joins before it serves.

use super::*;

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

/// Who gets all clients, so that nobody has to choose.
#[test]
fn a_listener_is_alone_while_no_other_one_gets_clients_and_nobody_has_it_from_another_process() {
    let mut registry = registry();
    let first = active(&mut registry, asks("web", names(&["h3"], &["a.org"])));
    let address = first.address();
    assert_eq!(registry.lone(at(0), address), Some(first));
    // Who has only registered gets none.
    let other = registry.register(at(0), asks("chat", names(&["chat"], &[]))).unwrap().listener;
    assert_eq!(registry.lone(at(0), address), Some(first));
    registry.ready(at(0), other, None).unwrap();
    assert_eq!(registry.lone(at(0), address), None);
    registry.drain(first, None).unwrap();
    assert_eq!(registry.lone(at(0), address), Some(other));
    registry.set_family(other, Some([1; 16]));
    assert_eq!(registry.lone(at(0), address), None, "a child may come");
    registry.set_family(other, None);
    registry.set_attention(other, Attention::Away);
    assert_eq!(registry.lone(at(0), address), None, "it may never accept");
    registry.set_attention(other, Attention::Accepting);
    assert_eq!(registry.lone(at(0), address), Some(other));
    registry.remove(at(1), other);
    assert_eq!(registry.lone(at(1), address), None);
    // Where there may be others who know of no name but their own, nobody gets clients unseen but the switch's user.
    registry.make_room_for_tenants();
    let theirs = Registration { uid: 1001, ..asks("theirs", names(&["t"], &[])) };
    active(&mut registry, theirs);
    assert_eq!(registry.lone(at(1), address), None);
    // All have to be back first that a switch before this one had.
    let registry = began(0, 1000, 100, true);
    assert_eq!(registry.lone(at(0), address), None);
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
