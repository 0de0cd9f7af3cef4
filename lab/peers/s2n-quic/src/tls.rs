//! TLS configurations.

use quicket_peer_common::tls;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use rustls::client::Resumption;
use s2n_quic::provider::tls::rustls::{Client, Server};

pub fn server(arguments: &ServerArguments) -> Result<Server, Failure> {
    Ok(Server::from(tls::server(arguments)?))
}

pub fn client(arguments: &ClientArguments) -> Result<Client, Failure> {
    let mut config = tls::client(arguments)?;
    if !arguments.resume {
        config.resumption = Resumption::disabled();
    }
    Ok(Client::from(config))
}
