//! Private keys that another process has: handshakes over QUIC and TCP with it, without it, and while it is slow.

#[path = "../behind/mod.rs"]
mod behind;
#[path = "../common/mod.rs"]
mod common;
mod keyd;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::Connection;
use quicket::{
    ClientConfig, ClientTls, ConnectError, ConnectionError, KeyType, MemorySessionStore, Roots,
    SessionStore, TransportConfig,
};
use quicket_keyd::Server;
use quicket_testing::until;
use tempfile::TempDir;

use common::{Gateway, PATIENCE, directory};
use keyd::Gate;

const SITE: &str = "[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = { body = \"hello\" }\n";
/// CRYPTO_ERROR (RFC 9001, Section 4.8) with internal_error (RFC 8446, Section 6).
const INTERNAL_ERROR: u64 = 0x0150;
const TOP: &str = "listen = [\"127.0.0.1:0\"]\n";

/// A folder with a certificate of each type, whose keys are elsewhere.
struct Place {
    dir: TempDir,
    keys: [PathBuf; 2],
}

fn place() -> Place {
    let dir = directory();
    let rsa = keyd::certificate(dir.path(), "rsa", &["rsa:2048"]);
    let p256 =
        keyd::certificate(dir.path(), "p256", &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
    Place { dir, keys: [rsa, p256] }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a gateway's file says of a key process that is at this path.
    fn file(&self, socket: &str, options: &str) -> String {
        let path = self.path(socket);
        let certificate = |name: &str| {
            format!(
                "[[certificate]]\nchain = \"{name}.pem\"\nkey = {{ keyd = \"unix:{}\"{options} }}\n",
                path.display()
            )
        };
        format!("{}{}{SITE}", certificate("rsa"), certificate("p256"))
    }
}

/// A client of one name, which trusts all certificates of the folder.
fn client(gateway: &Gateway) -> ClientConfig {
    let pem = |name: &str| std::fs::read_to_string(gateway.path(name)).unwrap();
    let all = ["cert.pem", "rsa.pem", "p256.pem"].map(pem).concat();
    let path = gateway.path("all.pem");
    // Tests of one gateway write the same.
    std::fs::write(&path, all).unwrap();
    let tls = ClientTls::builder().roots(Roots::PemFile(path)).alpn(["h3"]);
    ClientConfig::new(tls.build().unwrap())
}

/// A handshake over QUIC; whether it resumed a session.
async fn connect(
    gateway: &Gateway,
    name: &str,
    config: &ClientConfig,
) -> Result<bool, ConnectError> {
    let connecting = Connection::connect(gateway.addresses[0], name, config);
    let connection = tokio::time::timeout(PATIENCE, connecting).await.expect("an end")?;
    let resumed = connection.handshake().unwrap().resumed;
    connection.close(0x100, b"");
    Ok(resumed)
}

/// A client with a session.
fn returning(gateway: &Gateway, name: &str) -> ClientConfig {
    let store = Arc::new(MemorySessionStore::new());
    let config = client(gateway).sessions(Arc::clone(&store) as _);
    run(async {
        let connecting = Connection::connect(gateway.addresses[0], name, &config);
        let _connection = connecting.await.unwrap();
        // A store keeps them by what the client asks for.
        let server = format!("{name}:{}", gateway.port());
        let mut session = None;
        while session.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
            session = store.take_session(&server);
        }
        store.save_session(&server, &session.unwrap());
    });
    config
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

fn over_quic(gateway: &Gateway, name: &str) -> Result<bool, ConnectError> {
    let config = client(gateway);
    run(connect(gateway, name, &config))
}

#[track_caller]
fn has_internal_error(outcome: Result<bool, ConnectError>) {
    let Err(ConnectError::Lost(ConnectionError::PeerTransport { code, .. })) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(u64::from(*code), INTERNAL_ERROR, "{outcome:?}");
}

/// A request over HTTP/2 by curl; what it says, or why there is nothing.
fn over_tcp(gateway: &Gateway, name: &str) -> Result<String, String> {
    let host = format!("{name}:{}:127.0.0.1", gateway.port());
    let url = format!("https://{name}:{}/", gateway.port());
    let file = format!("{}.pem", name.split('.').next().unwrap().replace("localhost", "cert"));
    let output = gateway.curl(&["--http2", "--resolve", &host, "--cacert", &file, &url]);
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// What `openssl s_client` says.
fn s_client(gateway: &Gateway, arguments: &[&str]) -> String {
    let address = format!("127.0.0.1:{}", gateway.port());
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address]).args(arguments);
    let output = command.current_dir(gateway.dir.path()).stdin(Stdio::null()).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

fn signatures(server: &Server) -> u64 {
    let values = server.counters().values();
    values.iter().find(|(name, _)| *name == "signatures").unwrap().1
}

#[test]
fn handshakes_of_all_versions_are_signed_elsewhere() {
    let place = place();
    let server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let file = place.file("keyd.sock", "");
    let gateway = Gateway::start(place.dir, &file);
    for (name, kind) in [("rsa", KeyType::Rsa), ("p256", KeyType::Ecdsa)] {
        let host = format!("{name}.test");
        let before = signatures(&server);
        assert!(matches!(over_quic(&gateway, &host), Ok(false)), "{kind:?}");
        assert_eq!(over_tcp(&gateway, &host).as_deref(), Ok("hello"));
        let mut aioquic = behind::python();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http3_get.py");
        let (port, pem) = (gateway.port().to_string(), format!("{name}.pem"));
        aioquic.args([program, &port, &pem, &host, &host]).current_dir(gateway.dir.path());
        let output = aioquic.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("200") && said.contains("hello"), "{output:?}");
        // A HelloRetryRequest, since nobody has the client's first group here.
        let said = s_client(&gateway, &["-servername", &host, "-groups", "P-521:P-256"]);
        let signed_with = if kind == KeyType::Rsa { "RSA-PSS" } else { "ECDSA" };
        assert!(said.contains(&format!("Peer signature type: {signed_with}")), "{said}");
        assert_eq!(signatures(&server) - before, 4, "{kind:?}");
    }
    let before = signatures(&server);
    assert!(matches!(over_quic(&gateway, "localhost"), Ok(false)));
    assert_eq!(over_tcp(&gateway, "localhost").as_deref(), Ok("hello"));
    assert_eq!(signatures(&server), before, "this key is here");
}

