//! The congestion window that a connection begins with (RFC 6928, Section 2).
//!
//! smoltcp begins with 2,048 octets, and no call changes that: a window only grows with what is acknowledged, and it stays as
//! it is when the socket gets its next connection. So a socket has one with nobody before. Three segments that no port ever sees
//! are shown to it, of which the last acknowledges so much.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, DeviceCapabilities};
use smoltcp::socket::tcp::Socket;
use smoltcp::time::Instant;
use smoltcp::wire::{
    HardwareAddress, IpAddress, IpCidr, IpProtocol, IpRepr, TcpControl, TcpRepr, TcpSeqNumber,
};

use crate::segment::{Ends, Header, emit, header_len};

/// What smoltcp begins with.
const DEFAULT: usize = 2048;
const MTU: usize = 1500;
const LOCAL: IpAddress = IpAddress::v4(192, 0, 2, 1);
const REMOTE: IpAddress = IpAddress::v4(192, 0, 2, 2);
const PORT: u16 = 1;

/// The window of a connection whose segments have so many octets at most.
pub(crate) fn initial_window(segment: usize) -> usize {
    (10 * segment).min((2 * segment).max(14_600))
}

/// How many octets of data a packet has room for.
pub(crate) const fn longest_segment(ends: &Ends, mtu: usize) -> usize {
    mtu.saturating_sub(if ends.local.is_ipv4() { 40 } else { 60 })
}

/// What shows sockets those segments.
pub(crate) struct Opening {
    /// There from the first one on.
    interface: Option<Interface>,
}

impl Opening {
    pub(crate) const fn new() -> Self {
        Self { interface: None }
    }

    /// Has a socket, which is closed and has lost nothing, begin with a window, or with smoltcp's if that is longer. It is closed
    /// again then.
    pub(crate) fn widen(
        &mut self,
        sockets: &mut SocketSet<'_>,
        handle: SocketHandle,
        window: usize,
        now: Instant,
    ) {
        let more = u16::try_from(window.saturating_sub(DEFAULT)).unwrap_or(u16::MAX);
        if more == 0 || sockets.get_mut::<Socket<'_>>(handle).listen((LOCAL, PORT)).is_err() {
            return;
        }
        // An acknowledgment counts for one segment at most.
        let request = TcpRepr { max_seg_size: Some(more), ..segment(TcpControl::Syn, 0, None) };
        self.show(sockets, &request, now);
        if let Some(begun) = self.answer(sockets, now) {
            let next = begun.wrapping_add(1);
            self.show(sockets, &segment(TcpControl::None, 1, Some(next)), now);
            let socket = sockets.get_mut::<Socket<'_>>(handle);
            let taken = socket.send(|room| {
                let taken = room.len().min(more.into());
                (taken, taken as u32)
            });
            let end = next.wrapping_add(taken.unwrap_or(0));
            self.show(sockets, &segment(TcpControl::None, 1, Some(end)), now);
        }
        sockets.get_mut::<Socket<'_>>(handle).abort();
    }

    fn show(&mut self, sockets: &mut SocketSet<'_>, tcp: &TcpRepr<'_>, now: Instant) {
        let ip = IpRepr::new(REMOTE, LOCAL, IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut packet = vec![0; ip.buffer_len()];
        emit(&ip, tcp, &mut packet);
        let mut device = Nowhere { incoming: Some(&packet), sent: None };
        self.interface(now).poll_ingress_single(now, &mut device, sockets);
    }

    /// The sequence number of what the socket says then.
    fn answer(&mut self, sockets: &mut SocketSet<'_>, now: Instant) -> Option<u32> {
        let mut device = Nowhere { incoming: None, sent: None };
        self.interface(now).poll_egress(now, &mut device, sockets);
        device.sent
    }

    fn interface(&mut self, now: Instant) -> &mut Interface {
        self.interface.get_or_insert_with(|| {
            let mut device = Nowhere { incoming: None, sent: None };
            let config = Config::new(HardwareAddress::Ip);
            let mut interface = Interface::new(config, &mut device, now);
            interface.update_ip_addrs(|addresses| {
                // There is room for one, and it is the first.
                let _ = addresses.push(IpCidr::new(LOCAL, 32));
            });
            interface
        })
    }
}

/// A segment of nobody's, without data.
fn segment(control: TcpControl, sequence: i32, acknowledgment: Option<u32>) -> TcpRepr<'static> {
    TcpRepr {
        src_port: PORT,
        dst_port: PORT,
        control,
        seq_number: TcpSeqNumber(sequence),
        ack_number: acknowledgment.map(|number| TcpSeqNumber(number.cast_signed())),
        window_len: u16::MAX,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

/// A device that leads nowhere.
struct Nowhere<'a> {
    incoming: Option<&'a [u8]>,
    /// The sequence number of what was sent last.
    sent: Option<u32>,
}

struct Incoming<'a>(&'a [u8]);

struct Outgoing<'a>(&'a mut Option<u32>);

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        let header = packet.get(header_len(&packet)..).and_then(Header::read);
        *self.0 = header.map(|header| header.sequence);
        result
    }
}

impl phy::Device for Nowhere<'_> {
    type RxToken<'b>
        = Incoming<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let incoming = Incoming(self.incoming.take()?);
        Some((incoming, Outgoing(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        crate::device::capabilities(MTU)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6928, Section 2.
    #[test]
    fn a_connection_begins_with_ten_segments_or_fewer_long_ones() {
        let windows = [0, 536, 1460, 2000, 7300, 8960].map(initial_window);
        assert_eq!(windows, [0, 5360, 14_600, 14_600, 14_600, 17_920]);
    }
}
