//! Connections without encryption, for clients of networks that the file names.

use std::path::Path;
use std::process::Command;

use quicket::tokio::Connection;
use quicket::{ClientConfig, TransportConfig};
use quicket_testing::until;

use super::behind::{Site, folder, python};
use super::client::{CONTROL, ask, config, request, run, unidirectional};

const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { body = \"hello\" }\n";

fn asking(site: &Site) -> ClientConfig {
    let transport = TransportConfig { disable_1rtt_encryption: true, ..TransportConfig::default() };
    config(site).transport(transport)
}

/// Whether a client of 127.0.0.1 or 127.0.0.2 has no encryption; it gets its answer either way.
fn is_plain(site: &Site, from: &str, config: &ClientConfig) -> bool {
    run(async {
        let address = format!("{from}:0").parse::<std::net::SocketAddr>().unwrap();
        let endpoint = quicket::tokio::Endpoint::bind(address).await.unwrap();
        let connected = endpoint.connect(site.address, "localhost", config).await;
        let connection: Connection = connected.unwrap();
        let _control = unidirectional(&connection, CONTROL).await;
        let answer = ask(&connection, &request("GET", "/", &[])).await;
        assert_eq!(answer.body(), b"hello");
        connection.is_encryption_disabled()
    })
}

#[test]
fn only_who_asks_in_a_named_network_has_no_encryption() {
    let dir = folder();
    let counters = dir.path().join("counters.sock").display().to_string();
    let rest = format!("{SITE}[metrics]\nlisten = \"unix:{counters}\"\n");
    let file = |networks: &str| format!("disable_1rtt_encryption = [{networks}]\n{rest}");
    let site = Site::start_top(dir, &file("\"127.0.0.2/32\", \"fd00::/8\""));
    let counted = || {
        let output = site.curl(&["--unix-socket", &counters, "http://localhost/metrics"]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(is_plain(&site, "127.0.0.2", &asking(&site)));
    assert!(!is_plain(&site, "127.0.0.1", &asking(&site)), "of no network that is named");
    assert!(!is_plain(&site, "127.0.0.2", &config(&site)), "it does not ask");
    until("the counter", || counted().contains("quicket_gateway_unencrypted_total 1\n"));
    // Clients of others, at the same port.
    let mut command: Command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3_get.py"));
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem"));
    let output = command.args(["localhost", "localhost"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "200\nhello", "{output:?}");
    // What a reload says counts for those who come after it.
    site.reload_top(&file("\"127.0.0.1/32\""));
    assert!(is_plain(&site, "127.0.0.1", &asking(&site)));
    assert!(!is_plain(&site, "127.0.0.2", &asking(&site)));
    site.reload_top(&file(""));
    assert!(!is_plain(&site, "127.0.0.1", &asking(&site)));
    let wrong = format!("listen = [\"127.0.0.1:0\"]\n{}", file("\"0.0.0.0/0\""));
    let problems = quicket_gateway::config::parse(&wrong, site.dir.path()).unwrap_err();
    let told: String = problems.iter().map(ToString::to_string).collect();
    assert!(told.contains("0.0.0.0/0 is no network of your own"), "{told}");
}
