"""Gives each different frame a number. A pickle shares frames by reference, so that nearly all are found by identity."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vramscope.columns import U32, U64
from vramscope.snapshot.fields import Codes, Ignored, Table

Objects = npt.NDArray[np.object_]

# A few thousand frames are usual, so that most have a slot of their own; others are looked up.
SLOTS = 1 << 17


class FrameTable:
    """Takes frame dicts and numbers the different ones: by identity first, by what they say in the end (JSON shares nothing)."""

    def __init__(self, texts: Codes, ignored: Ignored) -> None:
        self._texts, self._ignored = texts, ignored
        self._contents = Codes()
        self._code_of_identity: dict[int, int] = {}
        # An identity holds only while its object lives.
        self._kept: list[Any] = []
        # By the low bits of an identity: which one was there last, and its code.
        self._slot_identity = np.zeros(SLOTS, np.uint64)
        self._slot_code = np.zeros(SLOTS, np.uint32)

    def codes(self, frames: Objects) -> U32:
        """Return the number of each frame. Raises BadInputError where one is not a dict with texts and a line."""
        identity = identities(frames)
        # Objects lie at multiples of 16.
        slot = (identity >> np.uint64(4)) & np.uint64(SLOTS - 1)
        codes: U32 = self._slot_code[slot]
        other = np.flatnonzero(self._slot_identity[slot] != identity)
        if len(other):
            codes[other] = self._looked_up(frames[other], identity[other].tolist())
            # Of those that share a slot one gets it: both columns must tell of the same.
            taken, one = np.unique(slot[other], return_index=True)
            self._slot_identity[taken] = identity[other[one]]
            self._slot_code[taken] = codes[other[one]]
        return codes

    def columns(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return file, line and name of each frame by number; file and name are codes of texts."""
        files, lines, names = zip(*self._contents, strict=True) if self._contents else ((), (), ())
        return files, lines, names

    def _looked_up(self, frames: Objects, identity: list[int]) -> list[int]:
        known = self._code_of_identity
        new = {key: frame for key, frame in zip(identity, frames.tolist(), strict=True) if key not in known}
        if new:
            table = Table("frame", list(new.values()))
            files, names = (table.codes(key, self._texts) for key in ("filename", "name"))
            contents = zip(files, table.signed("line"), names, strict=True)
            known.update(zip(new, map(self._contents.__getitem__, contents), strict=True))
            table.count_unknown(self._ignored)
            self._kept.append(table.records)
        return list(map(known.__getitem__, identity))


def identities(objects: Objects) -> U64:
    """Return the ``id`` of each object: in CPython its address, which is what an object array holds. 10 times ``map(id, …)``."""
    return np.ndarray(objects.shape, np.uint64, buffer=objects) if len(objects) else np.empty(0, np.uint64)
