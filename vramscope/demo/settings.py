"""What the demo is asked for. Standard library only, so that the command line reads it without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vramscope.units import GIB, MIB

# Fragmentation is reached on a smaller card within a minute; the 1.4 B model of the others wants a large one.
_GPU_BYTES = {"training": 80 * GIB, "fragmentation": 24 * GIB, "leak": 80 * GIB}
SCENARIOS = tuple(_GPU_BYTES)
_SMALL_GPU_BYTES = {**_GPU_BYTES, "training": 512 * MIB, "leak": 512 * MIB}
# A segment of the smallest kind: a GPU with less has room for no tensor at all.
LEAST_GPU_BYTES = 2 * MIB


@dataclass(frozen=True)
class DemoSettings:
    """``capacity_bytes`` None is the scenario's own card; ``steps`` None is endless; ``alloc_conf`` as PYTORCH_ALLOC_CONF.

    ``small`` trains a model of a few MiB (*fragmentation* has one size only). ``history`` records a Python stack for
    each block. ``runtime_folder`` is where the collector's socket lies; None leaves it to the environment.
    """

    scenario: str = "training"
    ranks: int = 1
    steps: int | None = None
    capacity_bytes: int | None = None
    alloc_conf: str = ""
    small: bool = False
    history: bool = True
    runtime_folder: Path | None = None

    @property
    def gpu_bytes(self) -> int:
        """The memory of each simulated GPU."""
        if self.capacity_bytes is not None:
            return self.capacity_bytes
        return (_SMALL_GPU_BYTES if self.small else _GPU_BYTES)[self.scenario]
