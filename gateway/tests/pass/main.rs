//! Connections that are passed on by server name and not ended at the gateway.

#[path = "../behind/mod.rs"]
mod behind;
#[path = "../http3/client.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod client;
mod origin;
mod quic;
mod tls;
