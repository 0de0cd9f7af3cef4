//! Over TCP, to nginx, by curl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use quicket_testing::{Process, free_port, nginx};

use super::behind::{PATIENCE, Site, certificate, content, folder};

const OWN: &str =
    "[[site]]\nnames = [\"localhost\"]\n[[site.route]]\nrespond = { body = \"the gateway\" }\n";

/// A gateway that passes `one.example` on to nginx, with what more the table says.
fn site(listen: &str, more: &str, rest: &str) -> (Site, Process) {
    let (dir, port) = (folder(), free_port());
    certificate(dir.path(), "one", &["one.example"]);
    std::fs::write(dir.path().join("large"), content(5_000_000)).unwrap();
    let server = format!(
        "server {{
            listen 127.0.0.1:{port} ssl http2 {listen};
            ssl_certificate one.pem; ssl_certificate_key one.key;
            root .;
            location = /who {{ return 200 \"$proxy_protocol_addr $ssl_server_name $server_protocol\"; }}
        }}"
    );
    let process = nginx::serve(dir.path(), port, &server);
    let table =
        format!("[[pass]]\nnames = [\"one.example\"]\ntls = \"tcp://127.0.0.1:{port}\"\n{more}\n");
    (Site::start(dir, &(table + rest)), process)
}

/// What curl gets from nginx, whose certificate alone it takes.
fn fetch(site: &Site, path: &str, more: &[&str]) -> Vec<u8> {
    let port = site.address.port();
    let to = format!("one.example:{port}:127.0.0.1");
    let url = format!("https://one.example:{port}{path}");
    let output =
        site.curl(&[&["--resolve", &to, "--cacert", "one.pem", "-f", &url], more].concat());
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

#[test]
fn names_of_others_reach_nginx_and_the_gateway_keeps_its_own() {
    let (site, _nginx) = site("", "idle_timeout_ms = 20000", OWN);
    assert_eq!(fetch(&site, "/who", &[]), b" one.example HTTP/2.0");
    assert_eq!(fetch(&site, "/who", &["--http1.1"]), b" one.example HTTP/1.1");
    assert!(fetch(&site, "/large", &[]) == content(5_000_000));
    assert_eq!(site.get(&[&site.url("/")]).1, b"the gateway");
    let passed = site.records(4).into_iter().filter(|line| line["passed_to"].is_string());
    let passed: Vec<_> = passed.collect();
    assert_eq!(passed.len(), 3, "{passed:?}");
    assert!(passed.iter().all(|line| line["host"] == "one.example"), "{passed:?}");
    assert!(passed.iter().any(|line| line["sent"].as_u64().unwrap() > 5_000_000), "{passed:?}");
}

#[test]
fn nginx_is_told_who_the_client_is() {
    let (site, _nginx) = site("proxy_protocol", "proxy_protocol = true", OWN);
    assert_eq!(fetch(&site, "/who", &[]), b"127.0.0.1 one.example HTTP/2.0");
}

#[test]
fn without_sites_other_names_are_closed() {
    let (site, _nginx) = site("", "", "");
    assert_eq!(fetch(&site, "/who", &[]), b" one.example HTTP/2.0");
    let output = site.curl(&[&site.url("/")]);
    assert!(!output.status.success(), "{output:?}");
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: one.example\r\n\r\n").unwrap();
    // It is closed with what was not read, hence a reset.
    assert!(!matches!(stream.read(&mut [0; 100]), Ok(1..)));
}

#[test]
fn half_a_hello_is_given_up() {
    let (site, _nginx) = site("", "", &format!("{OWN}[limits]\nheader_timeout_ms = 200\n"));
    let mut stream = TcpStream::connect(site.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[22, 3, 1, 1, 0, 1, 0]).unwrap();
    let begun = std::time::Instant::now();
    assert!(!matches!(stream.read(&mut [0; 100]), Ok(1..)));
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(site.get(&[&site.url("/")]).1, b"the gateway");
}

#[test]
fn an_origin_that_is_not_there_is_a_reset() {
    let dir = folder();
    let port = free_port();
    let table = format!("[[pass]]\nnames = [\"*\"]\ntls = \"tcp://127.0.0.1:{port}\"\n");
    let site = Site::start(dir, &(table + OWN));
    let to = format!("one.example:{}:127.0.0.1", site.address.port());
    let url = format!("https://one.example:{}/", site.address.port());
    let output = site.curl(&["--resolve", &to, &url]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("reset"), "{output:?}");
    assert_eq!(site.get(&[&site.url("/")]).1, b"the gateway");
}
