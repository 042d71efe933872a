"""Gives each different stack a number. In a pickle frames are shared by reference, so most work is on identities."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from vramscope.columns import U32, U64
from vramscope.snapshot.columns import I32, I64, NONE, Stacks
from vramscope.snapshot.fields import Codes, Ignored, Table

Frames = Sequence[Any]
Objects = npt.NDArray[np.object_]


class StackTable:
    """Takes lists of frame dicts and numbers the different ones.

    Lists are told apart by a 64-bit hash of the identities of their frames with random factors: of a million different
    stacks two would be taken for one in one of some ten million files, and nobody can make a file where they are.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng()
        self._factors = self._random_factors(1)
        self._stack_of_hash = Codes()
        # These keep every frame alive, and with it its identity.
        self._different: list[Frames] = []

    def codes(self, stacks: Sequence[Frames]) -> I32:
        """Return the number of each list of frames, NONE for an empty one."""
        lengths = _lengths(stacks)
        found = np.full(len(stacks), NONE, np.int32)
        filled = np.flatnonzero(lengths)
        if not len(filled):
            return found
        hashes = self._hashes(stacks, lengths)
        codes = np.fromiter(map(self._stack_of_hash.__getitem__, hashes), np.int32, len(hashes))
        # A code above all before it is new, because new codes count up.
        highest = np.maximum.accumulate(np.concatenate([[len(self._different) - 1], codes]))
        new = filled[np.diff(highest) > 0]
        self._different.extend(stacks[place] for place in new.tolist())
        found[filled] = codes
        return found

    def build(self, texts: Codes, ignored: Ignored) -> tuple[Stacks, I32]:
        """Return the stacks and, for each number given out, its place there; texts get their codes in ``texts``.

        The numbers change where frames are equal without being the same object (JSON shares nothing).
        Raises BadInputError where a frame is not a dict with texts and a line.
        """
        flat, objects = self._frames()
        frames = Table("frame", objects)
        columns = [_optional_texts(frames, "filename", texts), _lines(frames), _optional_texts(frames, "name", texts)]
        frames.count_unknown(ignored)
        contents = Codes()
        content_of = np.fromiter(map(contents.__getitem__, zip(*columns, strict=True)), np.uint32, len(frames))
        lengths = _lengths(self._different)
        place = np.arange(len(lengths), dtype=np.int32)
        if len(contents) < len(content_of):
            flat, lengths, place = _merged(content_of[flat], lengths)
        files, lines, names = zip(*contents, strict=True) if contents else ((), (), ())
        stacks = Stacks(
            stack_first=_firsts(lengths).astype(np.uint32),
            stack_frame=flat.astype(np.uint32),
            frame_file=np.array(files, np.int32),
            frame_line=np.array(lines, np.int64),
            frame_name=np.array(names, np.int32),
        )
        return stacks, place

    def _hashes(self, stacks: Sequence[Frames], lengths: I64) -> list[int]:
        """Return a hash of each list that is not empty."""
        first = _firsts(lengths)
        position = np.arange(first[-1]) - np.repeat(first[:-1], lengths)
        longest = int(lengths.max())
        if longest >= len(self._factors):
            self._factors = np.concatenate([self._factors, self._random_factors(longest)])
        mixed = _identities(_flat(stacks)) * self._factors[0]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[1:][position]
        hashes: list[int] = np.add.reduceat(mixed, first[:-1][lengths > 0]).tolist()
        return hashes

    def _random_factors(self, count: int) -> U64:
        return self._random.integers(0, 1 << 64, count, np.uint64) | np.uint64(1)

    def _frames(self) -> tuple[U32, list[Any]]:
        """Return the frames of all different stacks, flat, as codes, and the frame of each code."""
        objects = _flat(self._different)
        by_identity = Codes()
        codes = np.fromiter(map(by_identity.__getitem__, _identities(objects).tolist()), np.uint32, len(objects))
        place = np.empty(len(by_identity), np.int64)
        place[codes] = np.arange(len(codes))
        return codes, objects[place].tolist()


def placed(codes: I32, place: I32) -> I32:
    """Return the final numbers of stacks: ``place`` of each code, NONE where there is none."""
    return np.append(place, np.int32(NONE))[codes]


def _lengths(lists: Sequence[Frames]) -> I64:
    return np.fromiter(map(len, lists), np.int64, len(lists))


def _firsts(lengths: I64) -> I64:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _flat(lists: Sequence[Frames]) -> Objects:
    """Return the entries of all lists in one object array."""
    return np.fromiter(chain.from_iterable(lists), np.object_, sum(map(len, lists)))


def _identities(objects: Objects) -> U64:
    """Return the ``id`` of each object: in CPython its address, which is what an object array holds. 10 times ``map(id, …)``."""
    if not len(objects):
        return np.empty(0, np.uint64)
    return np.ndarray(objects.shape, np.uint64, buffer=objects)


def _merged(flat: U32, lengths: I64) -> tuple[U32, I64, I32]:
    """Return the flat frames and lengths of the stacks that differ, and the place of each stack among them."""
    frames, first = flat.tolist(), _firsts(lengths).tolist()
    different = Codes()
    place = np.array([different[tuple(frames[low:high])] for low, high in pairwise(first)], np.int32)
    kept = list(different)
    return np.fromiter(chain.from_iterable(kept), np.uint32), _lengths(kept), place


def _lines(frames: Table) -> array[int]:
    return frames.signed("line") if frames.has("line") else array("q", repeat(0, len(frames)))


def _optional_texts(frames: Table, key: str, texts: Codes) -> array[int]:
    return frames.codes(key, texts) if frames.has(key) else array("i", repeat(NONE, len(frames)))
