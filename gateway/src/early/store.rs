//! The store: what is said to it, and what it answers.

use std::fmt;
use std::time::Duration;

use quicket::TicketId;
use quicket_register::{Info, SetReply, WINDOW};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, RedisConnectionInfo, Value, cmd, pipe,
};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::place::{Address, Place};

/// How long a connection may take, and a look.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Where the store's mark is.
const MARK: &str = "quicket:early:mark";
/// A key that is set twice: who says yes twice lies.
const CANARY: &str = "quicket:early:canary";
/// How long that key is kept, in milliseconds.
const CANARY_TIME: u64 = 60_000;
/// What is before a ticket in its key.
const TICKET: &str = "quicket:early:";

/// Why a store is of no use now.
#[derive(Debug)]
pub(super) struct Fault(String);

impl Fault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// A connection to the store. Clones share it: their questions go out one behind the other, and nobody waits for
/// another's answer.
#[derive(Clone)]
pub(super) struct Store(MultiplexedConnection);

/// What a store has answered to questions.
pub(super) struct Answers {
    pub(super) replies: Vec<SetReply>,
    pub(super) mark: Option<Vec<u8>>,
    pub(super) time: u64,
    pub(super) evicted: Option<u64>,
}

/// What a store has answered to a look.
pub(super) struct Looked {
    pub(super) info: Info,
    pub(super) mark: Option<Vec<u8>>,
    pub(super) time: u64,
    pub(super) denies: bool,
}

impl Store {
    /// Connects; what comes with it ends when the connection does.
    pub(super) async fn connect(place: &Place) -> Result<(Self, JoinHandle<()>), Fault> {
        let connecting = async {
            let mut info = RedisConnectionInfo::default()
                .set_protocol(ProtocolVersion::RESP2)
                .set_skip_set_lib_name();
            if let Some(username) = &place.username {
                info = info.set_username(username);
            }
            if let Some(password) = &place.password {
                info = info.set_password(password);
            }
            // How long answers may take is said with each question.
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            Ok::<_, Fault>(match &place.address {
                Address::Tcp(host, port, database) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    let info = info.set_db((*database).into());
                    let made = MultiplexedConnection::new_with_config(&info, stream, config);
                    let (connection, driver) = made.await?;
                    (Self(connection), tokio::spawn(driver))
                }
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path).await?;
                    let made = MultiplexedConnection::new_with_config(&info, stream, config);
                    let (connection, driver) = made.await?;
                    (Self(connection), tokio::spawn(driver))
                }
            })
        };
        let connected = timeout(PATIENCE, connecting).await;
        connected.unwrap_or_else(|_| Err(Fault::new("no connection within a second")))
    }

    async fn say(&mut self, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        let count = all.len();
        let answers = self.0.send_packed_commands(all, 0, count).await?;
        match answers.len() == count {
            true => Ok(answers),
            false => Err(Fault::new("the store's answers are too few")),
        }
    }

    /// Sets the keys of tickets, and reads after that whether it is the same store.
    pub(super) async fn ask(
        &mut self,
        tickets: &[TicketId],
        with_evicted: bool,
    ) -> Result<Answers, Fault> {
        let mut all = pipe();
        for ticket in tickets {
            all.add_command(set(&key(ticket), WINDOW));
        }
        all.cmd("GET").arg(MARK).cmd("TIME");
        if with_evicted {
            all.cmd("INFO").arg("stats");
        }
        let mut answers = self.say(&all).await?.into_iter();
        let replies = answers.by_ref().take(tickets.len()).map(|answer| reply(&answer));
        let replies = replies.collect::<Result<_, _>>()?;
        let (mark, time) = (mark(answers.next())?, time(answers.next())?);
        let evicted = answers.next().and_then(|stats| Info::evicted(&bytes(stats).ok()??));
        Ok(Answers { replies, mark, time, evicted })
    }

    /// Looks what store it is. Its mark is watched from then on: whether [`Self::write`] writes depends on that.
    pub(super) async fn look(&mut self) -> Result<Looked, Fault> {
        let mut all = pipe();
        all.cmd("UNWATCH").cmd("WATCH").arg(MARK).cmd("INFO");
        all.add_command(set(CANARY, CANARY_TIME)).add_command(set(CANARY, CANARY_TIME));
        all.cmd("GET").arg(MARK).cmd("TIME");
        let mut answers = self.say(&all).await?.into_iter();
        done(answers.next())?;
        done(answers.next())?;
        let info = bytes(answers.next().unwrap_or(Value::Nil))?;
        let info = Info::parse(&info.ok_or_else(|| Fault::new("the store has no INFO"))?)?;
        reply(&answers.next().unwrap_or(Value::Nil))?;
        let denies = reply(&answers.next().unwrap_or(Value::Nil))? == SetReply::Held;
        let (mark, time) = (mark(answers.next())?, time(answers.next())?);
        Ok(Looked { info, mark, time, denies })
    }

    /// Writes a mark, unless there is another one since the look.
    pub(super) async fn write(&mut self, mark: &str) -> Result<(), Fault> {
        let mut all = pipe();
        all.cmd("MULTI").cmd("SET").arg(MARK).arg(mark).cmd("EXEC");
        let answers = self.say(&all).await?;
        answers.into_iter().try_for_each(|answer| match answer {
            Value::ServerError(error) => Err(Fault::new(format!("{error:?}"))),
            // Nothing: somebody else was first.
            _ => Ok(()),
        })
    }
}

