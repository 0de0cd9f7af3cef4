//! A client and a key process: what is signed, what is refused, and what happens when either goes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quicket_keyd::protocol::{Answer, Code, Frame, Request, TranscriptHash};
use quicket_keyd::{
    Address, Allowed, Client, ClientOptions, Key, KeyId, Keys, MutualTls, Server, ServerOptions,
    ServerTls, SignError, spki_of_certificate,
};
use tempfile::TempDir;

const PSS: u16 = 0x0804;
const P256: u16 = 0x0403;

/// A key in a file, and a certificate in DER that has it.
fn key(
    dir: &Path,
    name: &str,
    algorithm: &'static rcgen::SignatureAlgorithm,
) -> (PathBuf, Vec<u8>) {
    let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
    let certificate = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let path = dir.join(name);
    write(&path, &key.serialize_pem());
    (path, certificate.der().to_vec())
}

fn write(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

fn keys(paths: &[&Path]) -> Keys {
    Keys::new(paths.iter().map(|path| Key::of_file(path).unwrap())).unwrap()
}

fn id(certificate: &[u8]) -> KeyId {
    quicket_keyd::key_id(&spki_of_certificate(certificate).unwrap())
}

fn hash(len: usize) -> TranscriptHash {
    TranscriptHash::new(&vec![3; len]).unwrap()
}

fn verifies(certificate: &[u8], scheme: u16, hash: &TranscriptHash, signature: &[u8]) -> bool {
    let certificate = certificate.into();
    let certificate = webpki::EndEntityCert::try_from(&certificate).unwrap();
    let algorithm = match scheme {
        0x0804 => webpki::aws_lc_rs::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        0x0805 => webpki::aws_lc_rs::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        0x0806 => webpki::aws_lc_rs::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        0x0403 => webpki::aws_lc_rs::ECDSA_P256_SHA256,
        0x0503 => webpki::aws_lc_rs::ECDSA_P384_SHA384,
        0x0807 => webpki::aws_lc_rs::ED25519,
        other => panic!("{other:#x}"),
    };
    certificate.verify_signature(algorithm, &hash.content(), signature).is_ok()
}

struct Process {
    dir: TempDir,
    server: Option<Server>,
}

impl Process {
    fn path(&self) -> PathBuf {
        self.dir.path().join("keyd.sock")
    }

    fn start(&mut self, keys: Keys, options: &ServerOptions) {
        let _ = std::fs::remove_file(self.path());
        let mut server = Server::new(keys, options).unwrap();
        let listener = UnixListener::bind(self.path()).unwrap();
        server.listen_unix(listener, Allowed::default()).unwrap();
        self.server = Some(server);
    }

    fn client(&self, options: &ClientOptions) -> Client {
        Client::new(Address::Unix(self.path()), None, options).unwrap()
    }
}

fn process() -> Process {
    Process { dir: tempfile::tempdir().unwrap(), server: None }
}

#[test]
fn each_kind_of_key_signs_handshakes() {
    let mut process = process();
    let dir = process.dir.path().to_owned();
    let (rsa, rsa_certificate) = key(&dir, "rsa", &rcgen::PKCS_RSA_SHA256);
    let (p256, p256_certificate) = key(&dir, "p256", &rcgen::PKCS_ECDSA_P256_SHA256);
    let (p384, p384_certificate) = key(&dir, "p384", &rcgen::PKCS_ECDSA_P384_SHA384);
    let (ed, ed_certificate) = key(&dir, "ed", &rcgen::PKCS_ED25519);
    process.start(keys(&[&rsa, &p256, &p384, &ed]), &ServerOptions::default());
    let client = process.client(&ClientOptions::default());
    for (certificate, scheme) in [
        (&rsa_certificate, 0x0804),
        (&rsa_certificate, 0x0805),
        (&rsa_certificate, 0x0806),
        (&p256_certificate, 0x0403),
        (&p384_certificate, 0x0503),
        (&ed_certificate, 0x0807),
    ] {
        for len in [32, 48] {
            let signature = client.sign(id(certificate), scheme, hash(len)).unwrap();
            assert!(verifies(certificate, scheme, &hash(len), &signature), "{scheme:#x}");
        }
        assert_eq!(client.find(id(certificate)).unwrap(), spki_of_certificate(certificate));
    }
    let refused = |key, scheme| match client.sign(key, scheme, hash(32)).unwrap_err() {
        SignError::Refused(code, _) => code,
        other => panic!("{other}"),
    };
    // PKCS #1, version 1.5, with SHA-256 and SHA-1, and another curve's.
    for scheme in [0x0401, 0x0201, 0x0403] {
        assert_eq!(refused(id(&rsa_certificate), scheme), Code::Scheme);
    }
    assert_eq!(refused(id(&p256_certificate), 0x0503), Code::Scheme);
    assert_eq!(refused(KeyId([0; 32]), P256), Code::UnknownKey);
    assert_eq!(client.find(KeyId([0; 32])), Ok(None));
    assert_eq!(client.stats().signatures, 12);
    let server = process.server.as_ref().unwrap();
    let counters: std::collections::HashMap<_, _> =
        server.counters().values().into_iter().collect();
    assert_eq!(
        (counters["signatures"], counters["other_scheme"], counters["unknown_key"]),
        (12, 4, 2)
    );
    // Other keys from now on, on the same connections.
    server.replace(keys(&[&p256]));
    assert_eq!(refused(id(&rsa_certificate), PSS), Code::UnknownKey);
    assert!(client.sign(id(&p256_certificate), P256, hash(32)).is_ok());
}

#[test]
fn questions_that_come_at_once_are_answered_each_and_garbage_ends_the_connection() {
    let mut process = process();
    let (path, certificate) = key(process.dir.path(), "key", &rcgen::PKCS_ECDSA_P256_SHA256);
    process.start(keys(&[&path]), &ServerOptions::default());
    let connect = || {
        let stream = UnixStream::connect(process.path()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    };
    let mut stream = connect();
    let mut asked = Vec::new();
    for number in 1..=50 {
        let key = id(&certificate);
        Request::Sign { key, scheme: P256, hash: hash(32) }.encode(number, &mut asked);
    }
    // A transcript hash of another length: what could be anything.
    asked.extend_from_slice(&[0, 6 + 34 + 33, 1, 1, 0, 0, 0, 51]);
    asked.extend_from_slice(&[0; 34 + 33]);
    // In pieces that end anywhere.
    for piece in asked.chunks(37) {
        stream.write_all(piece).unwrap();
    }
    let mut answered = Vec::new();
    stream.read_to_end(&mut answered).unwrap();
    let mut rest = &answered[..];
    for number in 1..=50 {
        let (frame, len) = Frame::first(rest).unwrap().unwrap();
        let Ok(Answer::Signature(signature)) = frame.answer() else { panic!() };
        assert!(verifies(&certificate, P256, &hash(32), &signature));
        assert_eq!(frame.number, number);
        rest = &rest[len..];
    }
    let (frame, len) = Frame::first(rest).unwrap().unwrap();
    assert!(
        matches!(frame.answer(), Ok(Answer::Refused { code: Code::Malformed, .. })),
        "{frame:?}"
    );
    assert_eq!((frame.number, len), (51, rest.len()), "and nothing follows");
    for (bytes, code) in
        [(&[0, 6, 2, 1, 0, 0, 0, 1][..], Code::Version), (&[0xff, 0xff], Code::Malformed)]
    {
        let mut stream = connect();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let (frame, _) = Frame::first(&answer).unwrap().unwrap();
        let Ok(Answer::Refused { code: told, .. }) = frame.answer() else { panic!() };
        assert_eq!(told, code);
    }
}

#[test]
fn a_process_that_is_started_again_is_found_and_one_that_is_away_is_told_at_once() {
    let mut process = process();
    let (path, certificate) = key(process.dir.path(), "key", &rcgen::PKCS_ECDSA_P256_SHA256);
    let client = process.client(&ClientOptions::default());
    let sign = || client.sign(id(&certificate), P256, hash(32));
    assert!(matches!(sign(), Err(SignError::Away(_))));
    for _ in 0..2 {
        process.start(keys(&[&path]), &ServerOptions::default());
        quicket_testing::until("a signature", || sign().is_ok());
        process.server = None;
        let begun = Instant::now();
        assert!(matches!(sign(), Err(SignError::Away(_))));
        assert!(begun.elapsed() < Duration::from_millis(900), "less than the deadline");
    }
}

#[test]
fn a_process_that_does_not_answer_costs_no_more_than_the_deadline() {
    let process = process();
    let listener = UnixListener::bind(process.path()).unwrap();
    let timeout = Duration::from_millis(100);
    let client = process.client(&ClientOptions { timeout, ..ClientOptions::default() });
    // The system takes connections for it, and nobody reads what is asked.
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(client.find(KeyId([0; 32])), Err(SignError::Slow));
        assert!((timeout..20 * timeout).contains(&begun.elapsed()));
    }
    drop(listener);
}

/// As a machine that went without a word: none of the connections to it leads anywhere.
#[test]
fn connections_that_lead_nowhere_are_given_up_together() {
    let process = process();
    let listener = UnixListener::bind(process.path()).unwrap();
    let timeout = Duration::from_millis(500);
    let client = process.client(&ClientOptions { timeout, ..ClientOptions::default() });
    let asked = |stream: &mut UnixStream| {
        let mut question = [0; 40];
        stream.read_exact(&mut question).unwrap();
        u32::from_be_bytes(question[4..8].try_into().unwrap())
    };
    let answer = |stream: &mut UnixStream, number| {
        let mut out = Vec::new();
        Answer::Key(vec![7]).encode(number, &mut out);
        stream.write_all(&out).unwrap();
    };
    std::thread::scope(|scope| {
        let find = || client.find(KeyId([0; 32]));
        let both = [scope.spawn(find), scope.spawn(find)];
        let mut streams = [(); 2].map(|()| listener.accept().unwrap().0);
        let numbers = streams.each_mut().map(asked);
        streams.iter_mut().zip(numbers).for_each(|(stream, number)| answer(stream, number));
        assert!(both.into_iter().all(|find| find.join().unwrap().is_ok()));
        assert_eq!(find(), Err(SignError::Slow));
        let last = scope.spawn(find);
        let (mut stream, _) = listener.accept().unwrap();
        let number = asked(&mut stream);
        answer(&mut stream, number);
        assert_eq!(last.join().unwrap(), Ok(Some(vec![7])), "a new connection");
    });
}

#[test]
fn a_lying_process_is_not_believed() {
    let process = process();
    let listener = UnixListener::bind(process.path()).unwrap();
    let client = process.client(&ClientOptions::default());
    let lies = [
        vec![0xff; 100],
        vec![0, 7, 1, 0x81, 9, 9, 9, 9, 1],
        vec![0, 6, 1, 0x81, 0, 0, 0, 0],
        vec![0, 7, 9, 0x82, 0, 0, 0, 0, 1],
    ];
    let count = lies.len();
    let liar = std::thread::spawn(move || {
        for lie in lies {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 100]).unwrap();
            stream.write_all(&lie).unwrap();
        }
    });
    for _ in 0..count {
        assert!(matches!(client.find(KeyId([0; 32])), Err(SignError::Wrong(_))));
    }
    liar.join().unwrap();
}

