"""Broken files of every kind end in figures that can be or in one line; ``mutations.py`` does more of them by hand."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.snapshot.trees import small_tree, write
from vramscope.allocator import Allocator
from vramscope.units import GIB, MIB

ROOT = Path(__file__).parents[3]
COUNT = 150


def job() -> dict[str, object]:
    """Return the snapshot of a job with several segments, frees and a pending block."""
    allocator = Allocator(GIB)
    live = [allocator.malloc(size * MIB // 2, frames=(("train.py", size, "step"),)) for size in range(1, 12)]
    for address in live[::3]:
        allocator.free(address)
    allocator.record_stream(live[1], 7)
    allocator.free(live[1])
    return allocator.snapshot()


@pytest.mark.parametrize("content", [small_tree(), job()], ids=["small", "job"])
def test_mutants_of_a_file_end_in_figures_or_in_one_line(content: object, tmp_path: Path) -> None:
    path = write(tmp_path, pickle.dumps(content))
    done = subprocess.run(
        (sys.executable, "-m", "tests.unit.snapshot.mutations", str(path), "--count", str(COUNT)),
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert sum(found["endings"].values()) == COUNT
    # Enough of them are broken, and enough are still snapshots, for this to say something.
    assert COUNT // 5 < found["endings"]["read"] < 4 * COUNT // 5
