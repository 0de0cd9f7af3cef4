//! A client's moves to another of its addresses (RFC 9000, Sections 9.2 and 9.6).

use super::{MigrationError, PathChange, Paths};
use crate::path::{FourTuple, Path, PathKey, PathPurpose, PathStart};
use crate::random::Random;
use crate::time::{Duration, Time};

impl Paths {
    /// Client: probes a path from another local address, and moves there once it is validated
    /// (RFC 9000, Sections 9.1 and 9.2). The caller makes sure that there is an unused connection
    /// ID for it.
    ///
    /// # Errors
    ///
    /// See [`MigrationError`].
    pub(crate) fn migrate(
        &mut self,
        tuple: FourTuple,
        now: Time,
        pto: Duration,
        random: &mut dyn Random,
    ) -> Result<PathKey, MigrationError> {
        // RFC 9000, Section 18.2: MUST NOT use a new local address towards the address of the
        // handshake. Another one is the preferred address, whence it may.
        if self.migration_disabled_by_peer && self.is_at_handshake_server(&tuple) {
            return Err(MigrationError::DisabledByPeer);
        }
        self.move_when_valid(tuple, now, pto, random)
    }

    /// Client: moves to a path that [`Self::migrate`] has begun without waiting for the answer
    /// (RFC 9000, Section 9.2). Should none come, the connection falls back as after a move of the
    /// peer's (Section 9.3.2).
    pub(crate) fn move_at_once(&mut self, key: PathKey) -> Option<PathChange> {
        self.switch_to(key)
    }

    /// Client: the active path goes on from another local address, as behind a NAT that has
    /// forgotten its binding: the peer sees the same connection ID come from elsewhere.
    pub(crate) fn rebind(&mut self, local: core::net::SocketAddr) {
        self.active.tuple.local = local;
    }

    /// True while a path is being validated to which this side wants to move.
    pub(crate) fn is_migrating(&self) -> bool {
        self.migrating_to().is_some()
    }

    /// The local address of that path.
    pub(crate) fn migrating_to(&self) -> Option<core::net::SocketAddr> {
        let mut others = self.others.iter();
        others.find(|path| path.purpose == PathPurpose::MigrateWhenValid).map(Path::local)
    }

    /// Client: probes another path, and moves there once it is validated: also where the server forbids other moves, if
    /// that is its preferred address (RFC 9000, Section 9.6.1).
    ///
    /// # Errors
    ///
    /// See [`MigrationError`].
    pub(crate) fn move_when_valid(
        &mut self,
        tuple: FourTuple,
        now: Time,
        pto: Duration,
        random: &mut dyn Random,
    ) -> Result<PathKey, MigrationError> {
        if !self.side.is_client() {
            return Err(MigrationError::NotClient);
        }
        if !self.handshake_confirmed {
            return Err(MigrationError::HandshakeNotConfirmed);
        }
        if self.active.tuple == tuple {
            return Err(MigrationError::AlreadyActive);
        }
        if let Some(known) = self.others.iter_mut().find(|p| p.tuple == tuple) {
            known.purpose = PathPurpose::MigrateWhenValid;
            known.expires = None;
            known.validation.start(now, pto);
            return Ok(known.key);
        }
        let key = self.make_room().ok_or(MigrationError::TooManyPaths)?;
        let start = PathStart {
            now,
            settings: &self.settings,
            purpose: PathPurpose::MigrateWhenValid,
            validated: false,
            limited: false,
            local_cid: self.active.local_cid,
        };
        let mut path = Path::new(key, tuple, &start, random);
        path.validation.start(now, pto);
        self.others.push(path);
        Ok(key)
    }
}
