//! One recorded first flight, and one ticket, at all gateways at once.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quicket_testing::until;
use tempfile::TempDir;

use super::behind::Site;
use super::client::{request, run};
use super::site::{Cluster, REFUSED, TAKEN};
use super::store::Store;

/// How often it is sent to each gateway.
const COPIES: usize = 334;
/// Datagrams of a first flight: the ClientHello takes two.
const FLIGHT: usize = 2;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Clients that have one ticket.
const VISITORS: usize = 30;

/// Three gateways that take early data, with their store in its folder, and a ticket of one of them.
fn begin() -> ((Store, TempDir), Cluster, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path(), "store");
    let socket = store.socket();
    let site = Cluster::start(&[&socket, &socket, &socket], "deadline_ms = 200");
    store.age();
    site.until_all_take();
    let ticket = site.tickets(0).remove(0);
    ((store, dir), site, ticket)
}

#[test]
fn a_recorded_first_flight_is_taken_once_however_often_it_is_sent() {
    let (_store, mut site, ticket) = begin();
    let kept = site.spreader.record();
    let recorded = run(async {
        let (config, _store) = site.client(&[ticket]);
        let connection = site.connect(&config, true).await;
        let (mut send, _recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/", &[])).await.unwrap();
        let _ = send.finish();
        let begun = Instant::now();
        while kept.lock().unwrap().len() < FLIGHT {
            assert!(begun.elapsed() < PATIENCE, "no first flight");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kept.lock().unwrap().clone()
    });
    let recorded = Arc::new(recorded);
    replay(&site, &recorded);
    let heard = |site: &Cluster, gateway| site.counter(gateway, "early_data", "");
    (0..3).for_each(|gateway| until("an answer", || heard(&site, gateway) > 0));
    (0..3).for_each(|gateway| all_was_read(&site, gateway));
    assert_eq!((site.all("early_data", "first"), site.all("early_data", "used")), (1, 2));
    until("the request", || site.all("early_requests", "") > 0);
    assert_eq!(site.all("early_requests", ""), 1);
    // One that is started again has forgotten all, and asks.
    site.start_again(1, "");
    site.until_it_takes(1, true);
    replay(&site, &recorded);
    until("an answer", || heard(&site, 1) > 0);
    all_was_read(&site, 1);
    assert_eq!((site.counter(1, "early_data", "used"), heard(&site, 1)), (1, 1));
    assert_eq!(site.counter(1, "early_requests", ""), 0);
}

/// The client's connection has ended, so that copies of its packets are those of a new one.
#[test]
fn a_first_flight_is_not_taken_again_once_its_connection_has_ended() {
    let (_store, site, ticket) = begin();
    let kept = site.spreader.tap(site.gateways[0].address);
    assert_eq!(run(site.visit_with(&ticket)), TAKEN);
    let recorded = Arc::new(kept.lock().unwrap().clone());
    let early = site.all("early_requests", "");
    until("its connection is gone, and copies come to all", || {
        replay(&site, &recorded);
        let used = |gateway| site.counter(gateway, "early_data", "used") > 0;
        site.counter(0, "early_data", "seen") > 0 && used(1) && used(2)
    });
    (0..3).for_each(|gateway| all_was_read(&site, gateway));
    assert_eq!(site.all("early_data", "first"), 1);
    assert_eq!(site.all("early_requests", ""), early);
}

/// Waits until a gateway has read all that came before: a client that comes now is answered after that.
fn all_was_read(site: &Cluster, gateway: usize) {
    assert_eq!(site.tickets(gateway).len(), 2);
}

fn replay(site: &Cluster, recorded: &Arc<Vec<Vec<u8>>>) {
    let senders = site.gateways.iter().map(|gateway: &Site| {
        let (to, recorded) = (gateway.address, Arc::clone(recorded));
        std::thread::spawn(move || {
            for _ in 0..COPIES {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                for datagram in recorded.iter() {
                    socket.send_to(datagram, to).unwrap();
                }
            }
        })
    });
    senders.collect::<Vec<_>>().into_iter().for_each(|sender| sender.join().unwrap());
}

#[test]
fn many_clients_with_one_ticket_at_once_have_it_taken_once() {
    let (_store, site, ticket) = begin();
    site.spreader.lead_to_all(site.gateways.iter().map(|gateway| gateway.address).collect());
    let visits: Vec<_> = std::thread::scope(|scope| {
        let visit = || run(site.visit_with(&ticket));
        let all: Vec<_> = (0..VISITORS).map(|_| scope.spawn(visit)).collect();
        all.into_iter().map(|visit| visit.join().unwrap()).collect()
    });
    let count = |what| visits.iter().filter(|visit| **visit == what).count();
    assert_eq!((count(TAKEN), count(REFUSED)), (1, VISITORS - 1));
}
