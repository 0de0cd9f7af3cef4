//! quinn and h3 as an interoperability peer and as a row of the benchmark.

mod bench;
mod client;
mod http3;
mod ids;
mod over;
mod server;
mod tls;

use std::process::ExitCode;

use quicket_peer_common::tasks;

/// The version that this peer speaks, as events name it; quinn has no accessor for it.
const VERSION: u32 = 1;

/// Has connection IDs drawn at random.
fn draw_ids(config: &mut quinn::EndpointConfig) {
    config.cid_generator(|| Box::new(ids::Drawn));
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("bench") {
        let assignment = arguments.next().unwrap_or_default();
        return quicket_workload::bench::run(&assignment, bench::serve, bench::client);
    }
    quicket_peer_common::main(|role| tasks::run(role, server::run, client::run))
}
