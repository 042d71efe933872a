"""Gives each different stack a number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from vramscope.columns import U32, U64
from vramscope.snapshot.columns import I32, I64, NONE, Stacks
from vramscope.snapshot.fields import Codes, Ignored
from vramscope.snapshot.frames import FrameTable, identities

Frames = Sequence[Any]
# So many at a time stay in the processor's cache.
CHUNK = 4096


class StackTable:
    """Takes lists of frame dicts and numbers the different ones.

    They are told apart by a 64-bit hash with random factors of the numbers of their frames: of a million different stacks
    two would be taken for one in one of some ten million files, and nobody can make a file where they are.
    """

    def __init__(self, texts: Codes, ignored: Ignored) -> None:
        self._frames = FrameTable(texts, ignored)
        self._random = np.random.default_rng()
        self._factors = self._random_factors(1)
        self._stack_of_hash = Codes()
        self._lengths: list[I64] = []
        self._stack_frame: list[U32] = []

    def codes(self, stacks: Sequence[Frames]) -> I32:
        """Return the number of each list of frames, NONE for an empty one. Raises BadInputError where it holds others."""
        # Of the first few thousand the frames become known, so that those of all others are found at once.
        codes = [self._codes(stacks[start : start + CHUNK]) for start in range(0, len(stacks), CHUNK)]
        return np.concatenate([np.empty(0, np.int32), *codes])

    def _codes(self, stacks: Sequence[Frames]) -> I32:
        # The two events of a free share their list.
        identity = identities(np.fromiter(stacks, np.object_, len(stacks)))
        differs = np.ones(len(stacks), np.bool_)
        differs[1:] = identity[1:] != identity[:-1]
        different = [stacks[place] for place in np.flatnonzero(differs).tolist()]
        codes: I32 = self._different_codes(different)[np.cumsum(differs) - 1]
        return codes

    def build(self) -> Stacks:
        """Return the stacks by number; texts are codes of the texts that the table was made with."""
        files, lines, names = self._frames.columns()
        return Stacks(
            stack_first=_firsts(np.concatenate([np.empty(0, np.int64), *self._lengths])).astype(np.uint32),
            stack_frame=np.concatenate([np.empty(0, np.uint32), *self._stack_frame]),
            frame_file=np.array(files, np.int32),
            frame_line=np.array(lines, np.int64),
            frame_name=np.array(names, np.int32),
        )

    def _different_codes(self, stacks: Sequence[Frames]) -> I32:
        lengths = np.fromiter(map(len, stacks), np.int64, len(stacks))
        found = np.full(len(stacks), NONE, np.int32)
        filled = lengths > 0
        if not np.any(filled):
            return found
        frames = self._frames.codes(np.fromiter(chain.from_iterable(stacks), np.object_, int(lengths.sum())))
        lengths = lengths[filled]
        known = len(self._stack_of_hash)
        codes = np.fromiter(map(self._stack_of_hash.__getitem__, self._hashes(frames, lengths)), np.int32, len(lengths))
        # New codes count up, so that the first of a new stack is above all before it.
        is_new = np.diff(np.maximum.accumulate(codes), prepend=-1) > 0
        is_new &= codes >= known
        self._lengths.append(lengths[is_new])
        self._stack_frame.append(frames[np.repeat(is_new, lengths)])
        found[filled] = codes
        return found

    def _hashes(self, frames: U32, lengths: I64) -> list[int]:
        """Return a hash of each list, of ``lengths`` of at least 1, that ``frames`` holds one after the other."""
        first = _firsts(lengths)
        position = np.arange(1, len(frames) + 1) - np.repeat(first[:-1], lengths)
        longest = int(lengths.max())
        if longest >= len(self._factors):
            self._factors = np.concatenate([self._factors, self._random_factors(longest)])
        mixed = (frames + np.uint64(1)) * self._factors[0]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[position]
        hashes: list[int] = np.add.reduceat(mixed, first[:-1]).tolist()
        return hashes

    def _random_factors(self, count: int) -> U64:
        return self._random.integers(0, 1 << 64, count, np.uint64) | np.uint64(1)


def _firsts(lengths: I64) -> I64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
