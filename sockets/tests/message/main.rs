//! Message sockets over loopback.

mod pair;
mod transfer;
