#!/usr/bin/env python3
"""What could be read in two ways, over HTTP/2 and HTTP/3, before a server of HTTP/1.1 that keeps every byte (recording_origin.py): of each
request it gets just what was meant, or nothing; the client hears of that by a status that is counted, by a reset, or by the end of its
connection; and whoever asks next is answered for what was asked."""

import collections
import http.client
import pathlib
import ssl
import sys
import tempfile

sys.dont_write_bytecode = True
from environment import go_on_with_packages  # noqa: E402
from gateway_site import LONG, certificate, end_as_a_failure, fail, free_port, options, say, until  # noqa: E402
from malformed import refused  # noqa: E402
from recording_origin import Origin  # noqa: E402
from served import gateway  # noqa: E402
from smuggling_cases import MEANT, NOTHING, cases  # noqa: E402

FILE = """listen = ["127.0.0.1:{port}"]
[[certificate]]
chain = "certificate.pem"
key = "key.pem"
[origin.app]
servers = ["http://127.0.0.1:{origin}"]
retries = 0
max_failures = 1000000
[[site]]
names = ["localhost"]
[[site.route]]
origin = "app"
[metrics]
listen = "unix:{folder}/metrics.sock"
"""


class Next:
    """Another client, over one connection of HTTP/1.1, whose requests share the server's connections."""

    def __init__(self, port, trusted):
        context = ssl.create_default_context(cafile=trusted)
        self.connection, self.count = http.client.HTTPSConnection("localhost", port, timeout=LONG, context=context), 0

    def ask(self):
        self.count += 1
        self.connection.request("GET", f"/next/{self.count}")
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(), f"GET /next/{self.count}"


class Check:
    def __init__(self, origin, folder, other):
        self.origin, self.folder, self.other, self.failed, self.counts = origin, folder, other, [], collections.Counter()

    def run(self, version, client, case):
        before = sum(refused(self.folder).values())
        outcome, body = client.ask(case)
        status, said, wanted = self.other.ask()
        problems = [] if (status, said) == (200, wanted) else [f"who asks next is answered {status}, {said!r}"]
        # A request that was begun and has no end is heard of by the end of its connection.
        until(f"{case.name} over {version}: nothing is under way", lambda: self.origin.begun == 0)
        requests, wrong = self.origin.taken()
        requests = [request for request in requests if not request.target.startswith(b"/next/")]
        problems += wrong
        if len(requests) > 1:
            problems.append(f"{len(requests)} requests")
        for request in requests:
            problems += [] if case.expected != NOTHING else [f"it came through: {vars(request)}"]
            problems += differences(case, request)
        if case.expected == MEANT and not (requests and outcome == 200):
            problems.append(f"nothing came through: {outcome}")
        elif not requests and isinstance(outcome, int):
            # What is refused is counted, by whatever name.
            if outcome < 400:
                problems.append(f"{outcome} for nothing")
            elif sum(refused(self.folder).values()) <= before:
                problems.append(f"{outcome}, and it was not counted")
        self.counts[outcome] += 1
        self.failed += [f"{version}, {case.name}: {problem}" for problem in problems]


def differences(case, request):
    meant = case.meant()
    got = (request.method, request.target, request.body)
    if got != meant:
        yield f"{got}, and not {meant}"
    if request.all(b"host") != [b"localhost"]:
        yield f"host: {request.all(b'host')}"
    for name, value in case.seen:
        if request.all(name) != [value]:
            yield f"{name}: {request.all(name)}"
    if any(name != b"x-last" for name, _ in request.trailers):
        yield f"trailers {request.trailers}"


def main():
    arguments = options(__doc__).parse_args()
    go_on_with_packages()
    from smuggling_client import Three, Two
    end_as_a_failure()
    with tempfile.TemporaryDirectory(prefix="quicket-smuggling-") as folder:
        folder, origin, port = pathlib.Path(folder), Origin(), free_port()
        certificate(folder)
        text, trusted = FILE.format(port=port, origin=origin.port, folder=folder), str(folder / "certificate.pem")
        with gateway(arguments.quicket, folder, text) as server:
            check = Check(origin, folder, Next(port, trusted))
            everything = list(cases())
            for version, client in ("HTTP/2", Two(port, trusted)), ("HTTP/3", Three(port, trusted)):
                for case in everything:
                    check.run(version, client, case)
                client.end()
                outcomes = ", ".join(f"{count} {outcome}" for outcome, count in check.counts.most_common())
                say(f"{version}: {len(everything)} requests: {outcomes}")
                check.counts.clear()
            if server.has_ended():
                fail(f"the gateway has ended: {server.said()}")
            if check.failed:
                fail("\n".join(check.failed))


if __name__ == "__main__":
    main()
