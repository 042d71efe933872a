"""The live blocks of one side by what their stacks say: owner category, allocation site, whole stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vramscope.agent.categories import CATEGORIES
from vramscope.columns import INACTIVE
from vramscope.compare.rows import Part
from vramscope.compare.side import Side
from vramscope.compare.stack_names import StackNames
from vramscope.snapshot.columns import I64, NONE
from vramscope.trace.categories import frame_text
from vramscope.trace.described import NO_SITE, ONLY_TORCH, Described


class StackFacts:
    """What the stacks of one side say in words that are the same in other files: whose memory they made (an estimate), and where."""

    def __init__(self, described: Described, names: StackNames) -> None:
        self._described, self._names = described, names
        self._site_of_frame = {NONE: ONLY_TORCH}

    def category(self, stack: int) -> int:
        """Return the code of the owner category; unknown for NONE."""
        return 0 if stack == NONE else int(self._described.rules.category[stack])

    def site(self, stack: int) -> str:
        """Return the first frame outside torch in one line."""
        if stack == NONE:
            return NO_SITE
        frame = int(self._described.sites[stack])
        if frame not in self._site_of_frame:
            self._site_of_frame[frame] = frame_text(self._names.frame_text(self._described.snapshot, frame))
        return self._site_of_frame[frame]

    def names(self, stacks: I64) -> list[bytes]:
        """Return names that are the same in other files where all frames say the same; of NONE an empty one."""
        known = stacks[stacks != NONE]
        name_of = dict(zip(known.tolist(), self._names.names(self._described.snapshot, known), strict=True))
        return [name_of.get(stack, b"") for stack in stacks.tolist()]


@dataclass(frozen=True)
class LiveStack:
    """The live blocks of one ``stack`` (None: of none); ``site`` and ``name`` as of StackFacts."""

    stack: int | None
    size_bytes: int
    count: int
    category: str
    site: str
    name: bytes


def live_stacks(side: Side, facts: StackFacts) -> tuple[LiveStack, ...]:
    """Return the live blocks (active: pending frees included) of ``side`` by their different stacks."""
    is_live = side.state.block_state != INACTIVE
    stacks, place, count = np.unique(side.moment.block_stack[is_live], return_inverse=True, return_counts=True)
    size_bytes = np.zeros(len(stacks), np.int64)
    np.add.at(size_bytes, place, side.state.block_bytes[is_live].astype(np.int64))
    columns = (stacks.tolist(), size_bytes.tolist(), count.tolist(), facts.names(stacks.astype(np.int64)))
    return tuple(
        LiveStack(
            stack=None if stack == NONE else stack,
            size_bytes=size,
            count=blocks,
            category=CATEGORIES[facts.category(stack)],
            site=facts.site(stack),
            name=name,
        )
        for stack, size, blocks, name in zip(*columns, strict=True)
    )


def by_category(live: tuple[LiveStack, ...]) -> Iterator[Part]:
    """Return ``live`` under its owner categories."""
    return (Part(own.category, own.category, own.size_bytes, own.count, own.stack) for own in live)


def by_site(live: tuple[LiveStack, ...]) -> Iterator[Part]:
    """Return ``live`` under its allocation sites."""
    return (Part(own.site, own.site, own.size_bytes, own.count, own.stack) for own in live)


def by_stack(live: tuple[LiveStack, ...]) -> Iterator[Part]:
    """Return ``live`` under its whole stacks, each named after its site."""
    return (Part(own.name, own.site, own.size_bytes, own.count, own.stack) for own in live)
