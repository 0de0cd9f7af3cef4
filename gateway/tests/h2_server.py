"""A server of HTTP/2 without TLS that does what paths ask for: slow, hold/SECONDS, leave (GOAWAY), refused (once), reset,
garbage, half. Arguments: a file for its log, how many streams it takes at a time."""

import asyncio
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

LOG = open(sys.argv[1], "w", buffering=1)
STREAMS = int(sys.argv[2])
refused = 0


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        print("connection", file=LOG)
        self.transport = transport
        self.taken = 0
        self.leaving = False
        config = h2.config.H2Configuration(client_side=False)
        self.h2 = h2.connection.H2Connection(config)
        values = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: STREAMS}
        self.h2.local_settings = h2.settings.Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.flush()

    def flush(self):
        self.transport.write(self.h2.data_to_send())

    def data_received(self, data):
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                path = dict(event.headers)[b":path"].decode()
                print(path, file=LOG)
                asyncio.ensure_future(self.answer(event.stream_id, path))
            elif isinstance(event, h2.events.DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()

    async def answer(self, stream, path):
        global refused
        if self.leaving:
            return
        self.taken += 1
        if path.startswith("/slow"):
            await asyncio.sleep(0.5)
        if path.startswith("/hold/"):
            await asyncio.sleep(float(path[6:]))
        if path.startswith("/leave"):
            if self.taken == 6:
                self.leaving = True
                self.h2.close_connection(last_stream_id=stream)
                self.flush()
                # What was taken is answered after the GOAWAY, which the library would not do.
                self.transport.write(frame(stream, path))
                self.transport.close()
                return
        if path == "/refused" and not refused:
            refused = 1
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
            return self.flush()
        if path == "/reset":
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
            return self.flush()
        if path == "/garbage":
            self.transport.write(b"this is no frame of HTTP/2 at all\r\n\r\n")
            return
        self.h2.send_headers(stream, [(":status", "200"), ("content-length", str(len(path)))])
        if path == "/half":
            self.h2.send_data(stream, path[:2].encode())
            self.flush()
            await asyncio.sleep(0.1)
            return self.transport.abort()
        self.h2.send_data(stream, path.encode(), end_stream=True)
        self.flush()


def frame(stream, path):
    """HEADERS with :status 200 (entry 8 of the static table), and DATA."""

    def one(kind, flags, payload):
        head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        return head + payload

    return one(1, 4, b"\x88") + one(0, 1, path.encode())


async def main():
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # It ends with who started it.
    await loop.run_in_executor(None, sys.stdin.buffer.read)


asyncio.run(main())
