//! Tickets of one gateway at the others.

use std::os::unix::fs::PermissionsExt;

use super::site::{Cluster, REFUSED, TAKEN, Visit};
use super::store::Store;

#[test]
fn a_ticket_brings_early_data_in_at_any_gateway_once_and_over_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path(), "store");
    let socket = store.socket();
    let mut site = Cluster::start(&[&socket, &socket, &socket], "deadline_ms = 100");
    let tickets = site.tickets(0);
    // The store is young: sessions are resumed, and nothing is taken.
    assert_eq!(site.visit(1, &tickets[0]), REFUSED);
    store.age();
    site.until_all_take();
    let tickets = [site.tickets(0), site.tickets(1)].concat();
    assert_eq!(site.visit(1, &tickets[0]), TAKEN);
    for gateway in [0, 1, 2] {
        assert_eq!(site.visit(gateway, &tickets[0]), REFUSED, "{gateway}");
    }
    assert_eq!(site.visit(2, &tickets[1]), TAKEN);
    assert_eq!(site.visit(0, &tickets[2]), TAKEN);
    assert_eq!(site.counter(1, "early_data", "first"), 1);
    assert_eq!((site.all("early_data", "first"), site.all("early_data", "used")), (3, 2));
    // Who has seen it itself asks nobody.
    assert_eq!(site.counter(1, "early_data", "seen"), 1);
    // The current secret, and then the previous one.
    let kept = [site.tickets(0), site.tickets(0)].concat();
    site.rotate();
    assert_eq!(site.visit(1, &kept[0]), TAKEN);
    assert_eq!(site.visit(2, &kept[0]), REFUSED);
    let later = site.tickets(2);
    assert_eq!(site.visit(0, &later[0]), TAKEN);
    site.rotate();
    // That secret is accepted no more.
    assert_eq!(site.visit(0, &kept[1]), Visit { early: false, resumed: false });
    assert_eq!(site.visit(0, &later[1]), TAKEN);
}

/// Gateways that ask different stores, whatever they call them, share keys while one store is exchanged for another, or by mistake.
#[test]
fn tickets_made_where_another_store_is_asked_bring_nothing_in() {
    let dir = tempfile::tempdir().unwrap();
    let stores = [Store::start(dir.path(), "one"), Store::start(dir.path(), "two")];
    let tables = stores.iter().map(|store| {
        format!(
            "[early_data]\nregister = \"unix:{}\"\nname = \"store\"\ndeadline_ms = 100\n",
            store.socket().display()
        )
    });
    let site = Cluster::start_tables(tables.collect());
    stores.iter().for_each(Store::age);
    site.until_all_take();
    let tickets = site.tickets(0);
    assert_eq!(site.visit(1, &tickets[0]), REFUSED);
    assert_eq!(site.visit(0, &tickets[0]), TAKEN);
    assert_eq!(site.all("register_questions", ""), 1);
    assert_eq!(site.counter(1, "early_data", "other_register"), 1);
}

#[test]
fn a_password_changes_while_the_gateway_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path(), "store");
    let password = dir.path().join("password");
    let has = |word: &str| {
        let user = ["ACL", "SETUSER", "gateway", "on", "resetpass", word, "~quicket:early:*"];
        assert_eq!(store.say(&[&user[..], &["+@all"]].concat()), "OK");
    };
    let written = |word: &str| {
        std::fs::write(&password, word).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&password, mode).unwrap();
    };
    has(">one");
    written("one\n");
    let table = format!(
        "[early_data]\nregister = \"unix:{}\"\nusername = \"gateway\"\npassword_file = \"{}\"\ndeadline_ms = 100\n",
        store.socket().display(),
        password.display()
    );
    let site = Cluster::start_tables(vec![table]);
    store.age();
    site.until_all_take();
    has(">two");
    store.say(&["CLIENT", "KILL", "USER", "gateway"]);
    site.until_it_takes(0, false);
    written("two\n");
    site.reload(0, "");
    site.until_it_takes(0, true);
    let tickets = site.tickets(0);
    assert_eq!(site.visit(0, &tickets[0]), TAKEN);
}

/// RFC 9000, Section 7.4.1, and RFC 9114, Section 7.2.4.2: what a client remembers with its ticket is what it may count
/// on, at any gateway.
#[test]
fn a_gateway_that_allows_less_than_a_ticket_promised_resumes_without_early_data() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path(), "store");
    let socket = store.socket();
    let mut site = Cluster::start(&[&socket, &socket], "deadline_ms = 100");
    store.age();
    site.until_all_take();
    let tickets = [site.tickets(0), site.tickets(0)].concat();
    site.reload(1, "[limits]\nheader_bytes = 16384\n");
    assert_eq!(site.visit(1, &tickets[0]), REFUSED);
    assert_eq!(site.visit(0, &tickets[0]), TAKEN);
    let fewer = site.tickets(1);
    assert_eq!(site.visit(0, &fewer[0]), TAKEN);
    site.reload(1, "");
    assert_eq!(site.visit(1, &tickets[1]), TAKEN);
    assert_eq!(site.counter(1, "early_data", "promised_more"), 1);
    site.start_again(1, "[limits]\nrequests = 99\n");
    site.until_it_takes(1, true);
    assert_eq!(site.visit(1, &tickets[2]), REFUSED);
    assert_eq!(site.visit(0, &tickets[2]), TAKEN);
    assert_eq!(site.counter(1, "early_data", "promised_more"), 1);
}
