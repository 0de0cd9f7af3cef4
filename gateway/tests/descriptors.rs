//! A gateway whose process has no descriptor left, which is no fault of any server. Alone in its process, whose limit it lowers.

mod common;

use std::process::Command;

use common::{ECHO, Gateway, directory, python};

/// Makes a connection to the gateway, asks for `/` while its process can open nothing more, and again afterwards; prints the statuses.
const CLIENT: &str = "
import http.client, os, resource, ssl, sys
port, pid = map(int, sys.argv[1:])
context = ssl.create_default_context(cafile='cert.pem')
connection = http.client.HTTPSConnection('localhost', port, timeout=20, context=context)
def ask(path):
    connection.request('GET', path)
    answer = connection.getresponse()
    answer.read()
    print(answer.status, flush=True)
ask('/here')
before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
taken = {int(name) for name in os.listdir(f'/proc/{pid}/fd')}
free = next(number for number in range(len(taken) + 1) if number not in taken)
resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
try:
    ask('/')
finally:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
ask('/')
";

#[test]
fn a_server_is_not_blamed_for_what_this_system_lacks() {
    let (_origin, port) = python(ECHO);
    let dir = directory();
    // One failure would have the server left out.
    let file = format!(
        "[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\nmax_failures = 1\npause_ms = 60000\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/here\"\nrespond = {{ body = \"here\" }}\n\
         [metrics]\nlisten = \"unix:{}\"\n",
        dir.path().join("counters.sock").display()
    );
    let gateway = Gateway::start(dir, &file);
    let mut command = Command::new("python3");
    let arguments = [gateway.port().to_string(), std::process::id().to_string()];
    command.args(["-c", CLIENT]).args(arguments).current_dir(gateway.path(""));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200\n503\n200\n", "{output:?}");
    let counters = gateway.text(&["--unix-socket", "counters.sock", "http://localhost/metrics"]);
    let count = |name: &str, labels: &str| {
        let begin = format!("quicket_gateway_{name}{{{labels}}} ");
        counters.lines().find_map(|line| line.strip_prefix(begin.as_str())).map(ToOwned::to_owned)
    };
    let reason = "reason=\"no descriptor is left for a connection to the origin\"";
    assert_eq!(count("refused_total", reason).as_deref(), Some("1"), "{counters}");
    let server = format!("origin=\"app\",server=\"http://127.0.0.1:{port}\"");
    assert_eq!(count("origin_failures_total", &server).as_deref(), Some("0"), "{counters}");
}
