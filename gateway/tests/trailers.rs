//! Trailers of clients and of origins that are for header fields (RFC 9110, Section 6.5.1): behind a body nobody would
//! look at them. The client is Python (its `ssl`, `h2` and aioquic), the origin aioquic, which tells what it has heard.

mod behind;

use std::path::Path;

use behind::{Site, certificate, folder, python};
use quicket_testing::Process;

const FORGED: [&str; 12] = [
    "x-forwarded-for",
    "x_forwarded_for",
    "forwarded",
    "client-cert",
    "early-data",
    "authorization",
    "cookie",
    "content-length",
    "host",
    "x-set",
    "x_set",
    "x-removed",
];

fn site() -> (Site, Process) {
    let dir = folder();
    certificate(dir.path(), "origin", &["127.0.0.1"]);
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h3_server.py"));
    command.args(["origin.pem", "origin.key", "h3.log", "0", "100"]).current_dir(dir.path());
    let (origin, port) = Process::start(&mut command);
    let file = format!(
        "[origin.app]\nservers = [\"h3://127.0.0.1:{port}\"]\nca = \"origin.pem\"\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         request_headers = {{ set = {{ x-set = \"gateway\" }}, remove = [\"x-removed\"] }}\n\
         response_headers = {{ set = {{ x-set = \"gateway\" }} }}\n"
    );
    (Site::start(dir, &file), origin)
}

/// What the client prints.
fn lines(site: &Site, version: &str, names: &[&str]) -> Vec<String> {
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trailers_client.py"));
    command.args([version, &site.address.port().to_string()]).arg(site.path("cert.pem"));
    let output = command.args(names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
}

#[test]
fn what_a_client_says_behind_a_body_is_cleaned() {
    let (site, _origin) = site();
    let names = [&FORGED[..], &["x-checksum", "grpc-status"]].concat();
    for version in ["2", "3"] {
        let lines = lines(&site, version, &names);
        assert_eq!(lines, ["grpc-status,x-checksum", "x-good"], "HTTP/{version}");
    }
    // An answer over HTTP/1.1 has no trailers that it did not announce: what the origin has heard is in its log.
    lines(&site, "1", &names);
    let heard = std::fs::read_to_string(site.path("h3.log")).unwrap();
    let heard: Vec<&str> = heard.lines().filter(|line| line.starts_with("heard")).collect();
    assert_eq!(heard.len(), 3);
    for line in heard {
        assert_eq!(line, "heard grpc-status,x-checksum");
    }
}

/// They are bounded, however they come; and without a good one there is none at all.
#[test]
fn trailers_without_end_are_no_trailers() {
    let (site, _origin) = site();
    let many: Vec<String> = (0..70).map(|at| format!("x-{at}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    // Also where the server has answered by then, and waits for the rest.
    for version in ["1", "2", "2-late"] {
        lines(&site, version, &many);
    }
    lines(&site, "2", &FORGED);
    let heard = std::fs::read_to_string(site.path("h3.log")).unwrap();
    let heard: Vec<&str> = heard.lines().filter(|line| line.starts_with("heard")).collect();
    assert_eq!(heard, ["heard "]);
}
