//! The engine with this crate's TLS and packet protection, over a simulated path.

mod common;

use std::sync::Arc;

use common::identity;
use quicket_engine::time::Duration;
use quicket_engine::{EarlyData, Event};
use quicket_handshake::{AwsLcProvider, Identity, TicketKey};
use quicket_sim::app::Workload;
use quicket_sim::sim::{Pair, PairOptions};
use quicket_wire::Version;

const LIMIT: Duration = Duration::from_secs(60);

fn options(identity: &Identity, key: &TicketKey) -> PairOptions {
    let mut options = PairOptions::new("delay=10ms rate=50mbit loss=1%");
    let server = common::server(identity).ticket_keys([key.clone()]).build().unwrap();
    options.client.tls = Arc::new(common::client(identity).build().unwrap());
    options.server.tls = Arc::new(server);
    options.server.early_data = true;
    options.client_crypto = Arc::new(AwsLcProvider);
    options.server_crypto = Arc::new(AwsLcProvider);
    options
}

/// The first session ticket that the client got on its connection.
fn ticket(pair: &mut Pair) -> Vec<u8> {
    let ticket = pair.at_client().events.iter().find_map(|(_, event)| match event {
        Event::SessionTicket(ticket) => Some(ticket.clone()),
        _ => None,
    });
    ticket.expect("the server sends tickets")
}

/// Connects, works and returns what is left to look at.
fn run(seed: u64, options: PairOptions, work: Workload) -> Pair {
    let mut pair = Pair::new(seed, options);
    pair.connect(work);
    pair.run(LIMIT).unwrap_or_else(|failure| panic!("{failure}"));
    pair
}

#[test]
fn the_engine_speaks_every_version_with_real_cryptography() {
    let (identity, key) = (identity(), TicketKey::random());
    for (first, versions, spoken) in [
        (Version::V1, vec![Version::V1], Version::V1),
        (Version::V2, vec![Version::V2], Version::V2),
    ] {
        let mut options = options(&identity, &key);
        options.client.version = first;
        options.client.versions = versions;
        let work = Workload { key_update_every: 5, ..Workload::requests(20, 3) };
        let mut pair = run(1, options, work);
        assert_eq!(pair.at_client().connection.version(), spoken);
        let client = pair.at_client().connection.handshake_summary().cloned().unwrap();
        assert_eq!(client.alpn, b"test");
        assert_eq!(client.peer_certificates, [identity.chain().next().unwrap()]);
        let server = pair.at_server().connection.handshake_summary().cloned().unwrap();
        assert_eq!(server.cipher_suite, client.cipher_suite);
        pair.close().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn the_engine_resumes_with_early_data() {
    let (identity, key) = (identity(), TicketKey::random());
    let begun = options(&identity, &key);
    let server = Arc::clone(&begun.server.tls);
    let mut first = run(2, begun, Workload::download(10_000));
    let ticket = ticket(&mut first);
    let spoken = first.at_client().connection.version();

    let mut again = options(&identity, &key);
    again.server.tls = server;
    again.client.version = spoken;
    again.client.session = Some(ticket);
    again.client.early_data = true;
    let work = Workload { early: true, ..Workload::requests(5, 2) };
    let mut second = run(3, again, work);
    for side in [Pair::at_client, Pair::at_server] {
        let session = side(&mut second);
        assert!(session.connection.handshake_summary().unwrap().resumed);
        assert_eq!(session.connection.early_data(), EarlyData::Accepted);
    }
}

#[test]
fn the_engine_sends_again_what_a_server_refused_early() {
    let identity = identity();
    let mut first = run(4, options(&identity, &TicketKey::random()), Workload::download(10_000));
    let ticket = ticket(&mut first);
    let spoken = first.at_client().connection.version();

    let mut again = options(&identity, &TicketKey::random());
    again.client.version = spoken;
    again.client.session = Some(ticket);
    again.client.early_data = true;
    let work = Workload { early: true, ..Workload::requests(5, 2) };
    let mut second = run(5, again, work);
    assert_eq!(second.at_client().connection.early_data(), EarlyData::Rejected);
    assert!(!second.at_server().connection.handshake_summary().unwrap().resumed);
}
