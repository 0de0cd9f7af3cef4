//! Private protocols through a gateway and `connect`, between programs that others wrote.

#[path = "../common/mod.rs"]
mod common;
mod datagrams;
mod ends;
mod limits;
mod origins;
mod programs;
mod support;
