//! What endpoints of both roles are made with.

use aws_lc_rs::digest;
use quicket_peer_common::files;
use quicket_workload::bench::Failure;
use quicket_workload::peer::{ClientArguments, ServerArguments};
use tquic::{Config, TlsConfig};

/// Windows, in bytes.
const CONNECTION_WINDOW: u64 = 10 << 20;
const STREAM_WINDOW: u64 = 1 << 20;
/// Streams that the other end may have open at once.
const STREAMS: u64 = 100;
/// Milliseconds of silence that end a connection, and that a handshake may take: where 30 % of the
/// packets are lost, ten seconds are not enough.
const IDLE: u64 = 30_000;
/// Connection IDs that the other end may give.
const CONNECTION_IDS: u64 = 4;

pub fn server(arguments: &ServerArguments) -> Result<Config, Failure> {
    let protocols = arguments.alpn.iter().map(|name| name.clone().into_bytes()).collect();
    let (certificate, key) = (files::name(&arguments.cert)?, files::name(&arguments.key)?);
    let mut tls = TlsConfig::new_server_config(certificate, key, protocols, true)?;
    if let Some(authority) = &arguments.client_ca {
        tls.set_ca_certs(files::name(authority)?)?;
        tls.set_verify(true);
    }
    let mut config = common(tls)?;
    config.enable_retry(arguments.retry);
    if let Some(secret) = &arguments.reset_key {
        let mut key = [0; 64];
        key.copy_from_slice(digest::digest(&digest::SHA512, secret.as_bytes()).as_ref());
        config.set_reset_token_key(key);
    }
    Ok(config)
}

pub fn client(arguments: &ClientArguments) -> Result<Config, Failure> {
    let protocols = vec![arguments.alpn.clone().into_bytes()];
    let mut tls = TlsConfig::new_client_config(protocols, arguments.early_data)?;
    tls.set_ca_certs(files::name(&arguments.ca)?)?;
    tls.set_verify(true);
    if let (Some(certificate), Some(key)) = (&arguments.cert, &arguments.key) {
        tls.set_certificate_file(files::name(certificate)?)?;
        tls.set_private_key_file(files::name(key)?)?;
    }
    common(tls)
}

fn common(tls: TlsConfig) -> Result<Config, Failure> {
    let mut config = Config::new()?;
    config.set_tls_config(tls);
    config.set_max_idle_timeout(IDLE);
    config.set_max_handshake_timeout(IDLE);
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_initial_max_streams_uni(STREAMS);
    config.set_active_connection_id_limit(CONNECTION_IDS);
    Ok(config)
}
