//! The benchmark in its quick form, through the lab's own command line.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quicket_lab::bench::{Contender, NetworkKind, Report, Row};
use quicket_lab::netns::{self, Namespaces};

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_quicket-lab"))
}

fn bench(arguments: &[&str], out: &Path) -> Report {
    let output =
        lab().args(["bench", "--quick"]).args(arguments).arg("--out").arg(out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&std::fs::read(out.join("bench.json")).unwrap()).unwrap()
}

#[test]
fn every_row_runs_and_every_network_that_is_permitted() {
    let out = tempfile::tempdir().unwrap();
    let report = bench(&[], out.path());
    let without = NetworkKind::ALL.len() - report.networks().len();
    let skipped = |sentence: &&String| sentence.contains("rows were skipped");
    assert_eq!(report.skipped.iter().filter(skipped).count(), without, "{:?}", report.skipped);
    report.skipped.iter().filter(skipped).for_each(|sentence| netns::leave_out(sentence));
    assert_eq!(report.failures, [""; 0]);
    for network in report.networks() {
        for row in Row::ALL.into_iter().filter(|row| row.quick_network() == network) {
            assert!(report.rows(network).contains(&row), "{network}: {row}");
        }
        for line in report.lines(network) {
            let has = |one: &&Contender| has(**one, line.row, line.figure.name);
            for &contender in report.contenders.keys().filter(has) {
                let what = format!("{network}, {}, {contender}: {}", line.row, line.figure.name);
                let spread = report.spread(&line, contender);
                let spread = spread.unwrap_or_else(|| panic!("{what} was not measured"));
                // Nothing may grow, and no calls are made within the kernel.
                let none = line.row == Row::Idle
                    || ["memory per connection", "lost"].contains(&line.figure.name)
                    || contender.is_in_kernel();
                assert!(none || spread.max > 0.0, "{what}");
            }
        }
        assert!(out.path().join(format!("bench-{network}.svg")).exists());
    }
    let page = std::fs::read_to_string(out.path().join("bench.html")).unwrap();
    assert!(page.contains("Quick run"));
}

/// Whether an implementation has figures for the point of a row that a quick run measures.
fn has(contender: Contender, row: Row, figure: &str) -> bool {
    let tcp = !contender.is_quic();
    let lacks = match contender {
        Contender::S2nQuic => row == Row::FirstByte,
        // It has no BBR.
        Contender::QuicGo => row == Row::Loss,
        // Not every kernel has the module.
        Contender::WithoutUdp => true,
        // They are not kept for long.
        Contender::NginxH1 | Contender::GatewayH1 => figure == "memory per connection",
        // There is no tunnel that would take any.
        Contender::Tcp if row == Row::Tunnel => figure.starts_with("CPU"),
        _ => tcp && matches!(row, Row::Streams | Row::FirstByte),
    };
    contender.takes_part(row) && !lacks
}

#[test]
fn namespaces_do_not_survive_a_killed_benchmark() {
    if netns::unless_denied(Namespaces::new()).is_none() {
        return;
    }
    let mut child = lab()
        .args(["bench", "--network", "veth", "--implementation", "tcp-tls", "--row", "exchanges"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let prefix = format!("quicket-{}-", child.id());
    let there = || {
        std::fs::read_dir("/run/netns").is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        })
    };
    assert!(within(Duration::from_secs(60), there), "no namespaces");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(within(Duration::from_secs(10), || !there()), "{prefix}* are still there");
}

fn within(time: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_hidden_process_with_a_bad_assignment_says_so() {
    let output = lab().args(["__lab-bench", "tcp-tls", "{}"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("\"message\":\"failed\"") && said.contains("core"), "{said}");
}

#[test]
fn rows_may_be_asked_for_one_by_one_over_one_network() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["--network", "loopback", "--implementation", "tcp-tls"];
    let rows = ["--row", "exchanges", "--row", "upload", "--row", "loss"];
    let report = bench(&[&arguments[..], &rows].concat(), out.path());
    assert_eq!(report.networks(), [NetworkKind::Loopback]);
    assert_eq!(report.rows(NetworkKind::Loopback), [Row::Upload, Row::Exchanges]);
}

/// One worker beside two, which have the cores of who makes the load.
#[test]
fn workers_are_measured_on_all_cores() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["--network", "loopback", "--row", "workers", "--implementation", "quicket"];
    let report =
        bench(&[&arguments[..], &["--implementation", "quicket-workers"]].concat(), out.path());
    assert_eq!(report.failures, [""; 0]);
    for line in report.lines(NetworkKind::Loopback) {
        for contender in [Contender::Quicket, Contender::QuicketWorkers] {
            let spread = report.spread(&line, contender).unwrap();
            assert!(spread.min > 0.0, "{contender}, {}: {spread:?}", line.figure.name);
        }
    }
}

#[test]
fn an_unknown_row_is_refused_with_the_known_ones() {
    let output = lab().args(["bench", "--row", "bulk"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("handshakes-50"), "{said}");
}

/// Two figures for memory come from each idle measurement, whatever the number of connections.
#[test]
fn the_idle_row_takes_any_number_of_connections() {
    let out = tempfile::tempdir().unwrap();
    let arguments =
        ["--network", "loopback", "--row", "idle", "--implementation", "quicket", "--connections"];
    let report = bench(&[&arguments[..], &["300"]].concat(), out.path());
    assert_eq!(report.settings.idle_connections, 300);
    for line in report.lines(NetworkKind::Loopback) {
        let spread = report.spread(&line, Contender::Quicket).unwrap();
        assert!((1_000.0..200_000.0).contains(&spread.median), "{}: {spread:?}", line.figure.name);
    }
}