fn set(key: &str, time: u64) -> redis::Cmd {
    let mut set = cmd("SET");
    set.arg(key).arg(1).arg("NX").arg("PX").arg(time);
    set
}

fn key(ticket: &TicketId) -> String {
    use fmt::Write;
    let mut key = String::with_capacity(TICKET.len() + 2 * ticket.len());
    key.push_str(TICKET);
    ticket.iter().for_each(|octet| {
        let _ = write!(key, "{octet:02x}");
    });
    key
}

fn reply(answer: &Value) -> Result<SetReply, Fault> {
    match answer {
        Value::Okay => Ok(SetReply::Set),
        Value::Nil => Ok(SetReply::Held),
        other => Err(unexpected(other)),
    }
}

fn done(answer: Option<Value>) -> Result<(), Fault> {
    match answer {
        Some(Value::Okay) => Ok(()),
        other => Err(unexpected(&other.unwrap_or(Value::Nil))),
    }
}

fn bytes(answer: Value) -> Result<Option<Vec<u8>>, Fault> {
    match answer {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Nil => Ok(None),
        other => Err(unexpected(&other)),
    }
}

fn mark(answer: Option<Value>) -> Result<Option<Vec<u8>>, Fault> {
    bytes(answer.unwrap_or(Value::Nil))
}

/// Seconds and microseconds since 1970, in milliseconds.
fn time(answer: Option<Value>) -> Result<u64, Fault> {
    let number = |value: &Value| -> Option<u64> {
        let Value::BulkString(digits) = value else { return None };
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let read = match &answer {
        Some(Value::Array(parts)) => match &parts[..] {
            [seconds, micros] => number(seconds).zip(number(micros)),
            _ => None,
        },
        _ => None,
    };
    let (seconds, micros) = read.ok_or_else(|| unexpected(&answer.unwrap_or(Value::Nil)))?;
    Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}

/// The most of an answer that is repeated, in characters.
const SHOWN: usize = 120;

fn unexpected(answer: &Value) -> Fault {
    match answer {
        Value::ServerError(error) => Fault::new(match error.details() {
            Some(details) => format!("the store says {} {details}", error.code()),
            None => format!("the store says {}", error.code()),
        }),
        other => {
            let shown: String = format!("{other:?}").chars().take(SHOWN).collect();
            Fault::new(format!("the store answers {shown}"))
        }
    }
}
