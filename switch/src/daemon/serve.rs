//! What programs ask, and what becomes of it.

use std::os::fd::OwnedFd;

use super::program::{Seat, refused};
use super::{Daemon, time_of_day};
use crate::protocol::{Hex, Message, Notice, Question, Refusal, Reply, Request, Serve, Strike};
use crate::registry::{
    Attention, ListenerId, NameError, Names, Phase, ProcessId, Protocol, ReadyError, RegisterError,
    ServerName,
};

impl Daemon {
    /// What came with the question and is wanted is taken from `came`.
    pub(super) fn answer(
        &mut self,
        process: ProcessId,
        question: Question,
        came: &mut Vec<OwnedFd>,
    ) {
        let Question { number, request, .. } = question;
        let reply = match request {
            Request::Join(join) => match self.join(process, number, &join, came) {
                Ok(()) => return,
                Err(reply) => reply,
            },
            Request::Serve(serve) => self.serve(process, &serve).unwrap_or_else(|reply| reply),
            Request::Cease => self.cease(process),
            Request::Bequeath(kin) => return self.bequeath(process, kin, came),
            Request::Attention(attention) => return self.attend_to(process, attention),
            Request::Heard => self.heard(process).unwrap_or_else(|reply| reply),
            Request::Leave => {
                // At once: children that it has forked may have the connection, too, and keep it open.
                if let Some(program) = self.programs.get_mut(process) {
                    program.leave();
                }
                return self.dismiss(process);
            }
            Request::Connections(count) => return self.on_connections(process, count),
            Request::Mint(worker) => return self.mint_for(process, worker),
            Request::Strike(strike) => Reply::Struck(self.strike(process, &strike)),
            Request::Status => return self.ask_for_status(process, number),
            Request::Upgrade => self.tell_all_to_upgrade(process),
        };
        self.tell(process, &Message::Answer { number, reply });
    }

    /// Whether a ticket was used for the first time. Who is at no address has no clients.
    fn strike(&mut self, process: ProcessId, strike: &Strike) -> bool {
        let Ok(listener) = self.seat_of(process) else { return false };
        let Some(program) = self.registry.program(listener) else { return false };
        let now = time_of_day().as_secs();
        let uid = self.programs.uid(process).unwrap_or(self.users.own());
        // Other users have one share each, whatever they call their programs; a program's name has no control
        // characters.
        let tenant = self.users.is_tenant(uid).then(|| format!("\0{uid}"));
        let program = tenant.as_deref().unwrap_or(program);
        self.strikes.is_first_use(now, program, &strike.register.0, &strike.ticket.0)
    }

    fn serve(&mut self, process: ProcessId, serve: &Serve) -> Result<Reply, Reply> {
        let listener = self.seat_of(process)?;
        let names = names_of(serve)?;
        self.check_names(process, listener.address(), &names)?;
        if self.registry.serves(listener, &names, serve.shared, serve.replace) {
            // As before: nothing changes for anybody.
            if let Some(seat) = self.programs.seat_mut(process) {
                seat.heed(serve);
            }
            let deed = self.registry.deed(listener).unwrap_or_default();
            return Ok(Reply::Served(Hex(deed)));
        }
        let now = self.now();
        let done = self.registry.serve(now, listener, names, serve.shared, serve.replace);
        done.map_err(|error| not_ready(&error))?;
        // While who is there is alone still.
        if let Err(error) = self.shut_for(listener.address(), Some(listener)) {
            let _ = self.registry.drain(listener, None);
            let text = format!("the kernel does not hear that another program is there: {error}");
            return Err(refused(Refusal::Full, text));
        }
        if let Some(seat) = self.programs.seat_mut(process) {
            seat.heed(serve);
        }
        let deed = self.registry.deed(listener).unwrap_or_default();
        let replaced = self.registry.ready(now, listener, None);
        self.supersede(&replaced.map_err(|error| not_ready(&error))?);
        self.settle_family_of(listener, None);
        self.unpark(listener.address());
        Ok(Reply::Served(Hex(deed)))
    }

    /// A newer generation has taken the place of listeners, which keep their connections for as long as
    /// they have said.
    pub(super) fn supersede(&mut self, replaced: &[ListenerId]) {
        replaced.iter().for_each(|earlier| self.supersede_one(*earlier));
    }

