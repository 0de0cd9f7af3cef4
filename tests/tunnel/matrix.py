"""Every combination of type, mode, encapsulation, checksums, key, sequence and remote checksum offload, against a stock
kernel. What our end refuses it has to refuse in these words."""

import itertools
import subprocess
import time

from kernel import combination, ends, machine

# Types, modes here and there, and what is inside.
TYPES = [
    ("ipip", "", "4"),
    ("sit", "mode any", "46"),
    ("sit", "mode ip6ip", "6"),
    ("sit", "mode ip4ip4", "4"),
    ("gre", "", "46"),
    ("gretap", "", "46"),
    ("ip6tnl", "mode any", "46"),
    ("ip6tnl", "mode ip6ip6", "6"),
    ("ip6tnl", "mode ipip6", "4"),
    ("ip6gre", "", "46"),
    ("ip6gretap", "", "46"),
]
# Whether datagrams have a checksum, and what an encapsulation may have besides.
ENCAPS = [("none", None, "")] + [(encap, csum, more) for encap, more in (
    ("fou", ""), ("gue", ""), ("gue", "encap-remcsum"), ("gue", "encap-version 1")) for csum in (True, False)]
GRE = ["", "key 77", "seq", "csum", "key 77 seq", "key 77 csum", "seq csum", "key 77 seq csum"]
# Of TCP in each combination.
BYTES = 1 << 18


def rows():
    """What is said here and there, the port there, the MTU and what is inside; or why it is refused."""
    for (kind, mode, families), (encap, csum, more) in itertools.product(TYPES, ENCAPS):
        for gre in GRE if "gre" in kind else [""]:
            v6 = kind.startswith("ip6")
            checksum = "" if csum is None else f"{'' if csum else 'no'}encap-{'udp6-' if v6 else ''}csum"
            udp = "" if encap == "none" else f"encap {encap} encap-dport 5555"
            here = " ".join(filter(None, (mode, gre, udp, checksum, more)))
            # Linux writes a header always, and reads what has none.
            there = " ".join(filter(None, (mode, gre, checksum, more.replace("encap-version 1", ""))))
            if "version 1" in more and "gre" in kind:
                yield kind, here, None, "version 1 of GUE carries IPv4 and IPv6, not GRE", None, None
                continue
            if "remcsum" in more and not csum:
                yield kind, here, None, "\"encap-remcsum\" needs the checksum outside", None, None
                continue
            inside = families
            protocol = "47" if "gre" in kind else "4" if families == "4" else "41"
            if encap == "fou" and protocol == "41":
                # A port stands for one protocol.
                inside = "6"
            port = {"none": "", "fou": f"ipproto {protocol}", "gue": "gue"}[encap]
            mtu = 1500 - (40 if v6 else 20) - (14 if "tap" in kind else 0) - {"none": 0, "fou": 8, "gue": 12}[encap] \
                - (8 if "remcsum" in more else 0) - (4 * (1 + len(gre.replace("key 77", "key").split())) if "gre" in kind else 0)
            yield kind, here, there, f"-6 {port}" if v6 and port else port, mtu, inside


def matrix(quicket, scratch):
    passed, refused, failed = 0, 0, []
    started = time.monotonic()
    with machine(scratch) as (a, guest):
        for kind, here, there, port, mtu, inside in rows():
            try:
                if there is None:
                    local, remote = ends(kind)
                    line = f"no type {kind} local {local} remote {remote} {here}"
                    said = subprocess.run(a.command(*quicket, *line.split()), text=True, stderr=subprocess.PIPE,
                                          timeout=60).stderr
                    assert port in said, f"it is refused in other words: {said}"
                    print(f"matrix: {kind} {here}: refused, {port}", flush=True)
                    refused += 1
                else:
                    combination(quicket, a, guest, kind, here, there, port, mtu, inside, size=BYTES)
                    passed += 1
            except (AssertionError, OSError, SystemExit, subprocess.SubprocessError) as error:
                failed.append(f"{kind} {here}: {error}")
                print(f"matrix: {failed[-1]}", flush=True)
    print(f"matrix: {passed} combinations passed, {refused} are refused by name, {len(failed)} failed, in "
          f"{time.monotonic() - started:.0f} s", flush=True)
    if failed:
        raise SystemExit("\n".join(failed))
