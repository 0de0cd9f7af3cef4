//! What the switch waits for.

use std::io;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What an event is about; the number goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Listener,
    /// A message, or the end.
    Program(u32),
    /// Datagrams.
    Address(u32),
    /// Datagrams at a socket of an address whose program has gone.
    Spare(u32, u16),
    /// Room in one of a program's channels, or what the program hands back.
    Channel(u32, u16),
    /// The end of a program's process.
    Process(u32),
    /// The end of the last process that has a listener.
    Family(u32),
    /// Secrets were rotated.
    Secrets,
    /// The operator's rule is another one.
    Rule,
    /// The switch is to end.
    Stop,
}

impl Token {
    pub(super) const fn pack(self) -> u64 {
        match self {
            Self::Listener => 0,
            Self::Program(program) => 1 << 60 | program as u64,
            Self::Address(address) => 2 << 60 | address as u64,
            Self::Channel(program, worker) => 3 << 60 | (worker as u64) << 32 | program as u64,
            Self::Process(program) => 4 << 60 | program as u64,
            Self::Family(number) => 6 << 60 | number as u64,
            Self::Secrets => 7 << 60,
            Self::Rule => 8 << 60,
            Self::Stop => 9 << 60,
            Self::Spare(address, place) => 5 << 60 | (place as u64) << 32 | address as u64,
        }
    }

    pub(super) const fn unpack(word: u64) -> Self {
        let low = word as u32;
        match word >> 60 {
            0 => Self::Listener,
            1 => Self::Program(low),
            2 => Self::Address(low),
            3 => Self::Channel(low, (word >> 32) as u16),
            4 => Self::Process(low),
            6 => Self::Family(low),
            7 => Self::Secrets,
            8 => Self::Rule,
            9 => Self::Stop,
            _ => Self::Spare(low, (word >> 32) as u16),
        }
    }
}

/// All that is waited for, together.
#[derive(Debug)]
pub(super) struct Events(Epoll);

impl Events {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Waits for something, too.
    pub(super) fn add(&self, what: impl AsFd, events: EpollFlags, token: Token) -> io::Result<()> {
        Ok(self.0.add(what, EpollEvent::new(events, token.pack()))?)
    }

    /// Waits for other events of it.
    pub(super) fn change(
        &self,
        what: impl AsFd,
        events: EpollFlags,
        token: Token,
    ) -> io::Result<()> {
        Ok(self.0.modify(what, &mut EpollEvent::new(events, token.pack()))?)
    }

    /// Waits for it no more.
    ///
    /// # Errors
    ///
    /// When it was not waited for.
    pub(super) fn remove(&self, what: impl AsFd) -> io::Result<()> {
        Ok(self.0.delete(what)?)
    }

    /// Waits until something happens. Returns how many events there are.
    pub(super) fn wait(
        &self,
        events: &mut [EpollEvent],
        timeout: impl Into<EpollTimeout>,
    ) -> Result<usize, Errno> {
        self.0.wait(events, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_say_what_they_are() {
        for token in [
            Token::Listener,
            Token::Program(7),
            Token::Address(u32::MAX),
            Token::Channel(9, 127),
            Token::Channel(u32::MAX, u16::MAX),
            Token::Spare(9, 127),
            Token::Spare(u32::MAX, u16::MAX),
            Token::Process(u32::MAX),
            Token::Family(u32::MAX),
            Token::Secrets,
            Token::Rule,
            Token::Stop,
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