    fn supersede_one(&mut self, earlier: ListenerId) {
        let Some(process) = self.programs.owner(earlier) else { return };
        if let Some(drain) = self.programs.seat(process).and_then(|seat| seat.drain) {
            let deadline = self.now() + drain;
            // It is there: it has a seat.
            let _ = self.registry.drain(earlier, Some(deadline));
        }
        self.tell(process, &Message::Notice(Notice::Superseded));
    }

    fn cease(&mut self, process: ProcessId) -> Reply {
        match self.seat_of(process) {
            Ok(listener) => {
                let served = self.registry.phase(listener) != Some(Phase::Joined);
                if served {
                    let left = self.legacy_of(listener);
                    let _ = self.registry.drain(listener, None);
                    self.settle_family_of(listener, left);
                    // Passed on no more: it begins anew if it serves again.
                    self.registry.set_family(listener, None);
                    self.registry.set_attention(listener, Attention::Accepting);
                    self.unpark(listener.address());
                }
                Reply::Done
            }
            Err(reply) => reply,
        }
    }

    /// A program wants to know whether it is passed by, for it has passed its listener on.
    fn heard(&mut self, process: ProcessId) -> Result<Reply, Reply> {
        let listener = self.seat_of(process)?;
        if self.registry.family(listener).is_some()
            && let Err(error) = self.shut_for(listener.address(), None)
        {
            let text = format!("the kernel does not hear that a listener is passed on: {error}");
            return Err(refused(Refusal::Full, text));
        }
        Ok(Reply::Done)
    }

    fn seat_of(&self, process: ProcessId) -> Result<crate::registry::ListenerId, Reply> {
        let none = || refused(Refusal::Invalid, "the program is at no address yet");
        self.programs.seat(process).map(|seat| seat.listener).ok_or_else(none)
    }

    fn tell_all_to_upgrade(&mut self, process: ProcessId) -> Reply {
        let upgrades = |seat: &Seat| {
            seat.upgrades && self.registry.phase(seat.listener) == Some(Phase::Active)
        };
        let asker = self.programs.uid(process).unwrap_or(self.users.own());
        let all = asker == 0 || !self.users.is_tenant(asker);
        let others = self.programs.iter().filter(|(id, _)| *id != process);
        let others = others.filter(|(_, program)| all || program.uid == asker);
        let able = others.filter(|(_, program)| program.seat.as_ref().is_some_and(upgrades));
        let able: Vec<_> = able.map(|(id, _)| id).collect();
        for id in &able {
            self.tell(*id, &Message::Notice(Notice::Upgrade));
        }
        if able.is_empty() {
            return refused(
                Refusal::Invalid,
                "no program that serves something here can start its next generation: quicket serve \
                        --switch can, and programs with SwitchConfig::on_upgrade",
            );
        }
        Reply::Done
    }
}

/// The names that a program asks for.
pub(super) fn names_of(serve: &Serve) -> Result<Names, Reply> {
    let invalid = |error: NameError| refused(Refusal::Invalid, error.to_string());
    let protocols = serve.protocols.iter().map(|name| Protocol::new(&name.0));
    let servers = serve.server_names.iter().map(|name| ServerName::new(name));
    let protocols: Vec<_> = protocols.collect::<Result<_, _>>().map_err(invalid)?;
    let servers: Vec<_> = servers.collect::<Result<_, _>>().map_err(invalid)?;
    Names::new(protocols, servers).map_err(invalid)
}

pub(super) fn refusal(error: &RegisterError) -> Reply {
    let why = match error {
        error if error.is_in_use() => Refusal::InUse,
        RegisterError::Reclaiming(_) => Refusal::Later,
        RegisterError::NoPort | RegisterError::Workers(_) | RegisterError::ProgramName(_) => {
            Refusal::Invalid
        }
        _ => Refusal::Full,
    };
    refused(why, error.to_string())
}

fn not_ready(error: &ReadyError) -> Reply {
    match error {
        ReadyError::Names(error) => refusal(error),
        ReadyError::Gone(error) => refused(Refusal::Invalid, error.to_string()),
    }
}
