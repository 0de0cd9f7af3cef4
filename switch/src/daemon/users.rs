//! Whose programs may be here, and what becomes of what they hand over.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use quicket_clerk::Clerk;
use quicket_udp::Complaints;

use super::MAX_PROGRAMS;
use super::handed::Clerks;
use super::program::{Program, turn_off};
use super::programs::Programs;
use super::tenant::{MAX_CONNECTIONS_OF_TENANT, Tenants, part};
use crate::protocol::{Refusal, Refused};
use crate::rendezvous;

/// The switch's own user, and others if there may be some.
#[derive(Debug)]
pub(super) struct Users {
    own: u32,
    tenants: Option<Tenants>,
    /// What closes descriptors of theirs.
    pub(super) clerks: Clerks,
    complaints: Arc<Complaints>,
}

impl Users {
    /// Nobody but the switch's own.
    pub(super) fn new(own: u32, complaints: Arc<Complaints>) -> Self {
        let clerks = Clerks::new(Arc::clone(&complaints));
        Self { own, tenants: None, clerks, complaints }
    }

    /// Others, too, from now on.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub(super) fn take_tenants(&mut self, tenants: Tenants) -> io::Result<()> {
        self.clerks.porter()?;
        self.tenants = Some(tenants);
        Ok(())
    }

    pub(super) const fn own(&self) -> u32 {
        self.own
    }

    #[cfg(test)]
    pub(super) const fn set_own(&mut self, uid: u32) {
        self.own = uid;
    }

    /// Whether a user is another than the switch's own.
    pub(super) const fn is_tenant(&self, uid: u32) -> bool {
        uid != self.own
    }

    /// Others than the switch's own, if there may be some.
    pub(super) const fn tenants(&self) -> Option<&Tenants> {
        self.tenants.as_ref()
    }

    pub(super) const fn tenants_mut(&mut self) -> Option<&mut Tenants> {
        self.tenants.as_mut()
    }

    /// Whether a program that has connected is heard, beside those that are.
    pub(super) fn admit(&mut self, program: &Program, others: &Programs) -> Result<(), Refused> {
        if self.has_clerk(program.uid) {
            self.admit_tenant(program, others)?;
        } else if program.uid != self.own && program.uid != 0 {
            let text = rendezvous::of_another(self.own);
            return Err(Refused { why: Refusal::Denied, text });
        }
        if others.len() >= MAX_PROGRAMS {
            let text = format!("the switch has {MAX_PROGRAMS} programs: end some");
            return Err(Refused { why: Refusal::Full, text });
        }
        Ok(())
    }

    /// The same for a program of another user.
    fn admit_tenant(&mut self, program: &Program, others: &Programs) -> Result<(), Refused> {
        let uid = program.uid;
        let knows = self.tenants.as_ref().is_some_and(|tenants| tenants.rule.knows(&program.who()));
        // Root may ask how it is.
        if !knows && uid != 0 {
            let text = format!(
                "the rule of this switch does not name user {uid}: ask who runs it (quicket switch --system \
                 --users), or start one of your own, quicket switch"
            );
            return Err(Refused { why: Refusal::Denied, text });
        }
        if others.of_user(uid).count() >= MAX_CONNECTIONS_OF_TENANT {
            let text =
                format!("user {uid} has {MAX_CONNECTIONS_OF_TENANT} programs here: end some");
            return Err(Refused { why: Refusal::Full, text });
        }
        let is_one = |other: &Program| self.is_tenant(other.uid) && other.uid != 0;
        let all = others.iter().filter(|(_, other)| is_one(other)).count();
        if uid != 0 && all >= part(MAX_PROGRAMS) {
            let text =
                "the switch has as many programs of other users as it may: end some".to_owned();
            return Err(Refused { why: Refusal::Full, text });
        }
        self.clerks.engage(uid, others)
    }

    /// Whether what a user hands over is closed by a clerk. Programs of the switch's own user are not kept from having it
    /// wait.
    pub(super) const fn has_clerk(&self, uid: u32) -> bool {
        self.tenants.is_some() && self.is_tenant(uid)
    }

    /// What closes things of a user who has been let in; none for the switch's own.
    pub(super) fn clerk(&mut self, uid: u32) -> Option<Clerk> {
        if self.has_clerk(uid) { self.clerks.of_user(uid) } else { None }
    }

    /// ... or if there is no thread left for him, what closes those of strangers.
    fn closer(&mut self, uid: u32) -> Option<Clerk> {
        if self.has_clerk(uid) { self.clerks.closer(uid) } else { None }
    }

    /// Closes what a user has handed over.
    pub(super) fn put_down(&mut self, uid: u32, descriptors: impl IntoIterator<Item = OwnedFd>) {
        let mut descriptors = descriptors.into_iter().peekable();
        if descriptors.peek().is_some()
            && let Some(clerk) = self.closer(uid)
        {
            clerk.close(descriptors);
        }
    }

    /// Ends the connection of a user who was heard.
    pub(super) fn end_connection(&mut self, uid: u32, connection: OwnedFd) {
        if let Some(clerk) = self.closer(uid) {
            clerk.end(connection);
        }
    }

    /// Tells somebody why he is not heard, and ends his connection.
    pub(super) fn turn_out(&mut self, connection: OwnedFd, refused: Refused) {
        turn_off(&connection, refused);
        match self.clerks.porter() {
            Ok(porter) => porter.end(connection),
            Err(error) => self.complaints.warn(format_args!("no thread for strangers: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

    use super::*;
    use crate::daemon::events::Events;
    use crate::daemon::rules::News;
    use crate::registry::ProcessId;
    use crate::rule::Rule;

    const OWN: u32 = 1000;

    fn program(uid: u32) -> Program {
        let kind = SockType::SeqPacket;
        let (ours, _) = socketpair(AddressFamily::Unix, kind, None, SockFlag::empty()).unwrap();
        Program::new(ours, uid, 1)
    }

    fn users() -> Users {
        Users::new(OWN, Arc::default())
    }

    #[test]
    fn a_switch_of_one_user_hears_him_and_root() {
        let (mut users, nobody) = (users(), Programs::default());
        assert!(users.admit(&program(OWN), &nobody).is_ok());
        assert!(users.admit(&program(0), &nobody).is_ok());
        let refused = users.admit(&program(1001), &nobody).unwrap_err();
        assert_eq!(refused.why, Refusal::Denied);
        assert!(users.clerk(1001).is_none() && users.clerk(OWN).is_none());
    }

    #[test]
    fn a_switch_for_several_hears_whom_its_rule_names_and_so_many_programs_of_his() {
        let mut users = users();
        let (_rules, news) = News::new(&Events::new().unwrap()).unwrap();
        let rule = Rule::parse("user 1001 ports 1024-65535").unwrap();
        users.take_tenants(Tenants::new(rule, news)).unwrap();
        let mut programs = Programs::default();
        for number in 0..MAX_CONNECTIONS_OF_TENANT as u64 {
            let program = program(1001);
            assert!(users.admit(&program, &programs).is_ok(), "{number}");
            programs.insert(ProcessId(number), program);
        }
        let refused = users.admit(&program(1001), &programs).unwrap_err();
        assert_eq!(refused.why, Refusal::Full);
        let refused = users.admit(&program(1002), &programs).unwrap_err();
        assert_eq!(refused.why, Refusal::Denied);
        assert!(users.admit(&program(0), &programs).is_ok(), "root may ask");
        assert!(users.admit(&program(OWN), &programs).is_ok());
        assert!(users.clerk(1001).is_some() && users.clerk(OWN).is_none());
    }
}
