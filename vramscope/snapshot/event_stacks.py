"""The stacks of all events: a half of the work of reading a trace, done in a second process where there is much of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from vramscope.snapshot.beside import beside
from vramscope.snapshot.columns import I32, Stacks
from vramscope.snapshot.fields import Codes, Ignored, Table
from vramscope.snapshot.stacks import CHUNK, StackTable

# With fewer events a second process is not worth its start; with more there is not the memory for two.
LEAST_BESIDE, MOST_BESIDE = 100_000, 2_000_000

Step = Callable[[int], None]
Traces = Sequence[Sequence[Any]]


class EventStacks(NamedTuple):
    """``codes`` are the stack of each event, by trace."""

    codes: list[I32]
    stacks: Stacks


class _Found(NamedTuple):
    """What the other process found: the texts and the counts of unknown things are those that this one may not have."""

    codes: list[I32]
    stacks: Stacks
    texts: list[str]
    ignored: dict[str, int]


def is_beside(traces: Traces) -> bool:
    """Return whether the stacks of ``traces`` are read in a second process."""
    return LEAST_BESIDE <= sum(map(len, traces)) <= MOST_BESIDE


def read_event_stacks(
    traces: Traces, table: StackTable, texts: Codes, ignored: Ignored, step: Step
) -> Callable[[], EventStacks]:
    """Return what gives the stacks, with those that ``table`` has; where they are read here, ``step`` is told of events.

    ``table`` was made with ``texts`` and ``ignored``. What is returned raises BadInputError where stacks are none.
    """
    if not is_beside(traces):
        codes = _codes(traces, table, step)
        return lambda: EventStacks(codes, table.build())
    known_texts, known_ignored = len(texts), ignored.as_dict()

    def work() -> _Found:
        codes = _codes(traces, table, lambda _: None)
        more = {name: count - known_ignored.get(name, 0) for name, count in ignored.as_dict().items()}
        return _Found(codes, table.build(), list(texts)[known_texts:], more)

    wait = beside(work)
    return lambda: _merged(wait(), known_texts, texts, ignored)


def _codes(traces: Traces, table: StackTable, step: Step) -> list[I32]:
    found = []
    for trace in traces:
        codes = [np.empty(0, np.int32)]
        for start in range(0, len(trace), CHUNK):
            chunk = trace[start : start + CHUNK]
            codes.append(table.codes(Table("event", chunk).lists("frames")))
            step(len(chunk))
        found.append(np.concatenate(codes))
    return found


def _merged(found: _Found, known_texts: int, texts: Codes, ignored: Ignored) -> EventStacks:
    """Number the other process's new texts as here, where others have become known meanwhile."""
    place = np.array([*range(known_texts), *(texts[text] for text in found.texts)], np.int32)
    ignored.update(found.ignored)
    stacks = replace(found.stacks, frame_file=place[found.stacks.frame_file], frame_name=place[found.stacks.frame_name])
    return EventStacks(found.codes, stacks)
