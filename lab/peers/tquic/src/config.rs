//! What endpoints of both roles are made with.

use std::fs::{File, OpenOptions};
use std::path::Path;

use aws_lc_rs::digest;
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
    let (certificate, key) = (text(&arguments.cert)?, text(&arguments.key)?);
    let mut tls = TlsConfig::new_server_config(certificate, key, protocols, true)?;
    if let Some(authority) = &arguments.client_ca {
        tls.set_ca_certs(text(authority)?)?;
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
    tls.set_ca_certs(text(&arguments.ca)?)?;
    tls.set_verify(true);
    if let (Some(certificate), Some(key)) = (&arguments.cert, &arguments.key) {
        tls.set_certificate_file(text(certificate)?)?;
        tls.set_private_key_file(text(key)?)?;
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

/// The file for TLS secrets that SSLKEYLOGFILE names.
pub fn key_log() -> Result<Option<File>, Failure> {
    let name = std::env::var_os("SSLKEYLOGFILE").filter(|name| !name.is_empty());
    let open = |name| OpenOptions::new().create(true).append(true).open(name);
    Ok(name.map(open).transpose()?)
}

fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()).into())
}
