//! System calls, as the streams and listeners of the stack do them (`stream.rs`, `listener.rs`), in a time that scripts give.

use std::io::ErrorKind;
use std::task::Poll;

use super::packet::octet;
use super::script::{Call, Micros};
use super::world::World;
use crate::CONNECT_TIME;
use crate::connections::Id;

/// Errors, and their names.
const ERRORS: [(ErrorKind, &str, i64); 7] = [
    (ErrorKind::BrokenPipe, "EPIPE", 32),
    (ErrorKind::ConnectionReset, "ECONNRESET", 104),
    (ErrorKind::ConnectionRefused, "ECONNREFUSED", 111),
    (ErrorKind::NotConnected, "ENOTCONN", 107),
    (ErrorKind::TimedOut, "ETIMEDOUT", 110),
    (ErrorKind::InvalidInput, "EINVAL", 22),
    (ErrorKind::WouldBlock, "EAGAIN", 11),
];
/// The most that a call reads or writes.
const MAX_OCTETS: usize = 16 << 20;

/// What a call returns: a number, or the name of an error.
pub(super) type Outcome = Result<i64, &'static str>;

#[derive(Debug, Default)]
pub(super) struct Descriptor {
    is: Is,
    is_nonblocking: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Is {
    #[default]
    New,
    Listener,
    /// Sequence numbers of what is read and written next; what is read begins where the other side says.
    Stream {
        id: Id,
        read: Option<u32>,
        written: u32,
        is_connecting: bool,
    },
}

impl Descriptor {
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.is, Is::Stream { is_connecting: true, .. })
    }
}

fn name(kind: ErrorKind) -> &'static str {
    ERRORS.iter().find(|(known, ..)| *known == kind).map_or("EIO", |(_, name, _)| name)
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// How long a call waits at most.
pub(super) fn patience(call: &Call) -> Option<Micros> {
    (call.name == "connect").then_some(CONNECT_TIME.as_micros() as Micros)
}

impl World {
    /// Tries a call, for the first time or again. Pending if it waits.
    ///
    /// # Errors
    ///
    /// What the script has done wrong, or data that is not what was sent.
    pub(super) fn attempt(&mut self, call: &Call) -> Result<Poll<Outcome>, String> {
        let arguments: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        if let ("socket", [_, "SOCK_STREAM", _]) = (call.name.as_str(), &arguments[..]) {
            self.adds(call.result, Is::New)?;
            return Ok(Poll::Ready(Ok(call.result)));
        }
        let (first, rest) = arguments.split_first().ok_or("a call has no descriptor")?;
        let number = first.parse().map_err(|_| format!("{first} is no descriptor"))?;
        let Some(Descriptor { is, is_nonblocking }) = self.descriptors.get(&number) else {
            return Err(format!("descriptor {number} is not open"));
        };
        let (is, waits) = (*is, !*is_nonblocking);
        let outcome = match (call.name.as_str(), is, rest) {
            ("bind", Is::New, _) => Poll::Ready(Ok(0)),
            ("listen", Is::New, [backlog]) => {
                self.listens(number, backlog.parse().map_err(|_| "a backlog is a number")?);
                Poll::Ready(Ok(0))
            }
            ("accept", Is::Listener, _) => self.accepts(call.result)?,
            ("connect", Is::New | Is::Stream { .. }, _) => {
                let outcome = self.connects(number, is)?;
                return Ok(match outcome {
                    Poll::Pending if !waits => Poll::Ready(Err("EINPROGRESS")),
                    other => other,
                });
            }
            ("read", Is::Stream { id, read, .. }, [_, len]) => self.reads(number, id, read, len)?,
            ("write", Is::Stream { id, written, .. }, [_, len]) => {
                self.writes(number, id, written, len)?
            }
            ("shutdown", Is::Stream { id, .. }, [how]) => Poll::Ready(self.shuts_down(id, how)?),
            ("close", is, []) => {
                self.closes(number, is);
                Poll::Ready(Ok(0))
            }
            ("fcntl", _, ["F_SETFL", flags]) => {
                let descriptor = self.descriptors.get_mut(&number).ok_or("it is not open")?;
                descriptor.is_nonblocking = flags.contains("O_NONBLOCK");
                Poll::Ready(Ok(0))
            }
            ("setsockopt", is, [level, option, value, _]) => {
                Poll::Ready(self.sets(is, (level, option), value)?)
            }
            ("getsockopt", Is::Stream { id, .. }, ["SOL_SOCKET", "SO_ERROR", expected, _]) => {
                Poll::Ready(self.error(id, expected)?)
            }
            _ => return Err(format!("{} is not known of {is:?}", call.name)),
        };
        self.look()?;
        Ok(match outcome {
            Poll::Pending if !waits => Poll::Ready(Err("EAGAIN")),
            other => other,
        })
    }

