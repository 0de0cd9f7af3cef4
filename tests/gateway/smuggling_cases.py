"""Requests over HTTP/2 and HTTP/3 that another server could read in two ways, once they are messages of HTTP/1.1, and those that look so
and are right (RFC 9113, Sections 8.2, 8.3 and 10.3; RFC 9114, Sections 4.2, 4.3 and 10.3)."""

import dataclasses

INNER = b"GET /inner HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n" + INNER
HELLO = b"hello"
# What the server behind may get of a request: nothing that is complete; just what was meant; either.
NOTHING, MEANT, EITHER = "nothing", "what was meant", "what was meant, or nothing"


@dataclasses.dataclass
class Case:
    """`fields` come behind those of `pseudo`; `data` is a frame each. One that does not end resets its stream behind the last of them."""

    name: str
    expected: str
    pseudo: list
    fields: list
    data: list
    trailers: list | None = None
    ends: bool = True
    # Fields that the server must have among others; a body and a path that are not what was sent.
    seen: list = dataclasses.field(default_factory=list)
    body: bytes | None = None
    path: bytes | None = None

    def meant(self):
        """A method, a target and a body."""
        asked = dict(self.pseudo)
        path = asked[b":path"] if self.path is None else self.path
        return asked[b":method"], path, b"".join(self.data) if self.body is None else self.body


