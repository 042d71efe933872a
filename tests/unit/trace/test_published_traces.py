"""Real traces that people published lead to the final state of their file, to the byte; skipped where they are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vramscope.columns import INACTIVE, check
from vramscope.errors import BadInputError
from vramscope.snapshot.columns import DeviceSnapshot
from vramscope.trace.columns import BEFORE, DeviceTrace
from vramscope.trace.moment import moment_at
from vramscope.trace.opening import open_traced

FOLDER = Path(__file__).parents[4] / "shared" / "cases" / "snapshots"
FILES = sorted(FOLDER.glob("[0-9][0-9]-*.pickle"))
BROKEN = "08-synthetic-broken-invariants.pickle"
# What stands for the whole: every moment of a short trace, some of a long one.
MOMENTS = 100
# (file, device) whose trace leaves a block's size open: one from before it that it frees.
UNCERTAIN = {("02-torch-2.0-block-history.pickle", 0), ("18-torch-2.10-216-segments.pickle", 0)}

pytestmark = pytest.mark.skipif(not FILES, reason="the published snapshots do not lie beside this checkout")
each_file = pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != BROKEN], ids=lambda path: path.name[:30]
)


def traces(path: Path) -> list[tuple[DeviceSnapshot, DeviceTrace]]:
    found = open_traced(path)
    return list(zip(found.snapshot.devices, found.traces, strict=True))


@each_file
def test_the_last_moment_is_the_final_state_to_the_byte(path: Path) -> None:
    for found, trace in traces(path):
        assert trace.contradiction is None
        moment = moment_at(trace, trace.event_count - 1)
        for name in (name for name in vars(found.state) if name.startswith(("segment_", "block_"))):
            if name != "block_requested_bytes":
                assert np.array_equal(getattr(moment.state, name), getattr(found.state, name)), name
        live = found.state.block_state != INACTIVE
        assert np.array_equal(moment.state.block_requested_bytes[live], found.state.block_requested_bytes[live])
        assert np.array_equal(moment.block_stack[live], found.block_stack[live])
        assert np.array_equal(moment.segment_stack, found.segment_stack)
        assert not np.any(moment.uncertain_block)


@each_file
def test_every_moment_holds_together(path: Path) -> None:
    for _, trace in traces(path):
        assert trace.active_bytes is not None
        assert trace.reserved_bytes is not None
        assert np.all(trace.reserved_bytes >= trace.active_bytes)
        for event in range(BEFORE, trace.event_count, max(1, trace.event_count // MOMENTS)):
            state = moment_at(trace, event).state
            check(state)
            assert state.block_bytes[state.block_state != INACTIVE].sum() == trace.active_bytes[event + 1]
            assert state.segment_total_bytes.sum() == trace.reserved_bytes[event + 1]


@each_file
def test_what_is_uncertain_is_known(path: Path) -> None:
    uncertain = {(path.name, trace.device) for _, trace in traces(path) if not trace.active_is_exact}
    assert uncertain == {known for known in UNCERTAIN if known[0] == path.name}


def test_what_contradicts_itself_has_no_trace() -> None:
    ((_, trace),) = traces(FOLDER / BROKEN)
    assert trace.contradiction == "the file's blocks do not fill their segments"
    # AND nothing is made of its blocks
    with pytest.raises(BadInputError, match="cannot be shown"):
        moment_at(trace, trace.event_count - 1)
