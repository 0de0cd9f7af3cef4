//! Who is trusted: roots, pins, and certificates of clients.

mod common;

use std::sync::Arc;

use common::{Failure, NAME, Options, client, identity, server, shake, shake_well};
use quicket_handshake::{
    ClientAuth, ClientTls, ClientTlsBuilder, Identity, Roots, ServerTls, TicketKey,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// Alerts (RFC 8446, Section 6)
const BAD_CERTIFICATE: u8 = 42;
const CERTIFICATE_EXPIRED: u8 = 45;
const CERTIFICATE_UNKNOWN: u8 = 46;
const UNKNOWN_CA: u8 = 48;
const CERTIFICATE_REQUIRED: u8 = 116;

/// A certificate authority.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
    pem: String,
}

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            der: certificate.der().to_vec(),
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, names: &[&str], adjust: impl FnOnce(&mut CertificateParams)) -> Identity {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        adjust(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    fn roots(&self) -> Roots {
        Roots::Der(vec![self.der.clone()])
    }
}

fn trusting(roots: Roots) -> ClientTlsBuilder {
    ClientTls::builder().roots(roots).alpn(["test"])
}

fn client_failure(failure: Failure) -> quicket_engine::crypto::HandshakeError {
    match failure {
        Failure::Client(error) => error,
        Failure::Server(error) => panic!("the server refused: {error}"),
    }
}

#[test]
fn a_certificate_that_leads_to_a_root_is_trusted() {
    let ca = Ca::new("root");
    let server = server(&ca.issue(&[NAME], |_| {})).build().unwrap();
    let client = trusting(ca.roots()).build().unwrap();
    shake_well(&client, &server, &Options::default());

    let path = std::env::temp_dir().join(format!("quicket-ca-{}.pem", std::process::id()));
    std::fs::write(&path, &ca.pem).unwrap();
    let client = ClientTls::builder().ca_file(&path).alpn(["test"]).build().unwrap();
    std::fs::remove_file(&path).unwrap();
    shake_well(&client, &server, &Options::default());
}

/// The test below, run again as a process of its own with this variable and the system's store set.
const CHILD: &str = "QUICKET_TEST_SERVER";

#[test]
fn the_systems_roots_are_trusted_by_default() {
    if let Some(directory) = std::env::var_os(CHILD) {
        let file = |name| std::path::Path::new(&directory).join(name);
        let identity = Identity::from_pem_files(file("server.pem"), file("server.pem")).unwrap();
        let server = server(&identity).build().unwrap();
        let client = ClientTls::builder().alpn(["test"]).build().unwrap();
        shake_well(&client, &server, &Options::default());
        return;
    }
    let directory = std::env::temp_dir().join(format!("quicket-roots-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (ca, other) = (Ca::new("root"), Ca::new("other"));
    let identity = ca.issue(&[NAME], |_| {});
    let pem = identity.chain_pem() + &identity.key_pem();
    std::fs::write(directory.join("server.pem"), pem).unwrap();
    std::fs::write(directory.join("root.pem"), &ca.pem).unwrap();
    std::fs::write(directory.join("other.pem"), &other.pem).unwrap();
    std::fs::write(directory.join("empty.pem"), "").unwrap();
    let run = |store: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_systems_roots_are_trusted_by_default"])
            .env(CHILD, &directory)
            .env("SSL_CERT_FILE", directory.join(store))
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let results = ["root.pem", "other.pem", "empty.pem"].map(run);
    std::fs::remove_dir_all(&directory).unwrap();
    let [root, other, empty] = results;
    assert!(root.0 && root.1.contains("1 passed"), "{}", root.1);
    assert!(!other.0 && other.1.contains("issued by nobody who is trusted"), "{}", other.1);
    assert!(!empty.0 && empty.1.contains("NoRoots"), "{}", empty.1);
}

#[test]
fn certificates_that_should_not_be_trusted_are_refused_with_the_right_alert() {
    let (ca, other) = (Ca::new("root"), Ca::new("other"));
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    for (identity, alert) in [
        (other.issue(&[NAME], |_| {}), UNKNOWN_CA),
        (identity(), UNKNOWN_CA),
        (ca.issue(&[NAME], expired), CERTIFICATE_EXPIRED),
        (ca.issue(&["elsewhere.test"], |_| {}), BAD_CERTIFICATE),
    ] {
        let server = server(&identity).build().unwrap();
        let client = trusting(ca.roots()).build().unwrap();
        let error = client_failure(shake(&client, &server, &Options::default()).err().unwrap());
        assert_eq!(error.alert.0, alert, "{error}");
    }
}

#[test]
fn a_certificate_that_is_not_one_is_refused() {
    let identity = identity();
    let key = identity.key().to_vec();
    let garbled = Identity::from_der(vec![vec![0x30, 3, 1, 2, 3]], key).unwrap();
    // Where the server's own check cannot read the certificate, it does not start.
    assert!(server(&garbled).build().is_err());
}

#[test]
fn the_pinned_certificate_is_trusted_whatever_it_says() {
    let ca = Ca::new("root");
    let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let identity = ca.issue(&["elsewhere.test"], expired);
    let server = server(&identity).build().unwrap();
    let client = client(&identity).build().unwrap();
    shake_well(&client, &server, &Options::default());
}

#[test]
fn another_certificate_than_the_pinned_is_named_and_refused() {
    let (pinned, presented) = (identity(), identity());
    let server = server(&presented).build().unwrap();
    let client = client(&pinned).build().unwrap();
    let error = client_failure(shake(&client, &server, &Options::default()).err().unwrap());
    assert_eq!(error.alert.0, CERTIFICATE_UNKNOWN);
    assert!(error.reason.contains(&presented.fingerprint().to_string()), "{error}");
}

#[test]
fn without_verification_any_certificate_will_do_but_its_key_is_still_asked_for() {
    let identity = identity();
    let server = server(&identity).build().unwrap();
    let client = ClientTls::builder().dangerous_no_verification().alpn(["test"]).build().unwrap();
    shake_well(&client, &server, &Options::default());

    for client in [client, common::client(&identity).build().unwrap()] {
        let error = common::spoil_signature(&client, &server, &Options::default());
        assert!(error.reason.contains("BadSignature"), "{error}");
    }
}

#[test]
fn a_client_shows_its_certificate_to_servers_that_ask() {
    let ca = Ca::new("clients");
    let (identity, user) = (identity(), ca.issue(&["user.test"], |_| {}));
    let client = client(&identity).client_certificate(user.clone()).build().unwrap();
    for (auth, shown) in [
        (ClientAuth::None, false),
        (ClientAuth::Optional(ca.roots()), true),
        (ClientAuth::Required(ca.roots()), true),
    ] {
        let server = server(&identity).client_auth(auth).build().unwrap();
        let pair = shake_well(&client, &server, &Options::default());
        let want: Vec<&[u8]> = if shown { user.chain().collect() } else { Vec::new() };
        assert_eq!(pair.server.summary().peer_certificates, want);
    }
}

#[test]
fn a_client_without_a_certificate_is_refused_only_where_one_is_required() {
    let ca = Ca::new("clients");
    let identity = identity();
    let client = client(&identity).build().unwrap();
    let optional = ClientAuth::Optional(ca.roots());
    let optional = server(&identity).client_auth(optional).build().unwrap();
    let pair = shake_well(&client, &optional, &Options::default());
    assert!(pair.server.summary().peer_certificates.is_empty());

    let required = ClientAuth::Required(ca.roots());
    let required = server(&identity).client_auth(required).build().unwrap();
    let failure = shake(&client, &required, &Options::default()).err().unwrap();
    assert!(matches!(failure, Failure::Server(_)));
    assert_eq!(failure.alert(), CERTIFICATE_REQUIRED);
}

#[test]
fn a_client_certificate_from_elsewhere_is_refused_even_where_none_is_required() {
    let (ca, other) = (Ca::new("clients"), Ca::new("other"));
    let identity = identity();
    let stranger = other.issue(&["user.test"], |_| {});
    let client = client(&identity).client_certificate(stranger).build().unwrap();
    for auth in [ClientAuth::Optional(ca.roots()), ClientAuth::Required(ca.roots())] {
        let server = server(&identity).client_auth(auth).build().unwrap();
        let failure = shake(&client, &server, &Options::default()).err().unwrap();
        assert!(matches!(failure, Failure::Server(_)));
        assert_eq!(failure.alert(), UNKNOWN_CA);
    }
}

#[test]
fn a_resumed_client_is_still_known_by_its_certificate() {
    let ca = Ca::new("clients");
    let (identity, user) = (identity(), ca.issue(&["user.test"], |_| {}));
    let key = TicketKey::random();
    let server =
        |auth| server(&identity).client_auth(auth).ticket_keys([key.clone()]).build().unwrap();
    let required = || server(ClientAuth::Required(ca.roots()));
    let client = client(&identity).client_certificate(user.clone()).build().unwrap();
    let first = shake_well(&client, &required(), &Options::default());
    let options = Options { resume: Some(&first.client.tickets[0]), ..Options::default() };
    let second = shake_well(&client, &required(), &options);
    assert!(second.server.summary().resumed);
    assert_eq!(second.server.summary().peer_certificates, user.chain().collect::<Vec<_>>());
}

#[test]
fn a_session_from_a_server_that_asked_less_does_not_get_in() {
    let ca = Ca::new("clients");
    let identity = identity();
    let key = TicketKey::random();
    let server =
        |auth| server(&identity).client_auth(auth).ticket_keys([key.clone()]).build().unwrap();
    let client = client(&identity).build().unwrap();
    for lax in [ClientAuth::None, ClientAuth::Optional(ca.roots())] {
        let first = shake_well(&client, &server(lax), &Options::default());
        let options = Options { resume: Some(&first.client.tickets[0]), ..Options::default() };
        let strict = server(ClientAuth::Required(ca.roots()));
        let failure = shake(&client, &strict, &options).err().unwrap();
        assert_eq!(failure.alert(), CERTIFICATE_REQUIRED);
    }
}

/// As `openssl req -x509` makes them by default: self-signed, with CA:TRUE.
fn openssl_default(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Identity::from_der(vec![certificate.der().to_vec()], key.serialize_der()).unwrap()
}

/// curl and OpenSSL take it too.
#[test]
fn a_certificate_of_an_authority_serves_if_it_is_the_trusted_one_itself() {
    let error_of = |identity: &Identity, trusted: &Identity| {
        let root = trusted.chain().next().unwrap().to_vec();
        let client = trusting(Roots::Der(vec![root])).build().unwrap();
        let server = server(identity).build().unwrap();
        shake(&client, &server, &Options::default())
            .err()
            .map(|failure| client_failure(failure).reason)
    };
    let good = openssl_default(&[NAME], |_| {});
    assert_eq!(error_of(&good, &good), None);

    // Name and dates count all the same.
    let elsewhere = openssl_default(&["elsewhere.test"], |_| {});
    let words = error_of(&elsewhere, &elsewhere).unwrap();
    assert!(words.contains(NAME) && words.contains("for elsewhere.test"), "{words}");
    let expired = openssl_default(&[NAME], |params| params.not_after = date_time_ymd(2020, 1, 1));
    let words = error_of(&expired, &expired).unwrap();
    assert!(words.contains("expired on 2020-01-01 00:00:00 UTC"), "{words}");
    let early = openssl_default(&[NAME], |params| {
        params.not_before = date_time_ymd(3020, 1, 1);
        params.not_after = date_time_ymd(3021, 1, 1);
    });
    let words = error_of(&early, &early).unwrap();
    assert!(words.contains("not valid before 3020-01-01 00:00:00 UTC"), "{words}");

    // Another with the same name but another key is another.
    let words = error_of(&good, &openssl_default(&[NAME], |_| {})).unwrap();
    assert!(words.contains("CA:TRUE") && words.contains("openssl req -x509"), "{words}");
    let nameless = openssl_default(&[], |_| {});
    let words = error_of(&nameless, &nameless).unwrap();
    assert!(words.contains("subjectAltName"), "{words}");
}

/// Somebody copies the trusted certificate, but has not its key.
#[test]
fn the_trusted_certificate_does_not_serve_without_its_key() {
    let good = openssl_default(&[NAME], |_| {});
    let client = trusting(Roots::Der(vec![good.chain().next().unwrap().to_vec()])).build().unwrap();
    let server = server(&good).build().unwrap();
    let error = common::spoil_signature(&client, &server, &Options::default());
    assert!(error.reason.contains("BadSignature"), "{error}");
}

/// TLS over TCP, in memory; the server's error, if there is one.
fn shake_over_tcp(client: &ClientTls, server: &ServerTls) -> Result<(), rustls::Error> {
    let name = rustls::pki_types::ServerName::try_from(NAME).unwrap();
    let client = Arc::new(client.over_tcp(["http/1.1"]).unwrap());
    let mut client = rustls::ClientConnection::new(client, name).unwrap();
    let server = Arc::new(server.over_tcp(["http/1.1"]).unwrap());
    let mut server = rustls::ServerConnection::new(server).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut wire = Vec::new();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    Ok(())
}

#[test]
fn clients_over_tcp_must_send_what_clients_over_quic_must() {
    let (ca, other) = (Ca::new("root"), Ca::new("other"));
    let required = ClientAuth::Required(ca.roots());
    let server = server(&ca.issue(&[NAME], |_| {})).client_auth(required).build().unwrap();
    let without = trusting(ca.roots()).build().unwrap();
    assert!(shake_over_tcp(&without, &server).is_err());
    let strange = other.issue(&["client"], |_| {});
    let strange = trusting(ca.roots()).client_certificate(strange).build().unwrap();
    assert!(shake_over_tcp(&strange, &server).is_err());
    let known = ca.issue(&["client"], |_| {});
    let known = trusting(ca.roots()).client_certificate(known).build().unwrap();
    shake_over_tcp(&known, &server).unwrap();
}