#[test]
fn a_handshake_goes_on_by_itself_once_it_is_signed() {
    let place = place();
    let _server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let file = place.file("keyd.sock", "");
    let gateway = Gateway::start(place.dir, &file);
    // The client sends nothing again before a probe, which is after three times as long (RFC 9002, Section 6.2.1).
    let transport = TransportConfig { initial_rtt: PATIENCE, ..TransportConfig::default() };
    let config = client(&gateway).transport(transport);
    let attempt =
        async { tokio::time::timeout(PATIENCE, connect(&gateway, "p256.test", &config)).await };
    assert!(matches!(run(attempt), Ok(Ok(false))));
}

#[test]
fn sessions_are_resumed_without_a_signature() {
    let place = place();
    let server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let file = place.file("keyd.sock", "");
    let gateway = Gateway::start(place.dir, &file);
    let config = returning(&gateway, "rsa.test");
    let session = gateway.path("session").display().to_string();
    let s_client = |flag: &str, groups: &str| {
        // The ticket comes with the answer.
        let script = format!(
            "printf 'GET / HTTP/1.1\\r\\nHost: p256.test\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client \
             -connect 127.0.0.1:{} -servername p256.test -alpn http/1.1 -ign_eof {flag} {session} {groups}",
            gateway.port()
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(s_client("-sess_out", "").contains("New, TLSv1.3"));
    assert_eq!(signatures(&server), 2);
    drop(server);
    run(async {
        assert!(connect(&gateway, "rsa.test", &config).await.unwrap());
        has_internal_error(connect(&gateway, "p256.test", &config).await);
    });
    assert!(s_client("-sess_in", "").contains("Reused, TLSv1.3"));
    // A ticket that is none of this gateway's: it needs a signature after all.
    let others = Gateway::start(directory(), SITE);
    let _server = keyd::start(&gateway.path("keyd.sock"), &[gateway.path("away/p256.key")]);
    let strange = gateway.path("strange").display().to_string();
    let script = format!(
        "printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' | openssl s_client \
         -connect 127.0.0.1:{} -servername p256.test -alpn http/1.1 -ign_eof -sess_out {strange}",
        others.port()
    );
    Command::new("sh").args(["-c", &script]).output().unwrap();
    until("a signature", || over_tcp(&gateway, "p256.test").is_ok());
    std::fs::copy(&strange, &session).unwrap();
    let said = s_client("-sess_in", "");
    assert!(said.contains("New, TLSv1.3") && said.contains("hello"), "{said}");
}

#[test]
fn no_worker_waits_for_a_signature() {
    let place = place();
    let _server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let gate = Gate::new(&place.path("gate.sock"), &place.path("keyd.sock"));
    let file = place.file("gate.sock", ", timeout_ms = 10000");
    let gateway = Gateway::start(place.dir, &file);
    let config = returning(&gateway, "rsa.test");
    gate.close();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| over_quic(&gateway, "p256.test"));
        let also = scope.spawn(|| over_tcp(&gateway, "rsa.test"));
        until("both wait", || gate.held() == 2);
        // One worker, and one process: these go on meanwhile, one after the other.
        assert!(matches!(run(connect(&gateway, "rsa.test", &config)), Ok(true)));
        for _ in 0..3 {
            assert!(matches!(over_quic(&gateway, "localhost"), Ok(false)));
            assert_eq!(over_tcp(&gateway, "localhost").as_deref(), Ok("hello"));
        }
        assert!(!slow.is_finished() && !also.is_finished());
        assert_eq!(gate.held(), 2);
        gate.open();
        assert!(matches!(slow.join().unwrap(), Ok(false)));
        assert_eq!(also.join().unwrap().as_deref(), Ok("hello"));
    });
}

