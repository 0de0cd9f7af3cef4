//! The descriptor behind a socket, and what poll(2) says of it.
//!
//! It is one end of a pair of Unix stream sockets, the *front*; the library has the other one, the
//! *back*. What the kernel says of the front follows from what lies in the pair:
//!
//! | the socket is | so |
//! | --- | --- |
//! | readable | the back has sent a byte, which lies there |
//! | not writable | the front has sent as much as its buffer takes |
//! | closed (HUP, ERR, IN, OUT) | the back is closed while what the front sent lies there unread |
//!
//! poll, select and epoll then work by themselves, whatever descriptor of the front they are given.

use std::ffi::c_int;

use quicket::message::PollState;

use crate::calls::options::copy_kept;
use crate::native::{self, Result};
use crate::table;

/// What fills the front's buffer, which is as small as the kernel allows.
const FILLER: [u8; 1024] = [0; 1024];
/// It takes two or three of these; the kernel's bookkeeping differs between versions.
const MAX_FILLERS: usize = 64;
/// Small enough: the kernel raises it to its least.
const SEND_BUFFER: c_int = 1;

/// A pair of sockets.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// The program's descriptors of the front.
    numbers: Vec<c_int>,
    /// The back, until the connection has ended.
    back: Option<c_int>,
    readable: bool,
    writable: bool,
}

impl Shadow {
    /// A pair, and the first descriptor of its front.
    pub(crate) fn new() -> Result<(Self, c_int)> {
        let [front, back] = native::pair()?;
        table::hide(back);
        let this = Self { numbers: vec![front], back: Some(back), readable: false, writable: true };
        if let Err(error) = native::set_option(front, libc::SO_SNDBUF, SEND_BUFFER) {
            let _ = native::close(front);
            return Err(error);
        }
        Ok((this, front))
    }

    /// A pair whose front takes the place of what is under these numbers.
    pub(crate) fn in_place_of(numbers: &[c_int]) -> Result<Self> {
        let (mut this, front) = Self::new()?;
        numbers.first().into_iter().for_each(|before| copy_kept(*before, front));
        let placed = numbers
            .iter()
            .try_for_each(|number| native::dup3(front, *number, libc::O_CLOEXEC).map(drop));
        let _ = native::close(front);
        this.numbers = numbers.to_vec();
        placed.map(|()| this)
    }

    /// Another descriptor of the front.
    pub(crate) fn add(&mut self, number: c_int) {
        self.numbers.push(number);
    }

    /// One descriptor less.
    pub(crate) fn remove(&mut self, number: c_int) {
        self.numbers.retain(|other| *other != number);
    }

    /// Has the kernel say this. `ended` is for good. `anew`: those who wait for changes hear of
    /// what can be done even if it could be done before (edge-triggered epoll).
    pub(crate) fn show(&mut self, state: PollState, ended: bool, anew: bool) {
        let (Some(back), Some(&front)) = (self.back, self.numbers.first()) else { return };
        if ended {
            self.fill(front);
            let _ = native::shutdown(back);
            self.close_back();
            return;
        }
        if self.readable && (!state.readable || anew) {
            let _ = native::recv(front, &mut [0; 16]);
            self.readable = false;
        }
        if state.readable && !self.readable {
            self.readable = native::send(back, &[0]).is_ok();
        }
        if self.writable && (!state.writable || anew) {
            self.fill(front);
        }
        if state.writable && !self.writable {
            let mut rest = [0; 16 * FILLER.len()];
            while native::recv(back, &mut rest).is_ok_and(|len| len > 0) {}
            self.writable = true;
        }
    }

    fn fill(&mut self, front: c_int) {
        for _ in 0..MAX_FILLERS {
            if native::send(front, &FILLER).is_err() || !native::is_writable(front) {
                break;
            }
        }
        self.writable = false;
    }

    fn close_back(&mut self) {
        if let Some(back) = self.back.take() {
            // Before the number can be somebody else's.
            table::unhide(back);
            let _ = native::close(back);
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.close_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(fd: c_int) -> i16 {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // SAFETY: one structure, and no waiting.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents
    }

    #[test]
    fn the_kernel_says_what_it_is_told() {
        let (mut shadow, front) = Shadow::new().unwrap();
        let state = |readable, writable| PollState { readable, writable, ..PollState::default() };
        for _ in 0..3 {
            for (readable, writable, expected) in [
                (false, false, 0),
                (true, false, libc::POLLIN),
                (true, true, libc::POLLIN | libc::POLLOUT),
                (false, true, libc::POLLOUT),
            ] {
                for anew in [false, true, false] {
                    shadow.show(state(readable, writable), false, anew);
                    assert_eq!(bits(front), expected);
                }
            }
        }
        shadow.show(state(true, true), true, false);
        let all = libc::POLLIN | libc::POLLOUT | libc::POLLHUP | libc::POLLERR;
        assert_eq!(bits(front), all);
        shadow.show(state(true, true), true, false);
        assert_eq!(bits(front), all);
        native::close(front).unwrap();
    }

    #[test]
    fn edges_are_heard_of_by_epoll() {
        let (mut shadow, front) = Shadow::new().unwrap();
        let ready = PollState { readable: true, writable: true, ..PollState::default() };
        // SAFETY: numbers, and structures of this frame.
        let mut heard = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            let mut event = libc::epoll_event {
                events: (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32,
                u64: 0,
            };
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, front, &raw mut event);
            move || match libc::epoll_wait(epoll, &raw mut event, 1, 0) {
                1 => event.events,
                _ => 0,
            }
        };
        let both = (libc::EPOLLIN | libc::EPOLLOUT) as u32;
        assert_eq!(heard(), libc::EPOLLOUT as u32);
        for _ in 0..3 {
            shadow.show(ready, false, true);
            assert_eq!(heard(), both);
            assert_eq!(heard(), 0);
        }
        native::close(front).unwrap();
    }
}
