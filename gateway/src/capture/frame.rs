//! What a gateway tells whoever has asked for a capture: frames, one after the other.
//!
//! A frame is a byte that says what it is, a length of four bytes, most significant first, and so much content.

use std::io::{self, Read, Write};

/// The longest content, in bytes.
pub const MAX_LEN: usize = 1 << 20;
/// The longest name of a qlog, in bytes.
const MAX_NAME: usize = 128;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Nothing is captured: why, in a sentence.
    Refused(String),
    /// The capture has begun.
    Begun,
    /// The next bytes of the file.
    File(Vec<u8>),
    /// The next bytes of a qlog.
    Qlog {
        /// Of which.
        name: String,
        /// Its first ones.
        is_new: bool,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The capture has ended: a report, as JSON.
    Ended(Vec<u8>),
}

impl Frame {
    /// Writes it.
    ///
    /// # Errors
    ///
    /// What writing says; `InvalidInput` if it is too long.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let content = match self {
            Self::Refused(why) => why.as_bytes().to_vec(),
            Self::Begun => Vec::new(),
            Self::File(bytes) | Self::Ended(bytes) => return put(to, self.kind(), bytes),
            Self::Qlog { name, is_new, bytes } => {
                let len = u8::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
                [&[u8::from(*is_new), len], name.as_bytes(), bytes].concat()
            }
        };
        put(to, self.kind(), &content)
    }

    /// Reads the next one; `None` at the end.
    ///
    /// # Errors
    ///
    /// What reading says; `InvalidData` for what is no frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut head = [0; 5];
        let mut read = 0;
        while read < head.len() {
            match from.read(&mut head[read..]) {
                Ok(0) if read == 0 => return Ok(None),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let [kind, len @ ..] = head;
        let len = u32::from_be_bytes(len) as usize;
        if len > MAX_LEN {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut content = vec![0; len];
        from.read_exact(&mut content)?;
        Self::parse(kind, content).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Refused(_) => b'R',
            Self::Begun => b'B',
            Self::File(_) => b'F',
            Self::Qlog { .. } => b'Q',
            Self::Ended(_) => b'E',
        }
    }

    fn parse(kind: u8, content: Vec<u8>) -> Option<Self> {
        match kind {
            b'R' => Some(Self::Refused(String::from_utf8_lossy(&content).into_owned())),
            b'B' => Some(Self::Begun),
            b'F' => Some(Self::File(content)),
            b'E' => Some(Self::Ended(content)),
            b'Q' => {
                let (&[is_new, len], rest) = content.split_first_chunk()?;
                let (name, bytes) = rest.split_at_checked(usize::from(len))?;
                let name = std::str::from_utf8(name).ok().filter(|name| is_name(name))?.to_owned();
                Some(Self::Qlog { name, is_new: is_new != 0, bytes: bytes.to_vec() })
            }
            _ => None,
        }
    }
}

/// The name of a qlog, which leads to no other directory.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    name.len() <= MAX_NAME
        && name.ends_with(".sqlog")
        && !name.starts_with('.')
        && name.bytes().all(is_plain)
}

fn put(to: &mut impl Write, kind: u8, content: &[u8]) -> io::Result<()> {
    let len = u32::try_from(content.len()).ok().filter(|&len| len as usize <= MAX_LEN);
    let len = len.ok_or(io::ErrorKind::InvalidInput)?;
    to.write_all(&[kind])?;
    to.write_all(&len.to_be_bytes())?;
    to.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames = [
            Frame::Refused("no".to_owned()),
            Frame::Begun,
            Frame::File(vec![1; 1000]),
            Frame::Qlog { name: "0a_server.sqlog".to_owned(), is_new: true, bytes: vec![2] },
            Frame::Ended(b"{}".to_vec()),
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
        let mut rest = &bytes[..];
        for frame in frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut rest).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        let read = |bytes: &[u8]| Frame::read(&mut &bytes[..]).map_err(|error| error.kind());
        assert_eq!(read(b"F"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(b"F\0\0\0\x02a"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(b"F\xff\xff\xff\xff"), Err(io::ErrorKind::InvalidData));
        assert_eq!(read(b"x\0\0\0\0"), Err(io::ErrorKind::InvalidData));
        for name in ["../a.sqlog", "a/b.sqlog", ".a.sqlog", "a", "a\0.sqlog"] {
            let mut bytes = Vec::new();
            let frame = Frame::Qlog { name: name.to_owned(), is_new: true, bytes: Vec::new() };
            frame.write(&mut bytes).unwrap();
            assert_eq!(read(&bytes), Err(io::ErrorKind::InvalidData), "{name}");
        }
    }
}
