"""What the tests of the gateway are run with: the modules of scripts/, which whoever imports this finds, and a Python with packages of others,
in an environment of its own below target/. As a program, it prints the path of that Python."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACE = ROOT / "target" / "gateway-python"

sys.path.insert(0, str(ROOT / "scripts"))


def python():
    """Its path. It is made when the list of packages has changed."""
    wanted = (HERE / "requirements.txt").read_text()
    program, stamp = PLACE / "bin" / "python3", PLACE / "installed.txt"
    if not (stamp.exists() and stamp.read_text() == wanted):
        subprocess.run(["python3", "-m", "venv", "--clear", PLACE], check=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "-r", HERE / "requirements.txt"], check=True)
        stamp.write_text(wanted)
    return program


def go_on_with_packages():
    """Begins this program again by that Python, unless that is what runs it."""
    program = python()
    if pathlib.Path(sys.prefix).resolve() != PLACE.resolve():
        os.execv(program, [str(program), *sys.argv])


if __name__ == "__main__":
    print(python())
