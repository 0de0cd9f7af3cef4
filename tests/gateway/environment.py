"""A Python with the packages that tests of the gateway need, in an environment of its own below target/."""

import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
PLACE = HERE.parents[1] / "target" / "gateway-python"


def python():
    """Its path. It is made when the list of packages has changed."""
    wanted = (HERE / "requirements.txt").read_text()
    program, stamp = PLACE / "bin" / "python3", PLACE / "installed.txt"
    if not (stamp.exists() and stamp.read_text() == wanted):
        subprocess.run(["python3", "-m", "venv", "--clear", PLACE], check=True)
        subprocess.run([program, "-m", "pip", "install", "--quiet", "-r", HERE / "requirements.txt"], check=True)
        stamp.write_text(wanted)
    return program
