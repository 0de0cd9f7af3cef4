//! Counters and the access log, read by curl.

mod common;

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use common::{ECHO, Gateway, directory, python};
use quicket_testing::{Process, until};
use serde_json::Value;

const TOKEN: &str = "0123456789abcdef0123";

fn start(reading: &str) -> (Gateway, Process) {
    let (python, port) = python(ECHO);
    let dir = directory();
    fs::write(dir.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let reading = reading.replace("DIR", dir.path().to_str().unwrap());
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [origin.gone]\nservers = [\"http://127.0.0.1:1\"]\n\
         [[site]]\nnames = [\"localhost\", \"127.0.0.1\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/gone\"\norigin = \"gone\"\n[metrics]\n{reading}\n"
    );
    let top = "listen = [\"127.0.0.1:0\"]\naccess_log = \"access.log\"\n";
    (Gateway::start_with(dir, top, &file), python)
}

fn over_unix(gateway: &Gateway, path: &str) -> String {
    let url = format!("http://localhost{path}");
    gateway.text(&["--unix-socket", "counters.sock", &url])
}

/// A gateway whose counters are at a socket in its directory.
fn with_socket() -> (Gateway, Process) {
    start("listen = \"unix:DIR/counters.sock\"")
}

#[test]
fn every_request_is_counted_where_it_went() {
    let (gateway, _python) = with_socket();
    for path in ["/", "/a?status=404", "/b?status=503&size=100000", "/gone/x"] {
        gateway.status(&[&gateway.url(path)]);
    }
    gateway.status(&["--http1.1", "-d", "0123456789", &gateway.url("/")]);
    gateway.status(&["-H", "Host: b.example", &gateway.url("/")]);
    let count = |line: &str| {
        until(line, || over_unix(&gateway, "/metrics").lines().any(|found| found == line));
    };
    count("quicket_gateway_requests_total{site=\"localhost\",route=\"/\",status=\"2xx\"} 2");
    count("quicket_gateway_requests_total{site=\"localhost\",route=\"/\",status=\"4xx\"} 1");
    count("quicket_gateway_requests_total{site=\"localhost\",route=\"/\",status=\"5xx\"} 1");
    count("quicket_gateway_requests_total{site=\"localhost\",route=\"/gone\",status=\"5xx\"} 1");
    count("quicket_gateway_request_seconds_count{site=\"localhost\",route=\"/\"} 4");
    count("quicket_gateway_request_bytes_total{site=\"localhost\",route=\"/\"} 10");
    count("quicket_gateway_connections_total{protocol=\"h2\"} 5");
    count("quicket_gateway_connections_total{protocol=\"http/1.1\"} 1");
    count("quicket_gateway_connections_open{protocol=\"h2\"} 0");
    count("quicket_gateway_refused_total{reason=\"this name is not served here\"} 1");
    count("quicket_gateway_retries_total 0");
    let text = over_unix(&gateway, "/metrics");
    assert!(text.contains("origin_failures_total{origin=\"gone\""), "{text}");
    // By the names of origins, of which each has one server.
    let of_server = |text: &str, name: &str, origin: &str| {
        let start = format!("quicket_gateway_{name}{{origin=\"{origin}\",server=\"http://");
        let line = text.lines().find(|line| line.starts_with(&start))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    assert_eq!(of_server(&text, "origin_connections_open", "app"), Some(1), "{text}");
    assert_eq!(of_server(&text, "origin_connections_open", "gone"), Some(0), "{text}");
    let up = |text: &str| ["app", "gone"].map(|origin| of_server(text, "origin_up", origin));
    assert_eq!(up(&text), [Some(1), Some(1)], "{text}");
    // Three failures in a row leave it out.
    for _ in 0..2 {
        assert_eq!(gateway.status(&[&gateway.url("/gone/x")]), 502);
    }
    let text = over_unix(&gateway, "/metrics");
    assert_eq!(up(&text), [Some(1), Some(0)], "{text}");
    let json: Value = serde_json::from_str(&over_unix(&gateway, "/metrics.json")).unwrap();
    let sent = json["quicket_gateway_response_bytes_total"].as_array().unwrap();
    let sent = sent.iter().find(|entry| entry["labels"]["route"] == "/").unwrap();
    assert!(sent["value"].as_u64().unwrap() > 100_000, "{sent}");
    // What a reload leaves out is forgotten, and the rest goes on.
    let file = fs::read_to_string(gateway.path("site.toml")).unwrap();
    let (top, rest) = file.split_once("[[certificate]]").unwrap();
    let rest =
        rest.split_once("[origin.app]").unwrap().1.replace("path = \"/gone\"", "path = \"/new\"");
    gateway.reload(top, &format!("[origin.app]{rest}")).unwrap();
    assert!(gateway.reload("nonsense\n", "").is_err());
    let text = over_unix(&gateway, "/metrics");
    assert!(!text.contains("route=\"/gone\"") && text.contains("route=\"/new\""), "{text}");
    assert_eq!(up(&text), [Some(1), Some(0)], "it is there, and is not asked: {text}");
    let json: Value = serde_json::from_str(&over_unix(&gateway, "/metrics.json")).unwrap();
    let open = &json["quicket_gateway_origin_connections_open"];
    let open = open.as_array().unwrap().iter().find(|entry| entry["labels"]["origin"] == "app");
    assert_eq!(open.unwrap()["value"], 1, "{json}");
    assert!(
        text.contains("requests_total{site=\"localhost\",route=\"/\",status=\"2xx\"} 2"),
        "{text}"
    );
    assert!(text.contains("reloads_total{outcome=\"taken\"} 1"), "{text}");
}

#[test]
fn a_unix_socket_is_its_owners_alone_and_goes_with_the_gateway() {
    let (mut gateway, _python) = with_socket();
    let path = gateway.path("counters.sock");
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    gateway.stop();
    assert!(!path.exists());
}

#[test]
fn over_tcp_a_token_is_due() {
    let (gateway, _python) = start("listen = \"127.0.0.1:0\"\ntoken_file = \"token\"");
    let url = gateway.counters.clone().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    let with = |token: &str| gateway.status(&["-H", &format!("Authorization: {token}"), &url]);
    assert_eq!(gateway.status(&[&url]), 401);
    for wrong in [&TOKEN[1..], &format!("Bearer {TOKEN}x"), "Bearer ", &format!("Basic {TOKEN}")] {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    assert_eq!(with(&format!("Bearer {TOKEN}")), 200);
    // As browsers do.
    let page = url.replace("/metrics", "/");
    let (_, head) = gateway.head(&[&page]);
    assert!(head.contains("www-authenticate: basic realm=\"quicket\""), "{head}");
    assert_eq!(gateway.status(&["-u", &format!("anybody:{TOKEN}"), &page]), 200);
    assert_eq!(gateway.status(&["-u", &format!("{TOKEN}:"), &page]), 401);
    assert_eq!(gateway.status(&["-u", &format!("anybody:{TOKEN}"), &format!("{page}other")]), 404);
    let (_, head) = gateway.head(&["-H", &format!("Authorization: Bearer {TOKEN}"), &url]);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
}

#[test]
fn what_is_wrong_with_it_is_told() {
    let dir = directory();
    fs::write(dir.path().join("short"), "short").unwrap();
    for (reading, expected) in [
        ("listen = \"127.0.0.1:1\"", "metrics.token_file: is due"),
        ("listen = \"unix:/a\"\ntoken_file = \"short\"", "has no effect with a Unix socket"),
        ("listen = \"127.0.0.1:1\"\ntoken_file = \"short\"", "is not one word of 16"),
        ("listen = \"127.0.0.1:1\"\ntoken_file = \"absent\"", "cannot read"),
        ("listen = \"localhost\"", "metrics.listen: \"localhost\" is neither"),
    ] {
        let text = format!("[metrics]\n{reading}\n");
        let problems = quicket_gateway::config::parse(&text, dir.path()).unwrap_err();
        let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(all.join("\n").contains(expected), "{all:#?}");
    }
}

#[test]
fn the_access_log_is_opened_anew() {
    let (gateway, _python) = with_socket();
    let lines =
        |name: &str| fs::read_to_string(gateway.path(name)).unwrap_or_default().lines().count();
    gateway.status(&[&gateway.url("/1")]);
    until("a line", || lines("access.log") == 1);
    fs::rename(gateway.path("access.log"), gateway.path("access.log.1")).unwrap();
    gateway.handle.reopen_log();
    until("a new file", || gateway.path("access.log").exists());
    gateway.status(&[&gateway.url("/2")]);
    until("a line", || lines("access.log") == 1);
    assert_eq!(lines("access.log.1"), 1);
}
