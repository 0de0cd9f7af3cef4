#!/usr/bin/env python3
"""What gateways, the switch, tunnels, a balancer and a key process tell Prometheus, after traffic, as others read it: the parsers of
Prometheus' own client library for Python, and the rules of promtool. Needs root: hosts are network namespaces."""

import collections
import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from environment import ROOT, go_on_with_packages  # noqa: E402
import gateway_site  # noqa: E402
from gateway_site import VERSIONS, ask, end_as_a_failure, fail, options, say  # noqa: E402

# How Prometheus asks, and what it knows the answer by.
ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
OPENMETRICS = "application/openmetrics-text"
# Something of each that has to be there after traffic: names, and the least value of all their samples together.
SEEN = {
    "gateway": {"quicket_gateway_requests_total": 3, "quicket_gateway_quic_handshakes_total": 1, "quicket_gateway_request_seconds_count": 3},
    # Where the kernel helps, nothing may have come through the switch.
    "switch": {"quicket_switch_program_workers": 1, "quicket_switch_program_state": 1, "quicket_switch_kernel_sockets": 0,
               "quicket_switch_program_first_packets_total quicket_switch_program_first_packets_by_kernel_total": 1},
    "balance": {"quicket_balance_received_total": 3, "quicket_balance_server_state": 3},
    "keyd": {"quicket_keyd_signatures_total": 3, "quicket_keyd_signature_seconds_total": 0.0001},
    "tunnel": {"quicket_tunnel_rx_packets_total": 1, "quicket_tunnel_mtu_bytes": 1000},
}


def demo_site():
    spec = importlib.util.spec_from_file_location("demo_site", ROOT / "scripts" / "demo-site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promtool():
    """That of Debian, unpacked and not installed: the package brings a service."""
    folder = ROOT / "target" / "promtool"
    program = folder / "promtool"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    # Only what was unpacked whole gets its name.
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        scratch = pathlib.Path(scratch)
        done = subprocess.run(["apt-get", "download", "-q", "prometheus"], cwd=scratch, capture_output=True, text=True)
        package = next(scratch.glob("prometheus_*.deb"), None)
        if done.returncode or not package:
            fail(f"promtool is in Debian's package prometheus, which does not come: {done.stderr}")
        with (scratch / "all.tar").open("wb") as tar:
            subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=tar, check=True)
        subprocess.run(["tar", "-x", "-C", scratch, "-f", scratch / "all.tar", "./usr/bin/promtool"], check=True)
        shutil.move(scratch / "usr" / "bin" / "promtool", program)
    return program


