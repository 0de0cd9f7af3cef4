//! Gateways that have their clients' tickets in common, and a store that knows which of them brought early data.

#[path = "../mutual_tls/authority.rs"]
mod authority;
#[path = "../behind/mod.rs"]
mod behind;
#[allow(dead_code, reason = "it is that of other tests")]
#[path = "../http3/client.rs"]
mod client;
mod cost;
mod proxy;
mod replays;
mod site;
mod spreader;
mod store;
mod store_faults;
mod tickets;
mod tls;
