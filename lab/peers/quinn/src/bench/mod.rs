//! quinn as a row of the benchmark: one endpoint on a runtime of one thread, windows out of the
//! way, path MTU fixed, segmentation offload on.

mod client;
mod server;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quicket_workload::bench::{Assignment, Congestion, Failure, Payload, Unsupported, WINDOW};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::{AckFrequencyConfig, EndpointConfig, MtuDiscoveryConfig, TransportConfig};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::runtime::Runtime;

pub use client::client;
pub use server::serve;

/// Receive and send buffer of the UDP socket in bytes; the kernel may grant less.
const SOCKET_BUFFER: usize = 4 << 20;

/// Packets that may come before an acknowledgement must be sent, by the ACK frequency extension:
/// measured to be faster than quinn's default, which is one.
const ACK_THRESHOLD: u32 = 40;

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn socket(address: SocketAddr) -> Result<UdpSocket, Failure> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn endpoint_config(assignment: &Assignment) -> Result<EndpointConfig, Failure> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(assignment.conditions.payload.target())?;
    Ok(config)
}

fn transport(assignment: &Assignment) -> Result<Arc<TransportConfig>, Failure> {
    let conditions = assignment.conditions;
    if !conditions.encryption {
        return Err(Unsupported("quinn always encrypts").into());
    }
    let mut frequency = AckFrequencyConfig::default();
    frequency.ack_eliciting_threshold(ACK_THRESHOLD.into());
    let mut transport = TransportConfig::default();
    match conditions.payload {
        Payload::Fixed(size) => {
            transport.initial_mtu(size).min_mtu(size).mtu_discovery_config(None);
        }
        Payload::Discovered(upper_bound) => {
            let mut discovery = MtuDiscoveryConfig::default();
            discovery.upper_bound(upper_bound);
            transport.mtu_discovery_config(Some(discovery));
        }
    }
    let congestion: Arc<dyn ControllerFactory + Send + Sync> = match conditions.congestion {
        Congestion::Cubic => Arc::new(CubicConfig::default()),
        Congestion::Bbr => Arc::new(BbrConfig::default()),
    };
    transport
        .congestion_controller_factory(congestion)
        .ack_frequency_config(Some(frequency))
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW.into())
        .send_window(WINDOW.into())
        .max_concurrent_bidi_streams(1000_u32.into())
        .max_idle_timeout(Some(Duration::from_secs(300).try_into()?));
    Ok(Arc::new(transport))
}
