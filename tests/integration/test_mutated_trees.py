"""What broken files make of the pages, diff and report: figures that can be, or one line; ``mutated_trees.py`` does more by hand."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.snapshot.test_mutations import job
from tests.unit.snapshot.trees import small_tree, write

ROOT = Path(__file__).parents[2]
COUNT = 200


@pytest.mark.parametrize("content", [small_tree(), job()], ids=["small", "job"])
def test_mutants_answer_every_question_with_figures_that_can_be_or_one_line(content: object, tmp_path: Path) -> None:
    path = write(tmp_path, pickle.dumps(content))
    done = subprocess.run(
        (sys.executable, "-m", "tests.integration.mutated_trees", str(path), "--count", str(COUNT), "--seconds", "100"),
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=115,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["first"] == []
    # Enough of them are still snapshots for this to say something.
    assert found["read"] > COUNT // 5
