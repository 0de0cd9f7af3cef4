//! What is read of a file that somebody else may have written.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

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

#[test]
fn notes_are_read_by_the_next_one_until_nothing_is_left_to_be_set_back() {
    let scratch = Scratch::new("next");
    let (lo, eth0) = (note("1 lo - 65535 0 0"), note("7 eth0 vlan,lro - - -"));
    let record = Record::open(scratch.open(), 7);
    assert!(record.is_empty());
    record.note(&lo);
    record.note(&eth0);
    let next = || Record::open(scratch.open(), 7).notes().all.clone();
    assert_eq!(next(), [lo, eth0]);
    // What is known better stands in its place.
    let less = note("7 eth0 vlan - - -");
    record.note(&less);
    record.forget(1);
    assert_eq!(next(), [less]);
    record.forget(7);
    assert!(record.is_empty() && scratch.text().is_empty());
    // A longer one that there was before is cut off, now or by who reads it.
    scratch
        .open()
        .write_all_at(b"no notes, and longer than what follows by far, as it goes on and on", 0)
        .unwrap();
    record.note(&note("1 lo - 65535 - -"));
    assert_eq!(next(), [note("1 lo - 65535 - -")]);
    assert!(scratch.text().ends_with("end\n"));
}

#[test]
fn notes_of_another_boot_or_network_namespace_are_none() {
    let line = "1 lo - 65535 0 0\nend\n";
    assert_eq!(parse(&format!("{HEAD}\n{line}"), HEAD).unwrap().len(), 1);
    let of = |head: &str| parse(&format!("{head}\n{line}"), HEAD);
    assert_eq!(of("quicket-packets-altered 1 decaf 7").unwrap(), []);
    let error = of("quicket-packets-altered 1 c0ffee 8").unwrap_err();
    assert!(error.to_string().contains("namespace"), "{error}");
    // The number of a namespace is one of this boot.
    let scratch = Scratch::new("namespace");
    Record::open(scratch.open(), 7).note(&note("1 lo - 65535 0 0"));
    assert!(Record::open(scratch.open(), 8).is_empty());
    assert!(scratch.text().is_empty(), "nobody else finds them");
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
        let error = parse(&format!("{HEAD}\n{rest}"), HEAD).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{rest}");
    }
    for text in ["end\n", "\n", "quicket", "something else\nend\n"] {
        assert_eq!(parse(text, HEAD).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
    }
    let scratch = Scratch::new("disorder");
    for text in [&b"\xff\xfe\n"[..], &[b'a'; 1 << 20]] {
        scratch.open().write_all_at(text, 0).unwrap();
        assert!(Record::open(scratch.open(), 7).is_empty());
        assert!(scratch.text().is_empty());
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
        record.note(&note("1 lo - 65535 0 0"));
        assert_eq!(scratch.text(), before, "{what}");
    };
    Record::open(scratch.open(), 7).note(&note("7 eth0 vlan - - -"));
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
