//! The server's end.

use std::net::SocketAddr;
use std::time::Duration;

use quicket::tokio::Endpoint;
use quicket::{EndpointConfig, Identity, RetryPolicy, ServerConfig, ServerTls, Version, Workers};
use quicket_workload::bench::Failure;
use tokio::signal::unix::{SignalKind, signal};

use super::EndpointArguments;
use super::case::{Case, Second, Versions};
use crate::server::{Site, serve};

/// The names that the runner gives to the server's addresses, and the port to move clients to.
const NAMES: [&str; 2] = ["server4", "server6"];
const PREFERRED_PORT: u16 = 4443;
/// How long to tell clients that the server ends.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) async fn run(arguments: &EndpointArguments, case: Case) -> Result<(), Failure> {
    let (endpoint, config) = prepare(arguments, case).await?;
    serve_until(arguments, case, &endpoint, config, ended()).await?;
    // What was said is said even if a client has gone for good.
    let _ = tokio::time::timeout(FAREWELL, endpoint.wait_idle()).await;
    Ok(())
}

/// Makes the sockets.
pub(super) async fn prepare(
    arguments: &EndpointArguments,
    case: Case,
) -> Result<(Endpoint, ServerConfig), Failure> {
    // Clients of others meet an address with two workers. The kernel does not help these, so that
    // what comes from an address that is new goes from one to the other.
    let mut endpoint_config = EndpointConfig::default().workers(Workers::Count(2));
    endpoint_config.udp.route_by_connection_id = false;
    endpoint_config.protocol.versions = match case.versions {
        Versions::Upgrade => vec![Version::V1, Version::V2],
        Versions::One | Versions::Unknown => vec![Version::V1],
    };
    let endpoint = Endpoint::bind_with(arguments.listen, endpoint_config).await?;
    let mut config = config(arguments, case)?;
    if case.preferred_address {
        for address in preferred(arguments).await? {
            config = config.preferred_address(endpoint.also_bind(address)?);
        }
    }
    Ok((endpoint, config))
}

/// Serves until `end`.
pub(super) async fn serve_until(
    arguments: &EndpointArguments,
    case: Case,
    endpoint: &Endpoint,
    config: ServerConfig,
    end: impl Future<Output = std::io::Result<()>>,
) -> Result<(), Failure> {
    let site = Site { folder: Some(arguments.www.clone()), retries: case.retry };
    serve(endpoint, config, site, end).await
}

fn config(arguments: &EndpointArguments, case: Case) -> Result<ServerConfig, Failure> {
    let identity = Identity::from_pem_files(arguments.certificate(), arguments.key())?;
    let early = case.second == Second::Early;
    let mut tls = ServerTls::builder(identity).alpn([case.alpn]).early_data(early);
    if let Some(suites) = case.cipher_suites() {
        tls = tls.cipher_suites(suites);
    }
    if let Some(log) = arguments.key_log()? {
        tls = tls.key_log(log);
    }
    let retry = if case.retry { RetryPolicy::Always } else { RetryPolicy::Never };
    let mut config =
        ServerConfig::new(tls.build()?).transport(case.transport()).retry(retry).early_data(early);
    if case.versions == Versions::Upgrade {
        config.protocol_mut().preferred_version = Some(Version::V2);
    }
    if let Some(log) = arguments.qlog()? {
        config = config.qlog(log);
    }
    Ok(config)
}

/// The addresses to move clients to, at most one of each family.
async fn preferred(arguments: &EndpointArguments) -> Result<Vec<SocketAddr>, Failure> {
    if !arguments.preferred.is_empty() {
        return Ok(arguments.preferred.clone());
    }
    let mut addresses = Vec::new();
    for name in NAMES {
        if let Ok(mut found) = tokio::net::lookup_host((name, PREFERRED_PORT)).await {
            addresses.extend(found.next());
        }
    }
    if addresses.is_empty() {
        return Err(
            "neither server4 nor server6 is a name here: say with --preferred or PREFERRED \
                    which addresses to move clients to"
                .into(),
        );
    }
    Ok(addresses)
}

/// Until somebody ends the container.
async fn ended() -> std::io::Result<()> {
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}
