//! Where clients show certificates, no session is resumed: each handshake has the certificate verified.

use std::sync::Arc;

use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, EarlyData, Identity, MemorySessionStore};

use super::authority::{authority, client};
use super::behind::{Site, folder};
use super::client::{CONTROL, ask, request, run, unidirectional};

const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {}\n";

#[test]
fn a_session_from_before_a_certificate_was_asked_for_is_not_resumed() {
    let dir = folder();
    authority(dir.path(), "ours");
    client(dir.path(), "ours", "anna");
    let site = Site::start(dir, SITE);
    let identity = Identity::from_pem_files(site.path("anna.pem"), site.path("anna.key")).unwrap();
    let tls = ClientTls::builder().ca_file(site.path("cert.pem")).alpn(["h3"]).early_data(true);
    let tls = tls.client_certificate(identity).build().unwrap();
    let config = ClientConfig::new(tls).sessions(Arc::new(MemorySessionStore::new()));
    // Whether it was resumed, and what became of early data.
    let exchange = || {
        run(async {
            let connecting = Connection::connect_early(site.address, "localhost", &config);
            let connection = connecting.await.unwrap();
            connection.wait_established().await.unwrap();
            let _control = unidirectional(&connection, CONTROL).await;
            assert_eq!(ask(&connection, &request("GET", "/", &[])).await.statuses(), [200]);
            let early = connection.early_data() == EarlyData::Accepted;
            (connection.handshake().unwrap().resumed, early)
        })
    };
    assert_eq!(exchange(), (false, false));
    assert_eq!(exchange(), (true, true));
    site.reload(&format!("{SITE}[site.client_certificates]\nca = [\"ours.pem\"]\n"));
    for _ in 0..2 {
        assert_eq!(exchange(), (false, false));
    }
    site.reload(SITE);
    // There may be one from before.
    exchange();
    assert_eq!(exchange(), (true, true));
}
