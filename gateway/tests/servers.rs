//! Which server is asked: shares, hashes, health checks, and what of that a reload keeps. The servers are
//! Python's `http.server`.

mod behind;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use behind::{Site, folder, python};
use quicket_testing::{Process, until};

/// Tells its name, by which connection it is asked, and on `/health` whether there is a file that says it
/// is sick; if there is one that says it is stuck, that gets a line, and `/health` no answer.
const SERVER: &str = "
import http.server, itertools, os, sys, time
name, sick, stuck = sys.argv[1:]
numbers = itertools.count(1)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def setup(self):
        super().setup()
        self.number = next(numbers)
    def do_GET(self):
        if self.path == '/health' and os.path.exists(stuck):
            with open(stuck, 'a') as file: file.write('asked\\n')
            time.sleep(600)
        is_sick = self.path == '/health' and os.path.exists(sick)
        said = f'{name} {self.number}'.encode()
        self.send_response(503 if is_sick else 200)
        self.send_header('Content-Length', str(len(said)))
        self.end_headers()
        self.wfile.write(said)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

fn server(dir: &Path, name: &str) -> (Process, String) {
    let files = ["sick", "stuck"].map(|what| dir.join(format!("{what}-{name}")));
    let (process, port) = Process::start(python().args(["-c", SERVER, name]).args(files));
    (process, format!("http://127.0.0.1:{port}"))
}

fn file(origin: &str) -> String {
    format!("[origin.app]\n{origin}\n[[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n")
}

/// Who answered how many of these requests, all of which were answered.
fn answers(site: &Site, count: usize, arguments: &[&str]) -> BTreeMap<String, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..count {
        let (status, body) = site.get(&[arguments, &[&site.url("/a")]].concat());
        assert_eq!(status, "200");
        let name = String::from_utf8(body).unwrap().split(' ').next().unwrap().to_owned();
        *answers.entry(name).or_default() += 1;
    }
    answers
}

