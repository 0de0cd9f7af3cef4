//! What a program and the switch say to each other: messages of JSON on a local socket of messages
//! (SOCK_SEQPACKET), some with descriptors.
//!
//! A program asks ([`Question`]), and hears answers and notices ([`Message`]). Questions are numbered by
//! who asks, so that an answer that comes late is not taken for another's. A program joins an address
//! ([`Request::Join`]), says what it serves there, and leaves by closing the connection, whichever way it
//! ends.
//!
//! What holds for all versions: a question says in `version` which one it is of, and
//! [`Message::Refused`] is understood by everybody.
//!
//! The format of connection IDs belongs to the version: a server ID of one octet, then ten
//! octets of nonce, of which the owner takes two, then the masked owner ([`Secrets::format`]).

mod octets;
mod secrets;

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::options::SocketOptions;

pub use octets::{Hex, Octets};
pub use secrets::{Keys, Secrets};

/// The version of all that is said here.
pub const VERSION: u32 = 9;
/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 128 << 10;
/// The longest name of a program in bytes.
pub const MAX_LABEL: usize = 64;
/// Workers of a program at one address.
pub const MAX_WORKERS: usize = 128;

/// What a program says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// [`VERSION`].
    pub version: u32,
    /// Stands in the answer, too.
    pub number: u32,
    /// What it is.
    pub request: Request,
}

/// What a program asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// To be at an address. Descriptors: the switch's end of a channel for each worker, then the
    /// address's socket, if the program has it, then both ends of what keeps the workers' sockets, if it
    /// has those, then what ends with the family ([`Join::kin`]), if it is of one, then its ledger, if it has one.
    Join(Join),
    /// To get clients.
    Serve(Serve),
    /// To get no more clients.
    Cease,
    /// The program is about to fork, and passes its listener on: those who join with this family share its
    /// names, and these are reserved for them. Descriptor: a socket whose other end is open in all processes
    /// that have the listener. Not answered.
    Bequeath(Kin),
    /// How far it is from accepting a client. Not answered.
    Attention(Attention),
    /// Whether the switch has heard all that was said before, and has the kernel bring a program that has passed its
    /// listener on no more clients.
    Heard,
    /// Goes in good order: no peer is left that is to be reset. Not answered.
    Leave,
    /// How many connections it has, if it knows: what [`Notice::Count`] asks. Not answered.
    Connections(Option<u64>),
    /// More connection IDs for the worker with this number, of a program that has no key to make them. Answered
    /// with [`Notice::Minted`].
    Mint(u16),
    /// Whether a session ticket brings early data for the first time (RFC 8446, Section 8).
    Strike(Strike),
    /// What goes on: answered with [`Reply::Status`], in parts.
    Status,
    /// That the programs that serve something start their next generation: those that can do so.
    Upgrade,
}

/// Where a program wants to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// The local UDP address.
    pub address: SocketAddr,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// How many workers, and so channels.
    pub workers: u16,
    /// What the program calls itself; for people.
    pub label: String,
    /// Whether the address's socket comes along.
    pub has_socket: bool,
    /// Whether what keeps the workers' sockets comes along.
    pub has_keep: bool,
    /// Whether a [`Ledger`](crate::Ledger) comes along, in which it notes the clients that the kernel brings it: only then
    /// does it.
    pub has_ledger: bool,
    /// Whether it wants a socket for each worker, so that the kernel can choose among programs.
    pub steered: bool,
    /// Whether it is an endpoint that had the address's socket to itself before, whose connection IDs the switch
    /// cannot read: it gets, in the channel of its only worker, what leads to nobody else.
    pub remains: bool,
    /// Options of the address's socket that it wants, if it is of another user than the switch's: the switch has the
    /// socket. Others look for themselves.
    pub options: SocketOptions,
    /// What the program had, if the switch that gave it is gone.
    pub resume: Option<Box<Resume>>,
    /// The family in which its listener was passed on over fork(2), if it was.
    pub kin: Option<Kin>,
}

/// A process among those that have a listener from one another over fork(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kin {
    /// Names the family. Only the family and the switch know it.
    pub family: Hex<16>,
    /// How far the process is from accepting a client.
    pub attention: Attention,
}

