//! What attaching a device changes, and how that is undone.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::netlink::{Changes, Link, Netlink, Settings, is_none};
use super::offloads::Offloads;
use super::record::Record;

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

/// What a device has to be set back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) index: u32,
    /// What it was called.
    pub(super) name: String,
    /// Those that were on before and are off for the switch.
    offloads: Offloads,
    /// Of the loopback device, what was there before of what attaching has set.
    loopback: Changes,
}

/// A device that has been changed. It is as it was on drop, where it has not been changed by somebody else since.
#[derive(Debug)]
pub(super) struct Altered {
    note: Note,
    /// Its number in the record.
    serial: u64,
    /// Offloads that were on before, or before a switch that was killed.
    before: Offloads,
    /// There is nothing to be set back any more.
    has_gone: bool,
    is_unsure: bool,
    record: Arc<Record>,
}

impl Altered {
    /// Changes what has to be, and notes it before.
    ///
    /// # Errors
    ///
    /// What could not be changed, and why; then nothing is.
    pub(super) fn new(link: &Link, tables: &mut Netlink, record: &Arc<Record>) -> io::Result<Self> {
        let failed = |what: &str, error: io::Error| {
            io::Error::new(error.kind(), format!("{what} cannot be changed: {error}"))
        };
        let (index, name) = (link.index, link.name.clone());
        let before = Offloads::of(&name)?;
        let loopback = match link.is_loopback() {
            true => tables.loopback().map_err(|error| failed("its settings", error))?.other(WANTED),
            false => Changes::default(),
        };
        let record = Arc::clone(record);
        // With what was to be set back already.
        let (serial, note) = record.begin(Note { index, name, offloads: before, loopback });
        // Whatever comes now, the drop undoes this.
        let altered =
            Self { serial, before: note.offloads, note, has_gone: false, is_unsure: false, record };
        // Tags stay in frames, where the program sees them.
        let wanted = Offloads { vlan: false, ..before };
        if wanted != before {
            let set = wanted.set(&altered.note.name);
            set.map_err(|error| failed("its offload of VLAN tags", error))?;
        }
        let changes = WANTED.only(loopback);
        if changes != Changes::default() {
            tables.set_loopback(changes).map_err(|error| failed("its settings", error))?;
        }
        Ok(altered)
    }

    /// Looks at what has been switched off, once the program is there: the kernel has done some of it.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let offloads = self.before.without(Offloads::of(&self.note.name)?);
        if std::mem::replace(&mut self.note.offloads, offloads) == offloads {
            return Ok(());
        }
        self.record.change(self.serial, &self.note);
        Ok(())
    }

    /// It is called something else now.
    pub(super) fn rename(&mut self, name: &str) {
        if self.note.name != name {
            name.clone_into(&mut self.note.name);
            self.record.change(self.serial, &self.note);
        }
    }

    /// The device has gone: one that has its number is another one.
    pub(super) const fn give_up(&mut self) {
        self.has_gone = true;
    }

    /// Switches the offload of VLAN tags off again if somebody has switched it on, as all that has a tag would come without. It may
    /// be that this is not known now ([`Altered::is_unsure`]).
    ///
    /// # Errors
    ///
    /// When it stays on.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        let now = Offloads::of(&self.note.name);
        self.is_unsure = now.is_err();
        let now = match now {
            Ok(now) if now.vlan => now,
            Ok(_) => return Ok(()),
            Err(error) => {
                log::warn!("the offloads of {} are not known: {error}", self.note.name);
                return Ok(());
            }
        };
        // So it is to be afterwards.
        self.before.vlan = true;
        if !std::mem::replace(&mut self.note.offloads.vlan, true) {
            self.record.change(self.serial, &self.note);
        }
        let name = &self.note.name;
        Offloads { vlan: false, ..now }.set(name)?;
        if Offloads::of(name)?.vlan {
            return Err(io::ErrorKind::Unsupported.into());
        }
        log::warn!(
            "the offload of VLAN tags of {name} is off again: it may be on once {name} is detached"
        );
        self.look()
    }

    /// It was not known at the last look whether the offload of VLAN tags is on.
    pub(super) const fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    pub(super) const fn offloads(&self) -> Offloads {
        self.note.offloads
    }

    pub(super) const fn loopback(&self) -> Loopback {
        let Changes { segments, accept_local, route_localnet } = self.note.loopback;
        Loopback {
            segments: segments.is_some(),
            accept_local: accept_local.is_some(),
            route_localnet: route_localnet.is_some(),
        }
    }
}

impl Drop for Altered {
    fn drop(&mut self) {
        if self.note.is_empty() {
            return;
        }
        if self.has_gone {
            log::info!("{} has gone, and is not set as it was before", self.note.name);
            return self.record.forget(self.serial);
        }
        // By its number, as it may be called something else by now.
        match self.note.restore(|_| true) {
            Ok(()) => self.record.forget(self.serial),
            Err(error) => {
                log::warn!("{} is not set as it was before: {error}", self.note.name);
                self.record.leave(self.serial);
            }
        }
    }
}

impl Note {
    pub(super) fn is_empty(&self) -> bool {
        self.offloads == Offloads::default() && self.loopback == Changes::default()
    }

    /// Sets a device back that a switch has left so which was killed. There is nothing to do if the device has gone: one that has
    /// its number and another name is not that one.
    ///
    /// # Errors
    ///
    /// As those of [`Note::restore`].
    pub(super) fn set_back(&self) -> io::Result<()> {
        self.restore(|link| link.name == self.name)
    }

