//! Bytes of strangers: the corpus, changed at chance (see `fuzz/replay.rs`).

mod protocol;
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod run;
mod secrets;

#[test]
fn no_bytes_harm_a_switch() {
    replay::replay("switch", run::run);
}

#[test]
fn no_bytes_harm_programs_and_switch_that_talk() {
    replay::replay("protocol", protocol::run);
}

#[test]
fn no_bytes_harm_who_reads_secrets_and_none_are_repeated() {
    replay::replay("secrets", secrets::run);
}
