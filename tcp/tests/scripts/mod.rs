//! Scripts in the syntax of [packetdrill](https://github.com/google/packetdrill): what comes and what is called, when, and what the
//! stack sends and returns. `docs/tcp.md` has a table of what each of them proves.
//!
//! They are run by the code of the stack below its threads and its port, which takes the time as an argument: minutes take no time. So they
//! are among the crate's own tests.
//!
//! - A segment that comes from the other side has numbers that pass 2^32 soon, and data that depends on its number alone: what is read is
//!   compared with it, as is what the stack sends.
//! - An event whose time is relative counts from the one before it, as it was.
//! - There is one connection, or one after the other.

mod calls;
mod packet;
mod runner;
mod script;
mod world;

use script::{Failure, Script};

/// Runs a script, and says where it does not come true.
fn run(file: &str, text: &str) -> Result<(), String> {
    let result = Script::read(text).and_then(|script| runner::run(&script));
    result.map_err(|Failure { line, text: what }| {
        let wrong = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        format!("{file}:{line}: {wrong}\n    {what}")
    })
}

/// The scripts: their names and texts.
fn scripts() -> Vec<(String, String)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts");
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut scripts: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "pkt"))
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    scripts.sort();
    scripts
}

#[test]
fn what_scripts_say_comes_true() {
    let run = |(name, text): &(String, String)| run(name, text).err();
    let failures: Vec<_> = scripts().iter().filter_map(run).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}

#[test]
fn the_documentation_has_a_row_for_each_script() {
    let text = include_str!("../../../docs/tcp.md");
    let rows: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    let rows = rows.iter().filter_map(|row| row.split_once(".pkt` |"));
    let mut rows: Vec<_> = rows.map(|(name, _)| format!("{name}.pkt")).collect();
    rows.sort();
    let names: Vec<_> = scripts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(rows, names);
}

/// What is wrong with a script is said with its file and line.
#[test]
fn failures_say_where_they_are_what_was_expected_and_what_came() {
    let begin = " 0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n+0 bind(3, ..., ...) = 0\n\n+0 listen(3, 1) = 0\n";
    let syn = "+0 < S 0:0(0) win 1000 <mss 1000>\n";
    for (lines, line, expected) in [
        ("+0 < S 0:0(0) win", 5, "a number is missing"),
        ("+0 < X 0:0(0)", 5, "X are no flags"),
        ("+0 < . 0:1(2) ack 1", 5, "there are not 2 octets"),
        ("+0 < S 0:0(0) ack 1", 5, "a dot among its flags"),
        ("+0~+1 frob(3) = 0", 5, "frob is not known"),
        ("+0 accept(3, ..., ...) = 4", 5, "expected: it is 4\n    came:     it waits"),
        ("+0 close(3) = 1", 5, "expected: 1\n    came:     0"),
        ("+0 close(3) = -1 EBADF (Bad file)", 5, "expected: -1 EBADF\n    came:     0"),
        ("+0...1 accept(3, ..., ...) = 4", 5, "accept has not returned"),
        (
            "+5 > . 1:1(0) ack 1",
            5,
            "expected: . 1:1(0) ack 1\n    came:     nothing until 5.000000",
        ),
        (syn, 5, "expected: no segment before this\n    came:     S. 0:0(0) ack 1 win"),
        (&format!("{syn}+0 > . 1:1(0) ack 1"), 6, "came:     S. 0:0(0) ack 1 win"),
        (&format!("{syn}+.1 > S. 0:0(0) ack 1 <mss 1460>"), 6, "came:     it at 0.000000"),
    ] {
        let failure = run("a.pkt", &format!("{begin}{lines}")).unwrap_err();
        assert!(failure.starts_with(&format!("a.pkt:{line}: +")), "{failure}");
        assert!(failure.contains(expected), "{failure}");
    }
}