    /// A call has waited for too long, and what it began ends.
    pub(super) fn gives_up(&mut self, call: &Call) -> Result<Outcome, String> {
        let number = call.arguments.first().and_then(|number| number.parse().ok());
        if let Some(Descriptor { is: Is::Stream { id, .. }, .. }) =
            number.and_then(|number: i64| self.descriptors.remove(&number))
        {
            let now = self.instant();
            self.connections.release(id, &mut self.out, now);
            self.look()?;
        }
        Ok(Err("ETIMEDOUT"))
    }

    fn adds(&mut self, number: i64, is: Is) -> Result<(), String> {
        if number < 0 || self.descriptors.contains_key(&number) {
            return Err(format!("descriptor {number} cannot be given"));
        }
        self.descriptors.insert(number, Descriptor { is, is_nonblocking: false });
        Ok(())
    }

    fn becomes(&mut self, number: i64, is: Is) {
        if let Some(descriptor) = self.descriptors.get_mut(&number) {
            descriptor.is = is;
        }
    }

    fn listens(&mut self, number: i64, backlog: usize) {
        self.connections.owned.listen(self.ends.local);
        self.connections.listen(self.ends.local, backlog.max(1));
        self.becomes(number, Is::Listener);
    }

    /// The descriptor of a connection has the number that the script expects.
    fn accepts(&mut self, expected: i64) -> Result<Poll<Outcome>, String> {
        let Some(id) = self.connections.accept(self.ends.local) else { return Ok(Poll::Pending) };
        let read = Some(self.begins);
        self.adds(expected, Is::Stream { id, read, written: 1, is_connecting: false })?;
        Ok(Poll::Ready(Ok(expected)))
    }

    fn connects(&mut self, number: i64, is: Is) -> Result<Poll<Outcome>, String> {
        let id = match is {
            Is::Stream { id, .. } => id,
            _ => {
                let now = self.instant();
                let begun = self.connections.connect(self.ends, &mut self.out, now);
                let id = begun.map_err(|error| error.to_string())?;
                let stream = Is::Stream { id, read: None, written: 1, is_connecting: true };
                self.becomes(number, stream);
                self.look()?;
                id
            }
        };
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        match connection.is_connected() {
            Ok(true) => {
                let read = Some(self.begins);
                self.becomes(number, Is::Stream { id, read, written: 1, is_connecting: false });
                Ok(Poll::Ready(Ok(0)))
            }
            Ok(false) => Ok(Poll::Pending),
            Err(error) => Ok(Poll::Ready(Err(name(error.kind())))),
        }
    }

    /// As `TcpStream::receive`.
    fn reads(
        &mut self,
        number: i64,
        id: Id,
        from: Option<u32>,
        len: &str,
    ) -> Result<Poll<Outcome>, String> {
        let mut buffer = vec![0; self::number(len)?.min(MAX_OCTETS)];
        let now = self.instant();
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        if connection.settings.is_read_shut {
            return Ok(Poll::Ready(Ok(0)));
        }
        let outcome = match (connection.read(&mut buffer, false), connection.error) {
            (Some(0), None) => Poll::Pending,
            (Some(0) | None, Some(kind)) => {
                connection.error = None;
                Poll::Ready(Err(name(kind)))
            }
            (None, None) if connection.is_pending() => Poll::Pending,
            (None, None) => Poll::Ready(Ok(0)),
            (Some(len), _) => {
                let is_due = connection.next(now).is_some_and(|next| next <= now);
                if !connection.place.is_detached() && is_due {
                    self.connections.settle(id, &mut self.out, now);
                }
                let from = from.unwrap_or(self.begins);
                let is_right =
                    |(at, found): (usize, &u8)| *found == octet(from.wrapping_add(at as u32));
                if !buffer[..len].iter().enumerate().all(is_right) {
                    return Err(format!("the data from {from} on is not what has come"));
                }
                let read = from.wrapping_add(len as u32);
                if let Some(Descriptor { is: Is::Stream { read: at, .. }, .. }) =
                    self.descriptors.get_mut(&number)
                {
                    *at = Some(read);
                }
                Poll::Ready(Ok(len as i64))
            }
        };
        Ok(outcome)
    }

