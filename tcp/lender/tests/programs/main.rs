//! Programs that know nothing of a TCP stack in user space have sockets of one: servers, clients, what forks and what polls.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod ends;
mod hostile;
mod lent;
mod linux;
mod servers;
#[path = "../../../../packets/tests/device/wire.rs"]
#[allow(dead_code, reason = "tests of the switch need more of it")]
mod wire;
