"""Asks for bytes by aioquic. Arguments: port, certificate."""

import asyncio
import sys

from aioquic.asyncio import connect
from aioquic.quic.configuration import QuicConfiguration


async def main(port, certificate):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=["bytes"], server_name="one.example")
    configuration.load_verify_locations(certificate)
    async with connect("127.0.0.1", port, configuration=configuration) as client:
        reader, writer = await client.create_stream()
        writer.write((200_000).to_bytes(8, "big"))
        writer.write_eof()
        print(len(await asyncio.wait_for(reader.read(), 20)))


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
