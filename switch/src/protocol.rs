//! What a program and the switch say to each other: messages of JSON on a local socket of messages
//! (SOCK_SEQPACKET), some with descriptors.
//!
//! A program joins an address ([`Request::Join`]), says what it serves there, and leaves by closing the
//! connection, whichever way it ends. The format of connection IDs belongs to the version: a server ID of
//! one octet that is 0, then ten octets of nonce, of which the owner takes two, then the masked owner
//! ([`Secrets::format`]).

use std::fmt;
use std::net::SocketAddr;

use quicket_steering::{ConfigId, Format, FormatError, OwnerBits};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The version of all that is said here.
pub const VERSION: u32 = 1;
/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 128 << 10;
/// The longest name of a program in bytes.
pub const MAX_LABEL: usize = 64;
/// Workers of a program at one address.
pub const MAX_WORKERS: usize = 128;
/// The bits of an owner: so many programs and generations at one address, so many workers of each.
const OWNER_BITS: (u8, u8) = (8, 8);

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// To be at an address. Descriptors: the switch's end of a channel for each worker, and then the
    /// address's socket, if the program has it.
    Join(Join),
    /// To get clients.
    Serve(Serve),
    /// To get no more clients.
    Cease,
    /// What goes on: answered with [`Reply::Status`], in parts.
    Status,
    /// That the programs that serve something start their next generation: those that can do so.
    Upgrade,
}

/// Where a program wants to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// [`VERSION`].
    pub version: u32,
    /// The local UDP address.
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// How many workers, and so channels.
    pub workers: u16,
    /// What the program calls itself; for people.
    pub label: String,
    /// Whether the last descriptor is the address's socket.
    pub has_socket: bool,
    /// What the program had, if the switch that gave it is gone.
    pub resume: Option<Resume>,
}

/// What a program had from a switch that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The generation in its connection IDs.
    pub generation: u8,
    /// What all programs at the address have in common.
    pub secrets: Secrets,
}

/// Which clients a program wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Application protocols; none: clients that offer none.
    pub protocols: Vec<Octets>,
    /// Server names; none: all that nobody else has.
    pub server_names: Vec<String>,
    /// Shares the same list of names with others that say so, too.
    pub shared: bool,
    /// Takes the place of an earlier generation.
    pub replace: bool,
    /// Can start its next generation, and wants to be told to.
    pub upgrades: bool,
}

/// What the switch says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The program is at the address. Descriptor: the address's socket, unless the program brought it.
    Joined {
        /// The generation for its connection IDs.
        generation: u8,
        /// What all programs at the address have in common.
        secrets: Secrets,
    },
    /// Nobody has the address yet: bind it, and come again with the socket.
    Bind,
    /// It was done.
    Done,
    /// It was not.
    Refused {
        /// Why, as the system says such things.
        why: Refusal,
        /// What happened and what to do, for people.
        text: String,
    },
    /// A newer generation gets the clients from now on; connections go on. Not an answer.
    Superseded,
    /// Start the next generation. Not an answer.
    Upgrade,
    /// A part of the answer to [`Request::Status`].
    Status {
        /// JSON, put together with the other parts.
        text: String,
        /// Whether it is the last.
        last: bool,
    },
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Somebody else has it: EADDRINUSE.
    InUse,
    /// The request makes no sense: EINVAL.
    Invalid,
    /// There is no room: ENOSPC.
    Full,
    /// Not for this user: EACCES.
    Denied,
    /// Not yet: programs of a switch that has died come back first. EAGAIN.
    Later,
    /// Not the version that the switch speaks: EPROTONOSUPPORT.
    Version,
}

/// What all programs of one user at an address have in common. Never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// Which of the seven configurations (draft-ietf-quic-load-balancers).
    pub configuration: u8,
    /// Enciphers connection IDs.
    pub key: Hex<16>,
    /// Masks their owner.
    pub mask: Hex<8>,
    /// Stateless reset tokens (RFC 9000, Section 10.3.2).
    pub reset_key: Hex<32>,
    /// Retry and NEW_TOKEN tokens (RFC 9000, Section 8.1.4).
    pub token_key: Hex<32>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}

