"""Stacks that a second process reads are the same as those that are read here."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from tests.segments import segment
from tests.unit.snapshot.trees import event, frame, tree
from vramscope.errors import BadInputError
from vramscope.snapshot import all_stacks
from vramscope.snapshot.build import build_snapshot
from vramscope.snapshot.columns import Snapshot
from vramscope.units import GIB, MIB


def content() -> dict[str, Any]:
    """Return a snapshot whose block and events share frames and texts, each with some of its own."""
    made = segment((MIB, "live"), small=True)
    made["blocks"][0]["frames"] = [frame("main", 3), frame("of a block", 4, "block.py")]
    trace = [
        event("snapshot", frames=[frame(f"layer_{n % 7}", n % 5), frame("main", 3)], compile_context=f"layer_{n % 3}")
        for n in range(100)
    ]
    trace[40]["frames"] = [{**frame("forward"), "strange": 1}]
    return tree(made, traces=[trace, [], trace[:2]])


def built(tree: dict[str, Any]) -> tuple[Snapshot, list[int]]:
    """Return the columns, and how far it was at each report."""
    done: list[int] = []
    found = build_snapshot(tree, container="", file_bytes=GIB, progress=lambda now, _: done.append(now))
    return found, done


def stacks(found: Snapshot) -> list[list[tuple[str, int, str]]]:
    return [found.frames(code) for device in found.devices for code in (*device.block_stack, *device.events.stack)]


def contexts(found: Snapshot) -> list[str]:
    (codes, *_) = (device.events.compile_context for device in found.devices)
    assert codes is not None
    return [found.texts.get(code) for code in codes]


def test_a_second_process_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN
    here, steps_here = built(content())

    # WHEN
    monkeypatch.setattr(all_stacks, "LEAST_BESIDE", 1)
    beside, steps_beside = built(content())

    # THEN
    assert stacks(beside) == stacks(here)
    assert stacks(here)[0] == [("train.py", 3, "main"), ("block.py", 4, "of a block")]
    assert contexts(beside) == contexts(here)
    for one, other in zip(here.devices, beside.devices, strict=True):
        assert np.array_equal(one.events.size_bytes, other.events.size_bytes)
    assert beside.ignored == here.ignored == {"frame key strange": 1}
    assert (len(here.stacks), steps_here[-1], steps_beside[-1]) == (len(beside.stacks), 204, 102)


@pytest.mark.parametrize("frames", [7, [7], [{"filename": 1}]])
def test_what_is_wrong_there_is_told_here(frames: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_stacks, "LEAST_BESIDE", 1)
    with pytest.raises(BadInputError, match="frame"):
        built(tree(traces=[[event("snapshot", frames=frames)]]))


def test_a_second_process_that_dies_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN one that ends as the kernel would end it
    monkeypatch.setattr(all_stacks, "LEAST_BESIDE", 1)
    monkeypatch.setattr(all_stacks, "_read", lambda *_: os._exit(1))
    with pytest.raises(BadInputError, match="more time or memory"):
        built(content())
