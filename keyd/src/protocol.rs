//! What a client and a key process say to each other. Pure: bytes in, values out.
//!
//! A frame is its length (16 bits, of what follows), the version, a type, a number by which the answer finds its
//! question (32 bits), and a body. All numbers are big-endian. A client may send several requests before an answer
//! comes; answers name their requests, and may come in any order.
//!
//! | Type | Name | Body |
//! | --- | --- | --- |
//! | 0x01 | Sign | key (32), signature scheme (2), transcript hash (32 or 48) |
//! | 0x02 | Find | key (32) |
//! | 0x81 | Signature | as in CertificateVerify |
//! | 0x82 | Key | SubjectPublicKeyInfo |
//! | 0xff | Refused | code (1), a sentence in UTF-8 |

use std::fmt;

/// The version that is spoken here.
pub const VERSION: u8 = 1;
/// The longest frame, its length not counted, in bytes. The largest is the answer with an RSA key of 16,384 bits.
pub const MAX_FRAME: usize = 4096;
/// The longest sentence in a refusal, in bytes.
pub const MAX_REASON: usize = 256;
/// Length of a frame's own length, in bytes.
const LENGTH: usize = 2;
/// Version, type and number, in bytes.
const HEAD: usize = 1 + 1 + 4;
/// What a server signs (RFC 8446, Section 4.4.3).
const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify";

/// What names a key: the SHA-256 of its SubjectPublicKeyInfo in DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 32]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The hash of a handshake's transcript. There is none of another length than those of TLS 1.3's cipher suites have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TranscriptHash {
    bytes: [u8; 48],
    len: usize,
}

impl TranscriptHash {
    /// SHA-256 or SHA-384 by its length; `None` of any other.
    pub fn new(hash: &[u8]) -> Option<Self> {
        let mut bytes = [0; 48];
        matches!(hash.len(), 32 | 48).then(|| {
            bytes[..hash.len()].copy_from_slice(hash);
            Self { bytes, len: hash.len() }
        })
    }

    /// Its bytes, 32 or 48.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// What is signed in CertificateVerify of a server (RFC 8446, Section 4.4.3).
    pub fn content(&self) -> Vec<u8> {
        let mut content = vec![0x20; 64];
        content.extend_from_slice(CONTEXT);
        content.push(0);
        content.extend_from_slice(self.as_bytes());
        content
    }

    /// The hash in what a TLS library wants to have signed, if that is a server's CertificateVerify.
    pub fn of_content(content: &[u8]) -> Option<Self> {
        let (spaces, rest) = content.split_at_checked(64)?;
        let rest = rest.strip_prefix(CONTEXT)?.strip_prefix(&[0])?;
        spaces.iter().all(|byte| *byte == 0x20).then(|| Self::new(rest)).flatten()
    }
}

impl fmt::Debug for TranscriptHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The signature of a handshake.
    Sign {
        /// By which key.
        key: KeyId,
        /// How (RFC 8446, Section 4.2.3).
        scheme: u16,
        /// What was said so far in the handshake.
        hash: TranscriptHash,
    },
    /// Whether a key is there.
    Find {
        /// Which one.
        key: KeyId,
    },
}

/// What it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A signature, as in CertificateVerify.
    Signature(Vec<u8>),
    /// A key is there: its SubjectPublicKeyInfo in DER.
    Key(Vec<u8>),
    /// What was asked for is not done.
    Refused {
        /// Why.
        code: Code,
        /// The same for people; no longer than [`MAX_REASON`].
        reason: String,
    },
}

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The version is not spoken.
    Version,
    /// This is no request. The connection ends.
    Malformed,
    /// There is no such key.
    UnknownKey,
    /// The key makes no signatures of this scheme.
    Scheme,
    /// The client asks for more than it may have.
    TooMany,
    /// The key could not be used.
    Failed,
    /// Something that this version does not know.
    Other(u8),
}

impl Code {
    fn encode(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Malformed => 2,
            Self::UnknownKey => 3,
            Self::Scheme => 4,
            Self::TooMany => 5,
            Self::Failed => 6,
            Self::Other(code) => code,
        }
    }

    fn decode(code: u8) -> Self {
        match code {
            1 => Self::Version,
            2 => Self::Malformed,
            3 => Self::UnknownKey,
            4 => Self::Scheme,
            5 => Self::TooMany,
            6 => Self::Failed,
            other => Self::Other(other),
        }
    }
}

/// Why bytes are no frame, or no such message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The length is none that a frame has.
    Length(usize),
    /// Another version.
    Version(u8),
    /// A type that there is not.
    Type(u8),
    /// The body is not that of the type.
    Body,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(f, "a frame of {len} bytes"),
            Self::Version(version) => {
                write!(f, "version {version} of the protocol, where {VERSION} is spoken")
            }
            Self::Type(kind) => write!(f, "a message of type {kind:#04x}"),
            Self::Body => f.write_str("a message whose content does not fit its type"),
        }
    }
}

