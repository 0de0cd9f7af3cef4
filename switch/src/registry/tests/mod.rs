//! What the tests of the registry's files have in common.

mod error;
mod family;
mod generations;
mod receipt;
mod slots;
mod status;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quicket_engine::time::{Duration, Time};
use quicket_sim::test_crypto::TestCrypto;
use quicket_steering::{HashKey, Owner};
use quicket_wire::ClientHello;

use super::*;
use crate::testing::client_hello;

/// Each registration comes from a process of its own, unless a test says otherwise.
static NEXT: AtomicU64 = AtomicU64::new(1000);

const KEY: HashKey = HashKey::new([7; 8]);

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn registry() -> Registry {
    began(0, 1000, 100, false)
}

fn began(seconds: u64, uid: u32, incarnation: u64, takes_over: bool) -> Registry {
    let receipts = Receipts::new(Arc::new(TestCrypto), [5; 32], incarnation);
    Registry::new(at(seconds), uid, receipts, takes_over)
}

fn names(protocols: &[&str], servers: &[&str]) -> Names {
    let protocols = protocols.iter().map(|name| Protocol::new(name.as_bytes()).unwrap());
    let servers = servers.iter().map(|name| ServerName::new(name).unwrap());
    Names::new(protocols, servers).unwrap()
}

fn asks(program: &str, names: Names) -> Registration {
    Registration {
        address: ListenAddress::new("192.0.2.1:443".parse().unwrap(), false),
        uid: 1000,
        process: ProcessId(NEXT.fetch_add(1, Ordering::Relaxed)),
        program: program.to_owned(),
        names,
        workers: 4,
        reuse_port: false,
        replace: false,
        claim: None,
        family: None,
        attention: Attention::default(),
    }
}

fn active(registry: &mut Registry, new: Registration) -> ListenerId {
    let registered = registry.register(at(0), new).unwrap();
    registry.ready(at(0), registered.listener, None).unwrap();
    registered.listener
}

/// Who gets a client that asks for this.
fn who(registry: &Registry, server: Option<&str>, protocols: &[&str]) -> Option<ListenerId> {
    let address = *registry.addresses.keys().next().unwrap();
    let message = client_hello(server, protocols, 0);
    let hello = ClientHello::parse(&message).unwrap();
    let spread = Spread { key: &KEY, of: &[1; 8] };
    registry.choose(address, &hello, &spread).map(|place| place.listener)
}
