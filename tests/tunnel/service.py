"""Tunnels from a file, as a service has them; and flows that stay in order with several workers."""

import os
import pathlib
import select
import signal
import socket
import struct
import subprocess
import time

from networks import Tunnel

FILE = """
# Two tunnels to one host, told apart by their keys, and one with a port of its own.
port add 6080 gue peer 192.0.2.2
add east type gre local 192.0.2.1 remote 192.0.2.2 encap gue key 1
add west type gre local 192.0.2.1 remote 192.0.2.2 encap gue key 2   # by the same port
add six type sit mode ip6ip local 192.0.2.1 remote 192.0.2.2 encap fou encap-dport 5555
"""
OTHER_END = FILE.replace("192.0.2.1", "@").replace("192.0.2.2", "192.0.2.1").replace("@", "192.0.2.2")


class Service:
    """`quicket tunnel run` as systemd would start it: it says when it is ready."""

    def __init__(self, quicket, namespace, file):
        self.notified = file.with_suffix(".notify")
        self.notified.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(str(self.notified))
        listener.settimeout(30)
        self.process = subprocess.Popen(namespace.command(*quicket[:-1], "run", file), stderr=subprocess.DEVNULL,
                                        env={**os.environ, "NOTIFY_SOCKET": str(self.notified)})
        assert b"READY=1" in listener.recv(1000).split(b"\n")
        listener.close()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


def service(quicket, a, b, scratch):
    files = []
    for name, text in ("here", FILE), ("there", OTHER_END):
        files.append(pathlib.Path(scratch) / f"{name}.tunnels")
        files[-1].write_text(text)
    services = [Service(quicket, a, files[0]), Service(quicket, b, files[1])]
    for end, last in (a, 1), (b, 2):
        for number, name in enumerate(("east", "west")):
            end.ip("addr", "add", f"10.9.{number}.{last}/30", "dev", name)
            end.ip("link", "set", name, "up")
        end.ip("addr", "add", f"fd09::{last}/64", "dev", "six", "nodad")
        end.ip("link", "set", "six", "up")

    def reachable():
        for address in "10.9.0.2", "10.9.1.2", "fd09::2":
            a.ping(address, 100)

    reachable()
    # Devices, addresses and routes outlive the program, and the next one takes them.
    services[0].stop()
    assert "10.9.1.1/30" in a.run("ip", "addr", "show", "dev", "west")
    assert not a.ping("10.9.0.2", 100, count=1, check=False)
    services[0] = Service(quicket, a, files[0])
    reachable()
    several = subprocess.run(a.command(*quicket[:-1], "del", "west"), text=True, stderr=subprocess.PIPE)
    assert several.returncode == 2 and "carries other tunnels" in several.stderr, several
    # Its device is removed beneath it: it ends and says so.
    a.ip("link", "del", "six")
    assert services[0].process.wait(timeout=30) == 6
    services[1].stop()
    for end, names in (a, ("east", "west")), (b, ("east", "west", "six")):
        for name in names:
            end.run(*quicket[:-1], "del", name)
    assert "east" not in a.run("ip", "link") and "six" not in b.run("ip", "link")
    for text, why in (FILE + "add x type ipip\n", "line 7: the other end"), ("", "has no tunnel"), \
            (FILE.replace("key 2", "key 1"), "same addresses and keys"):
        files[0].write_text(text)
        done = subprocess.run(a.command(*quicket[:-1], "run", files[0]), text=True, stderr=subprocess.PIPE)
        assert done.returncode == 2 and why in done.stderr, done
    print("pair: tunnels of a file are ready when they say so, and their devices outlive them", flush=True)


def in_order(quicket, a, b, flows=32, rounds=300):
    """With two workers at each end the datagrams of each flow arrive in their order."""
    line = "type ipip local 192.0.2.{} remote 192.0.2.{} encap gue"
    tunnels = [Tunnel(quicket, a, "tun1", line.format(1, 2), "10.9.0.1/30", workers=2),
               Tunnel(quicket, b, "tun1", line.format(2, 1), "10.9.0.2/30", workers=2)]
    sink = b.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.bind(("10.9.0.2", 7))
    sink.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    senders = []
    for _ in range(flows):
        senders.append(a.socket(socket.AF_INET, socket.SOCK_DGRAM))
        senders[-1].connect(("10.9.0.2", 7))
    last, received = {}, 0

    def take(wait):
        nonlocal received
        while select.select([sink], [], [], wait)[0]:
            data, (_, port) = sink.recvfrom(2000)
            number, = struct.unpack("!I", data[:4])
            assert number > last.get(port, -1), f"{number} after {last[port]} from {port}"
            last[port] = number
            received += 1

    for number in range(rounds):
        for sender in senders:
            sender.send(struct.pack("!I", number) + bytes(1000 if number % 3 else 1200))
        end = time.monotonic() + 30
        # A device has room for 500 packets.
        while received < (number + 1) * flows - 250 and time.monotonic() < end:
            take(0.01)
    end = time.monotonic() + 30
    while received < flows * rounds and time.monotonic() < end:
        take(0.05)
    assert received == flows * rounds, f"{received} of {flows * rounds} arrived"
    for tunnel in tunnels:
        times = []
        for task in pathlib.Path(f"/proc/{tunnel.process.pid}/task").iterdir():
            if (task / "comm").read_text().startswith("tunnel-") and "control" not in (task / "comm").read_text():
                times.append(int((task / "schedstat").read_text().split()[0]))
        assert len(times) == 2 and min(times) > 1_000_000, f"both workers have worked: {times} ns"
        tunnel.close()
    print(f"pair: {flows} flows by two workers at each end arrive in order", flush=True)
