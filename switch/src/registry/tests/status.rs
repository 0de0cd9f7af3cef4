//! What there is to see.

use super::*;

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
