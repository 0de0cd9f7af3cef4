//! Bytes of strangers: the corpus, changed at chance (see `fuzz/replay.rs`).

#[path = "../../../fuzz/replay.rs"]
mod replay;
mod run;

#[test]
fn no_bytes_harm_a_server() {
    replay::replay("http3", run::run);
}
