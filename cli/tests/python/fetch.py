"""Fetches the files of a directory from a server at localhost with niquests, over HTTP/3, and compares them.

fetch.py PORT CA DIRECTORY
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import niquests


def session(port: int, ca: str, multiplexed: bool) -> niquests.Session:
    made = niquests.Session(multiplexed=multiplexed)
    # There is no TCP that would tell of HTTP/3.
    made.quic_cache_layer.add_domain("localhost", port)
    # Certificates that the environment names would count instead.
    made.trust_env = False
    made.verify = ca
    return made


def main() -> None:
    port, ca, directory = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    answers: list[tuple[str, niquests.Response]] = []

    def url(name: str) -> str:
        return f"https://localhost:{port}/{name}"

    one_by_one = session(port, ca, multiplexed=False)
    answers.append(("hello.txt", one_by_one.get(url("hello.txt"))))

    expected = (directory / "large").read_bytes()
    large = one_by_one.get(url("large"), stream=True)
    received = 0
    for piece in large.iter_content(1 << 16):
        assert piece == expected[received : received + len(piece)], f"large, at {received}"
        received += len(piece)

    names = [f"file{number}" for number in range(50)]
    at_once = session(port, ca, multiplexed=True)
    answers += [(name, at_once.get(url(name))) for name in names]
    at_once.gather()

    def fetch(name: str) -> tuple[str, niquests.Response]:
        with session(port, ca, multiplexed=False) as own:
            return name, own.get(url(name))

    with ThreadPoolExecutor(50) as threads:
        answers += threads.map(fetch, names)

    for name, answer in answers:
        assert answer.status_code == 200, f"{name}: {answer.status_code}"
        assert answer.content == (directory / name).read_bytes(), name
    versions = sorted({answer.http_version for _, answer in answers} | {large.http_version})
    print(json.dumps({"versions": versions, "answers": len(answers) + 1, "large": received}))


if __name__ == "__main__":
    main()
