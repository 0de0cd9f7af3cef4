//! What servers of HTTP/1.1 get of requests, whatever version these came by, and what becomes of answers that
//! are none.

mod common;

use std::fs;

use common::{ECHO, Gateway, Process, directory, header, python};

fn site(port: u16, more: &str) -> String {
    format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n{more}\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n"
    )
}

fn before_echo(more: &str) -> (Process, Gateway) {
    let (origin, port) = python(ECHO);
    (origin, Gateway::start(directory(), &site(port, more)))
}

/// RFC 9113, Section 8.2.3: clients split Cookie, and servers of HTTP/1.1 read the first field only.
#[test]
fn crumbs_of_a_cookie_are_one_field_for_the_server() {
    let (_origin, gateway) = before_echo("");
    let crumbs = ["-H", "Cookie: a=1", "-H", "Cookie: b=2; c=3", "-H", "Cookie: d=4"];
    let asked = gateway.asked(&[&["--http2", &gateway.url("/")], &crumbs[..]].concat());
    assert_eq!(header(&asked, "cookie"), ["a=1; b=2; c=3; d=4"]);
}

/// CGI and what follows it (WSGI, PHP) reads `X_Forwarded_For` as `X-Forwarded-For`.
#[test]
fn a_field_that_servers_could_take_for_the_gateways_own_is_removed() {
    let (origin, port) = python(ECHO);
    let file = format!(
        "{}request_headers = {{ set = {{ x-user = \"nobody\" }}, remove = [\"x-admin\"] }}\n",
        site(port, "")
    );
    let gateway = Gateway::start(directory(), &file);
    let made_up =
        ["X_Forwarded_For", "X-Forwarded_For", "early_data", "x.real.ip", "X_User", "x_admin"];
    let mut arguments = vec!["-H".to_owned(), "x_kept: 1".to_owned()];
    for name in made_up {
        arguments.extend(["-H".to_owned(), format!("{name}: 203.0.113.9")]);
    }
    for version in ["--http1.1", "--http2"] {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let url = gateway.url("/");
        arguments.extend([version, &url]);
        let asked = gateway.asked(&arguments);
        for name in made_up {
            let found = header(&asked, &name.to_lowercase());
            assert!(found.is_empty(), "{version}: {name} is {found:?}");
        }
        assert_eq!(header(&asked, "x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(header(&asked, "x-user"), ["nobody"]);
        assert_eq!(header(&asked, "x_kept"), ["1"], "it stands for nothing of the gateway's");
    }
    drop(origin);
}

#[test]
fn a_body_of_any_method_arrives_with_and_without_a_length() {
    let (_origin, gateway) = before_echo("");
    fs::write(gateway.path("body"), "x".repeat(30_000)).unwrap();
    for version in ["--http1.1", "--http2"] {
        for method in ["GET", "OPTIONS", "PUT"] {
            // No length is how HTTP/2 says that it is not known.
            let length =
                if version == "--http2" { "Content-Length:" } else { "Transfer-Encoding: chunked" };
            let url = gateway.url("/");
            let asked = gateway.asked(&[
                version,
                "-X",
                method,
                "--data-binary",
                "@body",
                "-H",
                length,
                &url,
            ]);
            assert_eq!(asked["body"], 30_000, "{version} {method}");
            let asked = gateway.asked(&[version, "-X", method, &url]);
            assert_eq!(asked["body"], 0, "{version} {method}");
            let is_announced = !header(&asked, "transfer-encoding").is_empty();
            assert!(!is_announced || method == "PUT", "{version} {method} has no body");
        }
    }
}
