//! `quicket analyze`: pages of real transfers, of somebody else's logs, and of files that nobody should write.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Outcome, Server, quicket};
use serde_json::Value;
use tempfile::tempdir;

const PLOTS: [&str; 5] = ["sequence", "window", "rtt", "losses", "rates"];
const AIOQUIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/qlog/aioquic_server.json");

fn analyze(home: &Path, arguments: &[&str]) -> Outcome {
    quicket(home).arg("analyze").args(arguments).output().unwrap().into()
}

/// The page of a file.
fn page_of(file: &Path) -> String {
    let home = tempdir().unwrap();
    let outcome = analyze(home.path(), &[file.to_str().unwrap(), "-o", "page.html"]);
    outcome.assert_code(0);
    fs::read_to_string(home.path().join("page.html")).unwrap()
}

/// The number in a row of the table of facts.
fn fact(page: &str, name: &str) -> u64 {
    let row = format!("<th scope=\"row\">{name}</th><td data-value=\"");
    let rest = page.split(&row).nth(1).unwrap_or_else(|| panic!("no {name}: {page}"));
    rest.split('"').next().unwrap().parse().unwrap()
}

/// A plot of the page.
fn plot<'a>(page: &'a str, name: &str) -> &'a str {
    let begin = page.split(&format!("data-plot=\"{name}\"")).nth(1);
    begin.unwrap_or_else(|| panic!("no plot {name}")).split("</figure>").next().unwrap()
}

/// A link that is taken away with the test.
struct Link {
    child: Child,
    address: String,
}