/// What SETTINGS say of `header_bytes` (RFC 9114, Section 7.2.4.2), as aioquic reads them.
fn header_bytes(gateway: &Gateway, name: &str) -> String {
    let mut aioquic = behind::python();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http3_settings.py");
    let (port, pem) = (gateway.port().to_string(), format!("{}.pem", name.replace(".test", "")));
    aioquic.args([program, &port, &pem, name]).current_dir(gateway.dir.path());
    let output = aioquic.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = said.split_whitespace().next().and_then(|word| word.strip_prefix("6="));
    value.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

/// RFC 9114, Section 7.2.4.2: tickets of a connection promise what it announces, and that is settled when its handshake begins.
#[test]
fn a_handshake_from_before_a_reload_announces_what_its_tickets_promise() {
    let place = place();
    let _server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let gate = Gate::new(&place.path("gate.sock"), &place.path("keyd.sock"));
    let file = place.file("gate.sock", ", timeout_ms = 10000");
    let gateway = Gateway::start(place.dir, &file);
    std::fs::copy(gateway.path("cert.pem"), gateway.path("localhost.pem")).unwrap();
    gate.close();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| header_bytes(&gateway, "rsa.test"));
        until("it waits", || gate.held() == 1);
        // Without the keys that are elsewhere: nothing is to be asked of their process now.
        gateway.reload(TOP, &format!("[limits]\nheader_bytes = 16384\n{SITE}")).unwrap();
        assert_eq!(header_bytes(&gateway, "localhost"), "16384");
        assert!(!slow.is_finished());
        gate.open();
        assert_eq!(slow.join().unwrap(), "32768");
    });
}

#[test]
fn a_slow_process_and_a_full_queue_cost_those_that_need_it() {
    let place = place();
    let _server = keyd::start(&place.path("keyd.sock"), &place.keys);
    let gate = Gate::new(&place.path("gate.sock"), &place.path("keyd.sock"));
    let file = place.file("gate.sock", ", timeout_ms = 5000, threads = 1, queue = 2");
    let gateway = Gateway::start(place.dir, &file);
    let config = client(&gateway);
    gate.close();
    std::thread::scope(|scope| {
        let one = || run(connect(&gateway, "p256.test", &config));
        let first = scope.spawn(one);
        until("the thread has one", || gate.held() == 1);
        // Two wait for it, and there is no place for the rest: these hear of it at once.
        let others = [(); 6].map(|()| scope.spawn(one));
        let ended = || others.iter().filter(|other| other.is_finished()).count();
        until("four are refused", || ended() >= 4);
        assert!(!first.is_finished() && gate.held() == 1, "before it gives up");
        assert_eq!(ended(), 4, "two wait");
        has_internal_error(first.join().unwrap());
        others.into_iter().for_each(|other| has_internal_error(other.join().unwrap()));
    });
    let said = s_client(&gateway, &["-servername", "rsa.test"]);
    assert!(said.contains("alert internal error"), "{said}");
    assert!(matches!(over_quic(&gateway, "localhost"), Ok(false)));
    gate.open();
    until("signatures come again", || over_quic(&gateway, "p256.test").is_ok());
    assert_eq!(over_tcp(&gateway, "rsa.test").as_deref(), Ok("hello"));
}

