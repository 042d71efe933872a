"""Stacks are numbered by identity and hash; they must come out as if each had been compared with each."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.snapshot.trees import frame
from vramscope.snapshot import frames
from vramscope.snapshot.columns import Stacks
from vramscope.snapshot.fields import Codes, Ignored
from vramscope.snapshot.stacks import StackTable

FRAMES = [frame(name, line) for name in ("f", "g") for line in range(3)]

stacks_of_shared_frames = st.lists(st.lists(st.sampled_from(FRAMES), max_size=6), max_size=30)


def texts_of(stacks: Stacks, texts: list[str], code: int) -> list[tuple[str, int, str]]:
    low, high = stacks.stack_first[code : code + 2].tolist()
    return [
        (texts[stacks.frame_file[f]], int(stacks.frame_line[f]), texts[stacks.frame_name[f]])
        for f in stacks.stack_frame[low:high].tolist()
    ]


def plain(stack: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(entry["filename"], entry["line"], entry["name"]) for entry in stack]


@given(given_stacks=stacks_of_shared_frames, chunk=st.integers(1, 10), shared=st.booleans())
def test_every_stack_comes_back_and_equal_ones_are_one(
    given_stacks: list[list[dict[str, Any]]], chunk: int, shared: bool
) -> None:
    # GIVEN stacks whose frames are the same objects (a pickle), or equal ones (JSON)
    stacks = given_stacks if shared else copy.deepcopy([list(map(dict, stack)) for stack in given_stacks])
    texts = Codes()
    table = StackTable(texts, Ignored())

    # WHEN they come a few at a time
    found: list[int] = []
    for start in range(0, len(stacks), chunk):
        found += table.codes(stacks[start : start + chunk]).tolist()
    built = table.build()

    # THEN
    assert [texts_of(built, list(texts), code) if code >= 0 else [] for code in found] == list(map(plain, stacks))
    different = {tuple(plain(stack)) for stack in stacks if stack}
    assert len(built) == len(different)
    assert len({tuple(frame) for stack in different for frame in stack}) == len(built.frame_line)


@given(count=st.integers(1, 400), slots=st.sampled_from([1, 2, 64]))
def test_frames_that_share_a_slot_are_still_told_apart(count: int, slots: int) -> None:
    # GIVEN more frames than slots, each twice in a row and again later
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "SLOTS", slots)
        table = StackTable(Codes(), Ignored())
        many = [frame("f", line) for line in range(count)]
        codes = [table.codes([[entry, entry] for entry in many]).tolist() for _ in range(2)]
    assert codes == [list(range(count))] * 2
    assert len(table.build()) == count
