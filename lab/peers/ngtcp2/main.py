"""ngtcp2's example programs, as Debian packages them, under the command line that all peers share.

They speak HTTP/3 only, and verify no certificates.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

CLIENT = "gtlsclient"
SERVER = "gtlsserver"
# Reserved to exercise version negotiation (RFC 9000, Section 15).
UNKNOWN_VERSION = "0x1a2a3a4a"
CHACHA20 = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305"
# Into a download, the handshake is over.
KEY_UPDATE_AFTER = "500ms"
MIGRATE_AFTER = "500ms"
# Where 30 % of the packets are lost, ten seconds are not enough.
HANDSHAKE_TIMEOUT = "60s"
# How long a server may take until it listens, in seconds, and how often it is looked at.
START = 10
POLL = 0.01


def emit(event: str, **fields) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


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
    server.add_argument("--alpn", choices=["h3"], required=True)
    server.add_argument("--retry", action="store_true")
    server.add_argument("--client-ca", help="demand certificates of clients; nothing is verified")
    server.add_argument("--preferred", type=address, help="IPv4 address that clients move to")
    server.add_argument("--www", required=True, help="folder that is served")

    client = roles.add_parser("client", help="connect, do what is asked, report and exit")
    client.add_argument("--connect", type=address, required=True)
    client.add_argument("--ca", help="not looked at")
    client.add_argument("--server-name", required=True)
    client.add_argument("--alpn", choices=["h3"], required=True)
    client.add_argument("--resume", action="store_true")
    client.add_argument("--0rtt", action="store_true", dest="early_data")
    client.add_argument("--key-update", action="store_true")
    client.add_argument("--migrate", help="move, to a port that the system chooses")
    client.add_argument("--one-by-one", action="store_true")
    client.add_argument("--parallel", action="store_true")
    client.add_argument("--cert", help="certificate to present, PEM")
    client.add_argument("--key", help="its private key, PEM")
    client.add_argument("--chacha20", action="store_true")
    client.add_argument("--unknown-version", action="store_true")
    client.add_argument("--download", action="append", default=[])
    client.add_argument("--out")
    return parser.parse_args()


def logs() -> list[str]:
    """Both programs write secrets to what SSLKEYLOGFILE names; qlogs must be asked for."""
    folder = os.environ.get("QLOGDIR")
    return ["--qlog-dir", folder] if folder else []


def family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def can_bind(host: str, port: int) -> int | None:
    """The port, another one if it is 0; None if somebody has it."""
    with socket.socket(family(host), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return None
        return probe.getsockname()[1]


def run_server(arguments: argparse.Namespace) -> None:
    host, port = arguments.listen
    # The program does not tell which port it has.
    taken = arguments.preferred and arguments.preferred[1]
    while port in (0, taken):
        port = can_bind(host, 0)
    command = [SERVER, "-q", "-d", arguments.www, "--handshake-timeout", HANDSHAKE_TIMEOUT, *logs()]
    if arguments.preferred:
        command += ["--preferred-ipv4-addr", ":".join(map(str, arguments.preferred))]
    command += ["-V"] if arguments.retry else []
    command += ["--verify-client"] if arguments.client_ca else []
    command += [host, str(port), arguments.key, arguments.cert]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + START
        while can_bind(host, port) is not None:
            if server.poll() is not None or time.monotonic() > until:
                raise ConnectionError(f"{SERVER} does not listen")
            time.sleep(POLL)
        emit("listening", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        while sys.stdin.buffer.read(64):
            pass
    finally:
        server.terminate()
        server.wait()


def download(arguments: argparse.Namespace, paths: list[str], more: list[str]) -> None:
    host, port = arguments.connect
    command = [CLIENT, "-q", "--no-quic-dump", "--no-http-dump", "--exit-on-all-streams-close"]
    command += ["--sni", arguments.server_name, "--handshake-timeout", HANDSHAKE_TIMEOUT]
    command += [*logs(), *more]
    command += ["--download", arguments.out] if arguments.out else []
    command += ["--ciphers", CHACHA20] if arguments.chacha20 else []
    command += ["--cert", arguments.cert, "--key", arguments.key] if arguments.cert else []
    command += [host, str(port)]
    command += [f"https://{arguments.server_name}{path}" for path in paths]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)


def run_client(arguments: argparse.Namespace) -> None:
    paths = arguments.download
    if arguments.unknown_version:
        try:
            download(arguments, ["/"], ["--version", UNKNOWN_VERSION])
        except subprocess.CalledProcessError:
            pass  # That no version is common is an error to the program.
    elif arguments.one_by_one:
        for path in paths:
            download(arguments, [path], [])
    elif arguments.parallel:
        with ThreadPoolExecutor(len(paths)) as threads:
            list(threads.map(lambda path: download(arguments, [path], []), paths))
    elif arguments.resume or arguments.early_data:
        with tempfile.TemporaryDirectory() as folder:
            state = ["--session-file", f"{folder}/session", "--tp-file", f"{folder}/parameters"]
            state += [] if arguments.early_data else ["--disable-early-data"]
            download(arguments, paths[:1], state)
            download(arguments, paths[1:], state)
    elif paths:
        update = ["--key-update", KEY_UPDATE_AFTER] if arguments.key_update else []
        migrate = ["--change-local-addr", MIGRATE_AFTER] if arguments.migrate else []
        download(arguments, paths, update + migrate)
    emit("done")


def main() -> int:
    arguments = parse_arguments()
    run = run_server if arguments.role == "server" else run_client
    try:
        run(arguments)
    except (OSError, subprocess.CalledProcessError) as error:
        emit("error", message=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
