"""Fixtures that run scripts under the CUDA build of torch on the pretend GPU, set up by tests/pretend_gpu/setup.sh."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vramscope.pretend_gpu.build import STAMP
from vramscope.pretend_gpu.environment import environment
from vramscope.units import GIB

pytest.register_assert_rewrite("tests.pretend_gpu.comparison", "tests.pretend_gpu.processes")

CHECKOUT = Path(__file__).parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.pretend_gpu)


@dataclass(frozen=True)
class Pretend:
    """The pretend GPU in ``folder`` and the ``python`` that has the CUDA build of torch."""

    folder: Path
    python: Path

    def environ(
        self,
        *,
        devices: Sequence[int] = (8 * GIB,),
        state_file: Path | None = None,
        other_bytes: int = 0,
        extra: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """Return a whole environment for a job: this process's, less its allocator settings, on the pretend GPU."""
        kept = {name: value for name, value in os.environ.items() if not name.endswith("_ALLOC_CONF")}
        pretend = environment(
            self.folder, devices=devices, state_file=state_file, other_bytes=other_bytes, environ=kept
        )
        return {**kept, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1", **pretend, **(extra or {})}

    def run(
        self, script: Path, *arguments: str, timeout_s: float = 240, **settings: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run ``script`` to its end and return what it printed; ``settings`` as for :meth:`environ`."""
        command = [str(self.python), str(script), *arguments]
        return subprocess.run(
            command,
            env=self.environ(**settings),
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


@pytest.fixture(scope="session")
def pretend() -> Pretend:
    """The pretend GPU as setup.sh left it; the test fails, and is never skipped, where it is not there."""
    found = Pretend(folder=CHECKOUT / ".pretend", python=CHECKOUT / ".venv-pretend" / "bin" / "python")
    if not found.python.exists() or not (found.folder / STAMP).exists():
        pytest.fail("the pretend GPU is not set up; run: sh tests/pretend_gpu/setup.sh (make test does)", pytrace=False)
    return found
