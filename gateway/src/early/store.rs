//! The store: what is said to it, and what it answers.

use std::fmt;
use std::time::Duration;

use quicket::TicketId;
use quicket_register::{Info, SetReply, WINDOW};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Pipeline, ProtocolVersion, RedisConnectionInfo, Value, cmd, pipe,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::StoreId;
use super::bounded::{Allowance, Bounded};
use super::place::{Address, Place};

/// How long a connection may take, and a look.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Where the store's mark is.
const MARK: &str = "quicket:early:mark";
/// What the store is known by.
const ID: &str = "quicket:early:id";
/// A key that is set twice: who says yes twice lies.
const CANARY: &str = "quicket:early:canary";
/// How long that key is kept, in milliseconds.
const CANARY_TIME: u64 = 60_000;
/// What is before a ticket in its key.
const TICKET: &str = "quicket:early:";

/// Why a store is of no use now.
#[derive(Debug)]
pub(super) struct Fault(String);

/// The most of a fault that is told, in characters.
const SHOWN: usize = 160;

impl Fault {
    /// The words may be the store's: they are cut, and on one line.
    pub(super) fn new(what: impl AsRef<str>) -> Self {
        let what = what.as_ref();
        let shown = what.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c });
        let mut shown: String = shown.collect();
        if what.chars().nth(SHOWN).is_some() {
            shown.push('…');
        }
        Self(shown)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}

