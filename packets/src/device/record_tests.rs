//! What is read of a file that somebody else may have written.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use quicket_bpf::Tuples;

use super::*;
use crate::device::permitted::is_permitted;
use crate::device::rates::Wire;
use crate::device::{Device, Mode};

const HEAD: &str = "quicket-packets-altered 1 c0ffee 7";

/// A file of its own, which is removed with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("quicket-record-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn open(&self) -> File {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).read(true).write(true).open(&self.0);
        let file = file.unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn note(line: &str) -> Note {
    Note::read(line).unwrap()
}

impl Record {
    fn all(&self) -> Vec<Note> {
        self.notes().all.iter().map(|noted| noted.note.clone()).collect()
    }
}

#[test]
fn notes_are_read_by_the_next_one_until_nothing_is_left_to_be_set_back() {
    let scratch = Scratch::new("next");
    let (lo, eth0) = (note("1 lo - 65535 0 0"), note("7 eth0 vlan,lro - - -"));
    let record = Record::open(scratch.open(), 7);
    assert!(record.is_empty());
    let (first, _) = record.begin(lo.clone());
    let (second, _) = record.begin(eth0.clone());
    let next = || Record::open(scratch.open(), 7).all();
    assert_eq!(next(), [lo, eth0]);
    // What is known better stands in its place.
    let less = note("7 eth0 vlan - - -");
    record.change(second, &less);
    record.forget(first);
    assert_eq!(next(), [less]);
    record.forget(second);
    assert!(record.is_empty() && scratch.text().is_empty());
    // A longer one that there was before is cut off, now or by who reads it.
    scratch
        .open()
        .write_all_at(b"no notes, and longer than what follows by far, as it goes on and on", 0)
        .unwrap();
    record.begin(note("1 lo - 65535 - -"));
    assert_eq!(next(), [note("1 lo - 65535 - -")]);
    assert!(scratch.text().ends_with("end\n"));
}

/// What it is set back to is what was there before the first of those who have altered it.
#[test]
fn what_was_left_to_be_set_back_is_part_of_the_next_note_of_that_device() {
    let scratch = Scratch::new("left");
    let all = || Record::open(scratch.open(), 7).all();
    Record::open(scratch.open(), 7).begin(note("1 lo - 65535 0 -"));
    let record = Record::open(scratch.open(), 7);
    let (lo, merged) = record.begin(note("1 lo - - - 0"));
    assert_eq!(merged, note("1 lo - 65535 0 0"));
    assert_eq!(all(), std::slice::from_ref(&merged));
    record.leave(lo);
    let (lo, merged) = record.begin(note("1 lo - - - -"));
    assert_eq!(merged, note("1 lo - 65535 0 0"));
    record.forget(lo);
    // One of another name is another device, which has the number, and so is one that is still attached.
    record.leave(record.begin(note("7 eth0 vlan - - -")).0);
    let (gone, _) = record.begin(note("7 eth1 lro - - -"));
    assert_eq!(all(), [note("7 eth1 lro - - -")]);
    let (next, unmerged) = record.begin(note("7 eth1 vlan - - -"));
    assert_eq!(unmerged, note("7 eth1 vlan - - -"));
    record.change(gone, &note("7 eth2 lro - - -"));
    record.forget(gone);
    assert_eq!(all(), [unmerged]);
    record.forget(next);
    record.leave(record.begin(note("7 eth1 vlan - - -")).0);
    record.begin(note("7 eth2 - - - -"));
    assert_eq!(all(), []);
}

/// Two switches of one network namespace, one of which was killed.
#[test]
fn nothing_is_set_back_under_a_program() {
    if !is_permitted() {
        return;
    }
    let _wire = Wire::new().unwrap();
    let tuples = Arc::new(Tuples::new(16).unwrap());
    let accepts_local = || {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/conf/lo/accept_local");
        text.unwrap().trim() == "1"
    };
    let (killed, living) = (Scratch::new("killed"), Scratch::new("living"));
    let record = Arc::new(Record::open(living.open(), 7));
    let device = Device::attach("lo", Mode::Generic, &tuples, &record).unwrap();
    killed.open().write_all_at(living.text().as_bytes(), 0).unwrap();
    let next = Arc::new(Record::open(killed.open(), 7));
    next.undo();
    assert!(accepts_local() && next.all() == record.all());
    // To attach it fails, and says so.
    assert!(Device::attach("lo", Mode::Generic, &tuples, &next).is_err());
    assert!(accepts_local() && next.all() == record.all());
    drop(device);
    assert!(!accepts_local() && record.is_empty());
    next.undo();
    assert!(next.is_empty() && killed.text().is_empty());
}

