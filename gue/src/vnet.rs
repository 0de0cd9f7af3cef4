//! The header that precedes packets which the system exchanges with offloads open: those of TUN devices, and of packet
//! sockets that ask for it (`struct virtio_net_hdr` of linux/virtio_net.h; VIRTIO 1.2, Section 5.1.6). Its numbers have the
//! byte order of the machine.

/// Its length in bytes.
pub const VNET_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// A checksum that is still to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Where the bytes that are summed begin.
    pub start: u16,
    /// Where the checksum is, from there.
    pub offset: u16,
}

/// What a super-packet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Segments of TCP.
    Tcp,
    /// Datagrams of UDP.
    Udp,
}

/// The header, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// The checksum that is open.
    pub partial: Option<Partial>,
    /// What the packet stands for, and the payload of each part in bytes.
    pub offload: Option<(Offload, u16)>,
}

impl Vnet {
    /// Reads the header; none if it asks for what was not agreed on.
    #[must_use]
    pub fn decode(bytes: [u8; VNET_LEN]) -> Option<Self> {
        let [flags, gso, _, _, size0, size1, start0, start1, offset0, offset1] = bytes;
        let partial = (flags & NEEDS_CHECKSUM != 0).then(|| Partial {
            start: u16::from_ne_bytes([start0, start1]),
            offset: u16::from_ne_bytes([offset0, offset1]),
        });
        let offload = match gso & !GSO_ECN {
            0 => None,
            GSO_TCP_V4 | GSO_TCP_V6 => Some(Offload::Tcp),
            GSO_UDP => Some(Offload::Udp),
            _ => return None,
        };
        let size = u16::from_ne_bytes([size0, size1]);
        if offload.is_some() && size == 0 {
            return None;
        }
        Some(Self { partial, offload: offload.map(|offload| (offload, size)) })
    }

    /// The same for the packet that begins behind the first `len` bytes; none if the checksum
    /// begins before.
    #[must_use]
    pub fn behind(self, len: usize) -> Option<Self> {
        let partial = match self.partial {
            Some(partial) => {
                let start = usize::from(partial.start).checked_sub(len)?;
                Some(Partial { start: start as u16, ..partial })
            }
            None => None,
        };
        Some(Self { partial, ..self })
    }

    /// The same for a frame that has `len` bytes before the packet.
    #[must_use]
    pub fn after(self, len: u16) -> Self {
        let shifted =
            |partial: Partial| Partial { start: partial.start.saturating_add(len), ..partial };
        Self { partial: self.partial.map(shifted), ..self }
    }

    /// The bytes for a packet whose headers are `header_len` bytes long.
    #[must_use]
    pub fn encode(&self, is_v4: bool, header_len: u16) -> [u8; VNET_LEN] {
        let (flags, start, offset) = match self.partial {
            Some(Partial { start, offset }) => (NEEDS_CHECKSUM, start, offset),
            None => (0, 0, 0),
        };
        let (gso, header_len, size) = match self.offload {
            Some((Offload::Tcp, size)) if is_v4 => (GSO_TCP_V4, header_len, size),
            Some((Offload::Tcp, size)) => (GSO_TCP_V6, header_len, size),
            Some((Offload::Udp, size)) => (GSO_UDP, header_len, size),
            None => (0, 0, 0),
        };
        let [header0, header1] = header_len.to_ne_bytes();
        let [size0, size1] = size.to_ne_bytes();
        let [start0, start1] = start.to_ne_bytes();
        let [offset0, offset1] = offset.to_ne_bytes();
        [flags, gso, header0, header1, size0, size1, start0, start1, offset0, offset1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_writing_and_reading() {
        for is_v4 in [true, false] {
            for offload in [None, Some((Offload::Tcp, 1448)), Some((Offload::Udp, 1200))] {
                let partial = offload.map(|_| Partial { start: 20, offset: 16 });
                let vnet = Vnet { partial, offload };
                assert_eq!(Vnet::decode(vnet.encode(is_v4, 40)), Some(vnet));
                assert_eq!(vnet.after(14).behind(14), Some(vnet));
            }
        }
        assert_eq!(Vnet::decode([0, 3, 0, 0, 1, 1, 0, 0, 0, 0]), None, "fragments of UDP");
        assert_eq!(Vnet::decode([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "segments without a size");
    }

    /// As linux/virtio_net.h has the fields: two of a byte, four of two.
    #[test]
    fn fields_are_where_the_system_reads_them() {
        let vnet = Vnet {
            partial: Some(Partial { start: 0x2221, offset: 0x2423 }),
            offload: Some((Offload::Tcp, 0x2625)),
        };
        for (is_v4, kind) in [(true, 1), (false, 4)] {
            let mut expected = [1, kind, 0, 0, 0, 0, 0, 0, 0, 0];
            for (place, number) in
                expected[2..].chunks_exact_mut(2).zip([0x2827_u16, 0x2625, 0x2221, 0x2423])
            {
                place.copy_from_slice(&number.to_ne_bytes());
            }
            assert_eq!(vnet.encode(is_v4, 0x2827), expected);
        }
    }

    #[test]
    fn a_checksum_does_not_begin_before_the_packet() {
        let vnet = Vnet { partial: Some(Partial { start: 13, offset: 16 }), offload: None };
        assert_eq!(vnet.behind(14), None);
        assert_eq!(Vnet::default().behind(14), Some(Vnet::default()));
    }
}
