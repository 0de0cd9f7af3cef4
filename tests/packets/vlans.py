"""VLANs on a device of the switch for packets, with Debian's kernel in a virtual machine: not every kernel has them.

usage: vlans.py --quicket PROGRAM --echo PROGRAM --preload LIBRARY --scratch FOLDER

In the guest are two network namespaces that a pair of virtual devices joins, each with devices of the system's for VLANs on its
end. Here, the end is attached, and stacks have ports; there are programs of the system alone. Needs root, QEMU, busybox, ethtool,
iproute2 and perl; the kernel is unpacked to the scratch folder.
"""

import argparse
import json
import pathlib
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tunnel"))
import guest as guests  # noqa: E402

MODULES = ["veth", "8021q"]
SWITCH = "/tmp/packets"
# The address of this end of each network, and that of the other one: without a tag, and in two VLANs.
NETWORKS = {"va": ("192.0.2.1", "192.0.2.2"), "va.100": ("198.51.100.1", "198.51.100.2"), "va.200": ("203.0.113.1", "203.0.113.2")}
# That of VLAN 100 here is not that of the device below.
MAC = "02:00:00:00:01:00"
# An address of no network.
EVERYWHERE = "10.7.7.7"
OFFLOADS = "/sbin/ethtool -k va | grep rx-vlan-offload"
# Whom a datagram must not reach: how long an answer may take that does not come, in seconds. Others take a few milliseconds.
PATIENCE = 1

# Perl's modules stay at home: it gets addresses as the system has them, in hexadecimal.
# Sends a datagram, from another address of this end if that is said, and prints what comes back.
ASK = """
my ($to, $text, $patience, $from) = @ARGV;
($to, $from) = map { pack "H*", $_ // "" } $to, $from;
socket(S, unpack("S", $to), 2, 0) or die "socket: $!";
if (length $from) { bind(S, $from) or die "bind: $!" }
connect(S, $to) or die "connect: $!";
defined send(S, $text, 0) or die "send: $!";
my ($ready, $answer) = ("");
vec($ready, fileno(S), 1) = 1;
if (select($ready, undef, undef, $patience)) { defined recv(S, $answer, 65535, 0) or $answer = "error: $!" }
print defined $answer ? "answer $answer\\n" : "nothing\\n";
"""

# A server that sends back what it gets, connection after connection.
SERVER = """
socket(L, 2, 1, 0) or die "socket: $!";
bind(L, pack "H*", $ARGV[0]) or die "bind: $!";
listen(L, 16) or die "listen: $!";
while (accept(C, L)) {
  while (sysread(C, my $piece, 65536)) {
    while (length $piece) { my $n = syswrite(C, $piece) or last; substr($piece, 0, $n) = "" }
  }
  close C;
}
"""

# Sends so many octets, reads them back, and says whether they are the same.
BULK = """
my ($to, $len) = @ARGV;
socket(S, 2, 1, 0) or die "socket: $!";
connect(S, pack "H*", $to) or die "connect: $!";
my $data = join "", map { pack "N", $_ * 2654435761 & 0xffffffff } 1 .. $len / 4;
my $child = fork;
if (!$child) {
  for (my $at = 0; $at < $len;) { $at += syswrite(S, $data, 65536, $at) or die "write: $!" }
  shutdown(S, 1);
  exit 0;
}
my $back = "";
while (sysread(S, $back, 65536, length $back)) {}
print $back eq $data ? "the same\\n" : "others: " . length($back) . "\\n";
"""


def sockaddr(address, port=0):
    """`struct sockaddr_in` or `sockaddr_in6`, in hexadecimal."""
    if ":" in address:
        return (struct.pack("=H", 10) + struct.pack("!HI", port, 0) + socket.inet_pton(socket.AF_INET6, address) + bytes(4)).hex()
    return (struct.pack("=H", 2) + struct.pack("!H", port) + socket.inet_aton(address) + bytes(8)).hex()


