"""Clients that break the rules of RFC 9114 and RFC 9204, on aioquic's QUIC, for a server of HTTP/3 that answers `/ok` with 204. Says what
did not come out as these demand, and how many cases there were, and how many of them break no rule. Argument: the server's port."""

import asyncio
import ssl
import sys

import pylsqpack
from aioquic.asyncio import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import encode_uint_var
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset

PATIENCE = 5
AT_ONCE = 8

# RFC 9114, Section 8.1; RFC 9204, Section 6.
STREAM_CREATION_ERROR, CLOSED_CRITICAL_STREAM, FRAME_UNEXPECTED, FRAME_ERROR = 0x103, 0x104, 0x105, 0x106
EXCESSIVE_LOAD, ID_ERROR, SETTINGS_ERROR, MISSING_SETTINGS, MESSAGE_ERROR = 0x107, 0x108, 0x109, 0x10A, 0x10E
DECOMPRESSION_FAILED, ENCODER_STREAM_ERROR, DECODER_STREAM_ERROR = 0x200, 0x201, 0x202

# The first request, and the client's unidirectional streams, one after the other.
REQUEST, FIRST, SECOND, THIRD = 0, 2, 6, 10
# Types of streams, and of frames.
CONTROL, PUSH, ENCODER, DECODER = b"\0", b"\1", b"\2", b"\3"
DATA, HEADERS, CANCEL_PUSH, SETTINGS, PUSH_PROMISE, GOAWAY, MAX_PUSH_ID = 0, 1, 3, 4, 5, 7, 13
OF_HTTP2 = {"PRIORITY": 2, "PING": 6, "WINDOW_UPDATE": 8, "CONTINUATION": 9}
UNKNOWN = 0x21
HALF_A_GIGABYTE = b"\xa0\0\0\0"


def frame(kind, payload=b""):
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def number(kind, value):
    return frame(kind, encode_uint_var(value))


def settings(*pairs):
    return frame(SETTINGS, b"".join(encode_uint_var(one) for pair in pairs for one in pair))


PLAIN = settings((6, 65536), (UNKNOWN, 1))


def section(fields):
    """A field section by another encoder of QPACK, without a dynamic table."""
    encoder = pylsqpack.Encoder()
    return encoder.encode(0, [(name.encode(), value.encode()) for name, value in fields])[1]


