//! All cases between all implementations.

use quicket_lab::interop::{self, Options, Outcome};
use quicket_lab::peers::{Implementation, Workshop};

/// Runs every case with `client`, against each server.
fn all_servers(client: Implementation) {
    let mut options = Options::everything();
    options.pairs.retain(|pair| pair.0 == client);
    let workshop = Workshop::new().unwrap();
    let report = interop::run(&options, &workshop, |run| {
        println!("{} to {}, {}: {:.2} s", run.client, run.server, run.case, run.seconds);
    })
    .unwrap();
    for run in &report.runs {
        assert!(
            matches!(run.outcome, Outcome::Passed),
            "{} to {}, {}\n{}",
            run.client,
            run.server,
            run.case,
            report.table()
        );
    }
}

#[test]
fn quicket_as_a_client_does_every_case_with_every_server() {
    all_servers(Implementation::Quicket);
}

#[test]
fn quinn_as_a_client_does_every_case_with_every_server() {
    all_servers(Implementation::Quinn);
}

#[test]
fn quic_go_as_a_client_does_every_case_with_every_server() {
    all_servers(Implementation::QuicGo);
}

#[test]
fn aioquic_as_a_client_does_every_case_with_every_server() {
    all_servers(Implementation::Aioquic);
}
