"""Compares the order of free blocks with releases of torch that sort them otherwise, on the pretend GPU.

    python tests/releases/allocator_order.py [--keep] [RELEASE …]

Each release gets an environment as in tests/releases/run.py, and runs random programs without pools, captures and waiting frees.
Every address and block has to be equal under the release's own order; under the others it must not, or the programs
would prove nothing. Exits with 1 when one fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.allocator_traces import simulate
from tests.pretend_gpu.conftest import CHECKOUT, Pretend
from tests.pretend_gpu.differential import Trace, make_trace, run_real
from tests.releases.run import make_environment
from vramscope.allocator import parse_alloc_conf
from vramscope.allocator.settings import order_of
from vramscope.pretend_gpu.build import build

# The order since 2.13 is what tests/pretend_gpu/differential.py runs.
RELEASES = ("2.11.0", "2.12.1")
ORDERS = ("2.11", "2.12", "2.13")
CONFS = ("", "max_split_size_mb:64", "expandable_segments:True", "roundup_power2_divisions:4")
TRACES, OPERATIONS, CERTAIN_KIND = 24, 1200, 4


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the order of free blocks with releases of torch.")
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE")
    parser.add_argument("--keep", action="store_true", help="keep the environments, for the next run")
    options = parser.parse_args()
    return 0 if all([check(release, keep=options.keep) for release in options.releases]) else 1


def check(release: str, *, keep: bool) -> bool:
    """Print how many programs go as on a release under each order; return whether its own is right and the only one."""
    folder = CHECKOUT / ".venv-releases" / release
    try:
        python = make_environment(release, folder)
        (torch_lib,) = folder.glob("lib/python*/site-packages/torch/lib")
        pretend = Pretend(build(torch_lib, folder / "pretend"), python)
        batch = [make_trace(CONFS[seed % len(CONFS)], seed, OPERATIONS, kind=CERTAIN_KIND) for seed in range(TRACES)]
        with tempfile.TemporaryDirectory() as scratch:
            answers = run_real(pretend, Path(scratch), batch)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    equal = {order: count_equal(order, batch, answers) for order in ORDERS}
    own = order_of(release)
    print(f"torch {release}: of {TRACES} programs, equal under the order of {equal}", flush=True)
    return equal[own] == TRACES and all(count < TRACES for order, count in equal.items() if order != own)


def count_equal(order: str, batch: Sequence[Trace], answers: Sequence[dict[str, Any]]) -> int:
    count = 0
    for trace, real in zip(batch, answers, strict=True):
        settings = replace(parse_alloc_conf(trace.alloc_conf), order=order)
        found = simulate(trace.program, settings, streams=real["streams"], validated="check")
        count += places(json.loads(json.dumps(found))) == places(real)
    return count


def places(answer: dict[str, Any]) -> tuple[list[int | None], list[Any]]:
    """Return addresses, None for an error (its text differs by release), and the blocks of each check."""
    results = [None if isinstance(result, str) else result for result in answer["results"]]
    return results, [check["segments"] for check in answer["checks"]]


if __name__ == "__main__":
    sys.exit(main())
