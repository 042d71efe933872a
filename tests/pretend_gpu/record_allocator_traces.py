"""Writes tests/data/allocator/*.json from the real allocator: python -m tests.pretend_gpu.record_allocator_traces."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.allocator_traces import driver_events
from tests.pretend_gpu.conftest import CHECKOUT, Pretend
from tests.pretend_gpu.differential import make_trace, run_real

FOLDER = CHECKOUT / "tests" / "data" / "allocator"
# Settings and the kind of trace, see make_trace().
RECORDED = {
    "default": ("", 1),
    "captures": ("", 3),
    "expandable": ("expandable_segments:True", 0),
    "max_split": ("max_split_size_mb:64", 0),
    "garbage_collection": ("garbage_collection_threshold:0.6,per_process_memory_fraction:0.5", 0),
}


def main() -> None:
    pretend = Pretend(CHECKOUT / ".pretend", CHECKOUT / ".venv-pretend" / "bin" / "python")
    FOLDER.mkdir(parents=True, exist_ok=True)
    batch = [make_trace(alloc_conf, 104, 350, kind=kind) for alloc_conf, kind in RECORDED.values()]
    with tempfile.TemporaryDirectory() as folder:
        answers = run_real(pretend, Path(folder), batch)
    for name, trace, answer in zip(RECORDED, batch, answers, strict=True):
        # Small enough to be read: the last check, and the driver's events. The differential test compares all of them.
        kept = {**answer, "checks": answer["checks"][-1:], "events": driver_events(answer["events"])}
        asked = {"alloc_conf": trace.alloc_conf, "program": trace.program, "pool_options": list(trace.pools)}
        lines = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in {**asked, **kept}.items()
        )
        (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
