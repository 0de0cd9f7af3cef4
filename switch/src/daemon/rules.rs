//! The operator's rule, replaced while programs are there.
//!
//! A program at an address that the rule does not allow any more loses its place at once, as if it had been killed: a
//! permission that is taken away is worth nothing from then on. One that serves a name which it may not have gets no
//! more clients; it may be at the address still, and its connections go on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::epoll::EpollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{Shutdown, shutdown};

use super::Daemon;
use super::events::{Events, Token};
use super::program::{Program, turn_off};
use super::tenant::Tenants;
use crate::protocol::{Refusal, Refused};
use crate::registry::{ListenerId, Phase, ProcessId};
use crate::rule::Rule;

/// Gives a switch at work another rule.
#[derive(Debug)]
pub struct Rules {
    news: Sender<Rule>,
    bell: Arc<EventFd>,
}

/// Where it hears of that.
#[derive(Debug)]
pub(super) struct News {
    rules: Receiver<Rule>,
    bell: Arc<EventFd>,
}

/// What a program loses: all of it, or its clients, of which those that it has go on.
enum Lost {
    Address(SocketAddr),
    Name(ListenerId, String),
}

impl Rules {
    /// Has the switch go by this rule, soon. Programs of other users that have what it does not allow lose that.
    ///
    /// # Errors
    ///
    /// When the switch has ended.
    pub fn replace(&self, rule: Rule) -> io::Result<()> {
        let ended = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the switch has ended");
        self.news.send(rule).map_err(ended)?;
        self.bell.write(1)?;
        Ok(())
    }
}

impl News {
    /// What the switch hears of by these events, and what gives it another rule.
    pub(super) fn new(events: &Events) -> io::Result<(Rules, Self)> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = Arc::new(EventFd::from_flags(flags)?);
        events.add(&*bell, EpollFlags::EPOLLIN, Token::Rule)?;
        let (sender, rules) = channel();
        Ok((Rules { news: sender, bell: Arc::clone(&bell) }, Self { rules, bell }))
    }

    /// The rule that came last, if one came.
    pub(super) fn last(&self) -> Option<Rule> {
        // Empty if it rang twice for one.
        let _ = self.bell.read();
        self.rules.try_iter().last()
    }
}

impl Daemon {
    /// There is another rule.
    pub(super) fn take_up_rule(&mut self) {
        if !self.users.tenants_mut().is_some_and(Tenants::take_up_rule) {
            return;
        }
        let lost = self.programs.iter().filter_map(|(process, program)| {
            self.what_is_lost(program).map(|lost| (process, lost))
        });
        let lost: Vec<_> = lost.collect();
        self.end_refused_families();
        for (process, lost) in lost {
            match lost {
                Lost::Address(address) => self.evict(process, address),
                Lost::Name(listener, name) => {
                    log::info!("process {} loses {name}, by another rule", process.0);
                    // Nobody else of its family keeps what it may not have.
                    self.registry.set_family(listener, None);
                    let _ = self.registry.drain(listener, None);
                    self.supersede(&[listener]);
                    self.unpark(listener.address());
                }
            }
        }
    }

    /// What a program has that the rule does not allow.
    fn what_is_lost(&self, program: &Program) -> Option<Lost> {
        let rule = &self.users.tenants().filter(|_| self.users.is_tenant(program.uid))?.rule;
        let seat = program.seat.as_ref()?;
        let address = self.registry.listen_address(seat.address)?.socket_addr();
        let who = program.who();
        if !rule.allows(&who, address) {
            return Some(Lost::Address(address));
        }
        // Others have no names.
        let serves = self.registry.phase(seat.listener) == Some(Phase::Active);
        let names = self.registry.names(seat.listener).filter(|_| serves)?;
        let name = rule.refused_name(&who, address, names)?;
        Some(Lost::Name(seat.listener, name))
    }

    /// A program loses its place, and hears why.
    fn evict(&mut self, process: ProcessId, lost: SocketAddr) {
        let Some(program) = self.programs.get(process) else { return };
        let (uid, seat) = (program.uid, program.seat.as_ref());
        if let Some(listener) = seat.map(|seat| seat.listener) {
            // Nothing stands in for it.
            self.registry.set_family(listener, None);
        }
        log::info!("process {} of user {uid} loses {lost}, by another rule", program.pid);
        let text = format!(
            "the rule of this switch does not let user {uid} have {lost} any more: ask who runs it (quicket \
             switch --system --users)"
        );
        self.expel(process, Refused { why: Refusal::Denied, text });
    }

    /// Ends a program's connection, and says why.
    pub(super) fn expel(&mut self, process: ProcessId, refused: Refused) {
        let Some(program) = self.programs.get(process) else { return };
        turn_off(&program.connection, refused);
        // Its process need not read that, nor end.
        let _ = shutdown(program.connection.as_raw_fd(), Shutdown::Write);
        self.dismiss(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_counts_and_is_heard_once() {
        let events = Events::new().unwrap();
        let (rules, news) = News::new(&events).unwrap();
        assert_eq!(news.last(), None);
        let [first, second] =
            ["user 1 ports 1", "user 2 ports 2"].map(|text| Rule::parse(text).unwrap());
        rules.replace(first).unwrap();
        rules.replace(second.clone()).unwrap();
        assert_eq!(news.last(), Some(second));
        assert_eq!(news.last(), None);
        drop(news);
        assert!(rules.replace(Rule::default()).is_err(), "the switch has ended");
    }
}
