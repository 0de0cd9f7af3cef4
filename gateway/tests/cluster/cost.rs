//! What the register costs: handshakes of clients that come back with early data, in a second.
//!
//! ```text
//! cargo test --release -p quicket-gateway --test cluster -- --ignored --nocapture cost
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quicket::tokio::Connection;
use quicket::{EarlyData, SessionStore};

use super::proxy::{Fault, Proxy};
use super::site::Cluster;
use super::store::Store;

/// Clients at a time.
const CLIENTS: usize = 16;
/// How long each case is measured.
const TIME: Duration = Duration::from_secs(3);

/// Handshakes in a second, and how many of a hundred had early data taken.
fn measure(site: &Cluster) -> (f64, f64) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let tickets: Vec<_> = (0..CLIENTS).map(|_| site.tickets(0)).collect();
    let (done, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let clients = tickets.into_iter().map(|tickets| {
        let (config, store) = site.client(&tickets);
        // Straight to the gateway: the spreader would cost as much.
        let address = site.gateways[0].address;
        let name = format!("localhost:{}", address.port());
        tickets.iter().for_each(|ticket| store.save_session(&name, ticket));
        let (done, taken, stop) = (Arc::clone(&done), Arc::clone(&taken), Arc::clone(&stop));
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let connection =
                    Connection::connect_early(address, "localhost", &config).await.unwrap();
                assert_eq!(connection.early_data(), EarlyData::Offered);
                connection.wait_established().await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
                let early = connection.early_data() == EarlyData::Accepted;
                taken.fetch_add(early.into(), Ordering::Relaxed);
                // Two more tickets come behind the handshake.
                let mut ticket = store.take_session(&name);
                while ticket.is_none() {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                    ticket = store.take_session(&name);
                }
                store.save_session(&name, &ticket.unwrap());
                connection.close(0x100, b"");
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    std::thread::sleep(TIME);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| runtime.block_on(client).unwrap());
    let done = done.load(Ordering::Relaxed) as f64;
    (done / begun.elapsed().as_secs_f64(), 100.0 * taken.load(Ordering::Relaxed) as f64 / done)
}

#[test]
#[ignore = "it measures, and wants a machine that does nothing else"]
fn the_cost_of_a_register() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::start(dir.path(), "store");
    let way = Proxy::start(dir.path().join("way"), &store.socket());
    let alone = Cluster::start_tables(vec![String::new()]);
    let straight = Cluster::start(&[&store.socket()], "deadline_ms = 5");
    let paths: [&Path; 1] = [way.path()];
    let far = Cluster::start(&paths, "deadline_ms = 20");
    store.age();
    straight.until_all_take();
    far.until_all_take();
    println!("{:34} {:>12} {:>14}", "register", "handshakes/s", "early data");
    let tell = |what: &str, site: &Cluster| {
        let (rate, share) = measure(site);
        println!("{what:34} {rate:>12.0} {share:>12.1} %");
    };
    tell("of each process", &alone);
    tell("a store on this machine", &straight);
    way.set(Fault::Slow(Duration::from_millis(2)));
    tell("a store 2 ms away", &far);
    way.set(Fault::Gone);
    tell("a store that is gone", &far);
    tell("of each process, again", &alone);
}
