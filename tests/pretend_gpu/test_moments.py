"""Moments that are reconstructed from the real allocator's last snapshot, against the snapshots that it wrote on the way."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.allocator_traces import CAPACITY_BYTES, random_program
from tests.pretend_gpu.conftest import Pretend
from tests.unit.trace.comparison import assert_moment
from tests.unit.trace.jobs import traced_device
from vramscope.columns import from_segments
from vramscope.trace.columns import BEFORE
from vramscope.units import GIB, MIB

JOB = Path(__file__).with_name("job_moments.py")


@pytest.mark.parametrize(
    ("alloc_conf", "seed", "pools"),
    [
        ("", 21, 2),
        ("expandable_segments:True", 22, 2),
        ("max_split_size_mb:64,roundup_power2_divisions:[1:4,16:2,>:8]", 23, 0),
    ],
)
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_every_moment_is_the_real_allocators_own_state(
    pretend: Pretend, tmp_path: Path, alloc_conf: str, seed: int, pools: int, share: float
) -> None:
    # GIVEN a job that wrote snapshots on the way, and at the end a ring that lost its first events
    asked, answer = tmp_path / "program.json", tmp_path / "answer.pickle"
    program = [operation for operation in random_program(seed, 500, pools=pools) if operation[0] != "drop_pool"]
    asked.write_text(json.dumps({"streams": 3, "pools": [{}] * pools, "program": program}))
    extra = {"PYTORCH_ALLOC_CONF": alloc_conf} if alloc_conf else None
    done = pretend.run(JOB, str(asked), str(answer), devices=(CAPACITY_BYTES,), extra=extra)
    assert done.returncode == 0, done.stderr[-2000:]
    found = pickle.loads(answer.read_bytes())
    (events,) = found["content"]["device_traces"]
    lost = len(events) - int(len(events) * share)
    found["content"]["device_traces"] = [events[lost:]]

    # WHEN
    trace = traced_device(found["content"])

    # THEN
    assert trace.contradiction is None
    compared = [events - lost - 1 for events in found["states"] if events - lost - 1 >= BEFORE]
    assert len(compared) > 5
    most_uncertain_bytes = GIB if "max_split" in alloc_conf else MIB
    for event in compared:
        true = from_segments(found["states"][event + lost + 1], device=0)
        assert_moment(trace, event, true, most_uncertain_bytes=most_uncertain_bytes)
    assert trace.active_is_exact or share < 1
