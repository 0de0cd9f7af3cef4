//! quiche as a row of the benchmark: all connections of an endpoint over one socket and on one
//! thread, segmentation and receive offload on, windows out of the way, path MTU fixed.

mod endpoint;
mod socket;
mod transport;

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use boring::ssl::{SslContextBuilder, SslMethod};
use quiche::{Config, CongestionControlAlgorithm, PROTOCOL_VERSION};
use quicket_workload::bench::tasks::{TaskClient, Transport, serve_connection};
use quicket_workload::bench::{
    ALPN, Assignment, Cipher, Congestion, Counters, Failure, Pattern, Payload, Role, Unsupported,
    WINDOW,
};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use endpoint::Endpoint;
use transport::Quiche;

/// Milliseconds of silence that end a connection: longer than any load.
const IDLE: u64 = 300_000;
/// Streams that a client may have open at once.
const STREAMS: u64 = 1000;

pub fn serve(assignment: &Assignment, ready: &mut dyn FnMut(SocketAddr)) -> Result<(), Failure> {
    let Role::Server { listen, certificate, key } = &assignment.role else {
        return Err("not told to be a server".into());
    };
    let mut config = config(assignment)?;
    config.load_cert_chain_from_pem_file(text(certificate)?)?;
    config.load_priv_key_from_pem_file(text(key)?)?;
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let endpoint = Endpoint::new(*listen, config, true)?;
        ready(endpoint.address());
        tokio::task::spawn_local(endpoint.clone().drive());
        let counters = Rc::new(Counters::default());
        let block = Quiche::block(Pattern::new(false).block());
        loop {
            let connection = endpoint.accept().await;
            let (counters, block) = (counters.clone(), block.clone());
            let served =
                serve_connection::<Quiche>(connection.clone(), connection, counters, block);
            tokio::task::spawn_local(served);
        }
    })
}

pub fn client(assignment: &Assignment) -> Result<TaskClient<Quiche>, Failure> {
    let Role::Client { connect, roots, .. } = &assignment.role else {
        return Err("not told to be a client".into());
    };
    let mut config = config(assignment)?;
    config.load_verify_locations_from_file(text(roots)?)?;
    config.verify_peer(true);
    let runtime = runtime()?;
    let entered = runtime.enter();
    let any = if connect.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let endpoint = Endpoint::new(any.parse()?, config, false)?;
    drop(entered);
    let tasks = LocalSet::new();
    tasks.spawn_local(endpoint.clone().drive());
    Ok(TaskClient::new(Quiche { runtime, tasks, endpoint, server: *connect }))
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn config(assignment: &Assignment) -> Result<Config, Failure> {
    let conditions = assignment.conditions;
    if !conditions.encryption {
        return Err(Unsupported("quiche always encrypts").into());
    }
    if conditions.cipher != Cipher::Aes128Gcm {
        // BoringSSL has no way to choose among those of TLS 1.3; where the processor has AES it
        // prefers this one at both ends.
        return Err(Unsupported("quiche has AES-128-GCM in the first place").into());
    }
    let mut tls = SslContextBuilder::new(SslMethod::tls())?;
    tls.set_curves_list("X25519")?;
    let mut config = Config::with_boring_ssl_ctx_builder(PROTOCOL_VERSION, tls)?;
    config.set_application_protos(&[ALPN])?;
    config.set_max_idle_timeout(IDLE);
    config.set_max_send_udp_payload_size(conditions.payload.target().into());
    config.set_max_recv_udp_payload_size(conditions.payload.target().into());
    config.discover_pmtu(matches!(conditions.payload, Payload::Discovered(_)));
    let window = u64::from(WINDOW);
    config.set_max_connection_window(window);
    config.set_max_stream_window(window);
    config.set_initial_max_data(window);
    config.set_initial_max_stream_data_bidi_local(window);
    config.set_initial_max_stream_data_bidi_remote(window);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_disable_active_migration(true);
    let bbr = conditions.congestion == Congestion::Bbr;
    config.set_cc_algorithm(if bbr {
        CongestionControlAlgorithm::Bbr2Gcongestion
    } else {
        CongestionControlAlgorithm::CUBIC
    });
    // CUBIC is faster without.
    config.enable_pacing(bbr);
    if conditions.tickets {
        config.enable_early_data();
    }
    Ok(config)
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}
