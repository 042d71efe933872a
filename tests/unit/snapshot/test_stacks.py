"""Stacks are numbered by identity and hash; they must come out as if each had been compared with each."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.snapshot.trees import frame
from vramscope.snapshot.columns import Stacks
from vramscope.snapshot.fields import Codes, Ignored
from vramscope.snapshot.stacks import StackTable, placed

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
    table, texts = StackTable(), Codes()

    # WHEN they come a few at a time
    codes = [table.codes(stacks[start : start + chunk]) for start in range(0, len(stacks), chunk)]
    built, place = table.build(texts, Ignored())
    found = placed(np.concatenate(codes), place).tolist() if codes else []

    # THEN
    assert [texts_of(built, list(texts), code) if code >= 0 else [] for code in found] == list(map(plain, stacks))
    different = {tuple(plain(stack)) for stack in stacks if stack}
    assert len(built) == len(different)
    assert len({tuple(frame) for stack in different for frame in stack}) == len(built.frame_line)


def test_a_stack_without_names_has_none() -> None:
    table, texts = StackTable(), Codes()
    codes = table.codes([[{}]])
    built, place = table.build(texts, Ignored())
    assert placed(codes, place).tolist() == [0]
    assert built.frame_file.tolist() == built.frame_name.tolist() == [-1]