impl std::error::Error for Malformed {}

/// A whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    version: u8,
    kind: u8,
    /// By which an answer finds its question.
    pub number: u32,
    body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame in `bytes` and its length there; `None` as long as it is not whole.
    ///
    /// # Errors
    ///
    /// If a length is said that no frame has.
    pub fn first(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes(*length));
        if !(HEAD..=MAX_FRAME).contains(&len) {
            return Err(Malformed::Length(len));
        }
        let Some(frame) = rest.get(..len) else { return Ok(None) };
        let Some(([version, kind, number @ ..], body)) = frame.split_first_chunk::<HEAD>() else {
            return Err(Malformed::Length(len));
        };
        let number = u32::from_be_bytes(*number);
        Ok(Some((Self { version: *version, kind: *kind, number, body }, LENGTH + len)))
    }

    fn check_version(&self) -> Result<(), Malformed> {
        match self.version {
            VERSION => Ok(()),
            other => Err(Malformed::Version(other)),
        }
    }

    /// The request in it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn request(&self) -> Result<Request, Malformed> {
        self.check_version()?;
        let keyed = self.body.split_first_chunk::<32>();
        match self.kind {
            0x01 => {
                let (key, rest) = keyed.ok_or(Malformed::Body)?;
                let (scheme, hash) = rest.split_first_chunk::<2>().ok_or(Malformed::Body)?;
                let hash = TranscriptHash::new(hash).ok_or(Malformed::Body)?;
                let scheme = u16::from_be_bytes(*scheme);
                Ok(Request::Sign { key: KeyId(*key), scheme, hash })
            }
            0x02 => match keyed {
                Some((key, [])) => Ok(Request::Find { key: KeyId(*key) }),
                _ => Err(Malformed::Body),
            },
            other => Err(Malformed::Type(other)),
        }
    }

    /// The answer in it.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn answer(&self) -> Result<Answer, Malformed> {
        self.check_version()?;
        match (self.kind, self.body) {
            (0x81 | 0x82, []) => Err(Malformed::Body),
            (0x81, signature) => Ok(Answer::Signature(signature.to_vec())),
            (0x82, key) => Ok(Answer::Key(key.to_vec())),
            (0xff, [code, reason @ ..]) if reason.len() <= MAX_REASON => {
                let reason = String::from_utf8_lossy(reason);
                // It is shown to people.
                let reason = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                Ok(Answer::Refused { code: Code::decode(*code), reason })
            }
            (0xff, _) => Err(Malformed::Body),
            (other, _) => Err(Malformed::Type(other)),
        }
    }
}

/// Appends a frame. A body that is too long is cut off: none of ours is.
fn push(out: &mut Vec<u8>, kind: u8, number: u32, parts: &[&[u8]]) {
    let begun = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&number.to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.truncate(begun + LENGTH + MAX_FRAME);
    let len = u16::try_from(out.len() - begun - LENGTH).unwrap_or(u16::MAX);
    out[begun..begun + LENGTH].copy_from_slice(&len.to_be_bytes());
}

impl Request {
    /// Appends it as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Sign { key, scheme, hash } => {
                push(out, 0x01, number, &[&key.0, &scheme.to_be_bytes(), hash.as_bytes()]);
            }
            Self::Find { key } => push(out, 0x02, number, &[&key.0]),
        }
    }
}

impl Answer {
    /// A refusal.
    pub fn refused(code: Code, reason: impl fmt::Display) -> Self {
        let mut reason = reason.to_string();
        while reason.len() > MAX_REASON {
            reason.pop();
        }
        Self::Refused { code, reason }
    }

    /// Appends it as a frame.
    pub fn encode(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Signature(signature) => push(out, 0x81, number, &[signature]),
            Self::Key(spki) => push(out, 0x82, number, &[spki]),
            Self::Refused { code, reason } => {
                push(out, 0xff, number, &[&[code.encode()], reason.as_bytes()]);
            }
        }
    }
}

