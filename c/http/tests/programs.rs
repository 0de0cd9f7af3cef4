//! Programs in C: one that makes all calls of the header, and the example.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use http::{HeaderMap, Request, Response, StatusCode};
use quicket::tokio::{Connection, Endpoint};
use quicket::{ConnectionError, Identity, ServerConfig, ServerTls};
use tokio::runtime::Runtime;

type Stream = h3::server::RequestStream<quicket_h3::BidiStream<Bytes>, Bytes>;

const PATIENCE: Duration = Duration::from_secs(20);
/// How long `/slow` takes for its status, and again for its content.
const SLOWNESS: Duration = Duration::from_millis(400);

/// Compiles a program against the headers and the library.
fn compile(source: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = source.replace(['/', '.'], "-");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{name}-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let libraries = libraries();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here.join("../include"))
        .arg("-o")
        .args([&program, &here.join(source)])
        .arg("-L")
        .arg(&libraries)
        .args(["-lquicket_c_http", "-ldl"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Cargo puts the library beside the tests that it is built for.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

fn run(command: &mut Command) -> Output {
    command.env("LD_LIBRARY_PATH", libraries()).output().unwrap()
}

/// Runs it, and wants it to end well; what it has said on both outputs.
fn passes(command: &mut Command) -> (String, String) {
    let ran = run(command);
    let said = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{}: {said:?}", ran.status);
    said
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A server that gives back what it gets.
struct Server {
    port: u16,
    identity: Identity,
    /// How connections have ended.
    ended: Arc<Mutex<Vec<ConnectionError>>>,
    connections: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Server {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let ended = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (tells, counts) = (Arc::clone(&ended), Arc::clone(&connections));
        let tls = ServerTls::builder(identity.clone()).alpn(["h3"]).early_data(true);
        let config = ServerConfig::new(tls.build().unwrap()).early_data(true);
        let port = runtime.block_on(async {
            let endpoint = Endpoint::bind("127.0.0.1:0").await.unwrap();
            let port = endpoint.local_addr().port();
            let listener = endpoint.listen_early(config).unwrap();
            tokio::spawn(async move {
                while let Ok(connection) = listener.accept().await {
                    counts.fetch_add(1, Ordering::SeqCst);
                    tokio::spawn(serve(connection, Arc::clone(&tells)));
                }
            });
            port
        });
        Self { port, identity, ended, connections, _runtime: runtime }
    }

    fn pin(&self) -> String {
        self.identity.fingerprint().to_string()
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// Waits until all connections have ended, and says how.
    fn ended(&self) -> Vec<ConnectionError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.ended.lock().unwrap().clone();
            if ended.len() == self.connections.load(Ordering::SeqCst) {
                return ended;
            }
            assert!(Instant::now() < deadline, "a connection goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

async fn serve(connection: Connection, tells: Arc<Mutex<Vec<ConnectionError>>>) {
    let quic = quicket_h3::Connection::new(connection.clone());
    // Who does not trust the server ends the handshake.
    if let Ok(mut server) = h3::server::Connection::new(quic).await {
        while let Ok(Some(resolver)) = server.accept().await {
            tokio::spawn(async move {
                if let Ok((request, stream)) = resolver.resolve_request().await {
                    let _ = answer(request, stream).await;
                }
            });
        }
    }
    let reason = connection.closed().await;
    tells.lock().unwrap().push(reason);
}

async fn answer(request: Request<()>, mut stream: Stream) -> Result<(), StreamError> {
    let path = request.uri().path();
    let status = match path {
        "/missing" => StatusCode::NOT_FOUND,
        // They say that there is more, or less, than what comes; that lengths are such as none is.
        "/short" | "/long" | "/wrong" => {
            let length = match path {
                "/short" => "100",
                "/long" => "2",
                _ => "many",
            };
            let response = Response::builder().header("content-length", length).body(());
            stream.send_response(response.unwrap()).await?;
            stream.send_data(Bytes::from_static(b"a part")).await?;
            return stream.finish().await;
        }
        "/refused" => {
            let response = Response::builder().status(StatusCode::PAYLOAD_TOO_LARGE);
            stream.send_response(response.body(()).unwrap()).await?;
            stream.stop_sending(Code::H3_NO_ERROR);
            return stream.finish().await;
        }
        "/reset" => {
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
            return Ok(());
        }
        // A HEAD request is told of content that does not come; status and content come slowly.
        "/head" => {
            let response = Response::builder().header("content-length", "100").body(());
            stream.send_response(response.unwrap()).await?;
            return stream.finish().await;
        }
        "/slow" => {
            tokio::time::sleep(SLOWNESS).await;
            stream.send_response(Response::new(())).await?;
            tokio::time::sleep(SLOWNESS).await;
            stream.send_data(Bytes::from_static(b"at last")).await?;
            return stream.finish().await;
        }
        // Until the client has gone.
        "/stall" | "/deaf" => {
            std::future::pending::<()>().await;
            return Ok(());
        }
        _ => StatusCode::OK,
    };
    let mut response = Response::builder().status(status);
    response = response.header("method", request.method().as_str());
    for value in request.headers().get_all("x-said") {
        response = response.header("x-said", value);
    }
    stream.send_response(response.body(()).unwrap()).await?;
    let mut length = 0;
    // What comes is given back while it comes.
    while let Some(mut piece) = stream.recv_data().await? {
        length += piece.remaining();
        stream.send_data(piece.copy_to_bytes(piece.remaining())).await?;
    }
    if length > 0 {
        let trailers = HeaderMap::from_iter([("length".parse().unwrap(), length.into())]);
        stream.send_trailers(trailers).await?;
    }
    stream.finish().await
}

#[test]
fn a_program_makes_all_calls() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let stranger = folder.path().join("stranger.pem");
    let identity = Identity::self_signed(["localhost"]).unwrap();
    std::fs::write(&stranger, identity.chain_pem()).unwrap();
    let (out, err) = passes(
        Command::new(compile("tests/programs/http.c"))
            .env("PORT", server.port.to_string())
            .env("PIN", server.pin())
            .env("STRANGER", stranger)
            .env("SESSIONS", folder.path().join("sessions")),
    );
    assert_eq!(out, "passed\n", "{err}");
    // Of the program's own accord, and not because it has gone.
    for reason in server.ended() {
        let told = matches!(
            reason,
            ConnectionError::PeerApplication { .. } | ConnectionError::PeerTransport { .. }
        );
        assert!(told, "{reason}");
    }
}

#[test]
fn the_example_fetches_and_sends() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let program = compile("../examples/fetch.c");
    let fetch = || {
        let mut command = Command::new(&program);
        command.args(["--pin", &server.pin(), "--host", "localhost=127.0.0.1", "-m", "20"]);
        command
    };
    let (help, _) = passes(Command::new(&program).arg("--help"));
    assert!(help.starts_with("usage: fetch") && help.contains("--sessions"), "{help}");
    let (out, err) =
        passes(fetch().args(["-i", "-d", "hello", "-H", "x-said: a", &server.url("/echo")]));
    assert_eq!(out, "hello");
    for line in ["200\n", "method: POST\n", "x-said: a\n", "length: 5\n"] {
        assert!(err.contains(line), "{err}");
    }
    let (file, back) = (folder.path().join("file"), folder.path().join("back"));
    std::fs::write(&file, vec![7; 3_000_000]).unwrap();
    passes(fetch().arg("-T").arg(&file).arg("-o").arg(&back).arg(server.url("/echo")));
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&file).unwrap());
    let sessions = folder.path().join("sessions");
    for expected in ["early data: none", "early data: accepted"] {
        let mut command = fetch();
        command.args(["--info", "--sessions"]).arg(&sessions).arg(server.url("/echo"));
        let (_, err) = passes(&mut command);
        assert!(err.contains(expected), "{err}");
    }
    for (words, status, expected) in [
        (vec![server.url("/missing")], 1, "status 404"),
        (vec!["-m".to_owned(), "0.2".to_owned(), server.url("/stall")], 1, "time"),
        (vec!["http://localhost/".to_owned()], 1, "https"),
        (vec![], 2, "--help"),
        (vec!["--unknown".to_owned()], 2, "--help"),
        (vec!["-T".to_owned(), "/nonexistent".to_owned(), server.url("/")], 1, "/nonexistent"),
    ] {
        let ran = run(fetch().args(&words));
        assert_eq!(ran.status.code(), Some(status), "{words:?}: {}", text(&ran.stderr));
        assert!(text(&ran.stderr).contains(expected), "{words:?}: {}", text(&ran.stderr));
    }
}

#[test]
fn structures_lie_in_memory_as_in_c() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("sizes.c");
    std::fs::write(
        &source,
        "#include <stddef.h>\n#include <stdio.h>\n#include <quicket/http.h>\nint main(void)\n{\n\
         \tprintf(\"%zu %zu \", sizeof(struct quicket_http_options), offsetof(struct quicket_http_options, flags));\n\
         \tprintf(\"%zu\\n\", sizeof(struct quicket_exchange_info));\n\treturn 0;\n}\n",
    )
    .unwrap();
    let program = folder.path().join("sizes");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(include);
    passes(cc.arg("-o").arg(&program).arg(&source));
    let (sizes, _) = passes(&mut Command::new(&program));
    let options = size_of::<quicket_c_http::quicket_http_options>();
    let expected = format!(
        "{options} {} {}\n",
        options - 8,
        size_of::<quicket_c_http::quicket_exchange_info>()
    );
    assert_eq!(sizes, expected);
}
