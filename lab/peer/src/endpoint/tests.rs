//! Both ends in one process.

use std::collections::BTreeMap;

use clap::Parser;
use quicket::Identity;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    endpoint: EndpointArguments,
}

fn parse(arguments: &[&str]) -> EndpointArguments {
    let line = ["endpoint"].iter().chain(arguments);
    Line::try_parse_from(line).unwrap().endpoint
}

#[test]
fn a_case_that_is_not_known_is_unsupported_in_both_roles() {
    for role in ["client", "server"] {
        let arguments = parse(&["--role", role, "--testcase", "a-case-of-tomorrow"]);
        assert_eq!(run(&arguments).unwrap(), Verdict::Unsupported);
    }
}

/// A folder with certificates and files.
fn scene() -> (tempfile::TempDir, BTreeMap<String, Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::self_signed(["localhost"]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), identity.chain_pem()).unwrap();
    std::fs::write(folder.path().join("priv.key"), identity.key_pem()).unwrap();
    let mut files = BTreeMap::new();
    for (index, size) in [1_000_usize, 300_000, 70_000].into_iter().enumerate() {
        let content: Vec<u8> = (0..size).map(|at| (at * 7 + index + at / 251) as u8).collect();
        std::fs::write(folder.path().join(format!("file{index}")), &content).unwrap();
        files.insert(format!("file{index}"), content);
    }
    (folder, files)
}

/// Runs a case between our own ends and returns the folder with what they left.
fn both_ends(name: &str) -> tempfile::TempDir {
    let (folder, files) = scene();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("got")).unwrap();
    let server = parse(&[
        "--role",
        "server",
        "--testcase",
        name,
        "--listen",
        "127.0.0.1:0",
        "--certs",
        &path(""),
        "--www",
        &path(""),
        "--preferred",
        "127.0.0.1:0",
    ]);
    let case = Case::named(name).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (endpoint, config) = server::prepare(&server, case).await.unwrap();
        let address = endpoint.local_addr();
        let urls: Vec<String> = files
            .keys()
            .map(|file| format!("https://localhost:{}/{file}", address.port()))
            .collect();
        let serving = tokio::spawn(async move {
            server::serve_until(&server, case, &endpoint, config, std::future::pending()).await
        });
        let client = parse(&[
            "--role",
            "client",
            "--testcase",
            name,
            "--requests",
            &urls.join(" ").replace("localhost", "127.0.0.1"),
            "--certs",
            &path(""),
            "--downloads",
            &path("got"),
            "--keylog",
            &path("logs/keys"),
            "--qlog",
            &path("logs/qlog"),
        ]);
        let result = client::run(&client, case).await;
        serving.abort();
        result.unwrap_or_else(|failure| panic!("{name}: {failure}"));
    });
    if case.versions != case::Versions::Unknown {
        for (file, content) in &files {
            let got = std::fs::read(folder.path().join("got").join(file)).unwrap();
            assert!(got == *content, "{name}: {file} differs");
        }
        let keys = std::fs::read_to_string(folder.path().join("logs/keys")).unwrap();
        assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0"), "{name}: {keys}");
    }
    folder
}

#[test]
fn every_kind_of_case_works_between_our_own_ends() {
    for name in [
        "handshake",
        "transfer",
        "chacha20",
        "retry",
        "resumption",
        "zerortt",
        "http3",
        "keyupdate",
        "multiconnect",
        "v2",
        "versionnegotiation",
        "connectionmigration",
    ] {
        both_ends(name);
    }
}
