#!/usr/bin/env python3
"""WebSockets from each version of HTTP while the next generation of the gateway takes over: they go on with the one that has them, new ones
come to the next, the old one ends with the last of them, and `handover_ms` ends those that stay."""

import asyncio
import contextlib
import pathlib
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from environment import go_on_with_packages  # noqa: E402
from gateway_site import LONG, Site, end_as_a_failure, fail, options, say, until  # noqa: E402

# Milliseconds. The first is more than the test takes.
PATIENT, SHORT, DRAIN = 600_000, 1500, 300
# A generation's word when another one has all new connections.
TAKEN_OVER = "The next generation has taken over"

ORIGIN = """[origin.echo]
servers = ["http://127.0.0.1:{port}"]
[[site.route]]
path = "/echo"
origin = "echo"
"""


class Echo:
    """A server by Python's websockets, in a thread of its own."""

    def __init__(self):
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.run(started)), daemon=True).start()
        started.wait()

    async def run(self, started):
        from websockets.asyncio.server import serve
        async with serve(self.hold, "127.0.0.1", 0, ping_interval=None) as server:
            self.port = server.sockets[0].getsockname()[1]
            started.set()
            await asyncio.get_running_loop().create_future()

    async def hold(self, connection):
        from websockets.exceptions import ConnectionClosed
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                await connection.send(message)


class UpgradedSite(Site):
    def __init__(self, quicket, folder, echo):
        self.protocols, self.handover = ORIGIN.format(port=echo.port), PATIENT
        super().__init__(quicket, folder)

    def write(self, more):
        super().write(f"{more}[limits]\nhandover_ms = {self.handover}\ndrain_ms = {DRAIN}\n")

    def upgrade(self):
        # Until then both generations accept TCP.
        told = self.log().count(TAKEN_OVER)
        super().upgrade()
        until("the generation before leaves new connections to the next one", lambda: self.log().count(TAKEN_OVER) > told)

    def is_alive(self, pid):
        # One that has ended and is not waited for is none.
        with contextlib.suppress(FileNotFoundError):
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        return False


class WebSockets:
    """One by each version, of the same generation."""

    def __init__(self, pipes):
        self.pipes = pipes

    @classmethod
    async def open(cls, site):
        from websocket_pipes import PIPES
        websockets = cls({version: await kind.open(site.port, site.certificate, "/echo") for version, kind in PIPES.items()})
        await websockets.go_on("they begin")
        return websockets

    async def go_on(self, when):
        from websocket_pipes import TEXT, frame
        for version, pipe in self.pipes.items():
            said = f"{version}: {when}".encode()
            await pipe.send(frame(TEXT, said))
            got = await pipe.frame()
            if got != (True, TEXT, said):
                fail(f"{version}, {when}: {got}")

    async def close(self):
        from websocket_pipes import CLOSE, END, frame
        for version, pipe in self.pipes.items():
            await pipe.send(frame(CLOSE, b"\x03\xe8"))
            got = [await pipe.frame(), await pipe.frame()]
            if got != [(True, CLOSE, b"\x03\xe8"), END]:
                fail(f"{version}: a close is answered by {got}")
            pipe.finish()
            pipe.close()

    async def end(self):
        """They are ended by the other side; when the first of them was, by the clock of `time.monotonic`."""
        from websocket_pipes import END, RESET
        first = None
        for version, pipe in self.pipes.items():
            got = await asyncio.wait_for(pipe.frame(), LONG)
            first = first or time.monotonic()
            # A tunnel that the gateway gives up is a reset to a client over HTTP/3.
            if got not in ([RESET] if version == "HTTP/3" else [END, RESET]):
                fail(f"{version}: {got}, and no end")
            pipe.close()
        return first


async def they_go_on(site):
    """Over two upgrades."""
    first = site.serving()
    of_first = await WebSockets.open(site)
    await asyncio.to_thread(site.upgrade)
    await of_first.go_on("the next generation serves")
    second = site.serving()
    of_second = await WebSockets.open(site)
    await asyncio.to_thread(site.upgrade)
    await of_first.go_on("two generations later")
    await of_second.go_on("one generation later")
    if set(site.generations()) != {first, second, site.serving()}:
        fail(f"three generations have WebSockets, and there are {site.generations()}")
    await of_first.close()
    await asyncio.to_thread(until, "the first one has ended with the last of its WebSockets", lambda: not site.is_alive(first))
    await of_second.go_on("the first one has ended")
    await of_second.close()
    await asyncio.to_thread(until, "so has the second one", lambda: not site.is_alive(second))
    say("WebSockets over all versions go on over two upgrades, and each generation ends with the last of its own")


async def handover_ends_them(site):
    site.handover = SHORT
    # The limit is that of the generation that is replaced, when it was started.
    site.write("")
    await asyncio.to_thread(site.upgrade)
    old = site.serving()
    held = await WebSockets.open(site)
    begun = time.monotonic()
    await asyncio.to_thread(site.upgrade)
    new = await WebSockets.open(site)
    ended = await held.end()
    if ended - begun < SHORT / 1000:
        fail(f"handover_ms is {SHORT}, and a WebSocket was ended after {(ended - begun) * 1000:.0f}")
    await asyncio.to_thread(until, "the old one has ended", lambda: not site.is_alive(old))
    await new.go_on("the old one has ended")
    await new.close()
    say(f"handover_ms ends those that stay, {SHORT} ms at the earliest, and no others")


async def run(site):
    await they_go_on(site)
    await handover_ends_them(site)


def main():
    arguments = options(__doc__).parse_args()
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-websockets-") as folder:
        site = UpgradedSite(arguments.quicket, pathlib.Path(folder), Echo())
        try:
            asyncio.run(run(site))
        finally:
            site.end()


if __name__ == "__main__":
    go_on_with_packages()
    main()
