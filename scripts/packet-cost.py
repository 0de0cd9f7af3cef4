#!/usr/bin/env python3
"""Counts the instructions that the engine spends on each packet of an upload, sender and
receiver together, and its allocations; fails above --limit.

The count does not depend on the machine's load, so that it can be compared from change to change.
Ciphers, copies of the C library and the kernel are not in it.

  scripts/packet-cost.py                 the table
  scripts/packet-cost.py --limit 2000    fails if a packet costs more instructions
  scripts/packet-cost.py --functions 20  and which functions they are spent in
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "target/release/examples/packet_cost"
#: MiB of the two runs: what they differ in is neither start nor handshake.
SHORT, LONG = 16, 48
OURS = ("quicket_engine", "quicket_wire")


def measure(mebibytes):
    """Runs the upload; returns packets, instructions by function, and allocations."""
    out = ROOT / f"target/packet-cost.{mebibytes}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-strings=no",
               "--compress-pos=no", PROGRAM, str(mebibytes)]
    run = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"(\d+) packets", run.stdout)
    if run.returncode or not found:
        sys.exit(f"the upload of {mebibytes} MiB failed:\n{run.stdout}{run.stderr}")
    spent, allocations = read_profile(out)
    return int(found[1]), spent, allocations


def read_profile(path):
    """Instructions of each function itself, and how often malloc was called."""
    spent, allocations, function, callee, inclusive = collections.Counter(), 0, "", "", False
    for line in path.read_text().splitlines():
        if line.startswith("fn="):
            function = line[3:]
        elif line.startswith("cfn="):
            callee = line[4:]
        elif line.startswith("calls="):
            # The next line is what the callee cost: it has lines of its own.
            inclusive = True
            if callee in ("malloc", "calloc", "realloc"):
                allocations += int(line[6:].split()[0])
        elif line[:1].isdigit() or line[:1] in "+-*":
            if not inclusive:
                spent[function] += sum(map(int, line.split()[1:]))
            inclusive = False
    return spent, allocations


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="the most instructions a packet may cost")
    parser.add_argument("--functions", type=int, default=0, help="how many functions to list")
    arguments = parser.parse_args()
    build = ["cargo", "build", "--release", "--quiet", "-p", "quicket-sim", "--example", "packet_cost"]
    subprocess.run(build, cwd=ROOT, check=True)

    short, long = measure(SHORT), measure(LONG)
    packets = long[0] - short[0]
    each = {name: (count - short[1][name]) / packets for name, count in long[1].items()
            if any(ours in name for ours in OURS)}
    total = sum(each.values())
    allocations = (long[2] - short[2]) / packets
    print(f"{total:.0f} instructions and {allocations:.3f} allocations per packet ({packets} packets)")
    for name in sorted(each, key=each.get, reverse=True)[:arguments.functions]:
        print(f"{each[name]:8.1f}  {name}")
    if arguments.limit and total > arguments.limit:
        sys.exit(f"above the limit of {arguments.limit} instructions: if that is worth it, say why and raise it")


if __name__ == "__main__":
    main()
