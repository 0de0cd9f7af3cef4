"""A WebSocket server that says its path and protocol, and sends back what it gets; /refused gets 403."""

import asyncio
import http
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    await connection.send(f"{connection.request.path} {connection.subprotocol}")
    async for message in connection:
        await connection.send(message)


async def refuse(connection, request):
    if request.path == "/refused":
        return connection.respond(http.HTTPStatus.FORBIDDEN, "no\n")


async def main():
    loop = asyncio.get_running_loop()
    options = {"subprotocols": ["chat"], "process_request": refuse, "max_size": 4 << 20}
    async with serve(echo, "127.0.0.1", 0, **options) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        # It ends with who started it.
        await loop.run_in_executor(None, sys.stdin.buffer.read)


asyncio.run(main())
