//! Addresses that the gateway listens on.

mod common;

use common::{ECHO, Gateway, directory, free_port, python};

/// `[::]` beside `0.0.0.0`, of the same port: Linux gives an address of IPv4 to one socket only, so that the
/// socket of IPv6 must not take it, too.
#[test]
fn addresses_of_both_families_share_a_port_over_udp_and_tcp() {
    let (_origin, origin) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{origin}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let (port, plain) = (free_port(), free_port());
    let top = format!(
        "listen = [\"[::]:{port}\", \"0.0.0.0:{port}\"]\n\
         redirect = [\"0.0.0.0:{plain}\", \"[::]:{plain}\"]\n"
    );
    let gateway = Gateway::start_with(directory(), &top, &file);
    for host in ["127.0.0.1", "[::1]"] {
        for version in ["--http2", "--http1.1"] {
            let url = format!("https://{host}:{port}/");
            assert_eq!(gateway.status(&[version, &url]), 200, "{version} {url}");
        }
        assert_eq!(gateway.status(&[&format!("http://{host}:{plain}/")]), 308, "{host}");
    }
}

#[test]
fn an_address_of_ipv6_alone_is_for_both_families() {
    let (_origin, origin) = python(ECHO);
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{origin}\"]\n[[site]]\nnames = [\"*\"]\n\
         [[site.route]]\norigin = \"app\"\n"
    );
    let gateway = Gateway::start_with(directory(), "listen = [\"[::]:0\"]\n", &file);
    for host in ["127.0.0.1", "[::1]"] {
        let url = format!("https://{host}:{}/", gateway.port());
        assert_eq!(gateway.status(&[&url]), 200, "{url}");
    }
}