/// A connection to the store. Clones share it: their questions go out one behind the other, and nobody waits for
/// another's answer.
#[derive(Clone)]
pub(super) struct Store {
    connection: MultiplexedConnection,
    allowance: Allowance,
}

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
    /// None of a replica, which takes no writes.
    pub(super) id: Option<StoreId>,
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
            match &place.address {
                Address::Tcp(host, port, database) => {
                    let info = info.set_db((*database).into());
                    Self::over(reach(host, *port).await?, &info, config).await
                }
                Address::Tls(host, port, database) => {
                    let secured = place.secured.as_ref();
                    let secured = secured.ok_or_else(|| Fault::new("no TLS for the store"))?;
                    let info = info.set_db((*database).into());
                    let stream = secured.connect(host, reach(host, *port).await?).await?;
                    Self::over(stream, &info, config).await
                }
                Address::Unix(path) => {
                    Self::over(UnixStream::connect(path).await?, &info, config).await
                }
            }
        };
        let connected = timeout(PATIENCE, connecting).await;
        connected.unwrap_or_else(|_| Err(Fault::new("no connection within a second")))
    }

    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        stream: S,
        info: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> Result<(Self, JoinHandle<()>), Fault> {
        let (stream, allowance) = Bounded::new(stream);
        let made = MultiplexedConnection::new_with_config(info, stream, config);
        let (connection, driver) = made.await?;
        Ok((Self { connection, allowance }, tokio::spawn(driver)))
    }

    async fn say(&mut self, all: &Pipeline) -> Result<Vec<Value>, Fault> {
        let count = all.len();
        let answers = self.connection.send_packed_commands(all, 0, count).await?;
        self.allowance.renew();
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

    /// Looks what store it is; `id` is its own if it has none. Its mark is watched from then on: whether
    /// [`Self::write`] writes depends on that.
    pub(super) async fn look(&mut self, id: &StoreId) -> Result<Looked, Fault> {
        let mut all = pipe();
        all.cmd("UNWATCH").cmd("WATCH").arg(MARK).cmd("INFO");
        all.cmd("SET").arg(ID).arg(hex(id)).arg("NX").cmd("GET").arg(ID);
        all.add_command(set(CANARY, CANARY_TIME)).add_command(set(CANARY, CANARY_TIME));
        all.cmd("GET").arg(MARK).cmd("TIME");
        let mut answers = self.say(&all).await?.into_iter();
        done(answers.next())?;
        done(answers.next())?;
        let info = bytes(answers.next().unwrap_or(Value::Nil))?;
        let info = Info::parse(&info.ok_or_else(|| Fault::new("the store has no INFO"))?)?;
        let (set, got) = (answers.next(), answers.next());
        if info.is_replica {
            // It takes no writes, and says so.
            return Ok(Looked {
                info,
                mark: None,
                time: time(answers.last())?,
                denies: true,
                id: None,
            });
        }
        reply(&set.unwrap_or(Value::Nil))?;
        let id = Some(store_id(bytes(got.unwrap_or(Value::Nil))?)?);
        reply(&answers.next().unwrap_or(Value::Nil))?;
        let denies = reply(&answers.next().unwrap_or(Value::Nil))? == SetReply::Held;
        let (mark, time) = (mark(answers.next())?, time(answers.next())?);
        Ok(Looked { info, mark, time, denies, id })
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

async fn reach(host: &str, port: u16) -> Result<TcpStream, Fault> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn set(key: &str, time: u64) -> redis::Cmd {
    let mut set = cmd("SET");
    set.arg(key).arg(1).arg("NX").arg("PX").arg(time);
    set
}

fn key(ticket: &TicketId) -> String {
    format!("{TICKET}{}", hex(ticket))
}

fn hex(octets: &[u8]) -> String {
    use fmt::Write;
    let mut hex = String::with_capacity(2 * octets.len());
    octets.iter().for_each(|octet| {
        let _ = write!(hex, "{octet:02x}");
    });
    hex
}

/// 32 digits, as they were written.
fn store_id(answer: Option<Vec<u8>>) -> Result<StoreId, Fault> {
    let text = answer.as_deref().and_then(|digits| std::str::from_utf8(digits).ok());
    let is_hex = |text: &&str| text.len() == 32 && text.bytes().all(|c| c.is_ascii_hexdigit());
    let number = text.filter(is_hex).and_then(|text| u128::from_str_radix(text, 16).ok());
    let wrong = || Fault::new(format!("{ID} in the store is not what a gateway writes: delete it"));
    Ok(number.ok_or_else(wrong)?.to_be_bytes())
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

fn unexpected(answer: &Value) -> Fault {
    match answer {
        Value::ServerError(error) => Fault::new(match error.details() {
            Some(details) => format!("the store says {} {details}", error.code()),
            None => format!("the store says {}", error.code()),
        }),
        other => Fault::new(format!("the store answers {}", kind(other))),
    }
}

/// What an answer is, if it is none: how it is printed would take as long as it is.
fn kind(answer: &Value) -> String {
    match answer {
        Value::SimpleString(text) => {
            format!("{:?}", text.chars().take(SHOWN).collect::<String>())
        }
        Value::BulkString(bytes) => {
            let part = bytes.get(..SHOWN).unwrap_or(bytes);
            format!("{:?}", String::from_utf8_lossy(part))
        }
        Value::Array(parts) => format!("a list of {}", parts.len()),
        Value::Nil => "nothing".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => format!("the number {number}"),
        _ => "what nobody asked for".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stores_words_are_short_and_on_one_line() {
        let Fault(told) = Fault::new("a\u{1b}[31m\nb".repeat(1000));
        assert_eq!(told.chars().count(), SHOWN + 1);
        assert!(!told.chars().any(char::is_control), "{told:?}");
        let answer = Value::BulkString(b"\x07x\xff".repeat(1 << 10));
        let Fault(told) = unexpected(&answer);
        assert!(told.chars().count() <= SHOWN + 1 && !told.chars().any(char::is_control), "{told}");
    }

    #[tokio::test]
    async fn a_store_over_tls_is_told_nothing_without_tls() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let place = Place {
            address: Address::Tls("127.0.0.1".into(), port, 0),
            name: "test".into(),
            username: None,
            password: Some("secret".into()),
            secured: None,
            deadline: Duration::from_secs(1),
            replicas: 0,
        };
        let told = Store::connect(&place).await.map(drop).unwrap_err();
        assert_eq!(told.to_string(), "no TLS for the store");
        assert!(listener.accept().is_err(), "it was connected to");
    }

    #[test]
    fn an_id_is_32_digits() {
        let id = [7; 16];
        assert_eq!(store_id(Some(hex(&id).into_bytes())).unwrap(), id);
        for wrong in [&b""[..], b"07", &[b'+'; 32], &[0xff; 32]] {
            assert!(store_id(Some(wrong.to_vec())).is_err());
        }
        assert!(store_id(None).is_err());
    }
}