/// How far a program is from accepting its next client. Of those that share names, the ones get clients that
/// stand first here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// It waits for clients, or is not known to do anything else.
    #[default]
    Accepting,
    /// It serves a client, and comes back.
    Busy,
    /// It has not accepted since it forked, and may never: its clients wait for others of its family.
    Away,
}

/// What a program had from a switch that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The generation in its connection IDs.
    pub generation: u8,
    /// What came with that.
    pub receipt: Receipt,
    /// What it served, and what proves that.
    pub served: Option<Served>,
    /// Whether it was replaced, or served no more.
    pub draining: bool,
    /// How long it may still keep its connections then, in seconds.
    pub drain_seconds_left: Option<u32>,
    /// What all programs at the address have in common.
    pub secrets: Secrets,
    /// The places of its workers' sockets, if they have some ([`Joined::sockets`]).
    pub sockets: Vec<u16>,
}

/// Proves which generation a program had, and says which of two is the newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// Grows with every registration, beyond the life of a switch.
    pub incarnation: u64,
    /// A keyed hash.
    pub proof: Hex<16>,
}

/// Which clients a program wants. By default all that nobody else has a protocol or name for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How long it keeps its connections once it is replaced, in seconds; without: as long as it likes.
    pub drain_seconds: Option<u32>,
}

/// What a program served when the switch went that had granted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Served {
    /// What it asked for.
    pub serve: Serve,
    /// What came with that.
    pub proof: Proof,
}

/// A keyed hash of what a program serves: for the next switch.
pub type Proof = Hex<16>;

/// A session ticket that a client uses for early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strike {
    /// The register that is asked; another one does not know.
    pub register: Hex<8>,
    /// What identifies the ticket.
    pub ticket: Hex<12>,
}

/// What the switch says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// To a question.
    Answer {
        /// That of the question.
        number: u32,
        /// What the switch says to it.
        reply: Reply,
    },
    /// What nobody has asked for.
    Notice(Notice),
    /// To who is not heard, or not understood: the connection ends. The same in all versions.
    Refused(Refused),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// The program is at the address. Descriptors: the address's socket, unless the program brought it;
    /// and if its workers get sockets, both ends of what keeps those open, and the sockets.
    Joined(Box<Joined>),
    /// Nobody has the address yet: bind it, and come again with the socket, over the same connection; others that want
    /// it wait meanwhile.
    Bind {
        /// The address may be in use by programs of a switch all the same, which come back, or are about to close it:
        /// for so many milliseconds.
        patience: u32,
    },
    /// It was done.
    Done,
    /// The program gets the clients that it asked for.
    Served(Proof),
    /// It was not.
    Refused(Refused),
    /// Whether a ticket was used for the first time.
    Struck(bool),
    /// A part of the answer to [`Request::Status`].
    Status {
        /// JSON, put together with the other parts.
        text: String,
        /// Whether it is the last.
        last: bool,
    },
}

/// What a program has at an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Joined {
    /// The generation for its connection IDs.
    pub generation: u8,
    /// To be given to the next switch.
    pub receipt: Receipt,
    /// It gets clients again, as [`Resume::served`] says: there was a proof, and nobody else has them.
    pub served: Option<Proof>,
    /// Who remembers which tickets were used.
    pub register: Register,
    /// What all programs at the address have in common.
    pub secrets: Secrets,
    /// The places of the workers' sockets among all at the address, the first one being 0; none if all
    /// datagrams come by channels. To be given to the next switch.
    pub sockets: Vec<u16>,
    /// What a program of another user than the switch's has in place of the address's socket and keys.
    pub tenancy: Option<Tenancy>,
    /// The switch forwards every datagram, as it was told when it was started: so is the next one that this program
    /// starts.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub forwards: bool,
}

/// What a program has at an address whose socket the switch keeps to itself: it hands over what comes, and sends
/// for the program what that puts into its channels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenancy {
    /// The address, with the port that was chosen if the program asked for any.
    pub address: SocketAddr,
    /// Connection IDs for each worker to begin with.
    pub minted: Vec<Minted>,
}

