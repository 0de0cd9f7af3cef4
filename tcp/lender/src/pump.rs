//! Octets between a program's end and a stream, both ways.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use quicket_tcp::TcpStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::errors;
use crate::socket::Ready;

/// Octets that are moved at once, and the most that wait here for each way of a connection.
pub const PIECE: usize = 64 << 10;
/// Pieces of one connection before others have their turn.
pub const MAX_ROUNDS: u32 = 8;
/// How soon octets are sent again for which the system has had no memory: it does not say when it has some.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

/// What is to be done with a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing until something happens.
    Wait,
    /// More, when others have had their turn.
    More,
    /// Both ways are over, or the program has gone.
    End,
    /// It has ended with an error.
    Fail(i32),
}

/// One way. What could not be passed on waits here, and nothing more is taken before it has left.
#[derive(Debug, Default)]
struct Way {
    left: Vec<u8>,
    is_over: bool,
}

impl Way {
    fn keep(&mut self, rest: &[u8]) {
        self.left.clear();
        self.left.extend_from_slice(rest);
    }

    /// Takes away what has left. What has no use any more gives its memory back.
    fn passed(&mut self, octets: usize) {
        self.left.drain(..octets);
        if self.left.is_empty() {
            self.left = Vec::new();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) stream: TcpStream,
    /// To the program.
    inward: Way,
    /// To the other side.
    outward: Way,
    /// What has ended the way to the other side. The program hears of it when it has had all that has come.
    error: Option<i32>,
    /// When what has had no memory is sent again.
    again: Option<Instant>,
    /// When it is given up that the other side takes what a program has left that has gone.
    until: Option<Instant>,
}

impl Pump {
    pub(crate) fn new(stream: TcpStream) -> Self {
        let (inward, outward) = (Way::default(), Way::default());
        Self { stream, inward, outward, error: None, again: None, until: None }
    }

    /// Moves what can be moved. The other side of a program that has gone may take nothing for so long.
    pub(crate) fn turn(
        &mut self,
        end: impl AsFd,
        ready: &mut Ready,
        scratch: &mut [u8],
        orphan_time: Duration,
    ) -> Next {
        if self.again.is_some_and(|again| again <= Instant::now()) {
            self.again = None;
            ready.writable = true;
        }
        for _ in 0..MAX_ROUNDS {
            let inward = match self.inward(&end, ready, scratch) {
                Ok(moved) => moved,
                Err(error) => return Next::Fail(error),
            };
            let outward = self.outward(&end, ready, scratch);
            if self.is_over(*ready) {
                return self.error.map_or(Next::End, Next::Fail);
            }
            if ready.hung_up && self.is_given_up(outward, orphan_time) {
                return Next::End;
            }
            if !inward && !outward {
                return Next::Wait;
            }
        }
        Next::More
    }

    /// The program has gone, and has left octets. A window that stays closed keeps them here, though the other side answers.
    fn is_given_up(&mut self, moved: bool, orphan_time: Duration) -> bool {
        let now = Instant::now();
        let until = *self.until.get_or_insert(now + orphan_time);
        if moved {
            self.until = Some(now + orphan_time);
        } else if until <= now {
            let _ = self.stream.set_reset_on_drop(true);
            return true;
        }
        false
    }

    /// When it is to be looked at, whatever happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.again.into_iter().chain(self.until).min()
    }

    /// Nothing can come or go any more. To a program that has gone nothing is owed, but what it has written is.
    fn is_over(&self, ready: Ready) -> bool {
        let is_sent = self.outward.is_over && self.outward.left.is_empty();
        is_sent && (self.inward.is_over || ready.hung_up)
    }

    /// The program has closed its last descriptor.
    pub(crate) fn end(self) {
        // Data that nobody has read makes the end a reset (RFC 2525, Section 2.17).
        if !self.inward.left.is_empty() {
            let _ = self.stream.set_reset_on_drop(true);
        }
    }

    /// Returns whether something has moved.
    fn inward(
        &mut self,
        end: impl AsFd,
        ready: &mut Ready,
        scratch: &mut [u8],
    ) -> Result<bool, i32> {
        if self.inward.is_over || !ready.writable {
            return Ok(false);
        }
        let is_kept = !self.inward.left.is_empty();
        let data = if is_kept {
            &self.inward.left[..]
        } else {
            match self.stream.read(scratch) {
                Ok(0) => {
                    self.inward.is_over = true;
                    // An error is told in place of an end.
                    if self.error.is_none() {
                        let _ = shutdown(end, Shutdown::Write);
                    }
                    return Ok(true);
                }
                Ok(n) => &scratch[..n],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(errors::number(&error)),
            }
        };
        let len = data.len();
        let sent = match send(end, data, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN) => 0,
            Err(Errno::NOBUFS | Errno::NOMEM) => {
                self.again = Some(Instant::now() + AGAIN);
                0
            }
            Err(_) => {
                // The program reads no more (SHUT_RD), or has gone: what comes is left where it is, and unread at the end.
                self.inward = Way { left: Vec::new(), is_over: true };
                let _ = self.stream.set_reset_on_drop(true);
                return Ok(true);
            }
        };
        ready.writable = sent == len;
        match is_kept {
            true => self.inward.passed(sent),
            false if sent < len => self.inward.keep(&scratch[sent..len]),
            false => {}
        }
        Ok(sent > 0)
    }

    /// Returns whether something has moved.
    fn outward(&mut self, end: impl AsFd, ready: &mut Ready, scratch: &mut [u8]) -> bool {
        let is_kept = !self.outward.left.is_empty();
        let data = if is_kept {
            &self.outward.left[..]
        } else if self.outward.is_over || !ready.readable {
            return false;
        } else {
            match recv(&end, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.outward.is_over = true;
                    // Of a program that has gone, the stream's own end says how: one that resets must not have a FIN before.
                    ready.hung_up |= has_gone(&end);
                    if !ready.hung_up {
                        let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    }
                    return true;
                }
                Ok((_, n)) => &scratch[..n],
                Err(Errno::AGAIN) => {
                    ready.readable = false;
                    return false;
                }
                Err(Errno::INTR) => return true,
                Err(_) => {
                    // The program has closed it, and has not read all (RFC 2525, Section 2.17).
                    self.outward.is_over = true;
                    ready.hung_up = true;
                    let _ = self.stream.set_reset_on_drop(true);
                    return true;
                }
            }
        };
        let len = data.len();
        let written = match (&self.stream).write(data) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => {
                // What has come before that is still the program's. It waits no more to write.
                self.error = Some(errors::number(&error));
                self.outward = Way { left: Vec::new(), is_over: true };
                let _ = shutdown(end, Shutdown::Read);
                return true;
            }
        };
        match is_kept {
            true => self.outward.passed(written),
            false if written < len => self.outward.keep(&scratch[written..len]),
            false => {}
        }
        written > 0
    }
}

/// Whether the program has closed its end, or ended both ways.
fn has_gone(end: impl AsFd) -> bool {
    let mut ends = [PollFd::new(&end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok() && ends[0].revents().contains(PollFlags::HUP)
}
