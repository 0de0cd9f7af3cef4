#!/usr/bin/env python3
"""Shows `quicket gateway` at work on this machine: nginx and a service of plain TCP behind it, files fetched over HTTP/3,
HTTP/2 and HTTP/1.1, and bytes carried over QUIC to the service. Then the gateway reads its file again, and is replaced
by its next generation, while all of that goes on. Every byte is verified."""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from gateway_site import ECHO, FILES, Load, Site, VERSIONS, fail, options, say  # noqa: E402

RELOADS, UPGRADES = 5, 2


def show(site):
    say(f"nginx and a service of TCP run behind the gateway, 127.0.0.1:{site.port} (UDP and TCP)")
    for version in VERSIONS:
        begun = time.monotonic()
        fetched = sum(site.fetch(version, name) for name in FILES)
        say(f"  {version:<8}  {len(FILES)} files, {fetched:,} bytes, all as nginx has them ({time.monotonic() - begun:.2f} s)")
    site.carry()
    say(f"  echo      {ECHO:,} bytes to the service and back, by quicket connect")
    load = Load(site)
    begun = time.monotonic()
    for _ in range(RELOADS):
        site.read_again()
        load.go_on()
    say(f"the file was read again {RELOADS} times under load")
    for _ in range(UPGRADES):
        before = site.serving()
        site.upgrade()
        load.go_on()
        say(f"process {site.serving()} has taken over from {before}")
    load.end()
    counts = ", ".join(f"{count} over {kind}" for kind, count in load.counts.items() if kind != "echo")
    say(f"meanwhile, in {time.monotonic() - begun:.1f} s: {counts}, {load.counts['echo']} connections to the service, "
        f"{load.bytes / 1e6:,.0f} MB, every byte verified, nothing failed")


def main():
    arguments = options(__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    missing = [program for program in ("nginx", "curl", "openssl") if not shutil.which(program)]
    if missing:
        fail(f"{', '.join(missing)} missing: apt-get install nginx-light curl openssl")
    with tempfile.TemporaryDirectory(prefix="quicket-demo-") as folder:
        site = None
        try:
            site = Site(arguments.quicket, pathlib.Path(folder))
            show(site)
        finally:
            if site:
                site.end()


if __name__ == "__main__":
    main()
