//! Flags of `quicket connect`.

use std::path::PathBuf;

use clap::Args;
use quicket_gateway::connect::Local;

use super::{Transport, Trust};

/// Carry local TCP, Unix and UDP sockets over QUIC to a gateway
///
/// Standard input and output can be carried, too. The gateway passes them on to the origin that its file names for this protocol ([[protocol]] in quicket
/// gateway --help). Each local TCP or Unix connection becomes a stream of one connection. Each sender of UDP
/// packets gets a connection of its own. A connection that ends is made anew, after waits that grow up to 30
/// seconds; local connections wait for it for 10 seconds.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  quicket connect example.org:443 --alpn redis --local tcp:127.0.0.1:6379
  quicket connect example.org:443 --alpn smb --local tcp:127.0.0.1:1445
  quicket connect example.org:443 --alpn game --local udp:127.0.0.1:5000
  quicket connect example.org:443 --alpn redis --cert me.pem --key me.key --local tcp:127.0.0.1:6379
  quicket connect 127.0.0.1:8443 --server-name example.org --ca ca.pem --alpn redis --local unix:redis.sock
  printf 'PING\\r\\n' | quicket connect example.org:443 --alpn redis
  ssh -o ProxyCommand='quicket connect example.org:443 --alpn ssh' example.org"
)]
pub(crate) struct Connect {
    /// The gateway: HOST:PORT
    #[arg(value_name = "HOST:PORT", value_parser = server)]
    pub(crate) server: (String, u16),

    /// The protocol to ask for
    #[arg(long, value_name = "NAME", value_parser = protocol)]
    pub(crate) alpn: String,

    /// What is carried: tcp:ADDR:PORT, unix:PATH, udp:ADDR:PORT, or - for standard input and output
    #[arg(long, short, value_name = "LOCAL", default_value = "-")]
    pub(crate) local: Local,

    /// The name that the certificate must have and that the gateway is asked for, if it is not HOST
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,

    /// Ask the gateway for a sign of life after so many seconds of silence; 0 asks for none
    #[arg(long, default_value_t = 10, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(crate) keep_alive: u64,

    /// Say only what goes wrong
    #[arg(long, short)]
    pub(crate) quiet: bool,

    #[command(flatten, next_help_heading = "Trust")]
    pub(crate) trust: Trust,

    /// The certificate chain in PEM, its own certificate first, for gateways that ask for one
    #[arg(long, requires = "key", value_name = "FILE", help_heading = "Own certificate")]
    pub(crate) cert: Option<PathBuf>,

    /// The certificate's private key in PEM
    #[arg(long, requires = "cert", value_name = "FILE", help_heading = "Own certificate")]
    pub(crate) key: Option<PathBuf>,

    /// Keep sessions in this directory
    #[arg(long, value_name = "DIR", help_heading = "Sessions")]
    pub(crate) sessions: Option<PathBuf>,

    /// Neither use nor keep sessions
    #[arg(long, conflicts_with = "sessions", help_heading = "Sessions")]
    pub(crate) no_sessions: bool,

    /// Send before the handshake is complete (0-RTT), where an earlier session allows it. An attacker can
    /// repeat what is sent so
    #[arg(long, conflicts_with = "no_sessions", help_heading = "Sessions")]
    pub(crate) early_data: bool,

    #[command(flatten)]
    pub(crate) network: super::Network,

    #[command(flatten)]
    pub(crate) transport: Transport,
}

fn server(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} is not HOST:PORT, such as example.org:443 or [::1]:443");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|&port| port > 0).ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bare.unwrap_or(host) {
        "" => Err(wrong()),
        host if bare.is_none() && host.contains(':') => Err(wrong()),
        host => Ok((host.to_owned(), port)),
    }
}

fn protocol(text: &str) -> Result<String, String> {
    match text.len() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("the name of a protocol has 1 to 255 bytes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        assert_eq!(server("a.example:1"), Ok(("a.example".to_owned(), 1)));
        assert_eq!(server("[::1]:443"), Ok(("::1".to_owned(), 443)));
        for wrong in ["", "a", ":1", "a:0", "a:b", "::1:443", "[]:1"] {
            assert!(server(wrong).is_err(), "{wrong:?}");
        }
    }
}
