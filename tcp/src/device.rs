//! What smoltcp takes for a network device: the segment that came for one connection, and the way out.

use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::out::Out;
use crate::segment::{Header, header_len, window_scale};

/// What has been seen of a connection's segments, which smoltcp does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The sequence number behind what was sent; none before the SYN.
    pub(crate) sent: Option<u32>,
    /// The last acknowledgment number that was sent: the next sequence number of the other side.
    pub(crate) acknowledged: u32,
    /// The sequence number behind this side's SYN.
    pub(crate) first: Option<u32>,
    /// A FIN was sent, behind all data.
    pub(crate) has_ended: bool,
    /// The window that was said last, as it stands in the header.
    window: u16,
    /// By how many bits it is shifted, from the segment after the SYN on.
    scale: u8,
    /// Nothing was sent behind the SYN, whose window is not scaled (RFC 7323, Section 2.2).
    is_syn_last: bool,
    /// Something was sent since this was last unset.
    pub(crate) has_spoken: bool,
    /// Something was sent again.
    pub(crate) has_repeated: bool,
}

impl Seen {
    /// The window that was said last, as it would stand in the header of the next segment.
    pub(crate) const fn window(&self) -> u16 {
        if self.is_syn_last { self.window >> self.scale } else { self.window }
    }

    /// How many octets behind the SYNs have room, as long as only a SYN has said that.
    pub(crate) fn first_room(&self) -> Option<u32> {
        self.is_syn_last.then_some(self.window.into())
    }

    fn sent(&mut self, packet: &[u8]) {
        let segment = packet.get(header_len(packet)..);
        let Some(header) = segment.and_then(Header::read) else { return };
        // A reset has no window, and answers wrong numbers during the handshake, too, after which the connection goes on.
        if header.is_rst() {
            return;
        }
        let end = header.end();
        self.has_spoken = true;
        let is_beyond = |sent: u32| end.wrapping_sub(sent).cast_signed() > 0;
        if self.sent.is_none_or(is_beyond) {
            self.sent = Some(end);
        } else {
            self.has_repeated |= end != header.sequence;
        }
        if header.is_ack() {
            self.acknowledged = header.acknowledgment;
        }
        self.is_syn_last = header.is_syn();
        if header.is_syn() {
            self.first = Some(end);
            // RFC 7323, Section 2.3: 14 at most.
            self.scale = segment.and_then(window_scale).unwrap_or(0).min(14);
        }
        self.has_ended |= header.is_fin();
        self.window = header.window;
    }
}

/// The device of one connection, as long as that is looked at.
pub(crate) struct Wire<'a> {
    pub(crate) out: &'a mut Out,
    pub(crate) seen: &'a mut Seen,
    /// A packet that has come for it.
    pub(crate) incoming: Option<&'a [u8]>,
    /// Octets of a packet.
    pub(crate) mtu: usize,
}

pub(crate) struct Incoming<'a>(&'a [u8]);

pub(crate) struct Outgoing<'a> {
    out: &'a mut Out,
    seen: &'a mut Seen,
}

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { out, seen } = self;
        out.write(len, |packet| {
            let result = f(packet);
            seen.sent(packet);
            result
        })
    }
}

/// What a device of that MTU can do.
pub(crate) fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    // The switch has checked those of frames that come.
    capabilities.checksum.ipv4 = Checksum::Tx;
    capabilities.checksum.tcp = Checksum::Tx;
    capabilities
}

impl phy::Device for Wire<'_> {
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
        Some((incoming, Outgoing { out: self.out, seen: self.seen }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        self.out.has_room().then_some(Outgoing { out: self.out, seen: self.seen })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        capabilities(self.mtu)
    }
}
