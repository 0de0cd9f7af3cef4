//! `quicket connect`: local sockets over QUIC to a gateway.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quicket::{
    ClientConfig, ConnectError, ConnectionError, FileSessionStore, Identity, TransportConfig,
};
use quicket_gateway::connect::{self, Error, Event, Say, Server};

use crate::args::Connect;
use crate::exit::{Failure, Kind};
use crate::out::tell;
use crate::{places, transport, trust};

pub(crate) fn run(args: &Connect) -> Result<(), Failure> {
    transport::warn(&args.transport);
    trust::warn(&args.trust);
    let (host, port) = args.server.clone();
    let name = args.server_name.clone().unwrap_or_else(|| host.clone());
    let server = Server { host, port, name, config: config(args)?, early_data: args.early_data };
    let quiet = args.quiet;
    let say: Say = Arc::new(move |event: &Event| match event {
        Event::Listening(_) | Event::Connected { .. } if quiet => {}
        event => tell!("{event}"),
    });
    crate::serve::raise_limit();
    let runtime = crate::one_thread()?;
    let ended = runtime.block_on(async {
        // The gateway hears of the end, whoever wants it.
        let (stop, hung_up) = (crate::serve::stop(), crate::serve::hung_up());
        let stop = async move {
            tokio::select! { () = stop => {}, () = hung_up => {} }
        };
        connect::run(server, args.local.clone(), say, stop).await
    });
    // A thread may wait for standard input still, and nobody for that thread.
    runtime.shutdown_timeout(Duration::from_millis(500));
    ended.map_err(|error| failure(&error))
}

fn config(args: &Connect) -> Result<ClientConfig, Failure> {
    let key_log = transport::key_log(args.transport.keylog.as_deref())?;
    let tls = trust::tls(&args.trust, &args.alpn, identity(args)?, key_log)?;
    let transport = TransportConfig {
        keep_alive: Duration::from_secs(args.keep_alive),
        datagram_receive_buffer: TransportConfig::default().datagram_receive_buffer,
        ..transport::config(&args.transport)
    };
    let mut config = ClientConfig::new(tls).transport(transport).follow_network(!args.network.stay);
    if let Some(qlog) = transport::qlog(&args.transport)? {
        config = config.qlog(qlog);
    }
    if args.no_sessions {
        return Ok(config);
    }
    let dir = match &args.sessions {
        Some(dir) => dir.clone(),
        None => places::state()?.join("sessions"),
    };
    // A session is good for one protocol only, whose name need not be one of a file.
    let dir = dir.join(utf8_percent_encode(&args.alpn, NON_ALPHANUMERIC).to_string());
    let store = FileSessionStore::open(&dir).map_err(|error| places::no_sessions(&dir, &error))?;
    Ok(config.sessions(Arc::new(store)))
}

/// What gateways are shown that ask for a certificate.
fn identity(args: &Connect) -> Result<Option<Identity>, Failure> {
    let (Some(chain), Some(key)) = (&args.cert, &args.key) else { return Ok(None) };
    let read = Identity::from_pem_files(chain, key);
    read.map(Some).map_err(|error| Failure::new(Kind::Environment, error.to_string()))
}

/// What happened, and what can be done.
fn failure(error: &Error) -> Failure {
    let (kind, hint) = match error {
        Error::Output(error) => return crate::out::unwritable(error),
        Error::Local(..) | Error::Input(_) => (Kind::Environment, ""),
        Error::Connect { error, .. } => reason(error),
        Error::Lost(ConnectionError::PeerTransport { code, .. }) => match own(code.0) {
            Some(hint) => (Kind::Trust, hint),
            None => (Kind::Connection, ""),
        },
        Error::Broken(_) => (Kind::Refused, ""),
        _ => (Kind::Connection, ""),
    };
    Failure::new(kind, format!("{error}{hint}"))
}

/// What can be done where the gateway ended the handshake for this side's certificate, or for want of one. The client
/// has its part of the handshake done by then (RFC 8446, Section 4.4.2.4).
const fn own(code: u64) -> Option<&'static str> {
    /// Alerts of TLS, as QUIC says them (RFC 9001, Section 4.8): bad_certificate to unknown_ca, access_denied,
    /// decrypt_error, certificate_required (RFC 8446, Section 6.2).
    const ALERT: u64 = 0x100;
    match code.wrapping_sub(ALERT) {
        116 => Some("; the gateway wants a certificate of yours: --cert and --key"),
        42..=46 | 48 | 49 | 51 => Some(
            "; the gateway does not take your certificate: is --cert of an authority in its file, and in its dates?",
        ),
        _ => None,
    }
}

fn reason(error: &ConnectError) -> (Kind, &'static str) {
    /// no_application_protocol (RFC 7301, Section 3.2), as QUIC says it (RFC 9001, Section 4.8).
    const WRONG_ALPN: u64 = 0x100 + 120;
    match error {
        ConnectError::Bind(_) | ConnectError::AddressFamily(_) => (Kind::Environment, ""),
        ConnectError::Invalid(_) => (Kind::Usage, ""),
        ConnectError::Handshake(error) => match trust::hint(error.alert.0) {
            Some(hint) => (Kind::Trust, hint),
            None => (Kind::Connection, ""),
        },
        ConnectError::Lost(ConnectionError::PeerTransport { code, .. })
            if own(code.0).is_some() =>
        {
            (Kind::Trust, own(code.0).unwrap_or_default())
        }
        ConnectError::Lost(ConnectionError::PeerTransport { code, .. }) if code.0 == WRONG_ALPN => {
            (
                Kind::Connection,
                "; the gateway does not know this protocol: is --alpn as in its file?",
            )
        }
        ConnectError::Lost(ConnectionError::HandshakeTimeout | ConnectionError::IdleTimeout) => {
            (Kind::Connection, "; is there a gateway on this UDP port?")
        }
        _ => (Kind::Connection, ""),
    }
}
