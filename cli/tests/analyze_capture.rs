//! `quicket analyze` of captures: those of a gateway, beside the qlog of the same connection, and those that nobody should
//! write.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::site::Site;
use common::{Outcome, content, get, quicket};
use quicket_testing::{signal, until};

const LENGTH: usize = 3_000_000;

fn analyze(home: &Path, arguments: &[&str]) -> Outcome {
    quicket(home).arg("analyze").args(arguments).output().unwrap().into()
}

/// The number in a row of the table of facts.
fn fact(page: &str, name: &str) -> u64 {
    let row = format!("<th scope=\"row\">{name}</th><td data-value=\"");
    let rest = page.split(&row).nth(1).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().unwrap().parse().unwrap()
}

impl Site {
    /// With a large file.
    fn start() -> Self {
        let (dir, port) = Self::folder();
        let www = dir.path().join("www");
        fs::create_dir(&www).unwrap();
        fs::write(www.join("large"), content(LENGTH)).unwrap();
        let file = format!(
            "listen = [\"127.0.0.1:{port}\"]\n[[certificate]]\nchain = \"cert.pem\"\nkey = \"cert.key\"\n\
             [[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"{}\"\n[capture]\nallow = true\n",
            www.display()
        );
        fs::write(dir.path().join("site.toml"), file).unwrap();
        Self::run(dir, port)
    }

    /// Captures a download.
    fn capture(&self, arguments: &[&str]) {
        let mut command = quicket(self.dir.path());
        command.args(["gateway", "capture", "site.toml", "--client", "127.0.0.1"]).args(arguments);
        command.stderr(fs::File::create(self.path("asker.log")).unwrap());
        let mut asker = command.spawn().unwrap();
        until("the capture", || self.text("asker.log").contains("capturing at the gateway"));
        let url = format!("https://localhost:{}/large", self.port);
        get(self.dir.path(), &["--ca", "cert.pem", "--http3-only", "-o", "body", &url])
            .assert_code(0);
        signal(asker.id(), "-INT");
        assert!(asker.wait().unwrap().success(), "{}", self.text("asker.log"));
    }

    /// The page of a file, and what was said of it.
    fn page(&self, file: &str) -> (String, String) {
        let outcome = analyze(self.dir.path(), &[file, "-o", "page.html"]);
        outcome.assert_code(0);
        (self.text("page.html"), outcome.stderr)
    }
}

#[test]
fn a_capture_tells_what_the_qlog_of_the_same_connection_tells() {
    let site = Site::start();
    site.capture(&["-o", "c.pcapng", "--qlog", "logs"]);
    let (page, notes) = site.page("c.pcapng");
    let qlog = fs::read_dir(site.path("logs")).unwrap().next().unwrap().unwrap().path();
    let (logged, _) = site.page(qlog.to_str().unwrap());
    for name in ["Stream bytes sent", "Stream bytes received", "Packets sent", "Packets received"] {
        let (captured, logged) = (fact(&page, name), fact(&logged, name));
        assert!(
            captured > 0 && captured.abs_diff(logged) * 100 <= logged,
            "{name}: {captured}, {logged}"
        );
    }
    assert!(fact(&page, "Stream bytes sent") >= LENGTH as u64);
    for words in [
        "<td>server</td>",
        "<td>h3</td>",
        "TLS_AES",
        "initial_max_data",
        "Handshake complete after",
    ] {
        assert!(page.contains(words), "{words}");
    }
    for plot in ["sequence", "window", "rtt", "losses", "rates"] {
        let drawn = page.split(&format!("data-plot=\"{plot}\"")).nth(1);
        assert!(drawn.is_some_and(|plot| plot.contains("<p") || plot.contains("<svg")), "{plot}");
    }
    assert!(notes.contains("Made of a capture") && !notes.contains("not opened"), "{notes}");
    spoiled(&site, "c.pcapng");
    by_others(&site);
}

/// What is changed here and there is drawn in part or refused, and nothing else.
fn spoiled(site: &Site, name: &str) {
    let bytes = fs::read(site.path(name)).unwrap();
    // The beginning has the blocks of all kinds; the rest of a file are packets.
    let bytes = &bytes[..bytes.len().min(60_000)];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for round in 0..60 {
        let mut changed = bytes.to_vec();
        for _ in 0..1 + round % 9 {
            let at = random(changed.len());
            changed[at] = [0, 0xff, 0x7f, random(256) as u8][round % 4];
        }
        changed.truncate(if round % 3 == 0 { random(changed.len()) } else { changed.len() });
        fs::write(site.path("spoiled.pcapng"), changed).unwrap();
        let outcome = analyze(site.dir.path(), &["spoiled.pcapng", "-o", "page.html"]);
        assert!(
            [Some(0), Some(6)].contains(&outcome.code),
            "{round}: {:?}: {}",
            outcome.code,
            outcome.stderr
        );
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    }
}

/// The log in a file's Decryption Secrets Blocks; not each editcap takes it out.
fn secrets(mut file: &[u8]) -> Vec<u8> {
    const DECRYPTION_SECRETS: u32 = 10;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(*bytes[at..].first_chunk().expect("a file that is little-endian"))
    };
    let mut all = Vec::new();
    while !file.is_empty() {
        let (block, rest) = file.split_at(word(file, 4) as usize);
        if word(block, 0) == DECRYPTION_SECRETS {
            all.extend(&block[16..16 + word(block, 12) as usize]);
        }
        file = rest;
    }
    all
}

/// Without its secrets a capture tells little, and says so; Wireshark's editcap takes them out and puts them in.
fn by_others(site: &Site) {
    let editcap = |arguments: &[&str]| {
        let mut command = Command::new("editcap");
        match command.args(arguments).current_dir(site.dir.path()).output() {
            Ok(output) => {
                assert!(output.status.success(), "{output:?}");
                true
            }
            Err(_) => {
                quicket_testing::leave_out("editcap changes a capture, and is not installed");
                false
            }
        }
    };
    if !editcap(&["--discard-all-secrets", "c.pcapng", "without.pcapng"]) {
        return;
    }
    fs::write(site.path("keys"), secrets(&fs::read(site.path("c.pcapng")).unwrap())).unwrap();
    let (page, notes) = site.page("without.pcapng");
    assert!(
        notes.contains("packets are not opened: the file has secrets of 0 sessions"),
        "{notes}"
    );
    assert_eq!(fact(&page, "Stream bytes sent"), 0);
    editcap(&["--inject-secrets", "tls,keys", "without.pcapng", "again.pcapng"]);
    let (again, _) = site.page("again.pcapng");
    let (whole, _) = site.page("c.pcapng");
    assert_eq!(fact(&again, "Stream bytes sent"), fact(&whole, "Stream bytes sent"));
    editcap(&["-F", "pcap", "c.pcapng", "old.pcap"]);
    let outcome = analyze(site.dir.path(), &["old.pcap"]);
    outcome.assert_code(6);
    assert!(outcome.stderr.contains("--inject-secrets"), "{}", outcome.stderr);
}

#[test]
fn a_capture_of_something_else_is_refused_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let section = b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\x1c\0\0\0";
    fs::write(home.path().join("empty.pcapng"), section).unwrap();
    let outcome = analyze(home.path(), &["empty.pcapng"]);
    outcome.assert_code(6);
    assert!(outcome.stderr.contains("quicket gateway capture"), "{}", outcome.stderr);
    assert!(!home.path().join("empty.html").exists());
}