#[test]
fn a_client_has_no_more_signatures_in_a_second_than_it_may() {
    let mut process = process();
    let (path, certificate) = key(process.dir.path(), "key", &rcgen::PKCS_ECDSA_P256_SHA256);
    process.start(keys(&[&path]), &ServerOptions { rate: Some(5), ..ServerOptions::default() });
    let client = process.client(&ClientOptions::default());
    let signed: Vec<_> = (0..20).map(|_| client.sign(id(&certificate), P256, hash(32))).collect();
    let refused = signed
        .iter()
        .filter(|signed| matches!(signed, Err(SignError::Refused(Code::TooMany, _))))
        .count();
    assert!(signed.iter().take(5).all(Result::is_ok));
    assert!((1..=15).contains(&refused), "{refused}");
    assert!(client.find(id(&certificate)).unwrap().is_some(), "looking costs nothing");
}

#[test]
fn a_key_that_everybody_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = key(dir.path(), "key", &rcgen::PKCS_ED25519);
    for mode in [0o644, 0o660, 0o602] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let told = Key::of_file(&path).unwrap_err().to_string();
        assert!(told.contains(&format!("{mode:o}")) && told.contains("chmod"), "{told}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(Key::of_file(&path).is_ok());
    assert!(Keys::new([]).is_err());
}

