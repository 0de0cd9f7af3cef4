//! `quicket serve` and `quicket get` as processes over loopback: what is fetched.

mod common;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Server, content, quicket};

#[test]
fn a_file_arrives_whole_and_the_summary_says_how() {
    let server = Server::start();
    let outcome = server.get(&[&server.url("/large"), "-o", "large", "--json"]);
    outcome.assert_code(0);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
    let report = outcome.report();
    assert_eq!(report["received"], 8_000_000);
    assert_eq!(report["files"][0]["status"], 200);
    let connection = &report["connections"][0];
    assert_eq!(connection["alpn"], "h3");
    assert_eq!(connection["encrypted"], true);
    assert!(connection["cipher_suite"].as_str().unwrap().starts_with("TLS_"), "{connection}");
    assert!(report["bits_per_second"].as_u64().unwrap() > 0);
}

#[test]
fn several_files_share_one_connection() {
    let mut server = Server::start();
    let urls =
        ["/hello.txt", "/empty", "/sub%20dir/page.html", "/large"].map(|path| server.url(path));
    let mut arguments: Vec<&str> = urls.iter().map(String::as_str).collect();
    arguments.extend(["-o", "out", "--paths", "--json"]);
    let outcome = server.get(&arguments);
    outcome.assert_code(0);
    assert_eq!(outcome.report()["connections"].as_array().unwrap().len(), 1);
    assert_eq!(fs::read(server.path("out/hello.txt")).unwrap(), b"hello, world\n");
    assert_eq!(fs::read(server.path("out/empty")).unwrap(), b"");
    assert_eq!(fs::read(server.path("out/sub dir/page.html")).unwrap(), b"<p>page");
    let closed = server.event("closed");
    assert_eq!(closed["requests"], 4, "{closed}");
    // Unless told otherwise, either side sends by BBR.
    assert_eq!(closed["congestion_controller"], "BBRv3", "{closed}");
    assert_eq!(outcome.report()["connections"][0]["congestion_controller"], "BBRv3");
}

#[test]
fn standard_output_gets_the_file_and_nothing_else() {
    let server = Server::start();
    let outcome = server.get(&[&server.url("/hello.txt"), "-o", "-"]);
    outcome.assert_code(0);
    assert_eq!(outcome.stdout, b"hello, world\n");
}

#[test]
fn http09_brings_files_and_refuses_what_is_none() {
    let server = Server::start();
    let url = |path: &str| server.url(path).replace("https:", "hq:");
    let outcome = server.get(&[&url("/large"), "-o", "large", "--json"]);
    outcome.assert_code(0);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
    assert_eq!(outcome.report()["connections"][0]["alpn"], "hq-interop");
    let flag = server.get(&[&server.url("/hello.txt"), "--alpn", "hq-interop", "-o", "-"]);
    assert_eq!(flag.assert_code(0).stdout, b"hello, world\n");
    server.get(&[&url("/absent"), "-o", "absent"]).assert_code(1);
    assert!(!server.path("absent").exists() && !server.path("absent.part").exists());
}

