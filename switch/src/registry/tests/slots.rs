//! Numbers: who has them, and when they are used again.

use super::*;

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
    for _ in 0..crate::registry::slots::SLOTS - MAX_LISTENERS_PER_USER {
        let id = register(&mut registry, at(60), 1001).unwrap();
        registry.note(id, |counters| counters.datagrams += 1);
        registry.remove(at(60), id);
    }
    let error = register(&mut registry, at(61), 1003).unwrap_err();
    assert_eq!(error, RegisterError::NoSlot(Some(Duration::from_secs(539))));
    assert_eq!(register(&mut registry, at(600), 1003).unwrap().generation(), 1);
}
