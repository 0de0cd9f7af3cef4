//! The engine on a simulated network: whole connections in virtual time, with checks of what the
//! RFCs promise. One seed repeats a run exactly: see `quicket_sim::sim`.

mod answers;
mod close;
mod congestion;
mod early_data;
mod ecn;
mod extras;
mod handshake;
mod hostile;
mod impairments;
mod key_update;
mod migration;
mod mtu;
mod network;
mod offload;
mod quiet;
mod retry;
mod runs;
mod sealing;
mod seeds;
mod streams;
mod support;
mod timers;
mod unreachable;
mod versions;
