#!/usr/bin/env python3
"""`quicket gateway` as a server for run.py: with files, and what run.py wants to read.

    tests/browser/run.py --server 'python3 tests/browser/gateway.py PROGRAM {cert} {key} {www}'
"""

import json
import os
import pathlib
import socket
import sys
import time

from firefox import free_port

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "{cert}"
key = "{key}"
[[site]]
names = ["*"]
[[site.route]]
files = "{www}"
"""
PATIENCE = 20


def tell(port):
    """Says where the gateway listens, once it does."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return print(json.dumps({"event": "listening", "address": f"127.0.0.1:{port}"}), flush=True)
        time.sleep(0.05)


def main():
    program, cert, key, www = sys.argv[1:]
    port = free_port()
    site = pathlib.Path(www).parent / "site.toml"
    site.write_text(FILE.format(port=port, cert=cert, key=key, www=www))
    # Who has started this process ends it: so it has to be the gateway.
    if os.fork() == 0:
        tell(port)
        os._exit(0)
    os.dup2(2, 1)
    os.execv(program, [program, "gateway", str(site)])


if __name__ == "__main__":
    main()
