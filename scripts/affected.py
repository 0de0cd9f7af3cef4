#!/usr/bin/env python3
"""Tests what the working tree changed, and what depends on it, within about two minutes.

Changed is what differs from the merge base with main (on main: from the commit before), uncommitted
and new files included. All tests of a crate that changed are run, or those that OWN names; of crates that depend on it, those
that QUICK names, unless NEAR says that they are too far. Left out: tests that need other implementations
or minutes (LEFT_OUT), and examples in documentation. --plan says what would be run; files may be named instead of asking git.
"""

import argparse
import json
import os
import subprocess
import sys
import time

# Not even where the crate itself changed.
LEFT_OUT = {("quicket-lab", name) for name in ("interop", "bench", "sockets")}
# What is run of a crate when something changed that it depends on; None stands for its unit tests.
QUICK = {
    "quicket-engine": [None, "simulation", "hostile"],
    "quicket-handshake": [None, "handshake"],
    "quicket": [None, "echo", "lifecycle", "transfer", "early_data"],
    "quicket-switch": [None, "client"],
    "quicket-files": [None],
    "quicket-front": [None],
    "quicket-keyd": [None, "process"],
    "quicket-register": [None, "simulation"],
    "quicket-gateway": [None, "routes"],
    "quicket-c": [None, "linked"],
    "quicket-preload": [],
    "quicket-h3": [None, "loopback"],
    "quicket-cli": [None, "files"],
    "quicket-lab": [],
    "quicket-peer": [],
    "quicket-sim": [],
}
# What is run of a crate that changed itself, where all of its tests take more than two minutes to build and run.
OWN = {"quicket-gateway": [None, "clients", "hostile", "routes"]}
# The program takes half as long to build as all below it. Its tests are run for what it alone brings
# to users; what it shares with others their tests show.
NEAR = {"quicket-cli": {"quicket-files", "quicket-front", "quicket-h3", "quicket-preload", "quicket-tunnel"}}
# Together they ask of the crates of others all that the workspace asks of them (LIKE_ALL in ./test).
FEATURES = {"quicket-cli", "quicket-ring", "quicket-switch"}
# These change everything.
ROOT = {"Cargo.toml", "Cargo.lock"}
# The engine's tests compare it with what is written about it.
WRITTEN = ("ARCHITECTURE.md", "docs/")


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def changed_files():
    base = "HEAD"
    for main in ("main", "origin/main"):
        found = subprocess.run(["git", "merge-base", "HEAD", main], capture_output=True, text=True)
        if found.returncode == 0:
            base = found.stdout.strip()
            break
    if base == "HEAD" or base == output("git", "rev-parse", "HEAD").strip():
        # The first commit has none before it.
        before = subprocess.run(["git", "rev-parse", "--verify", "--quiet", "HEAD~1"], capture_output=True, text=True)
        base = before.stdout.strip() or "HEAD"
    new = output("git", "ls-files", "--others", "--exclude-standard")
    return set((output("git", "diff", "--name-only", base) + new).splitlines())


class Workspace:
    def __init__(self):
        metadata = json.loads(output("cargo", "metadata", "--no-deps", "--format-version", "1"))
        root = metadata["workspace_root"]
        self.packages = {package["name"]: package for package in metadata["packages"]}
        self.folder = {
            name: os.path.relpath(os.path.dirname(package["manifest_path"]), root) + "/"
            for name, package in self.packages.items()
        }

    def owners(self, files):
        """The crates to which files belong."""
        if files & ROOT:
            return set(self.packages)
        owners = set()
        for file in files:
            inside = [name for name, folder in self.folder.items() if file.startswith(folder)]
            # Peers have workspaces of their own below the lab's folder.
            if inside and not (file.startswith("lab/peers/") and not file.startswith("lab/peers/common/")):
                owners.add(max(inside, key=lambda name: len(self.folder[name])))
        return owners

    def dependents(self, of):
        """Crates that depend on some, over any number of others; those used by tests count once."""
        needs = lambda package, kinds: {
            d["name"] for d in package["dependencies"] if d.get("path") and d["kind"] in kinds
        }
        found = set(of)
        while more := {n for n, p in self.packages.items() if n not in found and needs(p, {None, "build"}) & found}:
            found |= more
        found |= {n for n, p in self.packages.items() if needs(p, {"dev"}) & found}
        return found - set(of)

    def tests(self, name, only=None):
        """Test targets of a crate: name and kind."""
        chosen = set()
        for target in self.packages[name]["targets"]:
            kind = target["kind"][0]
            unit = kind not in ("test", "bench", "example", "custom-build")
            wanted = only is None or (None if unit else target["name"]) in only
            if target["test"] and (unit or kind == "test") and wanted and (name, target["name"]) not in LEFT_OUT:
                chosen.add((name, "bin" if kind == "bin" else "lib" if unit else "test", target["name"]))
        return chosen


