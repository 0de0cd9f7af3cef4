//! HTTP/3 through the gateway, by a client that writes its frames byte by byte over our sockets.

#[path = "../mutual_tls/authority.rs"]
mod authority;
mod balancer;
#[path = "../behind/mod.rs"]
mod behind;
mod bodies;
mod certificates;
mod client;
mod congestion;
mod early;
mod hostile;
mod idle;
mod retry;
mod stop;
mod unencrypted;
mod versions;

use std::path::Path;

use behind::{Site, folder, python};

/// RFC 9220, Section 3: a client asks for WebSocket only if the server says that it may.
#[test]
fn an_independent_client_is_told_of_extended_connect() {
    let site = Site::start(folder(), "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n");
    let mut command = python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3_settings.py"));
    command.arg(site.address.port().to_string()).arg(site.path("cert.pem"));
    let output = command.output().unwrap();
    // SETTINGS_MAX_FIELD_SECTION_SIZE and SETTINGS_ENABLE_CONNECT_PROTOCOL.
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "6=32768 8=1", "{output:?}");
}
