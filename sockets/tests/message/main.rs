//! Message sockets over loopback.

mod busy;
mod close;
mod events;
mod flow;
mod identity;
mod listeners;
mod misuse;
mod movement;
mod options;
mod pair;
mod polling;
mod program;
mod relay;
mod signals;
mod transfer;
