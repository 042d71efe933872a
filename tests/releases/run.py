"""Runs the agent against other releases of torch on the pretend GPU, one after the other, and prints a table.

    python tests/releases/run.py [--keep] [RELEASE …]

Each release gets an environment of its own in .venv-releases (1.5 to 4 GB, removed after its run unless --keep is given) and
runs tests/pretend_gpu/agent_release_check.py. Exits with 1 when a release fails. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from vramscope.errors import VramscopeError
from vramscope.pretend_gpu.build import build
from vramscope.pretend_gpu.environment import environment
from vramscope.units import GIB

CHECKOUT = Path(__file__).resolve().parents[2]
RELEASES = ("2.1.2", "2.4.1", "2.9.1", "2.11.0", "2.14.1", "2.15.0")
CHECK = CHECKOUT / "tests" / "pretend_gpu" / "agent_release_check.py"
# What every release needs besides its NVIDIA wheels, which the pretend GPU replaces.
NEEDS = ("typing_extensions", "filelock", "sympy", "networkx", "jinja2", "fsspec", "nvidia-ml-py")
CHECK_TIMEOUT_S = 300


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the agent against releases of torch on the pretend GPU.")
    parser.add_argument(
        "releases", nargs="*", default=RELEASES, metavar="RELEASE", help=f"default: {' '.join(RELEASES)}"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments, for the next run")
    options = parser.parse_args()
    rows = [(release, *check(release, keep=options.keep)) for release in options.releases]
    print(f"\n{'torch':<10}{'result':<9}says")
    for release, ok, line in rows:
        print(f"{release:<10}{'OK' if ok else 'FAILED':<9}{line}")
    passed = sum(ok for _, ok, _ in rows)
    print(f"\n{passed} passed, {len(rows) - passed} failed")
    return 0 if passed == len(rows) else 1


def check(release: str, *, keep: bool) -> tuple[bool, str]:
    """Return whether the agent's check passes on a release, and what it says in one line."""
    folder = CHECKOUT / ".venv-releases" / release
    started = time.monotonic()
    try:
        python = make_environment(release, folder)
        print(f"torch {release}: installed in {time.monotonic() - started:.0f} s", flush=True)
        return run_check(python, folder)
    except (VramscopeError, subprocess.SubprocessError) as error:
        return False, str(error)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def make_environment(release: str, folder: Path) -> Path:
    """Return the python of an environment with this release of torch; what is there already is kept."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    # Releases before 2.3 were built against numpy 1.
    numpy = "numpy<2" if tuple(map(int, release.split(".")[:2])) < (2, 3) else "numpy"
    # A cap on torch that the machine sets for its other users must not choose the release.
    environ = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *NEEDS, numpy], env=environ, check=True)
    subprocess.run([*pip, "--no-deps", f"torch=={release}"], env=environ, check=True)
    return python


def run_check(python: Path, folder: Path) -> tuple[bool, str]:
    (torch_lib,) = folder.glob("lib/python*/site-packages/torch/lib")
    pretend = build(torch_lib, folder / "pretend")
    environ = {**os.environ, **environment(pretend, devices=[8 * GIB, 2 * GIB]), "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [str(python), str(CHECK)],
        env=environ,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=CHECK_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    lines = (done.stdout.strip() or done.stderr.strip() or f"exit code {done.returncode} and no word").splitlines()
    return done.returncode == 0, lines[-1].removeprefix("OK ")


if __name__ == "__main__":
    sys.exit(main())