/// Two authorities; a certificate of each for a name.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

fn authority() -> Authority {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut parameters = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = parameters.self_signed(&key).unwrap().pem();
    Authority { issuer: rcgen::Issuer::new(parameters, key), pem }
}

impl Authority {
    /// NAME.pem, NAME.key, and NAME-ca.pem, which is this authority's.
    fn issue(&self, dir: &Path, name: &str) -> [PathBuf; 3] {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        let paths = [
            dir.join(format!("{name}.pem")),
            dir.join(format!("{name}.key")),
            dir.join(format!("{name}-ca.pem")),
        ];
        write(&paths[0], &certificate.pem());
        write(&paths[1], &key.serialize_pem());
        write(&paths[2], &self.pem);
        paths
    }
}

#[test]
fn over_tcp_both_sides_show_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (path, certificate) = key(dir.path(), "key", &rcgen::PKCS_RSA_SHA256);
    let (ours, others) = (authority(), authority());
    let [chain, own_key, ca] = ours.issue(dir.path(), "keyd");
    let tls = ServerTls::of_files(&chain, &own_key, &ca).unwrap();
    let mut server = Server::new(keys(&[&path]), &ServerOptions::default()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    server.listen_tcp(listener, tls).unwrap();
    let address: Address = format!("tcp:localhost:{port}").parse().unwrap();
    let client = |name: &str, authority: &Authority, ca: &Path| {
        let [chain, key, _] = authority.issue(dir.path(), name);
        let tls = MutualTls::of_files(&chain, &key, ca).unwrap();
        Client::new(address.clone(), Some(tls), &ClientOptions::default()).unwrap()
    };
    let gateway = client("gateway", &ours, &ca);
    for _ in 0..3 {
        let signature = gateway.sign(id(&certificate), PSS, hash(48)).unwrap();
        assert!(verifies(&certificate, PSS, &hash(48), &signature));
    }
    let stranger = client("stranger", &others, &ca);
    assert!(matches!(stranger.find(id(&certificate)), Err(SignError::Away(_))));
    let [_, _, other_ca] = others.issue(dir.path(), "other");
    let careful = client("careful", &ours, &other_ca);
    let told = careful.find(id(&certificate)).unwrap_err().to_string();
    assert!(told.contains("certificate"), "{told}");
    assert!(Client::new(address, None, &ClientOptions::default()).is_err());
}