fn count(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn servers_get_their_shares() {
    let dir = folder();
    let ((_a, a), (_b, b)) = (server(dir.path(), "a"), server(dir.path(), "b"));
    let weighted = |weight: u32| {
        file(&format!("servers = [\"{a}\", {{ url = \"{b}\", weight = {weight} }}]\n"))
    };
    let site = Site::start(dir, &weighted(3));
    assert_eq!(answers(&site, 20, &[]), count(&[("a", 5), ("b", 15)]));
    site.reload(&weighted(0));
    assert_eq!(answers(&site, 4, &[]), count(&[("a", 4)]));
}

#[test]
fn a_hash_leads_to_the_same_server_and_past_one_that_is_gone() {
    let dir = folder();
    let servers: Vec<_> = ["a", "b", "c"].map(|name| server(dir.path(), name)).into();
    let places: Vec<&str> = servers.iter().map(|(_, place)| place.as_str()).collect();
    let origin = format!(
        "servers = {places:?}\nbalance = \"consistent-hash\"\nhash_by = {{ cookie = \"user\" }}\n\
         max_failures = 1\npause_ms = 60000\n"
    );
    let site = Site::start(dir, &file(&origin));
    let of = |user: usize| {
        let cookie = format!("Cookie: x=1; user={user}");
        let answers = answers(&site, 2, &["-H", &cookie]);
        assert_eq!(answers.len(), 1, "the same one each time");
        answers.into_keys().next().unwrap()
    };
    let before: Vec<String> = (0..12).map(of).collect();
    assert!(before.iter().any(|name| *name != before[0]), "{before:?}");
    let gone = before[0].clone();
    let at = ["a", "b", "c"].iter().position(|name| *name == gone).unwrap();
    let mut servers = servers;
    drop(servers.remove(at));
    for (user, before) in before.iter().enumerate() {
        let after = of(user);
        assert!(after != gone && (after == *before || *before == gone), "{before} {after}");
    }
}

#[test]
fn a_server_that_is_not_well_gets_no_requests_until_it_is() {
    let dir = folder();
    let ((_a, a), (_b, b)) = (server(dir.path(), "a"), server(dir.path(), "b"));
    let sick = dir.path().join("sick-a");
    let origin = format!(
        "servers = [\"{a}\", \"{b}\"]\n\
         health_check = {{ path = \"/health\", interval_ms = 50, timeout_ms = 1000 }}\n"
    );
    let counters = dir.path().join("metrics.sock");
    let counters = format!("[metrics]\nlisten = \"unix:{}\"\n", counters.display());
    let site = Site::start(dir, &(file(&origin) + &counters));
    let both = count(&[("a", 2), ("b", 2)]);
    let up = || [&a, &b].map(|server| site.counter("origin_up", &format!("{server}\"")));
    assert_eq!(answers(&site, 4, &[]), both);
    assert_eq!(up(), [1, 1]);
    fs::write(&sick, "").unwrap();
    until("what checks found", || answers(&site, 4, &[]) == count(&[("b", 4)]));
    assert_eq!(up(), [0, 1]);
    // It stays known over a reload, and is forgotten with the checks.
    site.reload(&(file(&origin) + &counters));
    assert_eq!(answers(&site, 4, &[]), count(&[("b", 4)]));
    fs::remove_file(&sick).unwrap();
    until("what checks found", || answers(&site, 4, &[]) == both);
    assert_eq!(up(), [1, 1]);
    fs::write(&sick, "").unwrap();
    until("what checks found", || answers(&site, 4, &[]) == count(&[("b", 4)]));
    site.reload(&(file(&format!("servers = [\"{a}\", \"{b}\"]\n")) + &counters));
    assert_eq!(answers(&site, 4, &[]), both);
    assert_eq!(up(), [1, 1]);
}

#[test]
fn a_reload_keeps_the_connections_to_servers_that_are_the_same() {
    let dir = folder();
    let (_a, a) = server(dir.path(), "a");
    let origin = format!("servers = [\"{a}\"]\n");
    let site = Site::start(dir, &file(&origin));
    let connection = || String::from_utf8(site.get(&[&site.url("/a")]).1).unwrap();
    assert_eq!((connection(), connection()), ("a 1".to_owned(), "a 1".to_owned()));
    site.reload(&file(&format!("{origin}retries = 0\n")));
    assert_eq!(connection(), "a 1");
    site.reload(&file(&format!("{origin}connect_timeout_ms = 4000\n")));
    assert_eq!(connection(), "a 2", "connections are made by other rules");
}

/// Who replaces files often, as an operator of Kubernetes does, has servers checked all the same, and no more often.
#[test]
fn checks_go_on_over_reloads() {
    let dir = folder();
    let ((_a, a), (_b, b)) = (server(dir.path(), "a"), server(dir.path(), "b"));
    let stuck = dir.path().join("stuck-a");
    fs::write(&stuck, "").unwrap();
    let file = file(&format!(
        "servers = [\"{a}\", \"{b}\"]\nhealth_check = {{ path = \"/health\", interval_ms = 600000, \
         timeout_ms = 1500, unhealthy_after = 1 }}\n"
    ));
    let site = Site::start(dir, &file);
    let mut reloads = 0;
    // Each is sooner than the answer would be late.
    until("what the check found", || {
        site.reload(&file);
        reloads += 1;
        answers(&site, 4, &[]) == count(&[("b", 4)])
    });
    assert!(reloads > 5, "{reloads} reloads in the time of a check");
    assert_eq!(fs::read_to_string(&stuck).unwrap(), "asked\n", "{reloads} reloads");
}

#[test]
fn turns_go_on_over_reloads() {
    let dir = folder();
    let ((_a, a), (_b, b)) = (server(dir.path(), "a"), server(dir.path(), "b"));
    let file = |balance: &str, weight: u32| {
        file(&format!(
            "servers = [\"{a}\", {{ url = \"{b}\", weight = {weight} }}]\nbalance = \"{balance}\"\n"
        ))
    };
    let site = Site::start(dir, &file("round-robin", 1));
    for (balance, weight, expected) in
        [("round-robin", 1, [4, 4]), ("round-robin", 3, [2, 6]), ("least-requests", 1, [4, 4])]
    {
        site.reload(&file(balance, weight));
        let mut all = BTreeMap::new();
        for _ in 0..8 {
            for (name, count) in answers(&site, 1, &[]) {
                *all.entry(name).or_default() += count;
            }
            site.reload(&file(balance, weight));
        }
        assert_eq!(all, count(&[("a", expected[0]), ("b", expected[1])]), "{balance}, {weight}");
    }
}
