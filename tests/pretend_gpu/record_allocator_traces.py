"""Writes tests/data/allocator/*.json from the real allocator: python -m tests.pretend_gpu.record_allocator_traces."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.allocator_traces import driver_events, random_program
from tests.pretend_gpu.conftest import CHECKOUT, Pretend
from tests.pretend_gpu.test_allocator_differential import STREAMS, run_real

FOLDER = CHECKOUT / "tests" / "data" / "allocator"
RECORDED = {
    "default": ("", 2),
    "expandable": ("expandable_segments:True", 0),
    "max_split": ("max_split_size_mb:64", 0),
    "garbage_collection": ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 0),
}


def main() -> None:
    pretend = Pretend(CHECKOUT / ".pretend", CHECKOUT / ".venv-pretend" / "bin" / "python")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (alloc_conf, pools) in RECORDED.items():
        program = random_program(104, 350, streams=STREAMS, pools=pools)
        with tempfile.TemporaryDirectory() as folder:
            answer = run_real(pretend, Path(folder), program, alloc_conf, pools=pools)
        # Small enough to be read: the last check, and the driver's events. The differential test compares all of them.
        kept = {**answer, "checks": answer["checks"][-1:], "events": driver_events(answer["events"])}
        recorded = {"alloc_conf": alloc_conf, "program": program, **kept}
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in recorded.items()
        )
        (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