/// The length of the connection IDs of [`Secrets::format`].
pub const ID_LEN: usize = 14;
/// Connection IDs in one message at most.
pub const MAX_MINTED: usize = 2048;

/// Connection IDs that lead to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Minted {
    /// Which worker.
    pub worker: u16,
    /// Whether those that it has are to be forgotten: they are of keys that were rotated.
    pub anew: bool,
    /// Each is for one use. None if there were too many of late.
    pub ids: Vec<Hex<ID_LEN>>,
}

/// The switch's register of tickets that were used for early data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// No other register has it.
    pub name: Hex<8>,
    /// Since when it knows all uses, in seconds since 1970.
    pub began: u64,
}

/// What the switch tells without being asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// A newer generation gets the clients from now on; connections go on.
    Superseded,
    /// Start the next generation.
    Upgrade,
    /// The time for connections of a generation that was replaced is over: end them.
    DrainOver,
    /// Somebody wants to know how many connections there are.
    Count,
    /// Connection IDs, which [`Request::Mint`] has asked for, or which take the place of others.
    Minted(Minted),
    /// The secrets of the site were rotated: this is what all programs at the address have in common now.
    Secrets(Box<Secrets>),
}

/// That something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// Why, as the system says such things.
    pub why: Refusal,
    /// What happened and what to do, for people.
    pub text: String,
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

/// Why a message makes no sense.
#[derive(Debug)]
pub enum ProtocolError {
    /// Longer than [`MAX_MESSAGE`].
    TooLong(usize),
    /// Of another version.
    Version(u64),
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
            Self::Version(theirs) => {
                let older = if *theirs < VERSION.into() { "program" } else { "switch" };
                write!(
                    f,
                    "the switch speaks version {VERSION}, and the program {theirs}: install the same \
                     Quicket for both, and start the {older} again"
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

impl From<&ProtocolError> for Refused {
    /// What a program is told whose message makes no sense.
    fn from(error: &ProtocolError) -> Self {
        let why = match error {
            ProtocolError::Version(_) => Refusal::Version,
            _ => Refusal::Invalid,
        };
        Self { why, text: error.to_string() }
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

impl Question {
    /// Reads what a program asks, and checks what can be checked by itself.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let question: Self = decode(bytes).map_err(|error| version_of(bytes).unwrap_or(error))?;
        if question.version != VERSION {
            return Err(ProtocolError::Version(question.version.into()));
        }
        if let Request::Join(join) = &question.request {
            join.check()?;
        }
        Ok(question)
    }
}

/// That a question is of another version, if it is: it may look different.
fn version_of(bytes: &[u8]) -> Option<ProtocolError> {
    let value: serde_json::Value = decode(bytes).ok()?;
    // Version 1 said so where it joined, and nothing else was an object.
    let join = value.get("join").and_then(|join| join.get("version"));
    let version = value.get("version").or(join).and_then(serde_json::Value::as_u64);
    let version = version.or_else(|| value.is_string().then_some(1));
    version.filter(|version| *version != u64::from(VERSION)).map(ProtocolError::Version)
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
            Some(resume) if !are_places(&resume.sockets, self.workers) => {
                Err(ProtocolError::Value("there is a socket for each worker, or none"))
            }
            Some(resume) => resume.secrets.check(),
            None => Ok(()),
        }
    }
}

/// Whether these can be places of sockets for so many workers.
fn are_places(places: &[u16], workers: u16) -> bool {
    places.is_empty() || (places.len() == usize::from(workers) && !places.contains(&0))
}

impl Message {
    /// Reads what the switch says.
    ///
    /// # Errors
    ///
    /// When it makes no sense.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolError> {
        let message: Self = decode(bytes)?;
        match &message {
            Self::Answer { reply: Reply::Joined(joined), .. } => joined.secrets.check()?,
            Self::Notice(Notice::Secrets(secrets)) => secrets.check()?,
            _ => {}
        }
        Ok(message)
    }
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ProtocolError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(ProtocolError::TooLong(bytes.len()));
    }
    serde_json::from_slice(bytes).map_err(ProtocolError::Malformed)
}

#[cfg(test)]
mod tests;
