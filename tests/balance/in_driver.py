"""A balancer's program in the kernel (XDP), with frames on a pair of devices, over IPv4 and IPv6."""

import json
import signal
import socket
import struct
import subprocess

from networks import Namespace, until
from site_of_three import whole_checksums

PORT = 7000
# What any packet to a server has grown by may not make it longer than this.
MTU = 1500
# UDP and GUE, and UDP of the client.
SHIMS = 8 + 4 + 8


class Version:
    """A version of IP, and where its header has what."""

    def __init__(self, name, family, header, protocol, hops, addresses, network):
        self.name, self.family, self.header, self.protocol, self.hops = name, family, header, protocol, hops
        self.addresses, self.network = addresses, network

    def address(self, network, host):
        return self.network.format(network, host)


V4 = Version("ipv4", socket.AF_INET, 20, 4, 8, slice(12, 20), "10.0.{}.{}")
V6 = Version("ipv6", socket.AF_INET6, 40, 41, 7, slice(8, 40), "fd00:{}::{}")
# The networks of both pairs of devices, and the hosts on them.
WIRE, INNER = 1, 2
BALANCER, SERVER = 1, 2


def intact(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total == 0xffff


class Pair:
    """A balancer at one end of two pairs of devices; clients and two servers, one on each pair, at the other."""

    def __init__(self, quicket, scratch, clients, servers, mode):
        self.quicket, self.clients, self.servers, self.mode = quicket, clients, servers, mode
        self.longest = MTU - servers.header - clients.header - SHIMS
        self.sizes = [21, 22, 600, 1200, self.longest] * 4
        self.site = clients.address(WIRE, BALANCER)
        scratch.mkdir(parents=True, exist_ok=True)
        self.scratch, self.ids, self.file = scratch, scratch / "plain", scratch / "balance"
        self.ids.write_text("config 0 server-id 2 nonce 6 plain\n")
        self.process, self.other, self.namespaces, self.sockets = None, None, [], []

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            # Nobody else takes away what there is of it.
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.process, self.other:
            self.kill(process)
        for one in self.sockets:
            one.close()
        for namespace in self.namespaces:
            namespace.remove()

    def build(self):
        for name in "lb", "others":
            self.namespaces.append(Namespace(f"{name}{self.clients.protocol}{self.servers.protocol}"))
        self.a, self.b = self.namespaces
        for device in "wire", "inner":
            self.a.ip("link", "add", device, "type", "veth", "peer", "name", device, "netns", self.b.name)
        for end, host in (self.a, BALANCER), (self.b, SERVER):
            # A device that goes down for a while has its addresses of IPv6 afterwards.
            end.run("sysctl", "-q", "net.ipv6.conf.all.keep_addr_on_down=1")
            for device, network in ("wire", WIRE), ("inner", INNER):
                end.ip("addr", "add", V4.address(network, host) + "/24", "dev", device)
                end.ip("addr", "add", V6.address(network, host) + "/64", "dev", device, "nodad")
                end.ip("link", "set", device, "up")
        self.forward(0)
        whole_checksums(self.b, "wire")
        if self.mode == "native":
            # The other end of a pair receives what a driver's program sends only if it has such a program itself: that of
            # a balancer will do, which leaves alone what is for others.
            self.b.run("sysctl", "-q", "net.ipv4.conf.wire.forwarding=1")
            other = V4.address(WIRE, SERVER), V4.address(WIRE, BALANCER)
            self.other, said = self.balancer(self.b, self.scratch / "other", "listen {}:7001\nserver near {} id 0007\n"
                                             "connection-ids {}\nxdp wire native\n".format(*other, self.ids))
            assert "the kernel forwards what it can on wire" in said, said
        self.gue = {network: self.bind(self.servers, network, 6080) for network in (WIRE, INNER)}
        self.client = self.bind(self.clients, WIRE, 0)

    def bind(self, version, network, port):
        one = self.b.socket(version.family, socket.SOCK_DGRAM)
        self.sockets.append(one)
        one.bind((version.address(network, SERVER), port))
        one.settimeout(10)
        return one

    def forward(self, value):
        self.a.run("sysctl", "-q", f"net.{self.servers.name}.conf.wire.forwarding={value}")

    def balancer(self, namespace, file, text):
        """A balancer, and what it says until it is ready."""
        file.write_text(text)
        process = subprocess.Popen(namespace.command(*self.quicket, "balance", "--config", file), text=True,
                                   stderr=subprocess.PIPE)
        lines = [process.stderr.readline()]
        while lines[-1] and "ready" not in lines[-1]:
            lines.append(process.stderr.readline())
        if not lines[-1]:
            self.kill(process)
            raise SystemExit(f"no balancer is ready: {''.join(lines)}")
        return process, "".join(lines)

    def start(self, device):
        """Starts the balancer that is tested; what it says until it is ready."""
        self.kill(self.process)
        site = f"[{self.site}]" if self.clients is V6 else self.site
        near, far = (self.servers.address(network, SERVER) for network in (WIRE, INNER))
        self.process, said = self.balancer(
            self.a, self.file, f"listen {site}:{PORT}\nconnection-ids {self.ids}\nxdp {device} {self.mode}\n"
            f"server near {near} id 0007\nserver far {far} id 0009 drain\n")
        return said

    @staticmethod
    def kill(process):
        if process:
            process.kill()
            process.wait()

    def reread(self):
        self.process.send_signal(signal.SIGHUP)

    def send(self, head, size):
        sent = (head + bytes(range(256)) * 6)[:size]
        self.client.sendto(sent, (self.site, PORT))
        return sent

    def exchange(self, size, head=b"\x40\0\0\7", network=WIRE):
        """A datagram of a client's arrives at a server as it should."""
        sent = self.send(head, size)
        data, source = self.gue[network].recvfrom(2000)
        packet, ip = data[4:], self.clients
        assert source[0] == self.servers.address(network, BALANCER), source
        assert data[:4] == bytes([0, ip.protocol, 0, 0]), data[:4]
        assert packet[ip.hops] == 63 and (ip is V6 or intact(packet[:20])), packet
        assert packet[ip.header + 8:] == sent, packet
        pseudo = packet[ip.addresses] + struct.pack("!HH", 17, size + 8)
        assert intact(pseudo + packet[ip.header:]), "checksum of UDP"

    def report(self):
        report, = json.loads(self.a.run(*self.quicket, "balance", "status", "-j"))
        return report

    def counters(self):
        return self.report()["counters"]

    def counted(self, **expected):
        """The report, once all of these counters are so."""
        def look():
            report = self.report()
            return report if expected.items() <= report["counters"].items() else None
        return until(f"counters say {expected}", look)


def refusals(pair):
    """What is missing is said, and once it is there the kernel takes its part."""
    said = pair.start("nowhere")
    assert "the kernel forwards nothing on nowhere, all goes by user space: there is no such device" in said, said
    pair.exchange(100)
    report = pair.counted(received=1, in_kernel=0)
    assert not report["xdp"]["attached"], report
    said = pair.start("wire")
    assert f"sysctl net.{pair.servers.name}.conf.wire.forwarding=1" in said, said
    pair.forward(1)
    pair.reread()
    until("the kernel forwards", lambda: pair.report()["xdp"]["attached"])


def forwarding(pair):
    """What names a server leaves by the device that it came by, of all lengths; what names none, by user space."""
    said = pair.start("wire")
    assert "the kernel forwards what it can on wire" in said, said
    shown = pair.a.run("ip", "link", "show", "wire")
    assert "xdp" in shown and ("xdpgeneric" in shown) == (pair.mode == "generic"), shown
    for size in pair.sizes:
        pair.exchange(size)
    pair.exchange(300, b"\x40\xe0\1\1")
    report = pair.counted(received=21, named=20, hashed=1)
    counters, server = report["counters"], report["servers"][0]
    # The first packet may have user space find the neighbour.
    assert len(pair.sizes) - 1 <= counters["in_kernel"] <= len(pair.sizes), counters
    assert server["sent"] == 21 and report["xdp"]["servers_left_out"] == 0, report
    assert server["sent_bytes"] == sum(pair.sizes) + 300, server
    # One octet more is left to user space, which drops it.
    pair.send(b"\x40\0\0\7", pair.longest + 1)
    pair.counted(received=22, too_big=1, in_kernel=counters["in_kernel"])


def frames_of_others(pair):
    """A frame for another machine is not forwarded: the next one is what the server gets."""
    pair.b.ip("neigh", "replace", pair.site, "lladdr", "02:00:00:00:00:99", "dev", "wire")
    pair.send(b"\x40\0\0\7", 800)
    pair.b.ip("neigh", "del", pair.site, "dev", "wire")
    pair.exchange(101)


def another_device(pair):
    """A server behind another device: only behind the driver can a program send by it."""
    before = pair.counted(received=23)["counters"]
    for size in pair.sizes:
        pair.exchange(size, b"\x40\0\0\x09", INNER)
    report = pair.counted(received=before["received"] + 20, named=before["named"] + 20)
    grown = report["counters"]["in_kernel"] - before["in_kernel"]
    least, most = (len(pair.sizes) - 1, len(pair.sizes)) if pair.mode == "generic" else (0, 0)
    assert least <= grown <= most, report
    assert [server["sent"] for server in report["servers"]] == [22, 20], report


def another_file(pair):
    """Whatever the file says next is what the kernel goes by from then on."""
    before = pair.counters()["in_kernel"]
    pair.file.write_text(pair.file.read_text().replace("id 0007", "id 0008"))
    pair.reread()
    until("the file is taken up", lambda: pair.report()["files_taken_up"] == 2)
    pair.exchange(100)
    pair.exchange(100, b"\x40\0\0\x08")
    pair.counted(in_kernel=before + 1, unknown_server=1)


def device_away(pair):
    """A device that is gone for a while takes nothing off the counters, and is attached to again."""
    before = pair.counters()["in_kernel"]
    for old, new in ("wire", "away"), ("away", "wire"):
        pair.a.ip("link", "set", old, "down")
        pair.a.ip("link", "set", old, "name", new)
        pair.a.ip("link", "set", new, "up")
        pair.reread()
        until(f"the device is called {new}", lambda: pair.report()["xdp"]["attached"] == (new == "wire"))
        pair.counted(in_kernel=before)

    def forwards_again():
        pair.send(b"\x40\0\0\x08", 104)
        return pair.counters()["in_kernel"] > before
    until("the kernel forwards again", forwards_again)


def end(pair):
    """When the balancer ends, nothing is left."""
    assert "xdp" in pair.a.run("ip", "link", "show", "wire")
    pair.kill(pair.process)
    until("the program is gone with its process", lambda: "xdp" not in pair.a.run("ip", "link", "show", "wire"))


def in_the_kernel(quicket, scratch):
    """What names a server is forwarded by the kernel, as user space would: between all versions of IP, and in the
    driver."""
    cases = [(clients, servers, "generic") for clients in (V4, V6) for servers in (V4, V6)]
    for clients, servers, mode in *cases, (V4, V4, "native"), (V6, V6, "native"):
        with Pair(quicket, scratch, clients, servers, mode) as pair:
            for part in refusals, forwarding, frames_of_others, another_device, another_file, device_away:
                part(pair)
            counters = pair.counters()
            end(pair)
        print(f"balance: the kernel forwards by XDP ({mode}), clients of {clients.name} to servers over {servers.name}: "
              f"{counters['in_kernel']} of {counters['received']} datagrams", flush=True)
