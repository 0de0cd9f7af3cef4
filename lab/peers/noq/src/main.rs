//! noq as an interoperability peer. It is a fork of quinn and has the same calls, so that all but
//! HTTP/3 is the source of the peer over quinn.

#[path = "../../quinn/src/client.rs"]
mod client;
mod http3;
#[path = "../../quinn/src/ids.rs"]
mod ids;
#[path = "../../quinn/src/over.rs"]
mod over;
#[path = "../../quinn/src/server.rs"]
mod server;
#[path = "../../quinn/src/tls.rs"]
mod tls;

use std::process::ExitCode;
use std::sync::Arc;

use quicket_peer_common::tasks;

/// The version that this peer speaks, as events name it.
const VERSION: u32 = 1;

/// Has connection IDs drawn at random.
fn draw_ids(config: &mut quinn::EndpointConfig) {
    config.cid_generator(Arc::new(|| Box::new(ids::Drawn)));
}

fn main() -> ExitCode {
    quicket_peer_common::main(|role| tasks::run(role, server::run, client::run))
}