/// What a fuzzer calls: nothing panics, and what is read is written back as it was.
///
/// # Panics
///
/// If that is not so.
pub fn fuzz(mut bytes: &[u8]) {
    if let Some(hash) = TranscriptHash::of_content(bytes) {
        assert_eq!(hash.content(), bytes);
    }
    while let Ok(Some((frame, used))) = Frame::first(bytes) {
        let mut again = Vec::new();
        if let Ok(request) = frame.request() {
            request.encode(frame.number, &mut again);
            assert_eq!(again, &bytes[..used]);
        }
        if let Ok(answer) = frame.answer() {
            again.clear();
            answer.encode(frame.number, &mut again);
            let (read, len) = Frame::first(&again).expect("a frame").expect("a whole one");
            // A sentence that was no UTF-8, or had control characters, is another one now.
            assert!(len == again.len() && len <= MAX_FRAME + LENGTH);
            if !matches!(answer, Answer::Refused { .. }) {
                assert_eq!(read.answer(), Ok(answer));
            }
        }
        bytes = &bytes[used..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(len: usize) -> TranscriptHash {
        TranscriptHash::new(&vec![7; len]).unwrap()
    }

    #[test]
    fn messages_round_trip_and_parts_of_them_are_none() {
        let key = KeyId([5; 32]);
        let requests = [
            Request::Sign { key, scheme: 0x0804, hash: hash(32) },
            Request::Sign { key, scheme: 0x0503, hash: hash(48) },
            Request::Find { key },
        ];
        let mut all = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            request.encode(number as u32, &mut all);
        }
        let mut rest = &all[..];
        for (number, request) in requests.iter().enumerate() {
            let (frame, len) = Frame::first(rest).unwrap().unwrap();
            assert_eq!((frame.number, frame.request().as_ref()), (number as u32, Ok(request)));
            assert!(frame.answer().is_err());
            for part in 0..len {
                assert_eq!(Frame::first(&rest[..part]), Ok(None));
            }
            rest = &rest[len..];
        }
        for answer in [
            Answer::Signature(vec![1; 256]),
            Answer::Key(vec![2; 91]),
            Answer::refused(Code::UnknownKey, "no such key"),
        ] {
            let mut bytes = Vec::new();
            answer.encode(9, &mut bytes);
            let (frame, len) = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!((frame.number, len, frame.answer()), (9, bytes.len(), Ok(answer)));
            assert!(frame.request().is_err());
        }
    }

    #[test]
    fn lengths_versions_and_types_that_there_are_not_are_told() {
        assert_eq!(Frame::first(&[0, 5]), Err(Malformed::Length(5)));
        assert_eq!(Frame::first(&[0x10, 1]), Err(Malformed::Length(MAX_FRAME + 1)));
        let frame = |version, kind| {
            let bytes = [0, 6, version, kind, 0, 0, 0, 1];
            let (frame, _) = Frame::first(&bytes).unwrap().unwrap();
            frame.request()
        };
        assert_eq!(frame(2, 1), Err(Malformed::Version(2)));
        assert_eq!(frame(1, 9), Err(Malformed::Type(9)));
        assert_eq!(frame(1, 1), Err(Malformed::Body));
    }

    /// RFC 8446, Section 4.4.3.
    #[test]
    fn nothing_but_the_transcript_of_a_handshake_has_a_form() {
        let content = hash(32).content();
        assert_eq!(&content[..64], &[0x20; 64]);
        assert_eq!(&content[64..98], b"TLS 1.3, server CertificateVerify\0");
        assert_eq!(TranscriptHash::of_content(&content), Some(hash(32)));
        for len in [0, 20, 31, 33, 47, 49, 64] {
            assert_eq!(TranscriptHash::new(&vec![0; len]), None);
            let key = KeyId([0; 32]);
            let mut bytes = Vec::new();
            push(&mut bytes, 0x01, 0, &[&key.0, &[8, 4], &vec![0; len]]);
            let (frame, _) = Frame::first(&bytes).unwrap().unwrap();
            assert_eq!(frame.request(), Err(Malformed::Body), "{len}");
        }
        let mut other = content.clone();
        other[0] = 0x21;
        assert_eq!(TranscriptHash::of_content(&other), None);
        let client = [&[0x20; 64][..], b"TLS 1.3, client CertificateVerify\0", &[7; 32]].concat();
        assert_eq!(TranscriptHash::of_content(&client), None);
        assert_eq!(TranscriptHash::of_content(&content[..content.len() - 1]), None);
    }

    #[test]
    fn a_long_reason_is_cut_at_a_letter() {
        let Answer::Refused { reason, .. } = Answer::refused(Code::Failed, "ä".repeat(1000))
        else {
            panic!()
        };
        assert_eq!(reason.len(), MAX_REASON);
    }

    #[test]
    fn the_fuzz_target_holds_for_bytes_at_random() {
        let mut state = 1u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        for _ in 0..20_000 {
            let len = 6 + next() % 90;
            let mut bytes = vec![0, len, 1, [1, 2, 0x81, 0x82, 0xff][usize::from(next() % 5)]];
            bytes.extend((0..len).map(|_| next()));
            fuzz(&bytes);
        }
    }
}
