"""aioquic as an interoperability peer: the command line that all peers share."""

import argparse
import asyncio
import sys

from client import run_client
from events import emit
from server import run_server


def address(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator:
        raise argparse.ArgumentTypeError("expected HOST:PORT")
    return host.strip("[]"), int(port)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)

    server = roles.add_parser("server", help="accept connections until standard input ends")
    server.add_argument("--listen", type=address, required=True)
    server.add_argument("--cert", required=True, help="certificate chain, PEM")
    server.add_argument("--key", required=True, help="private key, PEM")
    server.add_argument("--alpn", action="append", required=True)
    server.add_argument("--retry", action="store_true")
    server.add_argument("--v2", action="store_true", help="it chooses version 2 in any case")
    server.add_argument("--www", help="folder served by hq-interop and h3")

    client = roles.add_parser("client", help="connect, do what is asked, report and exit")
    client.add_argument("--connect", type=address, required=True)
    client.add_argument("--ca", required=True, help="certificates to trust, PEM")
    client.add_argument("--server-name", required=True)
    client.add_argument("--alpn", required=True)
    client.add_argument("--resume", action="store_true")
    client.add_argument("--0rtt", action="store_true", dest="early_data")
    client.add_argument("--key-update", action="store_true")
    client.add_argument("--one-by-one", action="store_true")
    client.add_argument("--parallel", action="store_true")
    client.add_argument("--cert", help="certificate to present, PEM")
    client.add_argument("--key", help="its private key, PEM")
    client.add_argument("--chacha20", action="store_true")
    client.add_argument("--v2", action="store_true", help="prefer version 2, start with 1")
    client.add_argument("--unknown-version", action="store_true")
    client.add_argument("--streams", type=int, default=0)
    client.add_argument("--resets", type=int, default=0)
    client.add_argument("--datagrams", type=int, default=0)
    client.add_argument("--download", action="append", default=[])
    client.add_argument("--out")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    run = run_server if arguments.role == "server" else run_client
    try:
        asyncio.run(run(arguments))
    except Exception as error:  # whatever it is, the driver must see it
        emit("error", message=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