#[test]
fn a_process_that_is_killed_and_started_again_is_missed_by_nobody_else() {
    let place = place();
    let path = place.path("keyd.sock");
    let mut server = Some(keyd::start(&path, &place.keys));
    let keys = place.keys.clone();
    let file = place.file("keyd.sock", "");
    let gateway = Gateway::start(place.dir, &file);
    for _ in 0..2 {
        until("a signature", || over_quic(&gateway, "rsa.test").is_ok());
        assert_eq!(over_tcp(&gateway, "p256.test").as_deref(), Ok("hello"));
        drop(server.take());
        has_internal_error(over_quic(&gateway, "rsa.test"));
        let said = s_client(&gateway, &["-servername", "p256.test"]);
        assert!(said.contains("alert internal error"), "{said}");
        assert!(matches!(over_quic(&gateway, "localhost"), Ok(false)));
        assert_eq!(over_tcp(&gateway, "localhost").as_deref(), Ok("hello"));
        server = Some(keyd::start(&path, &keys));
    }
    until("a signature", || over_quic(&gateway, "rsa.test").is_ok());
}

#[test]
fn a_process_without_the_key_is_an_error_and_one_that_is_away_a_warning() {
    let place = place();
    let path = place.path("keyd.sock");
    let [rsa, p256] = place.keys.clone();
    let server = keyd::start(&path, &[rsa.clone(), p256.clone()]);
    let file = place.file("keyd.sock", "");
    let local = Gateway::start(place.dir, SITE);
    assert_eq!(local.reload(TOP, &file), Ok(()));
    until("a signature", || over_quic(&local, "rsa.test").is_ok());
    drop(server);
    let server = keyd::start(&path, std::slice::from_ref(&rsa));
    let told = local.reload(TOP, &file).unwrap_err();
    assert!(told.contains("no key for the certificate") && told.contains("p256.pem"), "{told}");
    assert!(told.contains("sha256:"), "{told}");
    drop(server);
    let site = local.path("site.toml");
    let snapshot = quicket_gateway::config::load(&site).unwrap();
    assert_eq!(snapshot.keys_away.len(), 2, "{:?}", snapshot.keys_away);
    // One that says nothing is asked once, for both.
    std::fs::remove_file(&path).unwrap();
    let silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    silent.set_nonblocking(true).unwrap();
    let snapshot = quicket_gateway::config::load(&site).unwrap();
    assert_eq!(snapshot.keys_away.len(), 2, "{:?}", snapshot.keys_away);
    assert!(silent.accept().is_ok() && silent.accept().is_err());
    for (key, what) in [
        ("{ keyd = \"keyd.sock\" }", "unix:/run/quicket/keyd.sock"),
        ("{ keyd = \"tcp:localhost:1\" }", "client_chain, client_key and ca"),
        ("{ keyd = \"unix:/x\", ca = \"cert.pem\" }", "for a process over TCP"),
        ("{ keyd = \"unix:/x\", threads = 0 }", "key.threads: 0 is not within 1 and 256"),
        ("{ keyd = \"unix:/x\", thread = 1 }", "expected a file of PEM, or { keyd"),
        ("3", "expected a file of PEM, or { keyd"),
    ] {
        let file = format!("[[certificate]]\nchain = \"rsa.pem\"\nkey = {key}\n{SITE}");
        let told = local.reload(TOP, &file).unwrap_err();
        assert!(told.contains(what), "{told}");
    }
}
