//! Control messages: which stream a message belongs to, or which level of the handshake.

use libc::{c_int, msghdr};
use quicket::message::raw::{Raw, StreamInfo};
use quicket::message::{CryptoLevel, Message, MessageKind};

use crate::constants::{QUIC_HANDSHAKE_INFO, QUIC_STREAM_INFO, SOL_QUIC};
use crate::memory::Memory;
use crate::native::Result;

/// `struct cmsghdr`: its length as a word, level and type.
const HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();
/// More than a program can have to say.
const MAX_LEN: usize = 20_480;

const fn aligned(len: usize) -> usize {
    len.next_multiple_of(size_of::<usize>())
}

/// What a program says of a message that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) stream: Option<StreamInfo>,
    pub(crate) level: Option<u8>,
}

impl Control {
    /// Reads the control messages of a header.
    pub(crate) fn read(memory: &mut Memory, header: &msghdr) -> Result<Self> {
        let len = header.msg_controllen;
        if len == 0 {
            return Ok(Self::default());
        }
        if len > MAX_LEN {
            return Err(libc::ENOBUFS);
        }
        Self::parse(&memory.bytes(header.msg_control as usize, len)?)
    }

    fn parse(mut rest: &[u8]) -> Result<Self> {
        let mut control = Self::default();
        while let Some(header) = rest.get(..HEADER) {
            let (len, header) = header.split_at(size_of::<usize>());
            let len = usize::from_ne_bytes(len.try_into().unwrap_or_default());
            let number = |at: usize| {
                let bytes = header.get(at..).and_then(|bytes| bytes.first_chunk());
                bytes.map_or(0, |bytes| c_int::from_ne_bytes(*bytes))
            };
            let data = rest.get(HEADER..len).ok_or(libc::EINVAL)?;
            if number(0) == SOL_QUIC {
                control.take(number(size_of::<c_int>()), data)?;
            }
            rest = rest.get(aligned(len)..).unwrap_or_default();
        }
        Ok(control)
    }

    fn take(&mut self, kind: c_int, data: &[u8]) -> Result<()> {
        // As the kernel module does it: what is beyond the structure is not looked at, and what it lacks is zero.
        match kind {
            QUIC_STREAM_INFO => self.stream = Some(StreamInfo::from_bytes(data)),
            QUIC_HANDSHAKE_INFO => self.level = Some(data.first().copied().unwrap_or(0)),
            _ => return Err(libc::EINVAL),
        }
        Ok(())
    }

    /// The level of the handshake, if the message belongs to it.
    pub(crate) fn handshake(self) -> Result<Option<CryptoLevel>> {
        let known = |level| CryptoLevel::from_number(level).ok_or(libc::EINVAL);
        self.level.map(known).transpose()
    }
}

/// Says what was received. Returns how much room it took, and whether it was too little.
pub(crate) fn write(
    memory: &mut Memory,
    header: &msghdr,
    message: &Message,
) -> Result<(usize, bool)> {
    let (kind, data) = match message.kind {
        MessageKind::Stream(info) => (QUIC_STREAM_INFO, info.to_bytes()),
        MessageKind::Handshake(level) => (QUIC_HANDSHAKE_INFO, vec![level]),
        MessageKind::Datagram | MessageKind::Notification => return Ok((0, false)),
    };
    let room = header.msg_controllen;
    if header.msg_control.is_null() || room < HEADER {
        return Ok((0, true));
    }
    let whole = HEADER + data.len();
    let len = whole.min(room);
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&SOL_QUIC.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&data);
    memory.put_bytes(header.msg_control as usize, bytes.get(..len).unwrap_or_default())?;
    Ok((aligned(len).min(room), len < whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quicket::message::StreamFlags;

    fn message(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
        let len = HEADER + data.len();
        let mut bytes =
            [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), data].concat();
        bytes.resize(aligned(len), 0);
        bytes
    }

    #[test]
    fn messages_of_other_levels_are_skipped() {
        let info = StreamInfo::new(4, StreamFlags::NEW);
        let other = message(1, 1, &[1, 2, 3]);
        let ours = message(SOL_QUIC, QUIC_STREAM_INFO, &info.to_bytes());
        let level = message(SOL_QUIC, QUIC_HANDSHAKE_INFO, &[2]);
        let control = Control::parse(&[other, ours, level].concat()).unwrap();
        assert_eq!(control, Control { stream: Some(info), level: Some(2) });
        assert_eq!(control.handshake(), Ok(Some(CryptoLevel::Handshake)));
    }

    #[test]
    fn messages_of_other_lengths_count_as_far_as_they_go() {
        let info = StreamInfo::new(4, StreamFlags::NEW);
        let bytes = info.to_bytes();
        for (data, expected) in [
            (&bytes[..12], info),
            (&bytes[..8], StreamInfo::new(4, StreamFlags::NONE)),
            (&[], StreamInfo::new(0, StreamFlags::NONE)),
            (&[&bytes[..], &[7; 9]].concat(), info),
        ] {
            let control = Control::parse(&message(SOL_QUIC, QUIC_STREAM_INFO, data)).unwrap();
            assert_eq!(control, Control { stream: Some(expected), level: None });
        }
        for (data, expected) in [(&[][..], 0), (&[2, 3, 0, 0], 2)] {
            let control = Control::parse(&message(SOL_QUIC, QUIC_HANDSHAKE_INFO, data)).unwrap();
            assert_eq!(control.level, Some(expected));
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let unknown = message(SOL_QUIC, 2, &[0]);
        let mut beyond = message(SOL_QUIC, QUIC_HANDSHAKE_INFO, &[0]);
        beyond[0] = 200;
        let mut inside = beyond.clone();
        inside[0] = 3;
        for bytes in [unknown, beyond, inside] {
            assert_eq!(Control::parse(&bytes), Err(libc::EINVAL));
        }
        assert_eq!(Control::parse(&[1, 2]), Ok(Control::default()));
        let level = Control { level: Some(4), stream: None };
        assert_eq!(level.handshake(), Err(libc::EINVAL));
    }
}
