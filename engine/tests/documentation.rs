//! That ARCHITECTURE.md tells the truth.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn architecture() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap()
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `24 MiB`, `10 s` or `4096`, in bytes, milliseconds or as it is.
fn documented(value: &str) -> u64 {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let unit = match unit {
        "" | "ms" => 1,
        "s" => 1000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => panic!("unit of {value}"),
    };
    number.parse::<u64>().unwrap() * unit
}

/// An expression as these sources have them: a number, a shift, or a duration.
fn evaluated(expression: &str) -> Option<u64> {
    let number = |text: &str| match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().replace('_', "").parse().ok(),
    };
    let duration = expression.strip_suffix(')').and_then(|call| call.split_once("::from_"));
    match (duration, expression.split_once("<<")) {
        (Some((_, call)), _) => match call.split_once('(')? {
            ("secs", seconds) => number(seconds).map(|seconds| seconds * 1000),
            ("millis", millis) => number(millis),
            _ => None,
        },
        (None, Some((base, shift))) => Some(number(base)? << number(shift)?),
        (None, None) => number(expression),
    }
}

/// The value of a constant, or the default of a field, in a source file.
fn in_source(source: &str, name: &str) -> Option<u64> {
    source.lines().find_map(|line| {
        let line = line.trim();
        let expression = match line.split_once("const ").map(|(_, after)| after) {
            Some(constant) => constant.strip_prefix(name)?.strip_prefix(": ")?.split_once(" = ")?.1,
            None => line.strip_prefix(name)?.strip_prefix(": ")?,
        };
        evaluated(expression.trim_end_matches([';', ',']))
    })
}

#[test]
fn the_limits_are_those_of_the_code() {
    let text = architecture();
    let limits = text.split("\n## Limits\n").nth(1).unwrap();
    let limits = limits.split("\n## ").next().unwrap();
    let rows = limits.lines().filter(|line| line.starts_with('|') && line.contains('`'));
    let mut compared = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, name, value, file] = cells[..] else { panic!("four cells: {row}") };
        let (name, file) = (name.trim_matches('`'), file.trim_matches('`'));
        let source =
            fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        let actual = in_source(&source, name);
        assert_eq!(actual, Some(documented(value)), "{name} in {file}");
        compared += 1;
    }
    assert!(compared > 30, "{compared} rows were found");
}

#[test]
fn every_file_that_is_named_exists() {
    let mut files = Vec::new();
    for folder in ["wire", "engine", "handshake", "sockets", "h3", "cli", "lab"] {
        collect(&root().join(folder).join("src"), &mut files);
    }
    let text = architecture();
    let named = quoted(&text).filter(|name| name.ends_with(".rs"));
    let mut seen = 0;
    for name in named {
        let known = files.iter().any(|file| file.ends_with(&format!("/{name}")));
        assert!(known || root().join(name).exists(), "{name}");
        seen += 1;
    }
    assert!(seen > 15, "{seen} names were found");
}

/// docs/security.md and docs/packets.md name tests for attacks; `file.rs::test` is one, in
/// `engine/tests/hostile` unless it has a folder.
#[test]
fn every_test_that_documents_on_attacks_name_exists() {
    for (document, least) in [("docs/security.md", 50), ("docs/packets.md", 35)] {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let mut seen = 0;
        for name in quoted(&text) {
            let Some((file, test)) = name.split_once(".rs::") else { continue };
            let folder = if file.contains('/') { "" } else { "engine/tests/hostile" };
            let path = root().join(folder).join(format!("{file}.rs"));
            let source = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(source.contains(&format!("fn {test}()")), "{document}: {name}");
            seen += 1;
        }
        assert!(seen >= least, "{document}: {seen} tests were found");
    }
}

/// Libraries; programs may lock what they like.
const LIBRARIES: [&str; 24] = [
    "wire",
    "steering",
    "udp",
    "bpf",
    "ring",
    "packets",
    "packets/c",
    "tcp",
    "gue",
    "engine",
    "handshake",
    "switch",
    "sockets",
    "h3",
    "files",
    "client",
    "front",
    "keyd",
    "register",
    "gateway",
    "balancer",
    "tunnel",
    "c",
    "preload",
];

/// Whether a file keeps something under a lock: not in a test, and not as the argument of a function.
fn has_locks(source: &str) -> bool {
    let tests = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    source[..tests].lines().any(|line| {
        let line = line.trim();
        let is_code = !line.starts_with("//") && !line.contains("fn ");
        is_code && ["Mutex<", "RwLock<", "Held<"].iter().any(|lock| line.contains(lock))
    })
}

/// docs/threads.md says which lock may be taken under which: of all that there are.
#[test]
fn every_lock_of_the_libraries_stands_in_the_tables_of_locks() {
    let text = fs::read_to_string(root().join("docs/threads.md")).unwrap();
    let locks = text.split("\n## Locks\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = locks.lines().filter(|line| line.starts_with('|') && line.contains('`'));
    let mut listed = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, files, _] = cells[..] else { panic!("three cells: {row}") };
        listed.extend(quoted(files).map(|file| match file.contains("/src/") {
            true => file.to_owned(),
            false => format!("sockets/src/{file}"),
        }));
    }
    listed.sort();
    listed.dedup();
    let mut files = Vec::new();
    LIBRARIES.iter().for_each(|name| collect(&root().join(name).join("src"), &mut files));
    let root = format!("{}/", root().display());
    let mut found = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&root).unwrap();
        let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
        if name.ends_with(".rs") && !is_test && has_locks(&fs::read_to_string(file).unwrap()) {
            found.push(name.to_owned());
        }
    }
    found.sort();
    found.dedup();
    assert_eq!(found, listed);
}

/// All sources below a folder.
fn collect(folder: &Path, files: &mut Vec<String>) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.display().to_string());
            }
        }
    }
}
