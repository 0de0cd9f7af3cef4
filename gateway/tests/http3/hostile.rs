//! Clients that break the rules of RFC 9114: malformed messages end their stream, and what is wrong with frames the
//! connection.

use std::net::TcpListener;

use super::behind::{Site, folder};
use super::client::{
    CONTROL, Outcome, ask, closed, connect, frame, headers, integer, line, open, request, run,
    unidirectional,
};
use quicket_testing::until;

const NO_ERROR: u64 = 0x100;
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const EXCESSIVE_LOAD: u64 = 0x107;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const MESSAGE_ERROR: u64 = 0x10e;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;

/// A gateway that answers `/ok` itself, and asks an origin for all else, which nobody should reach.
fn site() -> (Site, TcpListener) {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    origin.set_nonblocking(true).unwrap();
    let dir = folder();
    let rest = format!(
        "[origin.app]\nservers = [\"http://{}\"]\n\
         [[site]]\nnames = [\"*\"]\n[[site.route]]\norigin = \"app\"\n\
         [[site.route]]\npath = \"/ok\"\nrespond = {{ status = 204 }}\n\
         [limits]\nheader_bytes = 16384\n[metrics]\nlisten = \"unix:{}\"\n",
        origin.local_addr().unwrap(),
        dir.path().join("counters.sock").display()
    );
    (Site::start(dir, &rest), origin)
}

fn refused(site: &Site) -> u64 {
    let url = "http://localhost/metrics.json";
    let text = site.curl(&["--unix-socket", "counters.sock", url]).stdout;
    let counters: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let all = counters["quicket_gateway_refused_total"].as_array();
    all.map_or(0, |all| all.iter().map(|entry| entry["value"].as_u64().unwrap()).sum())
}

fn untouched(origin: &TcpListener) {
    assert!(origin.accept().is_err(), "the origin was asked");
}