    /// As `TcpStream::send`.
    fn writes(
        &mut self,
        number: i64,
        id: Id,
        from: u32,
        len: &str,
    ) -> Result<Poll<Outcome>, String> {
        let len = self::number(len)?.min(MAX_OCTETS) as u32;
        let data: Vec<u8> = (0..len).map(|at| octet(from.wrapping_add(at))).collect();
        let now = self.instant();
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        Ok(match connection.write(&data) {
            Some(0) => Poll::Pending,
            Some(taken) => {
                self.connections.settle(id, &mut self.out, now);
                if let Some(Descriptor { is: Is::Stream { written, .. }, .. }) =
                    self.descriptors.get_mut(&number)
                {
                    *written = from.wrapping_add(taken as u32);
                }
                Poll::Ready(Ok(taken as i64))
            }
            None if connection.error.is_none() && connection.is_pending() => Poll::Pending,
            None => {
                let kind = connection.error.take().unwrap_or(ErrorKind::BrokenPipe);
                Poll::Ready(Err(name(kind)))
            }
        })
    }

    /// As `TcpStream::shutdown`.
    fn shuts_down(&mut self, id: Id, how: &str) -> Result<Outcome, String> {
        let now = self.instant();
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        if connection.is_over() {
            return Ok(Err("ENOTCONN"));
        }
        let (reading, writing) = match how {
            "SHUT_RD" => (true, false),
            "SHUT_WR" => (false, true),
            "SHUT_RDWR" => (true, true),
            _ => return Err(format!("{how} is not known")),
        };
        connection.settings.is_read_shut |= reading;
        if writing {
            connection.close();
        }
        self.connections.settle(id, &mut self.out, now);
        Ok(Ok(0))
    }

    fn closes(&mut self, number: i64, is: Is) {
        let now = self.instant();
        match is {
            Is::New => {}
            Is::Listener => {
                self.connections.listen_no_more(self.ends.local, &mut self.out, now);
            }
            Is::Stream { id, .. } => self.connections.release(id, &mut self.out, now),
        }
        self.descriptors.remove(&number);
    }

    fn sets(&mut self, is: Is, option: (&str, &str), value: &str) -> Result<Outcome, String> {
        let Is::Stream { id, .. } = is else {
            return Err("options are only of connections".into());
        };
        let now = self.instant();
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        match (option, value) {
            // As `TcpStream::set_nodelay`.
            (("SOL_TCP", "TCP_NODELAY"), "[0]" | "[1]") => {
                let is_nodelay = value == "[1]";
                connection.socket().set_nagle_enabled(!is_nodelay);
                if is_nodelay {
                    self.connections.settle(id, &mut self.out, now);
                }
            }
            (("SOL_SOCKET", "SO_LINGER"), "{onoff=1, linger=0}") => {
                connection.settings.resets = true;
            }
            ((level, option), _) => return Err(format!("{level}, {option}, {value}: not known")),
        }
        Ok(Ok(0))
    }

    /// What `TcpStream::is_connected` says. `expected` is a number or a name in brackets.
    fn error(&mut self, id: Id, expected: &str) -> Result<Outcome, String> {
        let connection = self.connections.get(id).map_err(|error| error.to_string())?;
        let found = match connection.is_connected() {
            Ok(_) => ("0", 0),
            Err(error) => {
                let of_kind = |(known, ..): &&(ErrorKind, _, _)| *known == error.kind();
                ERRORS.iter().find(of_kind).map_or(("EIO", 5), |(_, name, number)| (name, *number))
            }
        };
        let expected = expected.trim_start_matches('[').trim_end_matches(']').trim();
        if expected != found.0 && expected != found.1.to_string() {
            return Err(format!("expected: SO_ERROR is {expected}\n    came:     {}", found.0));
        }
        Ok(Ok(0))
    }
}