def literal(fields):
    """The same, with names as they are."""
    lines = [bytes([0x27, len(name) - 7]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields]
    return b"\0\0" + b"".join(lines)


def fields(method="GET", *more):
    return [(":method", method), (":scheme", "https"), (":authority", "localhost"), (":path", "/ok"), *more]


def headers(all_fields):
    return frame(HEADERS, section(all_fields))


GET, POST, TRAILERS = headers(fields()), headers(fields("POST")), headers([("x-last", "1")])


def send(stream, data, ends=False):
    return ("send", stream, data, ends)


def ask(data):
    return send(REQUEST, data, True)


def begun(*actions):
    """A connection that begins as it should, and then ..."""
    return [send(FIRST, CONTROL + PLAIN), *actions]


def good():
    """RFC 9114, Sections 6.2, 7.2.8 and 9: what is unknown is ignored."""
    unknown = frame(UNKNOWN, b"abc")
    with_length = headers(fields("POST", ("content-length", "3")))
    for name, actions in [
        ("a request", [ask(GET)]),
        ("a body and trailers", [ask(POST + frame(DATA, b"abc") + TRAILERS)]),
        ("unknown frames", [send(FIRST, unknown), ask(unknown + with_length + unknown + frame(DATA, b"abc") + unknown)]),
        ("an unknown stream", [send(SECOND, b"\x21abc"), ask(GET)]),
        ("streams of QPACK", [send(SECOND, ENCODER + b"\x20"), send(THIRD, DECODER + b"\x44"), ask(GET)]),
        ("MAX_PUSH_ID that grows", [send(FIRST, number(MAX_PUSH_ID, 1) + number(MAX_PUSH_ID, 3)), ask(GET)]),
        ("a frame in many packets", [*(send(REQUEST, GET[at : at + 1]) for at in range(len(GET))), ask(b"")]),
    ]:
        yield name, ("answered", 204), begun(*actions)


def frames():
    """RFC 9114, Sections 4.1, 7.1 and 7.2."""
    body = frame(DATA, b"abc")
    for name, data in [("DATA before HEADERS", body), ("DATA behind trailers", POST + TRAILERS + body), ("trailers twice", POST + TRAILERS * 2)]:
        yield name, ("closed", FRAME_UNEXPECTED), begun(ask(data))
    others = {"SETTINGS": PLAIN, "GOAWAY": number(GOAWAY, 0), "CANCEL_PUSH": number(CANCEL_PUSH, 0), "MAX_PUSH_ID": number(MAX_PUSH_ID, 0),
              "PUSH_PROMISE": frame(PUSH_PROMISE, b"\0\0\0\xd1")} | {name: frame(kind, b"\0\0\0") for name, kind in OF_HTTP2.items()}
    for name, data in others.items():
        for place, before in [("in place of a request", b""), ("behind a request's head", GET), ("behind trailers", POST + TRAILERS)]:
            yield f"{name} {place}", ("closed", FRAME_UNEXPECTED), begun(send(REQUEST, before + data))
    for name, data in [
        ("DATA that is cut off", POST + b"\0\3a"),
        ("a type without a length", POST + b"\0"),
        ("a length that is cut off", POST + b"\0\x40"),
        ("HEADERS that are cut off", GET[:-1]),
        ("an unknown frame that is cut off", GET + b"\x21\x09a"),
    ]:
        yield name, ("closed", FRAME_ERROR), begun(ask(data))


def messages():
    """RFC 9114, Sections 4.1.2, 4.2, 4.3 and 4.4: errors of the stream."""
    wrong = {}
    for at, (name, value) in enumerate(fields()):
        others = [field for other, field in enumerate(fields()) if other != at]
        wrong[f"{name} twice"] = [*fields(), (name, value)]
        wrong[f"{name} behind a field"] = [*others, ("accept", "*/*"), (name, value)]
        wrong[f"without {name}"] = others
    for name, value in [(":status", "200"), (":unknown", "x"), (":protocol", "websocket")]:
        wrong[f"{name}: {value}"] = [*fields(), (name, value)]
    for name, value in [("connection", "close"), ("keep-alive", "timeout=5"), ("proxy-connection", "close"), ("transfer-encoding", "chunked"),
                        ("upgrade", "h2c"), ("te", "gzip"), ("host", "elsewhere"), ("a b", "x"), ("x", "a\r\nb"), ("x", "a\0b")]:
        wrong[f"{name}: {value!r}"] = fields("GET", (name, value))
    for at, value in [(0, "G T"), (1, "ftp"), (2, ""), (3, "")]:
        changed = fields()
        changed[at] = (changed[at][0], value)
        wrong[f"{changed[at][0]}: {value!r}"] = changed
    wrong["CONNECT with a path"] = fields("CONNECT")
    for name, all_fields in wrong.items():
        yield name, ("reset", MESSAGE_ERROR), begun(ask(headers(all_fields)))
    upper = section(fields()) + literal([("X-Upper-Case", "1")])[2:]
    yield "a name in upper case", ("reset", MESSAGE_ERROR), begun(ask(frame(HEADERS, upper)))
    for length, body in [(4, b"abc"), (2, b"abc"), (0, b"abc"), (1, b"")]:
        head = headers(fields("POST", ("content-length", str(length))))
        yield f"{len(body)} bytes of {length}", ("reset", MESSAGE_ERROR), begun(ask(head + (frame(DATA, body) if body else b"")))
    for field in [(":path", "/"), (":status", "200"), ("connection", "close"), ("te", "gzip")]:
        data = POST + frame(DATA, b"abc") + headers([field])
        yield f"{field[0]} in trailers", ("reset", MESSAGE_ERROR), begun(ask(data))


def sections():
    """RFC 9204, Sections 2.2 and 4.5; RFC 9114, Section 4.2.2."""
    for name, data in [
        ("an empty section", b""),
        ("a prefix that is cut off", b"\0"),
        ("a Required Insert Count", b"\1\0\xd1"),
        ("an entry of the dynamic table", b"\0\0\x80"),
        ("a name of the dynamic table", b"\0\0\x40\0"),
        ("an entry behind Base", b"\0\0\x10"),
        ("a name behind Base", b"\0\0\0\0"),
        ("an entry that the static table has not", b"\0\0\xff\x24"),
        ("a string that is longer than the section", b"\0\0\x51\x09/"),
        ("Huffman's code with EOS in it", b"\0\0\x51\x84\xff\xff\xff\xff"),
        ("an integer without an end", b"\0\0" + b"\xff" * 12),
    ]:
        yield name, ("closed", DECOMPRESSION_FAILED), begun(ask(frame(HEADERS, data)))
    for name, before in [("a section", b""), ("trailers", POST)]:
        yield f"{name} of half a gigabyte", ("reset", EXCESSIVE_LOAD), begun(send(REQUEST, before + b"\1" + HALF_A_GIGABYTE))


def streams():
    """RFC 9114, Section 6.2; RFC 9204, Sections 4.2 to 4.4."""
    for name, actions in [
        ("a second control stream", [send(SECOND, CONTROL + PLAIN)]),
        ("a second encoder stream", [send(SECOND, ENCODER), send(THIRD, ENCODER)]),
        ("a second decoder stream", [send(SECOND, DECODER), send(THIRD, DECODER)]),
        ("a push by a client", [send(SECOND, PUSH + b"\0")]),
    ]:
        yield name, ("closed", STREAM_CREATION_ERROR), begun(*actions)
    for name, stream in [("control", FIRST), ("encoder", SECOND), ("decoder", THIRD)]:
        # They are known before they end: a reset would take away what they were.
        before = begun(send(SECOND, ENCODER), send(THIRD, DECODER), ask(GET), ("answer",))
        yield f"the {name} stream ends", ("closed", CLOSED_CRITICAL_STREAM), [*before, send(stream, b"", True)]
        yield f"the {name} stream is reset", ("closed", CLOSED_CRITICAL_STREAM), [*before, ("reset", stream)]
    for name, data in [("a capacity above the one that was offered", b"\x3f\x01"), ("an insertion by the static table", b"\xc0\0"),
                       ("an insertion that is spelled out", b"\x41a\1b"), ("a duplicate", b"\0")]:
        yield name, ("closed", ENCODER_STREAM_ERROR), begun(send(SECOND, ENCODER + data))
    for name, data in [("a section that is acknowledged", b"\x80"), ("an insertion that is counted", b"\1"), ("a count of 0", b"\0")]:
        yield name, ("closed", DECODER_STREAM_ERROR), begun(send(SECOND, DECODER + data))


def control():
    """RFC 9114, Sections 5.2, 6.2.1 and 7.2."""
    for name, data in [("GOAWAY", number(GOAWAY, 0)), ("MAX_PUSH_ID", number(MAX_PUSH_ID, 0)), ("an unknown frame", frame(UNKNOWN)),
                       ("DATA", frame(DATA, b"abc"))]:
        yield f"{name} before SETTINGS", ("closed", MISSING_SETTINGS), [send(FIRST, CONTROL + data)]
    others = {"SETTINGS": PLAIN, "DATA": frame(DATA, b"abc"), "HEADERS": GET, "PUSH_PROMISE": frame(PUSH_PROMISE, b"\0\0\0\xd1")}
    for name, data in (others | {name: frame(kind, b"\0\0\0") for name, kind in OF_HTTP2.items()}).items():
        yield f"{name} behind SETTINGS", ("closed", FRAME_UNEXPECTED), begun(send(FIRST, data))
    for name, code, data in [
        ("MAX_PUSH_ID that shrinks", ID_ERROR, number(MAX_PUSH_ID, 2) + number(MAX_PUSH_ID, 1)),
        ("GOAWAY that grows", ID_ERROR, number(GOAWAY, 1) + number(GOAWAY, 2)),
        ("CANCEL_PUSH of nothing", ID_ERROR, number(CANCEL_PUSH, 0)),
        ("an empty GOAWAY", FRAME_ERROR, frame(GOAWAY)),
        ("GOAWAY with more behind", FRAME_ERROR, frame(GOAWAY, b"\0\0")),
        ("GOAWAY whose identifier is cut off", FRAME_ERROR, frame(GOAWAY, b"\x40")),
        ("an empty MAX_PUSH_ID", FRAME_ERROR, frame(MAX_PUSH_ID)),
    ]:
        yield name, ("closed", code), begun(send(FIRST, data))


def of_settings():
    """RFC 9114, Sections 7.1 and 7.2.4.1; RFC 8441, Section 3."""
    for name, code, data in [
        *((f"the setting {reserved} of HTTP/2", SETTINGS_ERROR, settings((reserved, 1))) for reserved in (0, 2, 3, 4, 5)),
        ("a setting twice", SETTINGS_ERROR, settings((6, 65536), (6, 65536))),
        ("ENABLE_CONNECT_PROTOCOL of 2", SETTINGS_ERROR, settings((8, 2))),
        ("a setting without a value", FRAME_ERROR, frame(SETTINGS, b"\6")),
        ("a value that is cut off", FRAME_ERROR, frame(SETTINGS, b"\6\x40")),
        ("SETTINGS of half a gigabyte", EXCESSIVE_LOAD, b"\4" + HALF_A_GIGABYTE),
    ]:
        yield name, ("closed", code), [send(FIRST, CONTROL + data)]


class Client(QuicConnectionProtocol):
    """What comes of the first request, and of the connection."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        loop = asyncio.get_running_loop()
        self.closed, self.asked, self.come = loop.create_future(), loop.create_future(), b""

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            # By HTTP/3's code: one with a type of frame is QUIC's (RFC 9000, Section 19.19).
            kind = "closed" if event.frame_type is None else "closed by QUIC"
            for future in (self.closed, self.asked):
                if not future.done():
                    future.set_result((kind, event.error_code))
        elif isinstance(event, StreamReset) and event.stream_id == REQUEST and not self.asked.done():
            self.asked.set_result(("reset", event.error_code))
        elif isinstance(event, StreamDataReceived) and event.stream_id == REQUEST:
            self.come += event.data
            if event.end_stream and not self.asked.done():
                # A HEADERS frame whose first line is an entry of the static table, or the rest of its number.
                head = self.come[4:6]
                entry = 63 + head[1] if head[0] == 0xFF else head[0] & 0x3F
                self.asked.set_result(("answered", {25: 200, 64: 204}.get(entry, entry)))


async def run(port, actions, expected):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["h3"], server_name="localhost", verify_mode=ssl.CERT_NONE)
    try:
        async with asyncio.timeout(PATIENCE), connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as client:
            for action in actions:
                if action[0] == "send":
                    client._quic.send_stream_data(*action[1:])
                elif action[0] == "reset":
                    client._quic.reset_stream(action[1], 0x100)
                else:
                    await asyncio.shield(client.asked)
                client.transmit()
            return await (client.closed if expected[0] == "closed" else client.asked)
    except TimeoutError:
        return ("nothing", None)


async def main():
    port, failed, good_ones = int(sys.argv[1]), 0, list(good())
    cases = [*good_ones, *frames(), *messages(), *sections(), *streams(), *control(), *of_settings()]
    turn = asyncio.Semaphore(AT_ONCE)

    async def of(name, expected, actions):
        async with turn:
            outcome = await run(port, actions, expected)
        if outcome == expected:
            return 0
        say = lambda what, code: what if code is None else f"{what} {code if what == 'answered' else hex(code)}"
        print(f"{name}: {say(*outcome)}, and not {say(*expected)}")
        return 1

    failed = sum(await asyncio.gather(*(of(*case) for case in cases)))
    print(f"{len(cases)} cases, {failed} failed, {len(good_ones)} break no rule")
    sys.exit(failed > 0)


asyncio.run(main())
