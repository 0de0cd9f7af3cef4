//! noq as an interoperability peer. It is a fork of quinn and has the same calls, so that all but
//! HTTP/3 is the source of the peer over quinn.

#[path = "../../quinn/src/client.rs"]
mod client;
#[path = "../../quinn/src/echo.rs"]
mod echo;
#[path = "../../quinn/src/http09.rs"]
mod http09;
mod http3;
#[path = "../../quinn/src/ids.rs"]
mod ids;
#[path = "../../quinn/src/server.rs"]
mod server;
#[path = "../../quinn/src/tls.rs"]
mod tls;

use std::process::ExitCode;
use std::sync::Arc;

use quicket_workload::bench::Failure;
use quicket_workload::peer::Role;

/// The version that this peer speaks, as events name it.
const VERSION: u32 = 1;

/// Has connection IDs drawn at random.
fn draw_ids(config: &mut quinn::EndpointConfig) {
    config.cid_generator(Arc::new(|| Box::new(ids::Drawn)));
}

fn main() -> ExitCode {
    quicket_peer_common::main(peer)
}

fn peer(role: Role) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        match role {
            Role::Server(arguments) => server::run(arguments).await,
            Role::Client(arguments) => client::run(arguments).await,
        }
    });
    // A read of standard input may still be under way on a thread that nothing can interrupt.
    runtime.shutdown_background();
    result
}
