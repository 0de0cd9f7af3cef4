//! What connections of both roles are made with.

use quiche::{Config, PROTOCOL_VERSION};
use quicket_peer_common::files;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};

/// Windows, in bytes.
const CONNECTION_WINDOW: u64 = 10 << 20;
const STREAM_WINDOW: u64 = 1 << 20;
/// Streams that the other end may have open at once.
const STREAMS: u64 = 100;
/// Milliseconds of silence that end a connection.
const IDLE: u64 = 30_000;
/// The largest datagrams that are sent: quiche searches for larger ones when asked only.
const PAYLOAD: usize = 1350;
/// Datagrams (RFC 9221) that wait.
const DATAGRAMS: usize = 256;
/// Reserved to exercise version negotiation (RFC 9000, Section 15).
const UNKNOWN_VERSION: u32 = 0x1a2a_3a4a;

pub fn server(arguments: &ServerArguments) -> Result<Config, Failure> {
    let mut config = common(PROTOCOL_VERSION, &arguments.alpn)?;
    config.load_cert_chain_from_pem_file(files::name(&arguments.cert)?)?;
    config.load_priv_key_from_pem_file(files::name(&arguments.key)?)?;
    if let Some(authority) = &arguments.client_ca {
        config.load_verify_locations_from_file(files::name(authority)?)?;
        config.verify_peer(true);
    }
    config.enable_early_data();
    Ok(config)
}

pub fn client(arguments: &ClientArguments) -> Result<Config, Failure> {
    let version = if arguments.unknown_version { UNKNOWN_VERSION } else { PROTOCOL_VERSION };
    let mut config = common(version, std::slice::from_ref(&arguments.alpn))?;
    config.load_verify_locations_from_file(files::name(&arguments.ca)?)?;
    config.verify_peer(true);
    if let (Some(certificate), Some(key)) = (&arguments.cert, &arguments.key) {
        config.load_cert_chain_from_pem_file(files::name(certificate)?)?;
        config.load_priv_key_from_pem_file(files::name(key)?)?;
    }
    if arguments.early_data {
        config.enable_early_data();
    }
    Ok(config)
}

fn common(version: u32, alpn: &[String]) -> Result<Config, Failure> {
    let mut config = Config::new(version)?;
    let names: Vec<&[u8]> = alpn.iter().map(String::as_bytes).collect();
    config.set_application_protos(&names)?;
    config.log_keys();
    config.set_max_idle_timeout(IDLE);
    config.set_max_send_udp_payload_size(PAYLOAD);
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_initial_max_streams_uni(STREAMS);
    config.set_active_connection_id_limit(4);
    config.enable_dgram(true, DATAGRAMS, DATAGRAMS);
    Ok(config)
}