class Judge:
    """Reads what was told, as others do."""

    def __init__(self):
        self.promtool, self.families = promtool(), 0

    def look(self, what, text, is_openmetrics=False):
        from prometheus_client import exposition, parser
        from prometheus_client.openmetrics import parser as strict
        read = strict if is_openmetrics else parser
        families = list(read.text_string_to_metric_families(text))
        names = collections.Counter(family.name for family in families)
        assert families and max(names.values()) == 1, f"{what}: families that come twice: {names.most_common(3)}"
        for family in families:
            self.family(what, family)
        sums = collections.Counter()
        for family in families:
            for sample in family.samples:
                sums[sample.name] += sample.value
        for names, least in SEEN[what].items():
            missing = [name for name in names.split() if name not in sums]
            assert not missing, f"{what}: there is no {missing}"
            seen = sum(sums[name] for name in names.split())
            assert seen >= least, f"{what}: {names} is {seen} after traffic"
        # promtool reads no OpenMetrics: it gets the same in the other format, by the same library.
        plain = text if not is_openmetrics else exposition.generate_latest(Again(families)).decode()
        done = subprocess.run([self.promtool, "check", "metrics"], input=plain, capture_output=True, text=True)
        if done.returncode or done.stderr:
            fail(f"{what}: promtool says {done.returncode}\n{done.stderr}")
        self.families += len(families)

    @staticmethod
    def family(what, family):
        where = f"{what}: {family.name}"
        # What the program does not know of itself it calls another version's.
        help = family.documentation.strip()
        assert help and "another version" not in help, f"{where} has no HELP: {help}"
        assert family.type in ("counter", "gauge", "histogram"), f"{where} is {family.type}"
        series = collections.Counter((sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples)
        assert not series or max(series.values()) == 1, f"{where}: {series.most_common(1)}"
        for sample in family.samples:
            endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[family.type]
            assert any(sample.name == family.name + ending for ending in endings), f"{where}: {sample.name}"
            assert sample.value >= 0, f"{where}: {sample}"


class Again:
    """Families as a registry has them."""

    def __init__(self, families):
        self.families = families

    def collect(self):
        return self.families


def gateway_metrics(path):
    """As Prometheus asks for them."""
    kind, content = ask(path, "/metrics", Accept=ACCEPT)
    assert kind.startswith(OPENMETRICS), kind
    return content.decode()


class Switched(gateway_site.Site):
    """One gateway behind the switch."""

    protocols = '\n[metrics]\nlisten = "unix:{folder}/metrics.sock"\n'

    def __init__(self, quicket, folder):
        self.protocols = self.protocols.format(folder=folder)
        super().__init__(quicket, folder)

    def tell(self, judge):
        for version in VERSIONS:
            self.fetch(version, "page")
        self.carry()
        self.read_again()
        judge.look("gateway", gateway_metrics(self.folder / "metrics.sock"), is_openmetrics=True)
        told = subprocess.run([self.quicket, "switch", "status", "--prometheus"], env=self.environment, capture_output=True, text=True, check=True)
        judge.look("switch", told.stdout)


def whole_site(judge, demo, quicket, folder):
    """The site of ./demo site: three gateways behind a balancer and tunnels, with a store and a key process."""
    with contextlib.ExitStack() as stack:
        site = demo.Site(quicket, folder)
        stack.callback(site.end)
        site.build()
        clients = demo.Clients(site)
        stack.callback(clients.over.set)
        clients.watch()
        clients.end()
        # The spreader sends each client to one of them, so that some gateway has had clients.
        told = [gateway_metrics(folder / f"metrics-{number}.sock") for number in range(1, len(demo.GATEWAYS) + 1)]
        busiest = max(told, key=lambda text: text.count('quicket_gateway_requests_total{'))
        judge.look("gateway", busiest, is_openmetrics=True)
        served = next(name for name, text in zip(demo.GATEWAYS, told) if text is busiest)
        for what, host, command in (("balance", "spreader", "balance status"), ("keyd", "keys", "keyd status"), ("tunnel", served, "tunnel show")):
            namespace = site.hosts[host].namespace
            done = subprocess.run(namespace.command(quicket, *command.split(), "--prometheus"), env=site.environment, capture_output=True, text=True)
            if done.returncode:
                fail(f"quicket {command}: {done.stderr}")
            judge.look(what, done.stdout)


def one_gateway(judge, quicket):
    with tempfile.TemporaryDirectory(prefix="quicket-metrics-") as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        # nginx's workers are of another user.
        folder.chmod(0o755)
        site = Switched(quicket, folder)
        stack.callback(site.end)
        site.tell(judge)


def main():
    arguments = options(__doc__).parse_args()
    if os.geteuid() != 0:
        fail("network namespaces take root")
    end_as_a_failure()
    go_on_with_packages()
    judge = Judge()
    one_gateway(judge, arguments.quicket)
    with tempfile.TemporaryDirectory(prefix="quicket-metrics-") as folder:
        whole_site(judge, demo_site(), arguments.quicket, pathlib.Path(folder))
    say(f"metrics: {judge.families} families of gateways, switch, balancer, key process and tunnel, as Prometheus' client library and promtool read them")


if __name__ == "__main__":
    main()
