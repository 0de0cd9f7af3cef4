//! What a client asks of a server, in front of the payload of each stream.

use super::{Failure, Transfer};

/// Length in bytes of an encoded [`Request`].
pub const HEADER_LENGTH: usize = 16;
/// Length in bytes of the request and of the answer of an exchange, the header included.
pub const EXCHANGE_LENGTH: usize = 1024;

/// What a client asks: its first 16 bytes on a stream, or on the connection for TCP.
///
/// On a stream the client's end of it belongs to the request: a server answers when it has read
/// that, save that an upload ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// The client sends so many bytes of the pattern; the answer is their number (8 bytes).
    Upload {
        /// How many.
        bytes: u64,
        /// Whether the pattern does not repeat and every byte is compared.
        unique: bool,
    },
    /// The server sends so many bytes of the pattern.
    Download {
        /// How many.
        bytes: u64,
        /// Whether the pattern does not repeat and every byte is compared.
        unique: bool,
        /// Bytes that the server writes at once.
        write: u32,
    },
    /// The client sends [`EXCHANGE_LENGTH`] bytes, this header included, and gets the same back.
    Exchange {
        /// Makes every exchange another one.
        number: u64,
    },
    /// The answer is the server's [`Usage`](super::Usage), 24 bytes.
    Usage,
    /// The answer is this header; the connection then stays open without a further request.
    Hold,
}

impl Request {
    /// The header as sent.
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_LENGTH] {
        let (code, unique, write, value) = match self {
            Self::Upload { bytes, unique } => (1, unique, 0, bytes),
            Self::Download { bytes, unique, write } => (2, unique, write, bytes),
            Self::Exchange { number } => (3, false, 0, number),
            Self::Usage => (4, false, 0, 0),
            Self::Hold => (5, false, 0, 0),
        };
        let mut header = [0; HEADER_LENGTH];
        header[0] = code;
        header[1] = u8::from(unique);
        header[4..8].copy_from_slice(&write.to_be_bytes());
        header[8..].copy_from_slice(&value.to_be_bytes());
        header
    }

    /// The request in `header`.
    ///
    /// # Errors
    ///
    /// When the first byte is no known request.
    pub fn decode(header: &[u8; HEADER_LENGTH]) -> Result<Self, Failure> {
        let [code, unique, _, _, w0, w1, w2, w3, value @ ..] = *header;
        let (unique, value) = (unique == 1, u64::from_be_bytes(value));
        let write = u32::from_be_bytes([w0, w1, w2, w3]);
        match code {
            1 => Ok(Self::Upload { bytes: value, unique }),
            2 if write > 0 => Ok(Self::Download { bytes: value, unique, write }),
            3 => Ok(Self::Exchange { number: value }),
            4 => Ok(Self::Usage),
            5 => Ok(Self::Hold),
            other => Err(format!("unknown request {other}").into()),
        }
    }

    /// Asks for `transfer`.
    #[must_use]
    pub fn download(transfer: Transfer) -> Self {
        let Transfer { bytes, unique, write } = transfer;
        Self::Download { bytes, unique, write }
    }

    /// The whole request of the exchange numbered `number`.
    #[must_use]
    pub fn exchange(number: u64) -> [u8; EXCHANGE_LENGTH] {
        let mut message = [0x5a; EXCHANGE_LENGTH];
        message[..HEADER_LENGTH].copy_from_slice(&Self::Exchange { number }.encode());
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_decoded_as_it_was_encoded() {
        for request in [
            Request::Upload { bytes: u64::MAX, unique: true },
            Request::Download { bytes: 5, unique: false, write: 65_536 },
            Request::Exchange { number: 9 },
            Request::Usage,
            Request::Hold,
        ] {
            assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }
    }

    #[test]
    fn an_unknown_request_is_an_error() {
        assert!(Request::decode(&[9; HEADER_LENGTH]).is_err());
    }
}
