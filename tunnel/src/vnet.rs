//! The header that precedes packets of a TUN device with offloads (`struct virtio_net_hdr` of
//! linux/virtio_net.h; VIRTIO 1.2, Section 5.1.6), in the byte order of the machine.

/// Its length in bytes.
pub(crate) const VNET_LEN: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// A checksum that is still to be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Where the bytes that are summed begin.
    pub(crate) start: u16,
    /// Where the checksum is, from there.
    pub(crate) offset: u16,
}

/// What a super-packet is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offload {
    /// Segments of TCP.
    Tcp,
    /// Datagrams of UDP.
    Udp,
}

/// The header, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vnet {
    pub(crate) partial: Option<Partial>,
    /// What the packet stands for, and the payload of each part in bytes.
    pub(crate) offload: Option<(Offload, u16)>,
}

impl Vnet {
    /// Reads the header; none if it asks for what was not agreed on.
    pub(crate) fn decode(bytes: [u8; VNET_LEN]) -> Option<Self> {
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
    pub(crate) fn behind(self, len: usize) -> Option<Self> {
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
    pub(crate) fn after(self, len: usize) -> Self {
        let shifted = |partial: Partial| Partial { start: partial.start + len as u16, ..partial };
        Self { partial: self.partial.map(shifted), ..self }
    }

    /// The bytes for a packet whose headers are `header_len` bytes long.
    pub(crate) fn encode(&self, is_v4: bool, header_len: u16) -> [u8; VNET_LEN] {
        let mut bytes = [0; VNET_LEN];
        if let Some(partial) = self.partial {
            bytes[0] = NEEDS_CHECKSUM;
            bytes[6..8].copy_from_slice(&partial.start.to_ne_bytes());
            bytes[8..10].copy_from_slice(&partial.offset.to_ne_bytes());
        }
        if let Some((offload, size)) = self.offload {
            bytes[1] = match offload {
                Offload::Tcp if is_v4 => GSO_TCP_V4,
                Offload::Tcp => GSO_TCP_V6,
                Offload::Udp => GSO_UDP,
            };
            bytes[2..4].copy_from_slice(&header_len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&size.to_ne_bytes());
        }
        bytes
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
            }
        }
        assert_eq!(Vnet::decode([0, 3, 0, 0, 1, 1, 0, 0, 0, 0]), None, "fragments of UDP");
        assert_eq!(Vnet::decode([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "segments without a size");
    }
}
