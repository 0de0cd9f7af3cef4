//! s2n-quic as a contender of the benchmark: on a runtime of one thread, windows and buffers out of
//! the way, segmentation and receive offload on.

mod client;
mod payloads;
mod server;

use std::net::SocketAddr;
use std::time::Duration;

use quicket_workload::bench::{Assignment, Congestion, Failure, Payload, Unsupported, WINDOW};
use s2n_quic::provider::io::tokio::Provider as Io;
use s2n_quic::provider::limits::Limits;
use tokio::runtime::Runtime;

pub use client::client;
pub use server::serve;

/// Receive and send buffer of the UDP socket in bytes; the kernel may grant less.
const SOCKET_BUFFER: usize = 4 << 20;
/// Packets that s2n-quic keeps between its socket and its connections, in bytes.
const QUEUE: usize = 4 << 20;
/// Bytes of IPv4 and UDP header, which s2n-quic counts to the MTU.
const HEADERS: u16 = 28;

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn io(assignment: &Assignment, address: SocketAddr) -> Result<Io, Failure> {
    let conditions = assignment.conditions;
    if !conditions.encryption {
        return Err(Unsupported("s2n-quic always encrypts").into());
    }
    let mtu = conditions.payload.target() + HEADERS;
    let io = Io::builder()
        .with_receive_address(address)?
        .with_send_buffer_size(SOCKET_BUFFER)?
        .with_recv_buffer_size(SOCKET_BUFFER)?
        .with_internal_send_buffer_size(QUEUE)?
        .with_internal_recv_buffer_size(QUEUE)?
        .with_max_mtu(mtu)?;
    Ok(match conditions.payload {
        Payload::Fixed(_) => io.with_initial_mtu(mtu)?.with_base_mtu(mtu)?.build()?,
        Payload::Discovered(_) => io.build()?,
    })
}

fn limits() -> Result<Limits, Failure> {
    let window = u64::from(WINDOW);
    Ok(Limits::new()
        .with_data_window(window)?
        .with_bidirectional_local_data_window(window)?
        .with_bidirectional_remote_data_window(window)?
        .with_max_send_buffer_size(WINDOW)?
        .with_max_open_local_bidirectional_streams(1000)?
        .with_max_open_remote_bidirectional_streams(1000)?
        .with_max_idle_timeout(Duration::from_secs(300))?)
}

fn is_bbr(assignment: &Assignment) -> bool {
    assignment.conditions.congestion == Congestion::Bbr
}