#[test]
fn notes_of_another_boot_or_network_namespace_are_none() {
    let line = "1 lo - 65535 0 0\nend\n";
    let of = |head: &str| parse(&format!("{head}\n{line}"), HEAD);
    assert_eq!(of(HEAD), Left::Notes(vec![note("1 lo - 65535 0 0")]));
    assert_eq!(of("quicket-packets-altered 1 decaf 7"), Left::Notes(Vec::new()));
    assert!(matches!(of("quicket-packets-altered 1 c0ffee 8"), Left::Others(_)));
    // The number of a namespace is one of this boot.
    let scratch = Scratch::new("namespace");
    Record::open(scratch.open(), 7).begin(note("1 lo - 65535 0 0"));
    let other = Record::open(scratch.open(), 8);
    assert!(other.is_empty() && other.is_nowhere());
    other.begin(note("7 eth0 vlan - - -"));
    assert_eq!(Record::open(scratch.open(), 7).all(), [note("1 lo - 65535 0 0")]);
}

#[test]
fn what_is_not_in_order_is_not_believed_in_part() {
    let many: String = (1..=33).map(|index| format!("{index} eth{index} vlan - - -\n")).collect();
    for rest in [
        "",
        "end",
        "1 lo - 65535 0 0\n",
        "1 lo - 65535 0 0\nend",
        "1 lo - 65535 0 0\n\nend\n",
        "1 lo - 65535 0 0\n2 eth0 tso - - -\nend\n",
        "1 lo - 65535 0 0\n1 lo - 65535 0 0\nend\n",
        " end\n",
        &format!("{many}end\n"),
    ] {
        assert_eq!(parse(&format!("{HEAD}\n{rest}"), HEAD), Left::Broken, "{rest}");
    }
    let scratch = Scratch::new("disorder");
    let begun = format!("{MAGIC} and no end");
    for text in [begun.as_bytes(), b"quicket-packets-altered 1 c0ffee 7\n1 \xff\xfe"] {
        scratch.open().write_all_at(text, 0).unwrap();
        assert!(Record::open(scratch.open(), 7).is_empty());
    }
    assert_eq!(parse(&begun, HEAD), Left::Broken);
}

/// It may be a file that this user needs, at a path that was written wrong.
#[test]
fn what_is_no_record_is_left_alone() {
    for text in
        ["end\n", "\n", "quicket", "quicket-packets-altered 10\nend\n", "something else\nend\n"]
    {
        assert!(matches!(parse(text, HEAD), Left::Others(_)), "{text}");
    }
    let scratch = Scratch::new("alone");
    for text in [&b"\xff\xfe\n"[..], &[b'a'; 1 << 20]] {
        scratch.open().write_all_at(text, 0).unwrap();
        let record = Record::open(scratch.open(), 7);
        assert!(record.is_empty() && record.is_nowhere());
        record.forget(record.begin(note("1 lo - 65535 0 0")).0);
        assert_eq!(std::fs::read(&scratch.0).unwrap(), text);
    }
}

/// Whoever may write in the folder could have put it there.
#[test]
fn a_file_that_is_not_this_users_alone_is_neither_read_nor_written() {
    let scratch = Scratch::new("others");
    let refused = |what: &str| {
        let before = scratch.text();
        assert!(!before.is_empty(), "there is something to be read");
        let file = OpenOptions::new().read(true).write(true).open(&scratch.0).unwrap();
        let record = Record::open(file, 7);
        assert!(record.is_empty(), "{what}");
        record.begin(note("1 lo - 65535 0 0"));
        assert_eq!(scratch.text(), before, "{what}");
    };
    Record::open(scratch.open(), 7).begin(note("7 eth0 vlan - - -"));
    scratch.open().set_permissions(Permissions::from_mode(0o620)).unwrap();
    refused("others may write to it");
    scratch.open();
    let other = Scratch::new("link");
    std::fs::hard_link(&scratch.0, &other.0).unwrap();
    refused("it has another name");
    drop(other);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&scratch.0, Some(65_534), None).unwrap();
        refused("it is another user's");
        std::os::unix::fs::chown(&scratch.0, Some(0), None).unwrap();
    }
    assert!(!Record::open(scratch.open(), 7).is_empty());
}
