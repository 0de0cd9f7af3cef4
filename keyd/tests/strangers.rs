//! What a client and a key process read of each other, from a corpus that is changed at chance.

#[path = "../../fuzz/replay.rs"]
mod replay;

#[test]
fn messages_of_strangers_are_read_or_refused() {
    replay::replay("keyd", quicket_keyd::protocol::fuzz);
}