impl Secrets {
    /// Drawn at random.
    pub fn draw(random: &mut dyn FnMut(&mut [u8])) -> Self {
        fn hex<const N: usize>(random: &mut dyn FnMut(&mut [u8])) -> Hex<N> {
            let mut octets = [0; N];
            random(&mut octets);
            Hex(octets)
        }
        Self {
            configuration: 0,
            key: hex(random),
            mask: hex(random),
            reset_key: hex(random),
            token_key: hex(random),
        }
    }

    /// The format of connection IDs: fourteen octets, of which 64 bits are random before they are
    /// enciphered.
    ///
    /// # Errors
    ///
    /// Never: the numbers above fit.
    pub fn format() -> Result<Format, FormatError> {
        let (generation, worker) = OWNER_BITS;
        let format = Format::new(1, 10)?;
        match OwnerBits::new(generation, worker) {
            Ok(bits) => format.with_owner(bits),
            Err(_) => Ok(format),
        }
    }

    /// The number of the configuration; `None` if there is no such.
    #[must_use]
    pub fn configuration(&self) -> Option<ConfigId> {
        ConfigId::new(self.configuration)
    }
}

/// Octets that are text of hexadecimal digits in messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hex<const N: usize>(pub [u8; N]);

impl<const N: usize> fmt::Debug for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hex(…)")
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let octets = Octets::deserialize(deserializer)?;
        let octets = <[u8; N]>::try_from(octets.0);
        octets.map(Self).map_err(|octets| D::Error::invalid_length(octets.len(), &"another number"))
    }
}

/// The same of any length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Octets(pub Vec<u8>);

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Octets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let octets = from_hex(&text).ok_or_else(|| D::Error::custom("not hexadecimal digits"))?;
        Ok(Self(octets))
    }
}

fn to_hex(octets: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    octets.iter().flat_map(|octet| [digit(octet >> 4), digit(octet & 15)]).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        &[high, low] => u8::try_from(value(high)? << 4 | value(low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// Why a message makes no sense.
#[derive(Debug)]
pub enum ProtocolError {
    /// Longer than [`MAX_MESSAGE`].
    TooLong(usize),
    /// Not JSON of this form.
    Malformed(serde_json::Error),
    /// A value that cannot be.
    Value(&'static str),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(
                    f,
                    "a message of {len} bytes; it may have {MAX_MESSAGE}: register fewer names"
                )
            }
            Self::Malformed(error) => write!(f, "a message that is not understood: {error}"),
            Self::Value(what) => write!(f, "a message that makes no sense: {what}"),
        }
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for std::io::Error {
    fn from(error: ProtocolError) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, error)
    }
}

/// Writes a message.
///
/// # Errors
///
/// When it is too long.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, ProtocolError> {
    let bytes = serde_json::to_vec(message).map_err(ProtocolError::Malformed)?;
    if bytes.len() > MAX_MESSAGE { Err(ProtocolError::TooLong(bytes.len())) } else { Ok(bytes) }
}

impl Request {
    /// Reads what a program asks, and checks what can be checked by itself.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let request: Self = decode(bytes)?;
        if let Self::Join(join) = &request {
            join.check()?;
        }
        Ok(request)
    }
}

impl Join {
    fn check(&self) -> Result<(), ProtocolError> {
        if !(1..=MAX_WORKERS).contains(&usize::from(self.workers)) {
            return Err(ProtocolError::Value("the number of workers is not 1 to 128"));
        }
        if self.label.len() > MAX_LABEL || self.label.chars().any(char::is_control) {
            return Err(ProtocolError::Value(
                "the program's name is longer than 64 bytes, or not printable",
            ));
        }
        match &self.resume {
            Some(resume) => resume.secrets.check(),
            None => Ok(()),
        }
    }
}

impl Secrets {
    fn check(&self) -> Result<(), ProtocolError> {
        match self.configuration() {
            Some(_) => Ok(()),
            None => Err(ProtocolError::Value("the configuration is not 0 to 6")),
        }
    }
}

impl Reply {
    /// Reads what the switch says.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let reply: Self = decode(bytes)?;
        if let Self::Joined { secrets, .. } = &reply {
            secrets.check()?;
        }
        Ok(reply)
    }
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ProtocolError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(ProtocolError::TooLong(bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(ProtocolError::Malformed)
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
