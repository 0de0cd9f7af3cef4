//! Certificates: keys of several types for one name, and those that have ended.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Gateway, directory};

const TOP: &str = "listen = [\"127.0.0.1:0\"]\n";
const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { body = \"hello\" }\n";

fn openssl(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let output = command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said} {output:?}");
    said
}

/// What the gateway signed its handshake over TCP with, for a client that verifies no other signatures.
fn signed_with(gateway: &Gateway, name: &[&str], schemes: &str) -> String {
    let address = format!("127.0.0.1:{}", gateway.port());
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address, "-sigalgs", schemes]).args(name);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("Peer signature type: "));
    line.unwrap_or_default().to_owned()
}

/// RFC 8446, Section 4.2.3.
#[test]
fn a_name_has_a_certificate_for_each_kind_of_client() {
    let dir = directory();
    openssl(
        dir.path(),
        &[
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=test",
            "-days",
            "2",
            "-keyout",
            "rsa.key",
            "-out",
            "rsa.pem",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
    );
    let rsa = "[[certificate]]\nchain = \"rsa.pem\"\nkey = \"rsa.key\"\n";
    let gateway = Gateway::start(dir, &format!("{rsa}{SITE}"));
    for name in
        [&["-servername", "localhost"][..], &["-noservername"], &["-servername", "other.example"]]
    {
        let signed_with = |schemes| signed_with(&gateway, name, schemes);
        assert_eq!(signed_with("RSA-PSS+SHA256:ECDSA+SHA256"), "ECDSA", "the first of the file");
        assert_eq!(signed_with("ECDSA+SHA256"), "ECDSA", "{name:?}");
        assert_eq!(signed_with("RSA-PSS+SHA256"), "RSA-PSS", "{name:?}");
    }
    assert_eq!(signed_with(&gateway, &["-servername", "localhost"], "ed25519"), "", "it has none");
}

#[test]
fn a_certificate_that_nobody_could_get_is_told_of() {
    let dir = directory();
    common::certificate(dir.path(), "same", "DNS:localhost");
    common::certificate(dir.path(), "address", "IP:127.0.0.1");
    common::certificate(dir.path(), "more", "DNS:localhost,DNS:more.example");
    let gateway = Gateway::start(dir, SITE);
    let with = |name: &str| {
        let file = format!("[[certificate]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n{SITE}");
        gateway.reload(TOP, &file)
    };
    let told = with("same").unwrap_err();
    assert!(told.contains("certificate 2") && told.contains("keys of the same type"), "{told}");
    assert!(with("address").unwrap_err().contains("no DNS name"));
    assert_eq!(with("more"), Ok(()), "one of its names is its own");
}

#[test]
fn a_certificate_that_has_ended_takes_no_other_ones_place() {
    let dir = directory();
    let path = dir.path().to_owned();
    let gateway = Gateway::start(dir, SITE);
    let presented = || {
        let address = format!("127.0.0.1:{}", gateway.port());
        openssl(
            &path,
            &["s_client", "-connect", &address, "-servername", "localhost", "-showcerts"],
        )
    };
    let certificate = |said: &str| -> String {
        let begun = said.find("-----BEGIN CERTIFICATE-----").unwrap();
        said[begun..].split_inclusive("-----END CERTIFICATE-----").next().unwrap().to_owned()
    };
    let before = certificate(&presented());
    openssl(
        &path,
        &[
            "req",
            "-new",
            "-key",
            "cert.key",
            "-subj",
            "/CN=test",
            "-out",
            "cert.csr",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
    );
    openssl(
        &path,
        &[
            "x509",
            "-req",
            "-in",
            "cert.csr",
            "-signkey",
            "cert.key",
            "-days",
            "-1",
            "-copy_extensions",
            "copy",
            "-out",
            "cert.pem",
        ],
    );
    let told = gateway.reload(TOP, SITE).unwrap_err();
    assert!(told.contains("the certificate of localhost has expired: "), "{told}");
    assert_eq!(certificate(&presented()), before, "the old one stays");
    // A gateway that starts with it tells, and serves: a new one may come by way of it.
    let other = directory();
    for file in ["cert.pem", "cert.key"] {
        std::fs::copy(path.join(file), other.path().join(file)).unwrap();
    }
    let other = Gateway::start(other, SITE);
    assert_eq!(other.reload(TOP, SITE), Ok(()), "it was in use before");
    assert_eq!(other.status(&["-k", &other.url("/")]), 200);
}