/// RFC 9114, Sections 4.1.2, 4.2 and 4.3.
#[test]
fn malformed_requests_are_errors_of_their_stream() {
    let (site, origin) = site();
    let good =
        [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
    let with = |more: &[(&str, &str)]| headers(&[&good[..], more].concat());
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    // Each pseudo-header twice, none of it, and behind a field.
    for at in 0..4 {
        let others: Vec<_> = (0..4).filter(|&other| other != at).map(|other| good[other]).collect();
        corpus.push(with(&[good[at]]));
        corpus.push(headers(&others));
        corpus.push(headers(&[&others[..], &[("a", "b"), good[at]]].concat()));
    }
    corpus.extend(
        [
            (":status", "200"),
            (":unknown", "x"),
            (":protocol", "websocket"),
            ("Upper", "x"),
            ("a b", "x"),
            ("", "x"),
            ("a", "x\ny"),
            ("a", "x\0y"),
            ("connection", "close"),
            ("keep-alive", "5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("te", "gzip"),
            ("host", "elsewhere"),
        ]
        .map(|field| with(&[field])),
    );
    for (name, value) in [(":method", "G T"), (":scheme", "ftp"), (":path", ""), (":authority", "")]
    {
        let fields = good.map(|field| if field.0 == name { (name, value) } else { field });
        corpus.push(headers(&fields));
    }
    corpus.push(headers(&[&good[1..], &[(":method", "CONNECT")]].concat()));
    run(async {
        let (connection, _control) = open(&site).await;
        let count = corpus.len() as u64;
        for request in &corpus {
            let outcome = ask(&connection, request).await;
            assert_eq!(
                outcome,
                Outcome::Reset(MESSAGE_ERROR),
                "{:?}",
                request.escape_ascii().to_string()
            );
        }
        // Others on the connection go on.
        assert_eq!(ask(&connection, &request("GET", "/ok", &[])).await.statuses(), [204]);
        until("all of them are counted", || refused(&site) == count);
    });
    untouched(&origin);
}

/// What follows a header section that is right.
#[test]
fn malformed_bodies_are_errors_of_their_stream() {
    let (site, _origin) = site();
    let post = |length: &str| request("POST", "/", &[("content-length", length)]);
    let data = frame(0, b"abc");
    run(async {
        let (connection, _control) = open(&site).await;
        for wrong in [
            [post("4"), data.clone()].concat(),
            [post("2"), data.clone()].concat(),
            [post("0"), data.clone()].concat(),
            post("1"),
            [post("3"), data.clone(), headers(&[(":path", "/")])].concat(),
            [post("3"), data.clone(), headers(&[("connection", "close")])].concat(),
            [post("3"), data.clone(), headers(&[("Upper", "x")])].concat(),
        ] {
            assert_eq!(ask(&connection, &wrong).await, Outcome::Reset(MESSAGE_ERROR), "{wrong:?}");
        }
        assert_eq!(ask(&connection, &request("GET", "/ok", &[])).await.statuses(), [204]);
    });
}

/// RFC 9114, Sections 4.1, 7.1 and 7.2.
#[test]
fn frames_that_must_not_be_end_the_connection() {
    let (site, _origin) = site();
    let get = request("GET", "/", &[]);
    let unexpected = [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd];
    let mut corpus: Vec<(Vec<u8>, u64)> = Vec::new();
    for kind in unexpected {
        corpus.push((frame(kind, &[0]), FRAME_UNEXPECTED));
    }
    corpus.extend([
        (frame(0, b"abc"), FRAME_UNEXPECTED),
        ([&get[..], &headers(&[("a", "b")]), &frame(0, b"abc")].concat(), FRAME_UNEXPECTED),
        ([&get[..], &headers(&[("a", "b")]), &headers(&[("a", "b")])].concat(), FRAME_UNEXPECTED),
        // Cut off: h3 took each of these for the end of the body.
        ([&get[..], &frame(0, b"abc")[..7]].concat(), FRAME_ERROR),
        ([&get[..], &frame(0, b"abc")[..5]].concat(), FRAME_ERROR),
        ([&get[..], &[0]].concat(), FRAME_ERROR),
        (get[..get.len() - 1].to_vec(), FRAME_ERROR),
        (frame(1, &[0, 0, 0x80]), DECOMPRESSION_FAILED),
        (frame(1, &[1, 0, 0xd1]), DECOMPRESSION_FAILED),
        (frame(1, &[0]), DECOMPRESSION_FAILED),
    ]);
    run(async {
        for (bytes, code) in corpus {
            let (connection, _control) = open(&site).await;
            let outcome = ask(&connection, &bytes).await;
            assert_eq!(outcome, Outcome::Closed(code), "{bytes:?}");
        }
    });
}

/// RFC 9114, Sections 6.2 and 7.2; RFC 9204, Section 4.2.
#[test]
fn streams_of_the_connection_keep_their_rules() {
    let (site, _origin) = site();
    let control = |frames: &[u8]| vec![[CONTROL, frames].concat()];
    let settings = |payload: &[u8]| vec![[&[0][..], &frame(4, payload)].concat()];
    let corpus: Vec<(Vec<Vec<u8>>, u64)> = vec![
        (vec![CONTROL.to_vec(), CONTROL.to_vec()], STREAM_CREATION_ERROR),
        (vec![CONTROL.to_vec(), vec![2], vec![2]], STREAM_CREATION_ERROR),
        (vec![CONTROL.to_vec(), vec![3], vec![3]], STREAM_CREATION_ERROR),
        // A push by a client.
        (vec![CONTROL.to_vec(), vec![1, 0]], STREAM_CREATION_ERROR),
        (vec![vec![0, 7, 1, 0]], MISSING_SETTINGS),
        (vec![vec![0, 0x21, 0]], MISSING_SETTINGS),
        (control(&[4, 0]), FRAME_UNEXPECTED),
        (control(&[0, 1, 0]), FRAME_UNEXPECTED),
        (control(&[1, 3, 0, 0, 0xd1]), FRAME_UNEXPECTED),
        (control(&[6, 1, 0]), FRAME_UNEXPECTED),
        (control(&[5, 3, 0, 0, 0]), FRAME_UNEXPECTED),
        (control(&[7, 2, 0, 0]), FRAME_ERROR),
        (control(&[7, 0]), FRAME_ERROR),
        (control(&[3, 1, 0]), ID_ERROR),
        (control(&[0xd, 1, 2, 0xd, 1, 1]), ID_ERROR),
        // GOAWAY that grows (RFC 9114, Section 5.2).
        (control(&[7, 1, 1, 7, 1, 2]), ID_ERROR),
        // A setting of HTTP/2, and one twice.
        (settings(&[2, 0]), SETTINGS_ERROR),
        (settings(&[6, 1, 6, 1]), SETTINGS_ERROR),
        (settings(&[0; 2000]), EXCESSIVE_LOAD),
        (vec![[&[0, 4][..], &integer(1 << 29)].concat()], EXCESSIVE_LOAD),
        // An insertion into a dynamic table that was not offered.
        (vec![CONTROL.to_vec(), vec![2, 0xc0, 0]], ENCODER_STREAM_ERROR),
    ];
    run(async {
        for (streams, code) in corpus {
            let connection = connect(&site).await;
            let mut kept = Vec::new();
            for bytes in &streams {
                kept.push(unidirectional(&connection, bytes).await);
            }
            assert_eq!(closed(&connection).await, code, "{streams:?}");
        }
        // RFC 9114, Section 6.2.1: these streams last as long as the connection.
        for kind in [CONTROL, &[2], &[3]] {
            for is_reset in [false, true] {
                let connection = connect(&site).await;
                let mut control = None;
                if kind != CONTROL {
                    control = Some(unidirectional(&connection, CONTROL).await);
                }
                let mut stream = unidirectional(&connection, kind).await;
                // It has been read, or its reset would make it unknown what it was.
                assert_eq!(ask(&connection, &request("GET", "/ok", &[])).await.statuses(), [204]);
                match is_reset {
                    true => stream.reset(NO_ERROR).unwrap(),
                    false => stream.finish().unwrap(),
                }
                assert_eq!(closed(&connection).await, CLOSED_CRITICAL_STREAM, "{kind:?}");
                drop(control);
            }
        }
    });
}

/// RFC 9114, Sections 6.2.3, 7.2.8 and 9.
#[test]
fn what_is_unknown_is_ignored() {
    let (site, _origin) = site();
    run(async {
        let (connection, _control) = open(&site).await;
        let _unknown = unidirectional(&connection, &[0x21, 1, 2, 3]).await;
        // One that ends before its type is whole.
        drop(unidirectional(&connection, &[0x40]).await);
        let grease = [&[0x21][..], &integer(3), b"abc", &[0x40, 0x41, 0]].concat();
        let get = [&grease[..], &request("GET", "/ok", &[]), &grease].concat();
        assert_eq!(ask(&connection, &get).await.statuses(), [204]);
        let _decoder = unidirectional(&connection, &[3, 0x44]).await;
        let _encoder = unidirectional(&connection, &[2, 0x20]).await;
        assert_eq!(ask(&connection, &get).await.statuses(), [204]);
    });
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn frames_are_bounded_before_they_are_kept() {
    let (site, _origin) = site();
    run(async {
        let (connection, _control) = open(&site).await;
        // Only their length has come.
        let long = [&[1][..], &integer(1 << 29)].concat();
        let trailers = [&request("POST", "/", &[])[..], &long].concat();
        for bytes in [long, trailers] {
            let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
            send.write_all(&bytes).await.unwrap();
            assert_eq!(super::client::outcome(&mut recv).await, Outcome::Reset(EXCESSIVE_LOAD));
        }
        // What is unknown is not kept.
        let before = resident();
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&[&[0x21][..], &integer(64 << 20)].concat()).await.unwrap();
        let piece = vec![0; 64 << 10];
        let mut most = 0;
        for _ in 0..1024 {
            send.write_all(&piece).await.unwrap();
            most = most.max(resident().saturating_sub(before));
        }
        send.write_all(&request("GET", "/ok", &[])).await.unwrap();
        send.finish().unwrap();
        assert_eq!(super::client::outcome(&mut recv).await.statuses(), [204]);
        // Windows and buffers of both ends are here, too.
        assert!(most < 40 << 20, "{most} bytes of 64 MiB");
        // A section that is too long only once it is decoded.
        let many: Vec<u8> = (0..1000).flat_map(|_| line("a", "b")).collect();
        let section = [&request("GET", "/ok", &[])[5..], &many].concat();
        assert!(matches!(ask(&connection, &frame(1, &section)).await, Outcome::Reset(_)));
        assert_eq!(ask(&connection, &request("GET", "/ok", &[])).await.statuses(), [204]);
    });
}
