//! What servers of HTTP/1.1 get of requests, whatever version these came by, and what becomes of answers that
//! are none.

mod common;

use std::fs;
use std::process::Command;

use common::{ECHO, Gateway, directory, header, python};
use quicket_testing::Process;

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

/// A server that has each connection and what it asks for answered by a function of two arguments, on a thread of its own.
const SERVER: &str = r"
import socket, struct, threading
def serve(s, answer):
    asked = b''
    while b'\r\n\r\n' not in asked:
        some = s.recv(65536)
        if not some: return s.close()
        asked += some
    path = asked.split()[1].decode()
    answer(s, path)
def serve_all(answer):
    listener = socket.create_server(('127.0.0.1', 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=serve, args=[listener.accept()[0], answer], daemon=True).start()
";

/// Answers each path in its own way.
const CRUDE: &str = r"
WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
ANSWERS = {
    '/unasked': b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nspeak',
    '/garbage': bytes(range(256)) * 20 + b'\r\n\r\n',
    '/status': b'HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nok',
    '/field': b'HTTP/1.1 200 OK\r\nContent Length: 2\r\n\r\nok',
    '/length': b'HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok',
    '/lengths': b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok',
    '/chunk': b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n',
    '/half': b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf',
    '/endless': b'HTTP/1.1 200 OK\r\nX: ' + b'a' * 200000 + b'\r\n\r\n',
    '/nothing': b'',
}
def answer(s, path):
    try: s.sendall(ANSWERS.get(path, WHOLE))
    except OSError: pass
    s.close()
serve_all(answer)
";

fn served(program: &str) -> (Process, u16) {
    python(&[SERVER, program].concat())
}

fn before_crude(more: &str) -> (Process, Gateway) {
    let (origin, port) = served(CRUDE);
    (origin, Gateway::start(directory(), &site(port, more)))
}

/// RFC 9110, Section 15.2.2: 101 answers a request with Upgrade, and no other.
#[test]
fn a_switch_of_protocols_that_nobody_asked_for_is_a_bad_gateway() {
    let (_origin, gateway) = before_crude("max_failures = 100\n");
    for version in ["--http1.1", "--http2"] {
        assert_eq!(gateway.status(&[version, &gateway.url("/unasked")]), 502, "{version}");
    }
    assert_eq!(gateway.status(&[&gateway.url("/")]), 200);
}

#[test]
fn garbage_is_a_bad_gateway_and_never_an_answer() {
    let (_origin, gateway) = before_crude("max_failures = 1000\nretries = 0\n");
    for version in ["--http1.1", "--http2"] {
        for path in ["/garbage", "/status", "/field", "/length", "/lengths", "/endless", "/nothing"]
        {
            assert_eq!(gateway.status(&[version, &gateway.url(path)]), 502, "{version} {path}");
        }
        for path in ["/chunk", "/half"] {
            let output = gateway.curl(&[version, &gateway.url(path)]);
            assert!(!output.status.success(), "{version} {path}: {output:?}");
        }
        assert_eq!(gateway.text(&[version, &gateway.url("/")]), "ok");
    }
}

/// Begins answers, and resets their connections once it is asked for `/tear`, by whomever.
const TORN: &str = r"
CHUNK = b'\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'
BEGUN = {
    '/chunks': b'HTTP/1.1 200 OK' + CHUNK,
    '/close': b'HTTP/1.1 200 OK\r\n\r\nhalf',
    '/old': b'HTTP/1.0 200 OK\r\n\r\nhalf',
    '/length': b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf',
}
torn = threading.Condition()
def answer(s, path):
    with torn:
        if path == '/tear':
            torn.notify_all()
            return s.close()
        s.sendall(BEGUN[path])
        torn.wait()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    s.close()
serve_all(answer)
";

/// Asks for a path by a version, has the answer torn once its half is here, and prints what came and how it ended: `reset`, `bare`
/// (the end of TCP and none of TLS), or `end`.
const TEARING: &str = r"
import socket, ssl, sys
port, origin, version, path = sys.argv[1:]
context = ssl.create_default_context(cafile='cert.pem')
context.set_alpn_protocols(['http/1.1'])
plain = socket.create_connection(('127.0.0.1', int(port)), 20)
# An SSLSocket takes a reset for the end.
come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = context.wrap_bio(come, gone, server_hostname='localhost')
def until(step):
    while True:
        try: return step()
        except ssl.SSLWantReadError:
            plain.sendall(gone.read())
            if not (some := plain.recv(65536)): raise EOFError
            come.write(some)
until(tls.do_handshake)
tls.write(f'GET {path} HTTP/{version}\r\nHost: localhost\r\n\r\n'.encode())
said = b''
while b'half' not in said: said += until(lambda: tls.read(65536))
tearing = socket.create_connection(('127.0.0.1', int(origin)), 20)
tearing.sendall(b'GET /tear HTTP/1.1\r\n\r\n')
ended = None
while not ended:
    try:
        some = until(lambda: tls.read(65536))
        said, ended = said + some, None if some else 'end'
    except ConnectionResetError: ended = 'reset'
    except EOFError: ended = 'bare'
print(ended, repr(said))
";

/// RFC 9112, Sections 6.3 and 8: the client must be able to tell that the body is not whole.
#[test]
fn what_an_origin_tears_is_not_whole_for_the_client() {
    let (_origin, port) = served(TORN);
    let gateway = Gateway::start(directory(), &site(port, "max_failures = 1000\n"));
    let ask = |version: &str, path: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", TEARING, &gateway.port().to_string(), &port.to_string()]);
        command.args([version, path]).current_dir(gateway.path(""));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{version} {path}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for path in ["/chunks", "/close", "/old", "/length"] {
        for version in ["1.0", "1.1"] {
            let said = ask(version, path);
            let fields = said.to_lowercase();
            let tells = match (fields.contains("chunked"), fields.contains("content-length")) {
                (true, _) => !said.contains(r"\r\n0\r\n"),
                (false, true) => true,
                // Its end would be that of the connection.
                (false, false) => said.starts_with("reset"),
            };
            assert!(tells && said.contains("half"), "{version} {path}: {said}");
            assert!(!said.starts_with("end"), "{version} {path}: {said}");
        }
    }
}

/// The first of two servers breaks off in the middle of answers: no request goes there any more.
#[test]
fn a_server_that_breaks_off_in_the_middle_of_answers_is_left_out() {
    let (_bad, bad) = served(CRUDE);
    let (_good, good) = python(ECHO);
    let servers = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{bad}\", \"http://127.0.0.1:{good}\"]\n\
         max_failures = 2\npause_ms = 600000\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n"
    );
    let gateway = Gateway::start(directory(), &servers);
    let url = gateway.url("/half");
    let broken = (0..10).filter(|_| !gateway.curl(&[&url]).status.success()).count();
    assert_eq!(broken, 2, "then it is left out");
}

/// The file says which statuses are failures; without it, none is.
#[test]
fn statuses_are_failures_if_the_file_says_so() {
    let (_bad, bad) = python(&ECHO.replace("int(asked.get('status', 200))", "503"));
    let (_good, good) = python(ECHO);
    let start = |more: &str| {
        let servers = format!(
            "[origin.app]\nservers = [\"http://127.0.0.1:{bad}\", \"http://127.0.0.1:{good}\"]\n\
             max_failures = 2\npause_ms = 600000\n{more}\
             [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n"
        );
        let gateway = Gateway::start(directory(), &servers);
        let url = gateway.url("/");
        (0..10).filter(|_| gateway.status(&[&url]) == 503).count()
    };
    assert_eq!(start(""), 5);
    assert_eq!(start("fail_on = [502]\n"), 5);
    assert_eq!(start("fail_on = [502, 503]\n"), 2);
}
