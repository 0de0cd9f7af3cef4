//! Frames and rings of strangers: the corpus, changed at chance (see `fuzz/replay.rs`).

#[path = "../../../fuzz/replay.rs"]
mod replay;
mod run;

#[test]
fn no_frame_and_no_ring_harms_the_switch() {
    replay::replay("ports", run::run);
}