/// A key process over TCP for clients of an authority, and what makes clients of it.
struct OverTcp {
    dir: TempDir,
    certificate: Vec<u8>,
    ours: Authority,
    ca: PathBuf,
    server: Server,
    address: Address,
}

fn over_tcp(options: &ServerOptions) -> OverTcp {
    let dir = tempfile::tempdir().unwrap();
    let (path, certificate) = key(dir.path(), "key", &rcgen::PKCS_ECDSA_P256_SHA256);
    let ours = authority();
    let [chain, own_key, ca] = ours.issue(dir.path(), "keyd");
    let tls = ServerTls::of_files(&chain, &own_key, &ca).unwrap();
    let mut server = Server::new(keys(&[&path]), options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:127.0.0.1:{}", listener.local_addr().unwrap().port());
    server.listen_tcp(listener, tls).unwrap();
    OverTcp { dir, certificate, ours, ca, server, address: address.parse().unwrap() }
}

impl OverTcp {
    fn client(&self, name: &str, authority: &Authority) -> Client {
        let [chain, key, _] = authority.issue(self.dir.path(), name);
        let tls = MutualTls::of_files(&chain, &key, &self.ca).unwrap();
        let address = match &self.address {
            Address::Tcp { port, .. } => Address::Tcp { host: "localhost".to_owned(), port: *port },
            Address::Unix(_) => unreachable!(),
        };
        let timeout = Duration::from_secs(20);
        Client::new(address, Some(tls), &ClientOptions { timeout, ..ClientOptions::default() })
            .unwrap()
    }

    fn sign(&self, client: &Client) -> Result<Vec<u8>, SignError> {
        client.sign(id(&self.certificate), P256, hash(32))
    }
}

#[test]
fn strangers_over_tcp_and_clients_of_unix_sockets_take_no_place_of_gateways() {
    let mut process = over_tcp(&ServerOptions { connections: 1, ..ServerOptions::default() });
    let path = process.dir.path().join("keyd.sock");
    process.server.listen_unix(UnixListener::bind(&path).unwrap(), Allowed::default()).unwrap();
    let near = Client::new(Address::Unix(path), None, &ClientOptions::default()).unwrap();
    assert!(process.sign(&near).is_ok());
    let Address::Tcp { port, .. } = process.address else { unreachable!() };
    // More than may be on their way at once, and none of them says a word.
    let strangers: Vec<_> =
        (0..100).map(|_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let begun = Instant::now();
    let gateway = process.client("gateway", &process.ours);
    assert!(process.sign(&gateway).is_ok());
    assert!(begun.elapsed() < Duration::from_secs(4), "no stranger had to give up first");
    // The one place is taken now, by one who is known.
    let other = process.client("other", &process.ours);
    assert!(matches!(process.sign(&other), Err(SignError::Away(_))));
    assert!(process.sign(&gateway).is_ok() && process.sign(&near).is_ok());
    drop(strangers);
    drop(gateway);
    quicket_testing::until("its place is free", || process.sign(&other).is_ok());
}

#[test]
fn other_authorities_are_taken_from_now_on_and_open_connections_end() {
    let process = over_tcp(&ServerOptions::default());
    let others = authority();
    let (old, new) = (process.client("old", &process.ours), process.client("new", &others));
    assert!(process.sign(&old).is_ok());
    assert!(matches!(process.sign(&new), Err(SignError::Away(_))));
    let [chain, own_key, _] = process.ours.issue(process.dir.path(), "next");
    let [_, _, other_ca] = others.issue(process.dir.path(), "others");
    let tls = ServerTls::of_files(&chain, &own_key, &other_ca).unwrap();
    process.server.replace_tls(tls);
    // It had a connection that was kept.
    assert!(matches!(process.sign(&old), Err(SignError::Away(_))));
    quicket_testing::until("a signature", || process.sign(&new).is_ok());
}
