"""The stacks of all segments, blocks and events: a half of the work, done in a second process where there is much of it."""

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

Frames = Sequence[Any]
Step = Callable[[int], None]
Traces = Sequence[Sequence[Any]]


class ReadStacks(NamedTuple):
    """``of_lists`` are the stacks of the lists that were given, ``of_events`` those of each event, by trace."""

    of_lists: list[I32]
    of_events: list[I32]
    stacks: Stacks


class _Found(NamedTuple):
    """What the other process found: the texts and the counts of unknown things are those that this one may not have."""

    read: ReadStacks
    texts: list[str]
    ignored: dict[str, int]


def is_beside(traces: Traces) -> bool:
    """Return whether the stacks of ``traces`` are read in a second process."""
    return LEAST_BESIDE <= sum(map(len, traces)) <= MOST_BESIDE


def read_stacks(
    lists: Sequence[Sequence[Frames]], traces: Traces, texts: Codes, ignored: Ignored, step: Step
) -> Callable[[], ReadStacks]:
    """Return what gives the stacks of ``lists`` of lists of frames, and of the events in ``traces``.

    Where they are read in this process, ``step`` is told of events. What is returned raises BadInputError where what should be
    stacks is not.
    """
    if not is_beside(traces):
        found = _read(lists, traces, StackTable(texts, ignored), step)
        return lambda: found

    def work() -> _Found:
        more_texts, more_ignored = Codes(), Ignored()
        read = _read(lists, traces, StackTable(more_texts, more_ignored), lambda _: None)
        return _Found(read, list(more_texts), more_ignored.as_dict())

    wait = beside(work)
    return lambda: _merged(wait(), texts, ignored)


def _read(lists: Sequence[Sequence[Frames]], traces: Traces, table: StackTable, step: Step) -> ReadStacks:
    of_lists = [table.codes(frames) for frames in lists]
    of_events = []
    for trace in traces:
        codes = [np.empty(0, np.int32)]
        for start in range(0, len(trace), CHUNK):
            chunk = trace[start : start + CHUNK]
            codes.append(table.codes(Table("event", chunk).lists("frames")))
            step(len(chunk))
        of_events.append(np.concatenate(codes))
    return ReadStacks(of_lists, of_events, table.build())


def _merged(found: _Found, texts: Codes, ignored: Ignored) -> ReadStacks:
    """Number the other process's texts as here."""
    place = np.fromiter(map(texts.__getitem__, found.texts), np.int32, len(found.texts))
    ignored.update(found.ignored)
    stacks = found.read.stacks
    return found.read._replace(
        stacks=replace(stacks, frame_file=place[stacks.frame_file], frame_name=place[stacks.frame_name])
    )