def own(workspace, name, files):
    """The tests of a crate that changed itself: those that OWN names and those whose files changed."""
    if name not in OWN:
        return None
    begin = workspace.folder[name] + "tests/"
    changed = {file.removeprefix(begin).split("/")[0].removesuffix(".rs") for file in files if file.startswith(begin)}
    return set(OWN[name]) | changed


def choose(workspace, files):
    changed = workspace.owners(files)
    tests = set()
    for name in changed:
        # If everything changed there is time for the quick ones only.
        tests |= workspace.tests(name, QUICK.get(name, [None]) if files & ROOT else own(workspace, name, files))
    for name in workspace.dependents(changed):
        if changed & NEAR.get(name, changed):
            tests |= workspace.tests(name, QUICK.get(name, [None]))
    if any(file.startswith(WRITTEN) for file in files):
        tests |= workspace.tests("quicket-engine", ["documentation"])
    return tests


def build(tests):
    """Builds the tests; returns what to start, where. FEATURES are always among the packages: with the
    same features for each crate, nothing is built twice."""
    command = ["cargo", "test", "--no-run", "--quiet", "--message-format=json-render-diagnostics"]
    for name in sorted({name for name, _, _ in tests} | FEATURES):
        command += ["-p", name]
    kinds = {kind for _, kind, _ in tests}
    command += ["--lib"] * ("lib" in kinds) + ["--bins"] * ("bin" in kinds)
    for target in sorted({target for _, kind, target in tests if kind == "test"}):
        command += ["--test", target]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("affected.py: the tests cannot be built, see above")
    programs = []
    for message in map(json.loads, done.stdout.splitlines()):
        if message.get("executable") and message["profile"]["test"]:
            target, folder = message["target"], os.path.dirname(message["manifest_path"])
            kind = target["kind"][0] if target["kind"][0] in ("bin", "test") else "lib"
            programs.append((folder, kind, target["name"], message["executable"]))
    return programs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="say what would be run, and run nothing")
    parser.add_argument("files", nargs="*", help="files that changed, below the root of the repository")
    arguments = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    workspace = Workspace()
    tests = choose(workspace, set(arguments.files) or changed_files())
    if arguments.plan or not tests:
        print("\n".join(sorted(f"{name} {kind} {target}" for name, kind, target in tests)) or "nothing to test")
        return
    started = time.monotonic()
    programs = build(tests)
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    by_folder = {os.path.dirname(p["manifest_path"]): name for name, p in workspace.packages.items()}
    failed = []
    for folder, kind, target, program in sorted(programs):
        name = by_folder[folder]
        if (name, kind, target) not in tests:
            continue
        started = time.monotonic()
        environment = dict(os.environ, CARGO_MANIFEST_DIR=folder)
        done = subprocess.run([program, "--quiet"], cwd=folder, env=environment)
        print(f"{name} {kind} {target}: {time.monotonic() - started:.0f} s", flush=True)
        if done.returncode != 0:
            failed.append(f"{name} {kind} {target}")
    if failed:
        sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
