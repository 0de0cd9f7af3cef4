//! Why a gateway does not start, or does not take what it is given.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use quicket::{BindError, ConfigError, ListenError};
use quicket_member::MemberError;

use crate::config::balancer;
use crate::metrics;

/// Why a gateway does not start, or does not take what it is given.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be had over UDP.
    Udp(BindError),
    /// An address cannot be had over TCP.
    Tcp(SocketAddr, io::Error),
    /// Certificates cannot be used.
    Tls(ConfigError),
    /// QUIC cannot listen.
    Listen(ListenError),
    /// The access log at this path cannot be opened.
    Log(PathBuf, io::Error),
    /// The counters have no place.
    Metrics(metrics::Place, io::Error),
    /// The addresses of a running gateway are not those of the file.
    OtherAddresses,
    /// Sockets that were handed over are of no use.
    Handed(io::Error),
    /// A socket was handed over whose address the file does not have.
    Unwanted(String),
    /// Limits that hold from the start are not those of the file.
    OtherLimits,
    /// The protocols that clients can ask for are not those of the file.
    OtherProtocols,
    /// The place behind a balancer does not fit what is there.
    Balancer(MemberError),
    /// The place behind a balancer is another one.
    OtherPlace,
    /// Secrets and the register that gateways have in common are not those of the file.
    OtherRegister,
    /// Connections over QUIC cannot be passed on where the switch has the address.
    PassesBehindSwitch,
    /// Certificates that are ordered could not be kept.
    Acme(String),
    /// Spans for OpenTelemetry cannot be sent.
    Traces(String),
    /// The gateway is called otherwise in traces.
    OtherService,
    /// A certificate that was not there before has ended.
    Expired(String),
}

impl StartError {
    /// True if somebody else has an address.
    pub fn is_address_in_use(&self) -> bool {
        let error = match self {
            Self::Tcp(_, error) => Some(error),
            Self::Udp(error) => error.source().and_then(|source| source.downcast_ref()),
            _ => None,
        };
        error.is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::AddrInUse)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(error) => error.fmt(f),
            Self::Tcp(address, error) => {
                write!(f, "cannot listen on {address} (TCP): {error}")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => {
                        write!(f, "; ss -ltnp 'sport = :{}' says who has it", address.port())
                    }
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; ports below 1024 need root, or CAP_NET_BIND_SERVICE")
                    }
                    _ => Ok(()),
                }
            }
            Self::Tls(error) => error.fmt(f),
            Self::Listen(error) => error.fmt(f),
            Self::Log(path, error) => {
                write!(f, "cannot open the access log {}: {error}", path.display())?;
                match error.kind() {
                    io::ErrorKind::NotFound => f.write_str("; make its directory, or name another"),
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; the user that the gateway runs as must be able to write to it")
                    }
                    _ => Ok(()),
                }
            }
            Self::Metrics(place, error) => write!(f, "cannot listen on {place} (metrics): {error}"),
            Self::Handed(error) => {
                write!(f, "the sockets that were handed over cannot be used: {error}")
            }
            Self::Unwanted(address) => write!(
                f,
                "{address} was handed over, and the file does not listen there (over UDP, only at the first of listen)"
            ),
            Self::Traces(error) => write!(
                f,
                "cannot send traces: {error}; the environment (OTEL_EXPORTER_OTLP_…) may have something that does not fit"
            ),
            Self::OtherService => f.write_str(
                "traces.service has changed: that takes a restart, or quicket switch upgrade",
            ),
            Self::OtherAddresses => f.write_str(
                "listen, redirect or metrics.listen have changed: that takes a restart, or quicket switch upgrade",
            ),
            Self::OtherLimits => f.write_str(
                "limits.connections, requests, memory_mib or handshakes_without_retry have changed, or client_handshakes_per_s \
                 is there now, or no longer: that takes a restart, or quicket switch upgrade",
            ),
            Self::OtherProtocols => f.write_str(
                "the names in alpn of [[protocol]], or whether there is a [[site]], or a [[pass]] with tls, have changed: that takes a \
                 restart, or quicket switch upgrade",
            ),
            Self::Balancer(error) => write!(f, "{}: {error}", balancer::field(error)),
            Self::OtherPlace => f.write_str(
                "balancer.server_id or balancer.max_udp_payload have changed, or [balancer] is there now, or no \
                 longer: that takes a restart",
            ),
            Self::OtherRegister => f.write_str(
                "[early_data] has changed, or secrets is there now, or no longer: that takes a restart, or quicket switch \
                 upgrade. The secrets themselves, the store's password and certificates may change",
            ),
            Self::PassesBehindSwitch => f.write_str(
                "[[pass]] with quic does not go with --switch: the switch does not know whose packets those connections have",
            ),
            Self::Acme(what) => write!(f, "acme.state: {what}"),
            Self::Expired(what) => write!(f, "{what}; it is not taken instead of another one"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Udp(error) => Some(error),
            Self::Tcp(_, error)
            | Self::Log(_, error)
            | Self::Metrics(_, error)
            | Self::Handed(error) => Some(error),
            Self::Tls(error) => Some(error),
            Self::Listen(error) => Some(error),
            Self::Balancer(error) => Some(error),
            Self::Unwanted(_)
            | Self::OtherAddresses
            | Self::OtherLimits
            | Self::OtherProtocols
            | Self::OtherPlace
            | Self::OtherRegister
            | Self::PassesBehindSwitch
            | Self::Acme(_)
            | Self::Traces(_)
            | Self::OtherService
            | Self::Expired(_) => None,
        }
    }
}