#[test]
fn a_server_hears_of_an_interrupted_client_at_once() {
    let server = Server::start();
    let mut get = quicket(server.dir.path());
    get.args(["get", "--pin", &server.pin, &server.url("/large"), "-o", "-"]);
    // Nobody reads on: it cannot come to an end by itself.
    let mut client = get.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    client.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    let interrupt = Command::new("kill").args(["-INT", &client.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    assert_eq!(client.wait().unwrap().code(), Some(130));
    let begun = Instant::now();
    let (_, log, _) = server.interrupt();
    assert!(log.contains("/large") && log.contains("the connection ended"), "{log}");
    // Sooner than by the idle timeout of 30 seconds.
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_server_that_is_stopped_says_so() {
    let server = Server::start();
    let mut get = quicket(server.dir.path());
    get.args(["get", "--pin", &server.pin, "--limit-rate", "100k", &server.url("/large")]);
    let mut client = get.args(["-o", "large"]).stderr(Stdio::piped()).spawn().unwrap();
    let part = server.path("large.part");
    while !part.exists() {
        assert!(client.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    let (status, log, _) = server.interrupt_twice();
    assert!(status.success());
    assert!(log.contains("1 connections have up to 10 s"), "{log}");
    assert!(log.contains("Stopped: 1 connections were closed"), "{log}");
    let mut said = String::new();
    client.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(client.wait().unwrap().code(), Some(3), "{said}");
    assert!(said.contains("the server was stopped") && said.contains("--continue"), "{said}");
    let server = Server::start();
    server.get(&[&server.url("/hello.txt"), "-o", "-"]).assert_code(0);
    let (_, log, _) = server.interrupt();
    assert!(log.contains("Stopped: all connections had come to their end"), "{log}");
}

#[test]
fn what_is_not_there_is_said_with_its_status() {
    let server = Server::start();
    let absent = server.get(&[&server.url("/absent")]);
    absent.assert_code(1);
    assert!(absent.stderr.contains("404"), "{}", absent.stderr);
    let moved = server.get(&[&server.url("/sub%20dir")]);
    moved.assert_code(1);
    assert!(moved.stderr.contains("--location"), "{}", moved.stderr);
    assert_eq!(
        fs::read_dir(server.dir.path())
            .unwrap()
            .flatten()
            .filter(|entry| { entry.file_name().to_string_lossy().contains("absent") })
            .count(),
        0
    );
}

#[test]
fn one_failure_does_not_keep_other_files_back() {
    let server = Server::start();
    let urls = ["/absent", "/hello.txt"].map(|path| server.url(path));
    let outcome = server.get(&[&urls[0], &urls[1], "-o", "out"]);
    outcome.assert_code(1);
    assert!(outcome.stderr.contains("1 of 2 files"), "{}", outcome.stderr);
    assert_eq!(fs::read(server.path("out/hello.txt")).unwrap(), b"hello, world\n");
}

#[test]
fn nothing_outside_the_directory_is_served() {
    let server = Server::start();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../private", server.path("root/link")).unwrap();
    for path in ["/..%2fprivate", "/sub%20dir/..%2f..%2fprivate", "/link", "/%2e%2e%2fprivate"] {
        for scheme in ["https:", "hq:"] {
            let url = server.url(path).replace("https:", scheme);
            let outcome = server.get(&[&url, "-o", "stolen"]);
            outcome.assert_code(1);
            assert!(!server.path("stolen").exists(), "{url}");
        }
    }
}

#[test]
fn directories_are_listed_unless_that_is_off() {
    let server = Server::start();
    let listing = server.get(&[&server.url("/"), "-o", "-"]);
    let listing = String::from_utf8(listing.stdout).unwrap();
    assert!(listing.contains("href=\"./sub%20dir/\""), "{listing}");
    let server = Server::start_with(&["--no-listing"]);
    server.get(&[&server.url("/"), "-o", "-"]).assert_code(1);
}

#[test]
fn an_interrupted_download_goes_on_where_it_stopped() {
    let server = Server::start();
    let url = server.url("/large");
    let etag = etag_of(&server, &url);
    let half = 3_000_000;
    fs::write(server.path("large.part"), &content(8_000_000)[..half]).unwrap();
    fs::write(server.path("large.part.etag"), etag).unwrap();
    let outcome = server.get(&[&url, "-o", "large", "--continue", "--json"]);
    outcome.assert_code(0);
    let file = &outcome.report()["files"][0];
    assert_eq!((&file["status"], &file["kept"]), (&206.into(), &half.into()));
    assert_eq!(file["received"], 8_000_000 - half);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
    assert!(!server.path("large.part").exists() && !server.path("large.part.etag").exists());
}

#[test]
fn a_file_that_changed_meanwhile_is_fetched_anew() {
    let server = Server::start();
    fs::write(server.path("large.part"), b"of another state").unwrap();
    fs::write(server.path("large.part.etag"), "\"other\"").unwrap();
    let outcome = server.get(&[&server.url("/large"), "-o", "large", "-c", "--json"]);
    outcome.assert_code(0);
    assert_eq!(outcome.report()["files"][0]["status"], 200);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
}

#[test]
fn a_part_that_is_whole_already_is_only_renamed() {
    let server = Server::start();
    let url = server.url("/large");
    let etag = etag_of(&server, &url);
    fs::write(server.path("large.part"), content(8_000_000)).unwrap();
    fs::write(server.path("large.part.etag"), etag).unwrap();
    let outcome = server.get(&[&url, "-o", "large", "-c", "--json"]);
    outcome.assert_code(0);
    assert_eq!(outcome.report()["received"], 0);
    assert!(fs::read(server.path("large")).unwrap() == content(8_000_000));
}

/// What a client would have noted: it fails to write the file, as there is a directory of that
/// name, and leaves the part with its validator.
fn etag_of(server: &Server, url: &str) -> String {
    let at = server.path("scratch");
    fs::create_dir_all(at.join("file/in-the-way")).unwrap();
    let output = at.join("file/");
    let _ = server.get(&[url, "-o", output.to_str().unwrap()]).assert_code(0);
    let blocked = at.join("blocked");
    fs::create_dir_all(blocked.join("large/x")).unwrap();
    let outcome = server.get(&[url, "-o", &format!("{}/", blocked.to_str().unwrap())]);
    outcome.assert_code(6);
    fs::read_to_string(blocked.join("large.part.etag")).unwrap()
}

#[test]
fn hashes_are_verified() {
    let server = Server::start();
    let url = server.url("/hello.txt");
    let right = "853ff93762a06ddbf722c4ebe9ddd66d8f63ddaea97f521c3ecc20da7c976020";
    server.get(&[&url, "-o", "right", "--sha256", right]).assert_code(0);
    let wrong = server.get(&[&url, "-o", "wrong", "--sha256", &right.replace('8', "9")]);
    wrong.assert_code(5);
    assert!(!server.path("wrong").exists() && !server.path("wrong.part").exists());
    fs::write(server.path("sums"), format!("{right}  hello.txt\n")).unwrap();
    let listed = server.get(&[&url, "-o", "listed", "--sha256sums", "sums", "--json"]);
    assert_eq!(listed.assert_code(0).report()["files"][0]["verified"], true);
    let unlisted = server.get(&[&server.url("/large"), "-o", "x", "--sha256sums", "sums"]);
    unlisted.assert_code(2);
}

#[test]
fn the_log_has_a_line_per_request_and_ctrl_c_ends_the_server() {
    let server = Server::start();
    server.get(&[&server.url("/hello.txt"), "-o", "-"]).assert_code(0);
    server.get(&[&server.url("/absent"), "-o", "-"]).assert_code(1);
    let (status, log, _dir) = server.interrupt();
    assert!(status.success(), "{status}");
    assert!(log.contains("h3 GET /hello.txt 200 13 B"), "{log}");
    assert!(log.contains("h3 GET /absent 404"), "{log}");
}
