//! A store over TLS.

use std::fs;
use std::path::Path;

use quicket_testing::{free_port, until};

use super::authority::{authority, client, openssl};
use super::site::{Cluster, TAKEN};
use super::store::Store;

/// Makes store.pem for 127.0.0.1, by an authority.
fn server(dir: &Path, authority: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(dir, &format!("req -new {key} -subj /CN=store -keyout store.key -out store.csr"));
    fs::write(dir.join("store.ext"), "subjectAltName = IP:127.0.0.1\n").unwrap();
    let by = format!("-CA {authority}.pem -CAkey {authority}.key -CAcreateserial");
    let to = "-days 2 -extfile store.ext -out store.pem";
    openssl(dir, &format!("x509 -req -in store.csr {by} {to}"));
}

/// redis-server asks for a certificate unless it is told otherwise. It listens at its socket, too.
fn start(dir: &Path, port: u16) -> Store {
    let files = [("cert", "store.pem"), ("key", "store.key"), ("ca-cert", "one.pem")];
    let files = files.into_iter().flat_map(|(option, file)| {
        [format!("--tls-{option}-file"), dir.join(file).display().to_string()]
    });
    let listens = ["--tls-port", &port.to_string(), "--bind", "127.0.0.1"].map(str::to_owned);
    Store::start_with(dir, "store", listens.into_iter().chain(files).collect())
}

#[test]
fn a_store_over_tls_has_to_be_the_one_and_sees_who_asks() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "other"] {
        authority(dir.path(), name);
        client(dir.path(), name, &format!("of-{name}"));
    }
    server(dir.path(), "one");
    let port = free_port();
    let store = start(dir.path(), port);
    let folder = dir.path().display();
    let table = |ca: &str, shown: &str| {
        format!(
            "[early_data]\nregister = \"rediss://127.0.0.1:{port}\"\ndeadline_ms = 200\nca = \"{folder}/{ca}.pem\"\n\
             client_chain = \"{folder}/{shown}.pem\"\nclient_key = \"{folder}/{shown}.key\"\n"
        )
    };
    // The second would take anybody for the store that the other authority knows, and the third is not known to it.
    let site = Cluster::start_tables(vec![
        table("one", "of-one"),
        table("other", "of-one"),
        table("one", "of-other"),
    ]);
    store.age();
    site.until_it_takes(0, true);
    let tickets = site.tickets(0);
    assert_eq!(site.visit(0, &tickets[0]), TAKEN);
    for gateway in [1, 2] {
        until("it has given up", || site.counter(gateway, "register_breaker", "") != 0);
        assert_eq!(site.counter(gateway, "register_takes", ""), 0, "{gateway}");
    }
    // What it is to trust is another file now, with the next connection.
    fs::copy(dir.path().join("one.pem"), dir.path().join("other.pem")).unwrap();
    site.reload(1, "");
    site.until_it_takes(1, true);
    assert_eq!(site.visit(1, &tickets[1]), TAKEN);
}
