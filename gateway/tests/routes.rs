//! What a route does with requests, asked by curl; the origin is Python's http.server.

mod common;

use std::fs;
use std::process::Command;

use common::{ECHO, Gateway, directory, header, python};
use quicket_testing::{Process, free_port, nginx};

fn start(file: &str) -> (Gateway, Process) {
    let (python, port) = python(ECHO);
    let dir = directory();
    fs::create_dir_all(dir.path().join("root/sub")).unwrap();
    fs::write(dir.path().join("private"), "private").unwrap();
    fs::write(dir.path().join("root/page.html"), "<p>page</p>\n".repeat(500)).unwrap();
    fs::write(dir.path().join("root/sub/index.html"), "<p>index</p>\n").unwrap();
    fs::write(dir.path().join("root/large"), vec![7; 3_000_000]).unwrap();
    std::os::unix::fs::symlink("../private", dir.path().join("root/link")).unwrap();
    fs::write(dir.path().join("lost.html"), "<h1>lost</h1>\n").unwrap();
    let origin = format!("[origin.app]\nservers = [\"http://127.0.0.1:{port}\"]\n");
    (Gateway::start(dir, &format!("{origin}{file}")), python)
}

#[test]
fn files_come_whole_in_parts_and_only_once() {
    let (gateway, _python) = start(
        "[[site]]\nnames = [\"*\"]\nerror_page = { 404 = \"lost.html\" }\n\
         [[site.route]]\npath = \"/static\"\nfiles = \"root\"\nrewrite_prefix = \"/\"\n\
         [[site.route]]\npath = \"/\"\nfiles = \"root\"\nmethods = [\"GET\", \"HEAD\"]\n",
    );
    for version in ["--http1.1", "--http2"] {
        let url = gateway.url("/static/large");
        assert!(gateway.curl(&[version, &url]).stdout == vec![7; 3_000_000], "{version}");
    }
    let url = gateway.url("/page.html");
    let (status, head) = gateway.head(&[&url]);
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/html; charset=utf-8\r\n"), "{head}");
    let etag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    assert_eq!(gateway.status(&["-H", &format!("If-None-Match: {etag}"), &url]), 304);
    let (status, head) = gateway.head(&["-r", "12-23", &url]);
    assert_eq!(
        (status, head.contains("content-range: bytes 12-23/6000\r\n")),
        (206, true),
        "{head}"
    );
    assert_eq!(gateway.text(&["-r", "12-23", &url]), "<p>page</p>\n");
    assert_eq!(gateway.text(&[&gateway.url("/static/sub/")]), "<p>index</p>\n");
    let (status, head) = gateway.head(&[&gateway.url("/static/sub")]);
    assert!(status == 301 && head.contains("location: ./sub/\r\n"), "{head}");
    let (status, head) = gateway.head(&["-I", &gateway.url("/large")]);
    assert!(status == 200 && head.contains("content-length: 3000000\r\n"), "{head}");
    assert_eq!(gateway.status(&["-X", "DELETE", &url]), 405);
    for outside in ["/link", "/..%2fprivate", "/static/..%2f..%2fprivate", "/%2e%2e/private"] {
        let output = gateway.curl(&["--path-as-is", &gateway.url(outside)]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(!said.contains("private"), "{outside}: {said}");
    }
    let (status, head) = gateway.head(&[&gateway.url("/absent")]);
    assert!(status == 404 && head.contains("content-type: text/html"), "{head}");
    assert_eq!(gateway.text(&[&gateway.url("/absent")]), "<h1>lost</h1>\n");
}

/// However a client spells a path, a route that forbids it is not passed by: neither to files nor to nginx, which
/// decodes paths and merges their slashes.
#[test]
fn no_spelling_of_a_path_leads_past_its_route() {
    let port = free_port();
    let (gateway, _python) = start(&format!(
        "[origin.nginx]\nservers = [\"http://127.0.0.1:{port}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"root\"\n\
         [[site.route]]\npath = \"/sub\"\nrespond = {{ status = 403 }}\n\
         [[site.route]]\npath = \"/n\"\norigin = \"nginx\"\n\
         [[site.route]]\npath = \"/n/@sub\"\nrespond = {{ status = 403 }}\n\
         [[site.route]]\npath = \"/app\"\norigin = \"app\"\n"
    ));
    let server = format!(
        "server {{ listen 127.0.0.1:{port}; location / {{ return 200 other; }} \
         location /n/@sub {{ return 200 secret; }} }}"
    );
    let _nginx = nginx::serve(gateway.dir.path(), port, &server);
    let get = |path: &str| {
        let output = gateway.curl(&["--path-as-is", "-w", "%{http_code}", &gateway.url(path)]);
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(get("/n/other"), "other200");
    for path in [
        "/sub/index.html",
        "/%73ub/index.html",
        "/s%75b/",
        "//sub/index.html",
        "/sub%2findex.html",
        "/n/@sub",
        "/n/%40sub/a",
        "/n/@%73%75%62",
        "/n//@sub",
        "/n/%2f@sub",
        "//n/@sub/a",
        "/n/@sub;x",
    ] {
        let said = get(path);
        assert!(said.ends_with("403") || said.ends_with("400"), "{path}: {said}");
    }
    // What is no other route's goes on, in one spelling.
    for (path, passed) in [
        ("/app/%7euser/%61?%61", "/app/~user/a?%61"),
        ("/app/a%2fb%40", "/app/a%2Fb%40"),
        ("/app//a;x", "/app//a;x"),
    ] {
        assert_eq!(gateway.asked(&[&gateway.url(path)])["path"], passed);
    }
}

#[test]
fn compressed_siblings_are_sent_to_who_takes_them() {
    let (gateway, _python) = start("[[site]]\nnames = [\"*\"]\n[[site.route]]\nfiles = \"root\"\n");
    let mut gzip = Command::new("gzip");
    gzip.args(["-k", "page.html"]).current_dir(gateway.path("root"));
    assert!(gzip.status().unwrap().success());
    let url = gateway.url("/page.html");
    let (status, head) = gateway.head(&["-H", "Accept-Encoding: gzip", &url]);
    assert_eq!(status, 200);
    for line in
        ["content-encoding: gzip\r\n", "vary: accept-encoding\r\n", "content-type: text/html"]
    {
        assert!(head.contains(line), "{head}");
    }
    assert_eq!(gateway.text(&["--compressed", &url]), "<p>page</p>\n".repeat(500));
    let (_, head) = gateway.head(&[&url]);
    assert!(!head.contains("content-encoding") && head.contains("content-length: 6000"), "{head}");
}

#[test]
fn answers_are_compressed_on_their_way_and_never_where_that_is_wrong() {
    let (gateway, _python) = start(
        "[[site]]\nnames = [\"*\"]\ncompress = true\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/files\"\nfiles = \"root\"\nrewrite_prefix = \"/\"\n\
         [[site.route]]\npath = \"/plain\"\norigin = \"app\"\ncompress = false\n",
    );
    let coded = |accepts: &str, path: &str, more: &[&str]| {
        let accepts = format!("Accept-Encoding: {accepts}");
        let url = gateway.url(path);
        let (status, head) = gateway.head(&[more, &["-H", &accepts, &url]].concat());
        let coding = head.lines().find_map(|line| line.strip_prefix("content-encoding: "));
        (status, coding.unwrap_or("none").to_owned())
    };
    let coding = |accepts: &str, path: &str| coded(accepts, path, &[]).1;
    for name in ["gzip", "br", "zstd"] {
        assert_eq!(coding(name, "/?size=50000"), name);
    }
    for version in ["--http1.1", "--http2"] {
        let text = gateway.text(&[version, "--compressed", &gateway.url("/?size=50000")]);
        assert!(text == "text ".repeat(10_000), "{version}");
    }
    assert_eq!(coding("gzip", "/?size=50"), "none", "it is short");
    assert_eq!(coding("gzip", "/?size=50000&type=image/png"), "none");
    assert_eq!(coding("gzip", "/?size=50000&cache=no-transform"), "none");
    assert_eq!(coding("identity", "/?size=50000"), "none");
    assert_eq!(coding("gzip", "/plain?size=50000"), "none");
    assert_eq!(coding("gzip", "/files/page.html"), "gzip");
    assert_eq!(coded("gzip", "/files/page.html", &["-r", "0-5000"]), (206, "none".to_owned()));
    assert_eq!(coded("gzip", "/?size=50000", &["-I"]), (200, "gzip".to_owned()));
}

#[test]
fn redirects_and_fixed_answers_need_no_origin() {
    let (gateway, _python) = start(
        "[[site]]\nnames = [\"*\"]\nhsts = { max_age_s = 60, include_subdomains = true }\n\
         [[site.route]]\nredirect = { to = \"https://www.{host}{path}\" }\n\
         [[site.route]]\npath = \"/old\"\nredirect = { to = \"/new{rest}\", status = 302 }\n\
         [[site.route]]\npath = \"/robots.txt\"\nrespond = { body = \"Disallow: /\\n\" }\n\
         [[site.route]]\npath = \"/gone\"\nrespond = { status = 410 }\n",
    );
    let (status, head) = gateway.head(&[&gateway.url("/a?b=c")]);
    assert!(status == 308 && head.contains("location: https://www.localhost/a?b=c\r\n"), "{head}");
    assert!(
        head.contains("strict-transport-security: max-age=60; includesubdomains\r\n"),
        "{head}"
    );
    let (status, head) = gateway.head(&[&gateway.url("/old/x?y")]);
    assert!(status == 302 && head.contains("location: /new/x?y\r\n"), "{head}");
    assert_eq!(gateway.text(&[&gateway.url("/robots.txt")]), "Disallow: /\n");
    assert_eq!(gateway.status(&["-d", "a body", &gateway.url("/gone")]), 410);
}

#[test]
fn headers_choose_a_route_and_are_edited_both_ways() {
    let (gateway, _python) = start(
        "[[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/api\"\nheaders = { x-canary = \"1\" }\norigin = \"app\"\n\
         rewrite_prefix = \"/canary\"\n\
         request_headers = { set = { x-env = \"canary\" }, add = { x-both = \"b\" }, remove = [\"cookie\"] }\n\
         response_headers = { set = { x-from = \"gateway\" }, add = { x-more = \"1\" }, remove = [\"server\"] }\n",
    );
    let url = gateway.url("/api/a?b");
    assert_eq!(gateway.asked(&[&url])["path"], "/api/a?b");
    let fields =
        ["-H", "X-Canary: 1", "-H", "Cookie: a=b", "-H", "X-Both: a", "-H", "X-Env: made up"];
    let asked = gateway.asked(&[&fields[..], &[url.as_str()]].concat());
    assert_eq!(asked["path"], "/canary/a?b");
    assert_eq!(header(&asked, "x-env"), ["canary"]);
    assert_eq!(header(&asked, "x-both"), ["a", "b"]);
    assert!(header(&asked, "cookie").is_empty());
    let (_, head) = gateway.head(&["-H", "X-Canary: 1", &url]);
    assert!(head.contains("x-from: gateway\r\n") && head.contains("x-more: 1\r\n"), "{head}");
    assert!(!head.contains("server:") && !head.contains("x-from: origin"), "{head}");
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let text = "listen = [\"127.0.0.1:0\"]\n[origin.app]\nservers = [\"http://127.0.0.1:1\"]\n\
         [[site]]\nnames = [\"*\"]\nerror_page = { 200 = \"a.html\", 404 = \"absent.html\" }\n\
         hsts = { max_age_s = 60, preload = true }\n\
         [[site.route]]\n[[site.route]]\norigin = \"app\"\nfiles = \"absent\"\n\
         [[site.route]]\nfiles = \"absent\"\npath = \"/1\"\nrequest_headers = { remove = [\"a\"] }\n\
         [[site.route]]\nredirect = { to = \"a\", status = 200 }\npath = \"/2\"\nrewrite_prefix = \"/\"\n\
         [[site.route]]\nrespond = { status = 99 }\npath = \"/3\"\n\
         [[site.route]]\nrespond = { status = 204, body = \"a\" }\npath = \"/4\"\n\
         [[site.route]]\norigin = \"app\"\npath = \"/5\"\nheaders = { \"a b\" = \"1\" }\n\
         [[site.route]]\norigin = \"app\"\npath = \"/6\"\n\
         response_headers = { set = { content-length = \"1\" }, add = { a = \"\\n\" } }\n\
         [[site.route]]\norigin = \"app\"\npath = \"/%36/\"\nrewrite_prefix = \"/../a\"\n\
         [[site.route]]\norigin = \"app\"\npath = \"/a;b\"\n\
         [[site.route]]\norigin = \"app\"\npath = \"/a%\"\n";
    let problems = quicket_gateway::config::parse(text, std::path::Path::new("/nowhere"));
    let all: Vec<String> = problems.unwrap_err().iter().map(ToString::to_string).collect();
    let all = all.join("\n");
    for what in [
        "site 1.error_page: \"200\" is not within 400 and 599",
        "site 1.error_page: cannot read /nowhere/absent.html",
        "site 1.hsts.preload: takes",
        "site 1, route 1: takes one of",
        "site 1, route 2: takes one of",
        "site 1, route 2: is never taken",
        "site 1, route 3.files: cannot open the directory /nowhere/absent",
        "site 1, route 3.request_headers: has no effect",
        "site 1, route 4.redirect.to: \"a\" begins",
        "site 1, route 4.redirect.status: 200",
        "site 1, route 4.rewrite_prefix: has no effect",
        "site 1, route 5.respond.status: 99",
        "site 1, route 6.respond.body: 204 has none",
        "site 1, route 7.headers: \"a b\" is no name",
        "site 1, route 8.response_headers.set: content-length belongs",
        "site 1, route 8.response_headers.add: \"\\n\" is no value",
        "site 1, route 9: is never taken",
        "site 1, route 9.rewrite_prefix: \"/../a\"",
        "site 1, route 10.path: \"/a;b\" has // or ; in it",
        "site 1, route 11.path: \"/a%\" is a path with %",
    ] {
        assert!(all.contains(what), "{what:?} is not in\n{all}");
    }
}