def pseudo(method=b"POST", path=b"/{case}"):
    return [(b":method", method), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", path)]


def bodies():
    """RFC 9113, Section 8.1.1; RFC 9114, Section 4.1.2."""
    length = lambda *values: [(b"content-length", value) for value in values]
    for values, data in [
        ([b"4"], [b"abc"]), ([b"2"], [b"abc"]), ([b"5"], []), ([b"5"], [b""]), ([b"5"], [b"he", b"l"]),
        ([b"5"], [HELLO + INNER]), ([b"5", b"5"], [HELLO]), ([b"5", b"6"], [HELLO]), ([b"0", b"5"], [HELLO]), ([b"5, 5"], [HELLO]),
        ([b"5,6"], [HELLO]), ([b"+5"], [HELLO]), ([b"-1"], [HELLO]), ([b"0x5"], [HELLO]), ([b"5 5"], [HELLO]), ([b"5;"], [HELLO]), ([b""], [HELLO]),
        ([b"5\0"], [HELLO]), ([b"5\r\nx: y"], [HELLO]), ([b"18446744073709551621"], [HELLO]), ([b"99999999999999999999999"], [HELLO]),
    ]:
        sent = b"".join(data)
        yield Case(f"content-length {values} and {len(sent)} bytes", NOTHING, pseudo(), length(*values), data)
    for sent in INNER, LAST_CHUNK, b"a":
        yield Case(f"content-length 0 and {len(sent)} bytes", NOTHING, pseudo(), length(b"0"), [sent])
    # All that was announced is with the server when the rest comes, and the rest is never.
    yield Case("more than was announced, later", EITHER, pseudo(), length(b"5"), [HELLO, INNER], body=HELLO)
    yield Case("a body that breaks off", NOTHING, pseudo(), length(b"10"), [HELLO], ends=False)
    yield Case("a body without a length that breaks off", NOTHING, pseudo(), [], [HELLO], ends=False)
    for method in b"GET", b"HEAD", b"DELETE", b"OPTIONS", b"POST":
        yield Case(f"{method} that announces a body, and has none", NOTHING, pseudo(method), length(b"5"), [])
        for more in [], length(b"5"):
            yield Case(f"{method} with a body and {more}", MEANT, pseudo(method), more, [HELLO])
        yield Case(f"{method} without a body", MEANT, pseudo(method), [], [])
        yield Case(f"{method} whose body is a request", MEANT, pseudo(method), [], [INNER])
        yield Case(f"{method} whose body is a last chunk", MEANT, pseudo(method), [], [LAST_CHUNK])
    yield Case("content-length 0 and no body", MEANT, pseudo(), length(b"0"), [])
    yield Case("content-length 0 and a body without octets", MEANT, pseudo(), length(b"0"), [b""])
    yield Case("a body in pieces", MEANT, pseudo(), length(b"10"), [HELLO, b"", HELLO])


def fields():
    """RFC 9113, Sections 8.2.1 and 8.2.2; RFC 9114, Section 4.2."""
    for name, value in [
        (b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"identity"), (b"transfer-encoding", b""), (b"Transfer-Encoding", b"chunked"),
        (b"transfer-encoding ", b"chunked"), (b" transfer-encoding", b"chunked"), (b"transfer-encoding:", b"chunked"),
        (b"transfer-encoding\t", b"chunked"), (b"Content-Length", b"0"), (b"content-length ", b"0"), (b"content-\xc4\xbcength", b"0"),
        (b"connection", b"close"), (b"connection", b"content-length"), (b"keep-alive", b"timeout=5"), (b"proxy-connection", b"close"),
        (b"upgrade", b"h2c"), (b"upgrade", b"websocket"), (b"te", b"gzip"), (b"te", b"trailers, chunked"), (b"TE", b"trailers"),
        (b"X-Upper", b"a"), (b"", b"a"), (b"a b", b"c"), (b"a:b", b"c"), (b"a\r\nb", b"c"), (b"a\nb", b"c"), (b"a\rb", b"c"), (b"a\0b", b"c"),
        (b"a\x7f", b"c"), (b"x: y\r\ntransfer-encoding", b"chunked"), (b"x", b"a\r\ntransfer-encoding: chunked"), (b"x", b"a\ntransfer-encoding: chunked"),
        (b"x", b"a\rb"), (b"x", b"a\0b"), (b"x", b"\r\n\r\n" + INNER), (b"x", b"a\r\n"), (b"x", b"a\n"), (b"x", b"\0"),
        (b"host", b"elsewhere"), (b"host", b"localhost, elsewhere"), (b"host", b"localhost\r\nx: y"), (b"host", b""), (b"expect", b"100-continue\r\nx: y"),
    ]:
        for data in [LAST_CHUNK], []:
            yield Case(f"{name}: {value}" + " and a body" * bool(data), NOTHING, pseudo(), [(name, value)], data)
    # RFC 9113 forbids these, and to HTTP/1.1 they are the same value without them.
    for value in b" a", b"a ", b"\ta", b"a\t":
        yield Case(f"x: {value}", EITHER, pseudo(), [(b"x", value)], [HELLO])
    for all_fields, seen in [
        ([(b"host", b"localhost")], []),
        ([(b"te", b"trailers")], []),
        ([(b"expect", b"100-continue")], []),
        ([(b"x", b"a: b; transfer-encoding: chunked")], [(b"x", b"a: b; transfer-encoding: chunked")]),
        ([(b"x", b"\xc3\xa4\xff")], [(b"x", b"\xc3\xa4\xff")]),
        ([(b"x", b"")], [(b"x", b"")]),
        # RFC 9113, Section 8.2.3; RFC 9114, Section 4.2.1.
        ([(b"cookie", b"a=1"), (b"cookie", b"b=2")], [(b"cookie", b"a=1; b=2")]),
        ([(b"x-forwarded-for", b"192.0.2.1"), (b"x-forwarded-for", b"192.0.2.2")], []),
    ]:
        yield Case(f"{all_fields}", MEANT, pseudo(), all_fields, [HELLO], seen=seen)
    yield Case("two hosts", NOTHING, pseudo(), [(b"host", b"localhost")] * 2, [HELLO])
    yield Case("host alone", MEANT, [field for field in pseudo() if field[0] != b":authority"], [(b"host", b"localhost")], [HELLO])


def targets():
    """RFC 9113, Section 8.3.1; RFC 9114, Section 4.3.1."""
    version = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wrong = {
        b":method": [b"", b"G T", b"GET /inner" + version + b"POST", b"GET\r\n", b"G\0T", b"G\tT", b"GET:", b"\xc3\xa4"],
        b":path": [b"", b"a", b"*", b"/{case} b", b"/{case}" + version + b"GET /inner", b"/{case}\r\nx: y", b"/{case}\n", b"/{case}\0", b"/{case}\t",
                   b"/{case} HTTP/1.1", b" /{case}", b"/{case} ", b"/{case}\x7f", b"http://elsewhere/{case}", b"/{case}?a b", b"/{case}?a\r\nb"],
        b":authority": [b"", b"localhost\r\nx: y", b"localhost/inner", b"localhost, elsewhere", b"user@localhost", b"localhost localhost",
                        b"localhost\0", b"localhost:1:2", b"localhost:x", b"localhost?a", b"localhost#a", b"localhost:'(1)", b"elsewhere", b"localhost\\inner"],
        b":scheme": [b"https\r\nx: y", b"https://localhost/inner", b"https: ", b"ht tp", b"", b"ftp", b"wss", b"httpss"],
    }
    for name, values in wrong.items():
        for value in values:
            changed = [(other, value if other == name else was) for other, was in pseudo()]
            yield Case(f"{name}: {value}", NOTHING, changed, [], [HELLO])
        others = [field for field in pseudo() if field[0] != name]
        again = next(field for field in pseudo() if field[0] == name)
        yield Case(f"without {name}", NOTHING, others, [], [HELLO])
        yield Case(f"{name} twice", NOTHING, [*pseudo(), again], [], [HELLO])
        yield Case(f"{name} behind a field", NOTHING, others, [(b"x", b"a"), again], [HELLO])
    # The http crate cuts it off over HTTP/2, where nobody sees it before.
    yield Case("a fragment", EITHER, pseudo(path=b"/{case}#\r\nx: y"), [], [HELLO], path=b"/{case}")
    for more in (b":status", b"200"), (b":unknown", b"a"), (b":protocol", b"websocket"), (b":Path", b"/inner"), (b": x", b"a"):
        yield Case(f"{more[0]}: {more[1]}", NOTHING, [*pseudo(), more], [], [HELLO])
    yield Case("CONNECT", NOTHING, [(b":method", b"CONNECT"), (b":authority", b"localhost:443")], [], [INNER])
    yield Case("CONNECT with a path", NOTHING, pseudo(b"CONNECT"), [], [INNER])
    yield Case("TRACE", NOTHING, pseudo(b"TRACE"), [], [])
    yield Case("a query", MEANT, pseudo(path=b"/{case}?a=b&c=//"), [], [HELLO])
    yield Case("another method", MEANT, pseudo(b"get"), [], [HELLO])


def trailers():
    """RFC 9113, Section 8.1; RFC 9114, Section 4.1; RFC 9110, Section 6.5.1."""
    for name, value in [(b"connection", b"close"), (b"transfer-encoding", b"chunked"), (b"X-Upper", b"a"),
                        (b"te", b"gzip"), (b"x", b"a\r\n\r\n" + INNER), (b"x", b"a\0"), (b"a b", b"c"), (b"a\r\n", b"c")]:
        yield Case(f"{name}: {value} in trailers", NOTHING, pseudo(), [], [HELLO], [(name, value)])
    # h2 drops what a trailer section must not have of these, and the gateway those that are not for it.
    for name, value in [(b":path", b"/inner"), (b":status", b"200"), (b"content-length", b"0"), (b"host", b"elsewhere"), (b"x-last", b"1")]:
        yield Case(f"{name} in trailers", EITHER, pseudo(), [], [HELLO], [(name, value)])


def cases():
    """Each has a path of its own."""
    for number, case in enumerate([*bodies(), *fields(), *targets(), *trailers()]):
        place = lambda field: (field[0], field[1].replace(b"{case}", b"%d" % number))
        path = case.path and case.path.replace(b"{case}", b"%d" % number)
        yield dataclasses.replace(case, pseudo=list(map(place, case.pseudo)), path=path)
