use super::*;
use crate::frames::Settings;

/// GET https, `:authority: a`, a path, and `accept: */*`.
fn section(path: &[u8]) -> Vec<u8> {
    [&[0, 0, 0xd1, 0xd7, 0x50, 1, b'a'], path, &[0xdd]].concat()
}

/// `:path`, spelled out.
fn line(path: &str) -> Vec<u8> {
    [&[0x51, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat()
}

/// What h3 makes of it.
fn request(path: &str) -> Request<()> {
    let uri = format!("https://a{path}");
    Request::get(uri).version(Version::HTTP_3).header("accept", "*/*").body(()).unwrap()
}

fn sections(max_section: usize) -> Sections {
    Sections::new(max_section, Acceptance::default())
}

/// Sections where a request for `/a` is known.
fn knowing(max_section: usize) -> Sections {
    let sections = sections(max_section);
    for _ in 0..3 {
        assert!(sections.find(&section(&line("/a"))).is_none());
        sections.keep(&section(&line("/a")), &request("/a"));
    }
    sections
}

fn is_same(found: &Request<()>, expected: &Request<()>) -> bool {
    (found.method(), found.uri(), found.version(), found.headers())
        == (expected.method(), expected.uri(), expected.version(), expected.headers())
}

#[test]
fn a_request_that_differs_in_its_path_alone_is_known() {
    let sections = knowing(1000);
    for path in ["/a", "/", "/b?c", "*"] {
        let found = sections.find(&section(&line(path))).unwrap();
        let expected = match path {
            "*" => request("/").uri().clone().into_parts(),
            path => request(path).uri().clone().into_parts(),
        };
        assert_eq!(
            (found.uri().scheme(), found.uri().authority()),
            (expected.scheme.as_ref(), expected.authority.as_ref())
        );
        assert_eq!(found.uri().path_and_query().unwrap(), path);
        assert!(path == "*" || is_same(&found, &request(path)));
    }
    // The one of the static table, and `/a` in Huffman's code.
    assert!(is_same(&sections.find(&section(&[0xc1])).unwrap(), &request("/")));
    assert!(is_same(&sections.find(&section(&[0x51, 0x82, 0x60, 0x7f])).unwrap(), &request("/a")));
}

#[test]
fn what_is_malformed_or_different_is_not_known() {
    let sections = knowing(1000);
    let wrong = |section: &[u8]| assert!(sections.find(section).is_none(), "{section:x?}");
    // Paths that are none, or that have a wrong code.
    for path in [&line("")[..], &line("a b"), &[0x51, 0x81, 0x00], &[0x51, 5, b'/'], &[]] {
        wrong(&section(path));
    }
    let whole = section(&line("/a"));
    // Another field, none, a path more, a path behind a field, and a reference to the dynamic table.
    wrong(&[&whole[..], &[0xdd]].concat());
    wrong(&whole[..whole.len() - 1]);
    wrong(&[&whole[..], &line("/b")].concat());
    wrong(&[&section(&[])[..], &line("/a")].concat());
    wrong(&[&[1, 0], &whole[2..]].concat());
    wrong(&[]);
}

/// What is known is not checked again.
#[test]
fn whatever_is_known_is_well_formed() {
    let sections = knowing(1000);
    let whole = section(&line("/ab?c"));
    let (mut known, mut looked_at) = (0, 0);
    let mut look = |section: &[u8]| {
        looked_at += 1;
        if sections.find(section).is_some() {
            known += 1;
            assert_eq!(crate::section::request(section), Ok(None), "{section:x?}");
        }
    };
    for at in 0..whole.len() {
        for byte in 0..=255 {
            let mut other = whole.clone();
            other[at] = byte;
            look(&other);
            other.insert(at, whole[at]);
            look(&other);
            look(&other[..at]);
        }
        for end in at..=whole.len() {
            let rest = [&whole[..at], &whole[end..]].concat();
            look(&rest);
            look(&[&rest[..], &whole[at..end]].concat());
            look(&[&whole[at..end], &rest].concat());
        }
    }
    assert!(known > 100 && known < looked_at / 4, "{known} of {looked_at}");
}

/// RFC 9114, Section 4.2.2.
#[test]
fn a_path_that_makes_a_section_too_long_is_for_h3_to_refuse() {
    let of = |name: &str, value: &str| name.len() + value.len() + FIELD;
    let rest =
        of(":method", "GET") + of(":scheme", "https") + of(":authority", "a") + of("accept", "*/*");
    let max_section = rest + of(":path", "/1234");
    let sections = knowing(max_section);
    assert!(sections.find(&section(&line("/1234"))).is_some());
    assert!(sections.find(&section(&line("/12345"))).is_none());
}

#[test]
fn what_comes_once_is_not_kept_and_a_connection_that_is_asked_once_keeps_nothing() {
    let sections = sections(1000);
    let fields = request("/").headers().clone();
    sections.keep(&section(&line("/a")), &request("/a"));
    assert!(sections.lines(&fields).is_none(), "h3 writes the first answer");
    assert!(lock(&sections.heads).kept.is_none() && lock(&sections.lines).kept.is_none());
    for at in 0..100 {
        // Each has another authority.
        let mut other = section(&line("/a"));
        other[6] = b'a' + (at % 50);
        sections.keep(&other, &request("/a"));
        assert!(sections.find(&other).is_none());
    }
    assert!(sections.lines(&fields).is_some());
}

/// RFC 9204, Section 7.1.3.
#[test]
fn what_is_never_to_be_indexed_is_not_kept() {
    for (authority, is_kept) in [(0x50, true), (0x70, false)] {
        let sections = sections(1000);
        let mut whole = section(&line("/a"));
        whole[4] = authority;
        (0..4).for_each(|_| sections.keep(&whole, &request("/a")));
        assert_eq!(sections.find(&whole).is_some(), is_kept, "{authority:#x}");
    }
}

#[test]
fn what_is_kept_is_bounded() {
    let sections = sections(1 << 20);
    let long = "x".repeat(1500);
    let bytes = |number: u8| {
        let mut bytes = section(&line("/a"));
        bytes[6] = b'a' + number;
        bytes
    };
    let mut large = request("/a");
    large.headers_mut().insert("x-long", long.parse().unwrap());
    for number in 0..20 {
        for _ in 0..3 {
            sections.keep(&bytes(number), &large);
        }
    }
    let kept: Vec<_> = (0..20).filter(|&number| sections.find(&bytes(number)).is_some()).collect();
    assert_eq!(kept, [14, 15, 16, 17, 18, 19], "16 KiB");
    large.headers_mut().insert("x-long", "x".repeat(MAX_HEADS).parse().unwrap());
    for _ in 0..3 {
        sections.keep(&bytes(21), &large);
    }
    assert!(sections.find(&bytes(21)).is_none() && sections.find(&bytes(19)).is_some());
}

/// RFC 9114, Section 4.2.2.
#[test]
fn an_answer_that_the_client_finds_too_long_is_for_h3_to_refuse() {
    let client = Acceptance::default();
    let sections = Sections::new(1000, client.clone());
    let fields = request("/").headers().clone();
    assert!(sections.lines(&fields).is_none() && sections.lines(&fields).is_some());
    let size = (":status".len() + 3 + FIELD + "accept*/*".len() + FIELD) as u64;
    for (max_section, is_written) in [(size, true), (size - 1, false)] {
        client.settles(Settings { max_section, ..Settings::default() });
        assert_eq!(sections.lines(&fields).is_some(), is_written, "{max_section}");
    }
}
