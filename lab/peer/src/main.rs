//! Quicket as an interoperability peer: the same command line and the same events as the peers
//! over other implementations.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    quicket_peer_common::main(quicket_peer::run)
}
