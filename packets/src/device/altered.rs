//! What attaching a device changes, and how that is undone.

use std::io;

use super::netlink::{Link, Netlink, Settings};
use super::offloads::Offloads;

/// What the loopback device has to be set to. Segments come one by one, as frames of AF_XDP have no room for more; and the
/// system takes frames with sources of this host from the switch.
const WANTED: Settings = Settings { segments: 1, accept_local: 1, route_localnet: 1 };

/// What attaching `lo` has set, and detaching sets back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loopback {
    /// Segments of TCP and UDP do not come in one frame: `gso_max_segs` (ip-link(8)) is 1.
    pub segments: bool,
    /// The system takes frames from its own addresses there (`net.ipv4.conf.lo.accept_local`).
    pub accept_local: bool,
    /// ... and with those of 127.0.0.0/8 (`net.ipv4.conf.lo.route_localnet`).
    pub route_localnet: bool,
}

/// A device that has been changed. It is as it was on drop, where it has not been changed by somebody else since.
#[derive(Debug)]
pub(super) struct Altered {
    name: String,
    /// Those that were on before.
    before: Offloads,
    /// Those that are off for it.
    offloads: Offloads,
    /// Of the loopback device: what it was set to.
    loopback: Option<Settings>,
}

impl Altered {
    /// Changes what has to be.
    ///
    /// # Errors
    ///
    /// What could not be changed, and why; then nothing is.
    pub(super) fn new(link: &Link, tables: &mut Netlink) -> io::Result<Self> {
        let failed = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} cannot be changed: {error}"))
        };
        let name = link.name.clone();
        let before = Offloads::of(&name)?;
        let mut altered = Self { name, before, offloads: before, loopback: None };
        // Tags stay in frames, where the program sees them.
        let wanted = Offloads { vlan: false, ..before };
        if wanted != before {
            let set = wanted.set(&altered.name);
            set.map_err(|error| failed("its offload of VLAN tags", error))?;
        }
        if link.is_loopback() {
            let before = tables.loopback().map_err(|error| failed("its settings", error))?;
            if before != WANTED {
                altered.loopback = Some(before);
                tables.set_loopback(WANTED).map_err(|error| failed("its settings", error))?;
            }
        }
        Ok(altered)
    }

    /// Looks at what has been switched off, once the program is there: the kernel has done some of it.
    pub(super) fn look(&mut self) -> io::Result<()> {
        self.offloads = self.before.without(Offloads::of(&self.name)?);
        Ok(())
    }

    /// Switches the offload of VLAN tags off again if somebody has switched it on, as all that has a tag would come without.
    ///
    /// # Errors
    ///
    /// When it stays on.
    pub(super) fn keep(&mut self, name: &str) -> io::Result<()> {
        let now = Offloads::of(name)?;
        if !now.vlan {
            return Ok(());
        }
        Offloads { vlan: false, ..now }.set(name)?;
        if Offloads::of(name)?.vlan {
            return Err(io::ErrorKind::Unsupported.into());
        }
        log::warn!(
            "the offload of VLAN tags of {name} is off again: it may be on once {name} is detached"
        );
        // So it is to be afterwards.
        self.before.vlan = true;
        self.look()
    }

    pub(super) const fn offloads(&self) -> Offloads {
        self.offloads
    }

    pub(super) fn loopback(&self) -> Loopback {
        let Some(before) = self.loopback else { return Loopback::default() };
        Loopback {
            segments: before.segments != WANTED.segments,
            accept_local: before.accept_local != WANTED.accept_local,
            route_localnet: before.route_localnet != WANTED.route_localnet,
        }
    }

    fn restore(&self) -> io::Result<()> {
        if self.offloads != Offloads::default() {
            Offloads::of(&self.name)?.with(self.offloads).set(&self.name)?;
        }
        let Some(before) = self.loopback else { return Ok(()) };
        let mut tables = Netlink::open()?;
        let now = tables.loopback()?;
        let value = |now: u32, wanted, before| if now == wanted { before } else { now };
        tables.set_loopback(Settings {
            segments: value(now.segments, WANTED.segments, before.segments),
            accept_local: value(now.accept_local, WANTED.accept_local, before.accept_local),
            route_localnet: value(now.route_localnet, WANTED.route_localnet, before.route_localnet),
        })
    }
}

impl Drop for Altered {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            log::warn!("{} is not set as it was before: {error}", self.name);
        }
    }
}