    /// Adds what an older note of the same device says: that was before.
    pub(super) fn add(&mut self, older: &Self) {
        self.offloads = self.offloads.with(older.offloads);
        let (own, other) = (self.loopback, older.loopback);
        self.loopback = Changes {
            segments: other.segments.or(own.segments),
            accept_local: other.accept_local.or(own.accept_local),
            route_localnet: other.route_localnet.or(own.route_localnet),
        };
    }

    /// Sets back what still is as attaching has set it, and nothing else, of the device of that number if it is the one.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` when a program is attached to it, which may need it so; or what the system says.
    fn restore(&self, is_it: impl FnOnce(&Link) -> bool) -> io::Result<()> {
        let mut tables = Netlink::open()?;
        let name = match tables.link_of(self.index) {
            Ok((link, _)) if !is_it(&link) => return Ok(()),
            Ok((_, true)) => {
                let why = "a program is attached to it, maybe another switch's";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            Ok((link, false)) => link.name,
            Err(error) if is_none(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let now = Offloads::of(&name)?;
        let wanted = now.with(self.offloads);
        if wanted != now {
            wanted.set(&name)?;
        }
        if self.loopback == Changes::default() {
            return Ok(());
        }
        let back = back(self.loopback, tables.loopback()?);
        if back == Changes::default() { Ok(()) } else { tables.set_loopback(back) }
    }

    /// One that was written ([`fmt::Display`]). None if it is not in order.
    pub(super) fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let index = words.next()?.parse().ok().filter(|index| *index > 0)?;
        let name = words.next().filter(|name| (1..=15).contains(&name.len()))?.to_owned();
        let (vlan, large_receive) = match words.next()? {
            "-" => (false, false),
            "vlan" => (true, false),
            "lro" => (false, true),
            "vlan,lro" => (true, true),
            _ => return None,
        };
        let mut value = || match words.next()? {
            "-" => Some(None),
            value => value.parse().ok().map(Some),
        };
        let (segments, accept_local, route_localnet) = (value()?, value()?, value()?);
        let loopback = Changes { segments, accept_local, route_localnet };
        let offloads = Offloads { vlan, large_receive };
        words.next().is_none().then_some(Self { index, name, offloads, loopback })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offloads = match (self.offloads.vlan, self.offloads.large_receive) {
            (false, false) => "-",
            (true, false) => "vlan",
            (false, true) => "lro",
            (true, true) => "vlan,lro",
        };
        write!(f, "{} {} {offloads}", self.index, self.name)?;
        let Changes { segments, accept_local, route_localnet } = self.loopback;
        [segments, accept_local, route_localnet].into_iter().try_for_each(|value| match value {
            Some(value) => write!(f, " {value}"),
            None => write!(f, " -"),
        })
    }
}

/// What is to be set back of what was `before`: what still is as attaching has set it.
fn back(before: Changes, now: Settings) -> Changes {
    let still = |before: Option<u32>, now, wanted| before.filter(|_| now == wanted);
    Changes {
        segments: still(before.segments, now.segments, WANTED.segments),
        accept_local: still(before.accept_local, now.accept_local, WANTED.accept_local),
        route_localnet: still(before.route_localnet, now.route_localnet, WANTED.route_localnet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Settings = Settings { segments: 65_535, accept_local: 1, route_localnet: 0 };

    #[test]
    fn what_attaching_does_not_change_is_neither_set_nor_set_back() {
        let before = BEFORE.other(WANTED);
        let changed =
            Changes { segments: Some(65_535), accept_local: None, route_localnet: Some(0) };
        assert_eq!(before, changed);
        let set = Changes { segments: Some(1), accept_local: None, route_localnet: Some(1) };
        assert_eq!(WANTED.only(before), set);
        assert_eq!(back(before, WANTED), before);
        // Somebody has set some of it meanwhile.
        let now = Settings { segments: 7, accept_local: 0, route_localnet: 1 };
        let rest = Changes { segments: None, accept_local: None, route_localnet: Some(0) };
        assert_eq!(back(before, now), rest);
        assert_eq!(back(before, BEFORE), Changes::default());
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_others_are_not() {
        let loopback = BEFORE.other(WANTED);
        let none = Changes::default();
        for (vlan, large_receive, loopback) in
            [(true, true, none), (true, false, none), (false, true, none), (false, false, loopback)]
        {
            let offloads = Offloads { vlan, large_receive };
            let note = Note { index: 7, name: "eth0".to_owned(), offloads, loopback };
            assert_eq!(Note::read(&note.to_string()), Some(note));
        }
        assert!(Note::read("1 lo - 65535 0 0").is_some());
        let mut later = Note::read("1 lo vlan - 0 1").unwrap();
        later.add(&Note::read("1 lo lro 65535 - 0").unwrap());
        assert_eq!(later.to_string(), "1 lo vlan,lro 65535 0 0");
        for line in [
            "",
            "1",
            "1 lo",
            "1 lo - 65535 0",
            "1 lo - 65535 0 0 ",
            "1 lo - 65535 0 0 0",
            "0 lo - 65535 0 0",
            "x lo - - - -",
            "1  - - - -",
            "1 0123456789abcdef - - - -",
            "1 lo - -1 - -",
            "1 lo - 4294967296 - -",
            "1 lo tso - - -",
            "1 lo vlan,vlan - - -",
            "-1 lo - - - -",
        ] {
            assert_eq!(Note::read(line), None, "{line}");
        }
    }
}
