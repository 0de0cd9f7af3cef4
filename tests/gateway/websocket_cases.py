#!/usr/bin/env python3
"""RFC 6455 through `quicket gateway`, from each version of HTTP, before a server by Python's websockets: pings and fragments as they are
sent, close codes in both directions, a megabyte, what breaks the rules, and sides that vanish."""

import asyncio
import pathlib
import socket
import struct
import sys
import tempfile

sys.dont_write_bytecode = True
from environment import go_on_with_packages  # noqa: E402
from gateway_site import certificate, end_as_a_failure, fail, free_port, options, say  # noqa: E402
from served import gateway  # noqa: E402

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "certificate.pem"
key = "key.pem"
[origin.app]
servers = ["http://127.0.0.1:{origin}"]
[[site]]
names = ["localhost"]
[[site.route]]
origin = "app"
"""
LARGE = bytes(range(256)) * 4096
# What the server takes of a message, in bytes.
MOST = 2 << 20
# RFC 6455, Section 7.4: those that may be sent. Section 7.4.1: what is reported without one, and without a close.
CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4000, 4999]
NO_CODE, NO_CLOSE = 1005, 1006


class Server:
    """Does what a path says, and tells how each connection was closed by the client."""

    def __init__(self):
        self.closed = asyncio.Queue()

    async def start(self):
        from websockets.asyncio.server import serve
        server = await serve(self.hold, "127.0.0.1", 0, max_size=MOST, ping_interval=None, compression=None)
        return server.sockets[0].getsockname()[1]

    async def hold(self, connection):
        from websockets.exceptions import ConnectionClosed
        _, kind, *words = connection.request.path.split("/")
        try:
            await getattr(self, kind)(connection, *words)
            await connection.wait_closed()
        except ConnectionClosed:
            await connection.wait_closed()
        self.closed.put_nowait((kind, connection.close_code, connection.close_reason))

    async def echo(self, connection):
        async for message in connection:
            await connection.send(message)

    async def ping(self, connection):
        await (await connection.ping(b"there?"))
        await connection.send("it came back")

    async def fragments(self, connection):
        async def pieces():
            yield "a"
            await connection.ping(b"between")
            yield "b"
            await connection.pong(b"unasked")
            yield "c"
        await connection.send(pieces())

    async def large(self, connection):
        await connection.send(LARGE)

    async def close(self, connection, code):
        await connection.close(int(code), "because")

    async def codeless(self, connection):
        async with connection.send_context():
            connection.protocol.send_close()

    async def vanish(self, connection):
        # As if the machine were gone: RST, and no close.
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.transport.abort()


class Cases:
    def __init__(self, version, port, trusted, server):
        from websocket_pipes import PIPES
        self.version, self.open_pipe, self.where, self.server = version, PIPES[version].open, (port, trusted), server

    async def open(self, path):
        return await self.open_pipe(*self.where, path)

    async def expect(self, pipe, *expected):
        for wanted in expected:
            got = await pipe.frame()
            assert got == wanted, f"{str(got)[:200]}, and not {str(wanted)[:200]}"

    async def end(self, pipe):
        """The server ends its direction first (RFC 6455, Section 7.1.1), in good order, and the client its own."""
        from websocket_pipes import END
        await self.expect(pipe, END)
        pipe.finish()

    async def heard(self, *expected):
        got = await asyncio.wait_for(self.server.closed.get(), 30)
        assert got == expected, f"the server heard {got}, and not {expected}"

    async def leave(self, pipe, kind, code=1000):
        """A close by the client: it gets it back, and then the end, which is no reset."""
        from websocket_pipes import CLOSE, frame
        payload = struct.pack(">H", code) + b"bye"
        await pipe.send(frame(CLOSE, payload))
        await self.expect(pipe, (True, CLOSE, payload))
        await self.end(pipe)
        await self.heard(kind, code, "bye")
        pipe.close()

    async def pings(self):
        from websocket_pipes import PING, PONG, TEXT, frame
        pipe = await self.open("/echo")
        for payload in b"", b"a", bytes(range(125)):
            await pipe.send(frame(PING, payload))
            await self.expect(pipe, (True, PONG, payload))
        # Nobody answers what nobody has asked for.
        await pipe.send(frame(PONG, b"unasked") + frame(TEXT, b"a"))
        await self.expect(pipe, (True, TEXT, b"a"))
        await self.leave(pipe, "echo")
        pipe = await self.open("/ping")
        await self.expect(pipe, (True, PING, b"there?"))
        await pipe.send(frame(PONG, b"there?"))
        await self.expect(pipe, (True, TEXT, b"it came back"))
        await self.leave(pipe, "ping")

    async def fragments(self):
        from websocket_pipes import CONTINUATION, PING, PONG, TEXT, frame
        pipe = await self.open("/echo")
        pieces = [frame(TEXT, "ä".encode()[:1], last=False), frame(PING, b"1"), frame(CONTINUATION, "ä".encode()[1:], last=False),
                  frame(PONG, b"unasked"), frame(CONTINUATION, b"", last=False), frame(PING, b"2"), frame(CONTINUATION, b"b")]
        # Piece by piece, each in the middle of a frame, and all at once.
        whole = b"".join(pieces)
        for cut in pieces, [whole[at : at + 3] for at in range(0, len(whole), 3)], [whole]:
            for piece in cut:
                await pipe.send(piece)
            await self.expect(pipe, (True, PONG, b"1"), (True, PONG, b"2"), (True, TEXT, "äb".encode()))
        await self.leave(pipe, "echo")
        pipe = await self.open("/fragments")
        await self.expect(pipe, (False, TEXT, b"a"), (True, PING, b"between"), (False, CONTINUATION, b"b"), (True, PONG, b"unasked"),
                          (False, CONTINUATION, b"c"), (True, CONTINUATION, b""))
        await self.leave(pipe, "fragments")

    async def codes(self):
        from websocket_pipes import CLOSE, frame
        for code in CODES:
            await self.leave(await self.open("/echo"), "echo", code)
            pipe, payload = await self.open(f"/close/{code}"), struct.pack(">H", code) + b"because"
            await self.expect(pipe, (True, CLOSE, payload))
            await pipe.send(frame(CLOSE, payload))
            await self.end(pipe)
            await self.heard("close", code, "because")
            pipe.close()

    async def no_code(self):
        from websocket_pipes import CLOSE, frame
        pipe = await self.open("/echo")
        await pipe.send(frame(CLOSE))
        await self.expect(pipe, (True, CLOSE, b""))
        await self.end(pipe)
        await self.heard("echo", NO_CODE, "")
        pipe.close()
        pipe = await self.open("/codeless")
        await self.expect(pipe, (True, CLOSE, b""))
        await pipe.send(frame(CLOSE))
        await self.end(pipe)
        await self.heard("codeless", NO_CODE, "")
        pipe.close()

    async def large(self):
        from websocket_pipes import BINARY, CONTINUATION, PING, PONG, frame
        pipe = await self.open("/echo")
        await pipe.send(frame(BINARY, LARGE) + frame(PING, b"behind it"))
        answers = {BINARY: LARGE, PONG: b"behind it"}
        got = dict([(await pipe.frame())[1:] for _ in answers])
        assert got == answers, "a message of a megabyte is another one"
        step = 64 << 10
        for at in range(0, len(LARGE), step):
            await pipe.send(frame(CONTINUATION if at else BINARY, LARGE[at : at + step], last=at + step == len(LARGE)))
        await self.expect(pipe, (True, BINARY, LARGE))
        await self.leave(pipe, "echo")
        pipe = await self.open("/large")
        await self.expect(pipe, (True, BINARY, LARGE))
        await self.leave(pipe, "large")

    async def broken_rules(self):
        """It is for the server to say, and the client hears it."""
        from websocket_pipes import BINARY, CLOSE, CONTINUATION, PING, TEXT, frame
        for code, data in [
            (1002, frame(TEXT, b"a", masked=False)),
            (1002, frame(TEXT, b"a", reserved=4)),
            (1002, frame(3, b"a")),
            (1002, frame(PING, bytes(126))),
            (1002, frame(PING, b"a", last=False)),
            (1002, frame(CONTINUATION, b"a")),
            (1002, frame(TEXT, b"a", last=False) + frame(TEXT, b"b")),
            (1002, frame(CLOSE, b"\3")),
            (1002, frame(CLOSE, struct.pack(">H", NO_CLOSE))),
            (1007, frame(TEXT, b"\xff")),
            (1009, frame(BINARY, bytes(MOST + 1))[:100]),
        ]:
            pipe = await self.open("/echo")
            await pipe.send(data)
            last, opcode, payload = await pipe.frame()
            assert (last, opcode, payload[:2]) == (True, CLOSE, struct.pack(">H", code)), f"{data[:20]}: {opcode} {payload}"
            await pipe.send(frame(CLOSE, payload[:2]))
            await self.end(pipe)
            kind, *_ = await asyncio.wait_for(self.server.closed.get(), 30)
            assert kind == "echo"
            pipe.close()

    async def vanish(self):
        from websocket_pipes import END, RESET, TEXT, frame
        pipe = await self.open("/echo")
        await pipe.send(frame(TEXT, b"a"))
        await self.expect(pipe, (True, TEXT, b"a"))
        pipe.vanish()
        await self.heard("echo", NO_CLOSE, "")
        pipe.close()
        pipe = await self.open("/vanish")
        got = await pipe.frame()
        # Within TLS, RST may be either. hyper has no reset for a stream of HTTP/2 that it has given away.
        assert got in ([RESET] if self.version == "HTTP/3" else [END, RESET]), got
        await self.heard("vanish", NO_CLOSE, "")
        pipe.close()


async def run(port, trusted, server):
    from websocket_pipes import PIPES
    for version in PIPES:
        cases = Cases(version, port, trusted, server)
        names = ["pings", "fragments", "codes", "no_code", "large", "broken_rules", "vanish"]
        for name in names:
            try:
                await getattr(cases, name)()
            except (AssertionError, TimeoutError) as error:
                fail(f"{version}, {name}: {error!r}")
        say(f"WebSocket over {version}: {', '.join(names)}")


async def main():
    arguments = options(__doc__).parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-websocket-") as folder:
        folder, server, port = pathlib.Path(folder), Server(), free_port()
        certificate(folder)
        with gateway(arguments.quicket, folder, FILE.format(port=port, origin=await server.start())):
            await run(port, str(folder / "certificate.pem"), server)


if __name__ == "__main__":
    go_on_with_packages()
    asyncio.run(main())