impl Link {
    fn lay(home: &Path, to: &str, scenario: &str) -> Self {
        let mut command: Command = quicket(home);
        command.args(["lab", "link", "--to", to, "--scenario", scenario]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split(' ').nth(2).unwrap_or_else(|| panic!("{line}")).to_owned();
        Self { child, address }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_in(dir: &Path) -> PathBuf {
    let mut files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.next().unwrap()
}

/// How many events of a name there are, read without the program's help.
fn count(log: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(log).unwrap();
    let records = text.split('\u{1e}').filter(|record| !record.trim().is_empty());
    let events = records.map(|record| serde_json::from_str::<Value>(record).unwrap());
    events.filter(|event| event["name"] == name).count() as u64
}

#[test]
fn the_page_of_a_transfer_over_a_lossy_link_has_all_plots_and_the_right_counts() {
    let server = Server::start_with(&["--qlog", "server-logs"]);
    let link = Link::lay(
        server.dir.path(),
        &server.address,
        "delay=10ms rate=50mbit mtu=1500; down loss=2%",
    );
    let url = format!("https://{}/large", link.address);
    let fetched = server.get(&[&url, "-o", "fetched", "--qlog", "client-logs", "--json"]);
    fetched.assert_code(0);
    let report = fetched.report();
    let connection = &report["connections"][0];
    let (status, log, dir) = server.interrupt();
    assert!(status.success(), "{log}");

    let client_log = log_in(&dir.path().join("client-logs"));
    let client = page_of(&client_log);
    for name in PLOTS {
        assert!(plot(&client, name).contains("<path class=\"curve"), "{name}: {client}");
    }
    for (name, event) in [
        ("Packets sent", "quic:packet_sent"),
        ("Packets received", "quic:packet_received"),
        ("Packets declared lost", "quic:packet_lost"),
    ] {
        assert_eq!(fact(&client, name), count(&client_log, event), "{name}");
    }
    // What get says is what it knew before it closed the connection.
    for (name, field) in
        [("Packets sent", "packets_sent"), ("Packets received", "packets_received")]
    {
        let (drawn, told) = (fact(&client, name), connection[field].as_u64().unwrap());
        assert!((told..=told + 50).contains(&drawn), "{name}: {drawn}, get says {told}");
    }
    let (drawn, told) =
        (fact(&client, "Stream bytes received"), report["received"].as_u64().unwrap());
    assert!((told..told + told / 100).contains(&drawn), "{drawn}, get says {told}");
    for words in
        ["seen by the client", "<td>h3</td>", "by this side: application", "initial_max_data"]
    {
        assert!(client.contains(words), "{words}: {client}");
    }

    let server_log = log_in(&dir.path().join("server-logs"));
    let served = page_of(&server_log);
    for name in PLOTS {
        assert!(plot(&served, name).contains("<path class=\"curve"), "{name}");
    }
    assert_eq!(fact(&served, "Packets declared lost"), count(&server_log, "quic:packet_lost"));
    // 2 % of more than 5,000 packets.
    assert!(fact(&served, "Packets declared lost") > 20, "{served}");
    assert!(fact(&served, "STREAM frames sent again") > 20, "{served}");
    assert!(plot(&served, "sequence").contains("<path class=\"curve c\""), "losses are marked");
    assert!(plot(&served, "sequence").contains("<path class=\"dots d\""), "what is sent again is");
    assert!(fact(&served, "Stream bytes sent") >= fact(&client, "Stream bytes received"));
    assert!(served.contains("seen by the server"));
}

#[test]
fn the_log_of_another_implementation_is_drawn() {
    let page = page_of(Path::new(AIOQUIC));
    for name in PLOTS {
        assert!(plot(&page, name).contains("<path class=\"curve"), "{name}: {page}");
    }
    let document: Value = serde_json::from_slice(&fs::read(AIOQUIC).unwrap()).unwrap();
    let events = document["traces"][0]["events"].as_array().unwrap();
    let count = |name| events.iter().filter(|event| event["name"] == name).count() as u64;
    assert_eq!(fact(&page, "Packets sent"), count("transport:packet_sent"));
    assert_eq!(fact(&page, "Packets declared lost"), count("recovery:packet_lost"));
    assert!(count("recovery:packet_lost") > 0);
    assert_eq!(fact(&page, "Stream bytes sent"), 80_000);
    assert_eq!(fact(&page, "Events"), events.len() as u64);
    for words in ["seen by the server", "aioquic", "cut off"] {
        assert_eq!(page.contains(words), words != "cut off", "{words}: {page}");
    }
}

#[test]
fn what_is_cut_off_is_left_out_and_told() {
    let home = tempdir().unwrap();
    let whole = fs::read(AIOQUIC).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 40) {
        fs::write(home.path().join("cut.qlog"), &whole[..at]).unwrap();
        let outcome = analyze(home.path(), &["cut.qlog"]);
        if outcome.code == Some(0) {
            let page = fs::read_to_string(home.path().join("cut.html")).unwrap();
            assert!(page.contains("left out: line 1: "), "{at}: {page}");
            assert!(outcome.stderr.contains("line 1"), "{}", outcome.stderr);
        } else {
            outcome.assert_code(6);
            assert!(outcome.stderr.starts_with("quicket: cut.qlog: "), "{}", outcome.stderr);
        }
    }
}

#[test]
fn hostile_names_and_numbers_stay_text_and_inside() {
    let home = tempdir().unwrap();
    let evil = "</title><script>alert(1)</script>\\u202e'\\\"";
    let header = format!(
        r#"{{"qlog_format":"JSON-SEQ","title":"{evil}","trace":{{"common_fields":{{"ODCID":"{evil}"}},"vantage_point":{{"name":"{evil}","type":"{evil}"}}}}}}"#
    );
    let mut text = format!("\u{1e}{header}\n");
    for (time, number) in [
        ("0", "18446744073709551615"),
        ("1e300", "1e300"),
        ("-5", "-1"),
        ("3", "4611686018427387903"),
    ] {
        text.push_str(&format!(
            "\u{1e}{{\"time\":{time},\"name\":\"quic:packet_sent\",\"data\":{{\"header\":{{\"version\":\"{evil}\"}},\
             \"raw\":{{\"length\":{number}}},\"frames\":[{{\"frame_type\":\"stream\",\"stream_id\":{number},\
             \"offset\":{number},\"length\":{number}}}]}}}}\n\
             \u{1e}{{\"time\":{time},\"name\":\"quic:recovery_metrics_updated\",\"data\":{{\"smoothed_rtt\":{number},\
             \"congestion_window\":{number},\"pacing_rate\":{number}}}}}\n"
        ));
    }
    text.push_str(&format!(
        "\u{1e}{{\"time\":4,\"name\":\"quic:parameters_set\",\"data\":{{\"initiator\":\"local\",\"{evil}\":\"{evil}\"}}}}\n\
         \u{1e}{{\"time\":4,\"name\":\"quic:connection_closed\",\"data\":{{\"reason\":\"{evil}\",\"trigger\":\"{evil}\"}}}}\n\
         \u{1e}[1,2\n\u{1e}{{\"time\":1e999,\"name\":\"x\"}}\n"
    ));
    fs::write(home.path().join("<b>.sqlog"), text).unwrap();
    let outcome = analyze(home.path(), &["<b>.sqlog", "-o", "page.html"]);
    outcome.assert_code(0);
    let page = fs::read_to_string(home.path().join("page.html")).unwrap();
    for markup in ["<script", "<b>", "\u{202e}", "NaN", "inf\"", "inf ", "Infinity"] {
        assert!(!page.contains(markup), "{markup}: {page}");
    }
    assert_eq!(page.matches("</title>").count(), 1, "{page}");
    assert!(page.contains("&lt;script&gt;"), "{page}");
    assert!(page.contains("4 parts of the file cannot be read"), "{page}");
    assert!(outcome.stderr.contains("line 6: no event"), "{}", outcome.stderr);
}

#[test]
fn files_that_are_no_qlogs_are_refused_by_name_with_what_to_do() {
    let home = tempdir().unwrap();
    for (content, words) in [
        (&b"\x0a\x0d\x0d\x0a\x1c\0\0\0"[..], "capture (pcapng)"),
        (b"\xd4\xc3\xb2\xa1\x02\0\x04\0", "older format (pcap)"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (b"", "empty"),
        (b"\0\xff\xfe", "line 1"),
        (b"{\"a\": [1, 2", "line 1"),
        (b"{\"a\": 1,\n \"b\": 2,\n", "line 3"),
        (b"{\"traces\": [{\"events\": [[1, \"transport\", \"packet_sent\", {}]]}]}", "draft 02"),
        (b"\x1e{\"qlog_format\":\"JSON-SEQ\"}\n", "no events"),
        (b"\x1e{\"qlog_format\":\"JSON-SEQ\"}\n\x1e{\"time\": 1, nonsense\n", "line 2, column 13"),
    ] {
        fs::write(home.path().join("file"), content).unwrap();
        let outcome = analyze(home.path(), &["file"]);
        outcome.assert_code(6);
        assert!(outcome.stderr.contains("file: "), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
        assert!(!home.path().join("file.html").exists());
    }
    analyze(home.path(), &["absent"]).assert_code(6);
    analyze(home.path(), &["."]).assert_code(6);
    analyze(home.path(), &["file", "-o", "./file"]).assert_code(2);
}