class Machine:
    def __init__(self, options):
        scratch = pathlib.Path(options.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        programs = [options.quicket, options.echo, options.preload, "/usr/sbin/ethtool"]
        files = {"ask": ASK, "server": SERVER, "bulk": BULK}
        begun = time.monotonic()
        self.guest = guests.Guest(scratch, modules=MODULES, programs=programs, files=files, memory=768)
        print(f"vlans: Linux {self.guest.version} is up after {time.monotonic() - begun:.1f} s", flush=True)

    def run(self, command, **more):
        return self.guest.run(command, **more)

    def there(self, command, **more):
        return self.run(f"/sbin/ip netns exec far {command}", **more)

    def quicket(self, words, **more):
        return self.run(f"/sbin/quicket switch {words} --name {SWITCH}", **more)

    def device(self):
        """What the switch says of the device."""
        return json.loads(self.quicket("devices --json"))["devices"][0]

    def count(self):
        """How many frames have come to ports by the device, and how many were of a VLAN that their destination is not in."""
        device = self.device()
        return device["received"], device["dropped"].get("vlan", 0)

    def until(self, what, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"

    def stack(self, address, port=7000):
        """A stack of ours on a port, which sends each datagram back."""
        log = f"/tmp/echo-{address}"
        self.run(f"/sbin/echo {SWITCH} {bracketed(address)}:{port} >{log} 2>&1 & true")
        self.until(f"{address} is registered", lambda: address in self.run(f"cat {log}"))

    def asks(self, address, port=7000, patience=30, source=""):
        """Whether the other end gets an answer."""
        addresses = sockaddr(address, port), sockaddr(source) if source else ""
        said = self.there(f"/sbin/perl /ask {addresses[0]} hello {patience} {addresses[1]}")
        assert said.strip() in ("answer hello", "nothing"), said
        return "answer" in said

    def frames(self, device, way="rx"):
        """How many frames have come to the other end by a device there, or have left."""
        return int(self.there(f"cat /sys/class/net/{device}/statistics/{way}_packets"))

    def is_left_alone(self, address, device, source=""):
        """Whether the other end gets no answer to a datagram that has left by its device."""
        before = self.frames(device, "tx")
        is_answered = self.asks(address, patience=PATIENCE, source=source)
        assert self.frames(device, "tx") > before, f"nothing has left by {device}"
        return not is_answered


def bracketed(address):
    return f"[{address}]" if ":" in address else address


def set_up(machine):
    run, there = machine.run, machine.there
    run("/sbin/ip netns add far")
    run("/sbin/ip link add va type veth peer name vb netns far")
    there("/sbin/ip link set lo up")
    # Tags are in the frames that leave there, as they are on a wire.
    there("/sbin/ethtool -K vb tx-vlan-offload off")
    for number in 100, 200:
        run(f"/sbin/ip link add link va name va.{number} type vlan id {number}")
    for number in 100, 200, 300:
        there(f"/sbin/ip link add link vb name vb.{number} type vlan id {number}")
    run(f"/sbin/ip link set va.100 address {MAC}")
    run("/sbin/ip link set va up")
    there("/sbin/ip link set vb up")
    for device, (here, far) in NETWORKS.items():
        run(f"/sbin/ip addr add {here}/24 dev {device}; /sbin/ip link set {device} up")
        other = device.replace("va", "vb")
        there(f"/sbin/ip addr add {far}/24 dev {other}")
        there(f"/sbin/ip link set {other} up")
    there("/sbin/ip link set vb.300 up")
    run("/sbin/ip addr add 2001:db8:100::1/64 dev va.100 nodad")
    there("/sbin/ip addr add 2001:db8:100::2/64 dev vb.100 nodad")
    there("/sbin/ip addr add 2001:db8::2/64 dev vb nodad")
    run(f"/sbin/ip addr add {EVERYWHERE}/32 dev lo")


def host(address):
    return f"{address}/{128 if ':' in address else 32}"


def lists(machine, expected):
    """Which VLANs the switch says to serve: their numbers, and the system's devices for them."""
    def vlans():
        return {vlan["vlan"]: vlan["device"] for vlan in machine.device()["vlans"]}
    machine.until(f"{expected} are listed", lambda: vlans() == expected)


def lead(machine, address, device):
    """From now on the other end sends what is for an address by that device, whoever is there."""
    mac = MAC if device == "vb.100" else machine.run("cat /sys/class/net/va/address").strip()
    machine.there(f"/sbin/ip route replace {host(address)} dev {device}")
    machine.there(f"/sbin/ip neigh replace {address} lladdr {mac} dev {device} nud permanent")


def unlead(machine, address):
    machine.there(f"/sbin/ip route del {host(address)}")


def answers(machine):
    """Each stack is reached in its own network, and answers with its tag."""
    for device, (here, _) in NETWORKS.items():
        other = device.replace("va", "vb")
        before, came = machine.frames(other), machine.count()
        assert machine.asks(here), f"{here} does not answer by {other}"
        assert machine.frames(other) > before, f"the answer of {here} has not come by {other}"
        assert machine.count()[0] > came[0], f"the port of {here} has got nothing"
    assert machine.asks("2001:db8:100::1"), "no answer over IPv6"
    print("vlans: stacks answer in their VLANs, and without a tag", flush=True)


def apart(machine):
    """A datagram that is right but for the tag."""
    for own, (here, _) in NETWORKS.items():
        for other in "vb", "vb.100", "vb.200", "vb.300":
            if other == own.replace("va", "vb"):
                continue
            lead(machine, here, other)
            received, dropped = machine.count()
            assert machine.is_left_alone(here, other, NETWORKS[own][1]), f"{here} is reached by {other}"
            # Nobody here is in the VLAN 300: its frames are the system's.
            expected = dropped + (0 if other == "vb.300" else 1)
            assert machine.count() == (received, expected), f"{here} by {other}: {machine.count()}, not {received, expected}"
            unlead(machine, here)
    print("vlans: no stack is reached by another tag, nor without its own", flush=True)


def everywhere(machine):
    """An address of the loopback device is one of no network."""
    for other in "vb", "vb.100", "vb.200":
        lead(machine, EVERYWHERE, other)
        assert machine.asks(EVERYWHERE), f"{EVERYWHERE} is not reached by {other}"
    lead(machine, EVERYWHERE, "vb.300")
    assert machine.is_left_alone(EVERYWHERE, "vb.300", "192.0.2.2"), "by a VLAN that nobody is in"
    unlead(machine, EVERYWHERE)
    print("vlans: an address of lo is reached by all", flush=True)


def pings(machine):
    """What is no port's: asking for addresses of Ethernet, and ping."""
    for device, (here, far) in NETWORKS.items():
        machine.there(f"/sbin/ip neigh flush dev {device.replace('va', 'vb')}")
        machine.there(f"ping -c 1 -W 20 {here}")
        machine.run(f"/sbin/ip neigh flush dev {device}; ping -c 1 -W 20 {far}")


def stays_closed(machine, address, why):
    """What comes without a tag does not reach it, and what has the tag is led there again."""
    lead(machine, address, "vb")
    received = machine.count()[0]
    source = "2001:db8::2" if ":" in address else NETWORKS["va"][1]
    assert machine.is_left_alone(address, "vb", source), f"without a tag: {why}"
    assert machine.count()[0] == received, f"a port has got what came without a tag: {why}"
    unlead(machine, address)
    if ":" not in address:
        lead(machine, address, "vb.100")


def comes_and_goes(machine):
    """The device of a VLAN is switched off and on, deleted, and added."""
    here, _ = NETWORKS["va.100"]
    lead(machine, here, "vb.100")
    machine.run("/sbin/ip link set va.100 down")
    assert machine.is_left_alone(here, "vb.100"), "the VLAN is down"
    lists(machine, {200: "va.200"})
    stays_closed(machine, here, "the VLAN is down")
    stays_closed(machine, "2001:db8:100::1", "the VLAN is down, and IPv6 has lost its address")
    machine.run("/sbin/ip link set va.100 up")
    assert machine.asks(here), "it is up again"
    machine.run("/sbin/ip link set va.100 address 02:00:00:00:01:01")
    assert machine.is_left_alone(here, "vb.100"), "it has another address of Ethernet"
    machine.run(f"/sbin/ip link set va.100 address {MAC}")
    assert machine.asks(here), "it has the first one again"
    machine.run(f"/sbin/ip addr del {here}/24 dev va.100")
    stays_closed(machine, here, "the address is gone")
    machine.run(f"/sbin/ip addr add {here}/24 dev va.100")
    lead(machine, here, "vb.100")
    assert machine.asks(here), "the address is there again"
    machine.run("/sbin/ip link del va.100")
    assert machine.is_left_alone(here, "vb.100"), "the VLAN is gone"
    stays_closed(machine, here, "the VLAN is gone")
    machine.run("/sbin/ip link add link va name again type vlan id 100")
    machine.run(f"/sbin/ip link set again address {MAC} up; /sbin/ip addr add {here}/24 dev again")
    assert machine.asks(here), "it is there again"
    # Tags of providers with that number are none of it.
    machine.there("/sbin/ip link add link vb name provider type vlan id 100 protocol 802.1ad")
    machine.there("/sbin/ip link set provider up")
    lead(machine, here, "provider")
    assert machine.is_left_alone(here, "provider", NETWORKS["va.100"][1]), "by a tag of a provider"
    unlead(machine, here)
    machine.run("/sbin/ip link add link va name late type vlan id 400; /sbin/ip link set late up; /sbin/ip addr add 10.4.0.1/24 dev late")
    machine.there("/sbin/ip link add link vb name late type vlan id 400")
    machine.there("/sbin/ip addr add 10.4.0.2/24 dev late")
    machine.there("/sbin/ip link set late up")
    machine.stack("10.4.0.1")
    assert machine.asks("10.4.0.1"), "a VLAN that came later"
    lists(machine, {100: "again", 200: "va.200", 400: "late"})
    print("vlans: devices of VLANs go and come", flush=True)


def transfer(machine):
    """TCP: the stack of ours under a program of the system, and the system's own stack at the other end."""
    here, _ = NETWORKS["va.200"]
    machine.run(f"/sbin/quicket run --tcp-by {SWITCH} -- /sbin/perl /server {sockaddr(here, 8000)} >/tmp/server 2>&1 & true")
    size = 1 << 20
    before = machine.frames("vb.200")

    def bulk():
        return machine.there(f"/sbin/perl /bulk {sockaddr(here, 8000)} {size}", seconds=120, check=False)

    deadline = time.monotonic() + 60
    while "the same" not in (said := bulk()):
        assert "refused" in said and time.monotonic() < deadline, f"{said}; {machine.run('cat /tmp/server')}"
    frames = machine.frames("vb.200") - before
    assert frames > size // 1500, f"{frames} frames have come by the VLAN"
    print(f"vlans: TCP brings {size} octets there and back", flush=True)


def errors(machine):
    """Nobody listens there: the system says so in the VLAN, and the port is told."""
    _, far = NETWORKS["va.200"]
    begun = time.monotonic()
    said = machine.run(f"/sbin/quicket get --port-of {SWITCH} --insecure-no-verify https://{far}:4433/nothing 2>&1", check=False)
    took = time.monotonic() - begun
    assert "connection refused" in said and "(ICMP)" in said, said
    assert took < 20, f"it took {took:.1f} s: {said}"
    print("vlans: errors of ICMP are heard", flush=True)


def alone(machine):
    """The device of the VLAN itself is attached, and not the one below."""
    (here, _), (untagged, far) = NETWORKS["va.100"], NETWORKS["va"]
    machine.quicket("attach va.100 --mode generic")
    lists(machine, {})
    assert machine.asks(here), "the device of a VLAN alone"
    lead(machine, untagged, "vb.100")
    dropped = machine.count()[1]
    assert machine.is_left_alone(untagged, "vb.100", far), "an address without a VLAN, by that of one"
    assert machine.count()[1] == dropped + 1, "it has come, and was dropped"
    unlead(machine, untagged)
    said = machine.run(f"/sbin/quicket switch attach va --name {SWITCH} 2>&1", check=False)
    assert "detach" in said and "above" in said, said
    machine.quicket("detach va.100")
    print("vlans: the device of a VLAN is attached alone", flush=True)


def detached(machine, offloads):
    """Nothing is left behind, and the VLANs are the system's."""
    machine.quicket("detach va")
    assert "prog" not in machine.run("/sbin/ip -d link show dev va"), "the program is still there"
    assert machine.run(OFFLOADS) == offloads, "the offload of tags is not as it was"
    for device, (here, _) in NETWORKS.items():
        assert machine.is_left_alone(here, device.replace("va", "vb")), f"{here} still answers"
    pings(machine)
    print("vlans: nothing is left behind", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in "quicket", "echo", "preload", "scratch":
        parser.add_argument(f"--{name}", required=True)
    machine = Machine(parser.parse_args())
    try:
        set_up(machine)
        offloads = machine.run(OFFLOADS)
        machine.run(f"ulimit -l unlimited; /sbin/quicket switch packets --name {SWITCH} >/tmp/switch 2>&1 & true")
        machine.until("the switch is there", lambda: "there" in machine.run(f"[ -S {SWITCH} ] && echo there || true"))
        # What is there before a device is attached, and what comes afterwards.
        machine.stack(NETWORKS["va"][0])
        machine.stack(NETWORKS["va.100"][0])
        said = machine.quicket("attach va").strip()
        print(said, flush=True)
        assert "VLANs: 100 (va.100), 200 (va.200)" in said, "they are shown"
        lists(machine, {100: "va.100", 200: "va.200"})
        machine.stack(NETWORKS["va.200"][0])
        machine.stack("2001:db8:100::1")
        machine.stack(EVERYWHERE)
        pings(machine)
        answers(machine)
        apart(machine)
        everywhere(machine)
        transfer(machine)
        errors(machine)
        detached(machine, offloads)
        alone(machine)
        print(machine.quicket("attach va --mode generic").strip(), flush=True)
        answers(machine)
        apart(machine)
        everywhere(machine)
        comes_and_goes(machine)
        detached(machine, offloads)
    finally:
        machine.guest.close()


if __name__ == "__main__":
    main()
