//! Whom a client reaches.

use super::*;

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
