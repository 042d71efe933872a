"""Checked fields of many records at a time: the values of one key, as arrays of machine numbers. Nothing here recurses."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from vramscope.errors import BadInputError

MASK_64 = 0xFFFF_FFFF_FFFF_FFFF
# So many names of unknown keys are kept, and so much of each: a hostile file may have millions.
MAX_NAMES, MAX_NAME_LENGTH = 50, 60

_ABSENT = object()


def writable(text: str) -> str:
    """Return ``text`` as it can be written: JSON and pickles let halves of surrogate pairs through."""
    return text.encode("utf-8", "replace").decode()


class Codes(dict[Any, int]):
    """Numbers its keys in the order of their first use."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class Ignored:
    """Counts what was passed over, by name."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, name: object, count: int = 1) -> None:
        text = writable(name[:MAX_NAME_LENGTH]) if isinstance(name, str) else f"({type(name).__name__})"
        label = f"{kind} {text}"
        if label not in self._counts and len(self._counts) >= MAX_NAMES:
            label = "others"
        self._counts[label] += count

    def update(self, counts: Mapping[str, int]) -> None:
        """Add what was counted elsewhere, by label."""
        self._counts.update(counts)

    def as_dict(self) -> dict[str, int]:
        return dict(self._counts)


class Table:
    """Records of one kind ("segment", "block", "event" …): dicts that shall have the same keys.

    Every method that returns a column raises BadInputError where a value is missing or of another type.
    """

    def __init__(self, kind: str, records: Any) -> None:
        """Raises BadInputError unless ``records`` is a list of dicts."""
        if not isinstance(records, list | tuple) or set(map(type, records)) - {dict}:
            raise BadInputError(f"what should be its {kind}s is not a list of records")
        self.kind = kind
        self.records: Sequence[dict[Any, Any]] = records
        self._values: dict[str, list[Any]] = {}
        self._absent: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.records)

    def values(self, key: str) -> list[Any]:
        """Return the values of ``key`` as they are, a mark of its own where a record has none."""
        if key not in self._values:
            try:
                self._values[key] = list(map(itemgetter(key), self.records))
            except KeyError:
                self._values[key] = found = [record.get(key, _ABSENT) for record in self.records]
                self._absent[key] = sum(value is _ABSENT for value in found)
        return self._values[key]

    def has(self, key: str) -> bool:
        """Return whether every record has ``key``."""
        self.values(key)
        return not self._absent[key]

    def lacks(self, key: str) -> bool:
        """Return whether there are records and none has ``key``."""
        self.values(key)
        return 0 < len(self) == self._absent[key]

    def unsigned(self, key: str) -> array[int]:
        """Return integers as unsigned 64 bits; a pointer that was printed as a negative number keeps its bits."""
        return self._unsigned(self._typed(key, int), key)

    def sizes(self, key: str) -> array[int]:
        """Return integers of 0 and more as unsigned 64 bits."""
        try:
            return array("Q", self._typed(key, int))
        except OverflowError:
            raise self._bad(key, "negative or beyond 64 bits") from None

    def signed(self, key: str) -> array[int]:
        """Return integers as signed 64 bits."""
        try:
            return array("q", self._typed(key, int))
        except OverflowError:
            raise self._bad(key, "beyond 64 bits") from None

    def flags(self, key: str) -> array[int]:
        """Return booleans as 0 and 1."""
        return array("B", self._typed(key, bool))

    def codes(self, key: str, known: dict[str, int]) -> array[int]:
        """Return the code of each text in ``known`` (a Codes takes new ones); others are bad input."""
        values = self.values(key)
        try:
            # Most often one text stands everywhere; what equals a text is one.
            if values and type(values[0]) is str and values.count(values[0]) == len(values):
                return array("i", [known[values[0]]]) * len(values)
            return array("i", map(known.__getitem__, self._typed(key, str)))
        except KeyError as unknown:
            raise self._bad(key, f"{unknown.args[0][:MAX_NAME_LENGTH]!r}, which this version does not know") from None

    def pairs(self, key: str) -> array[int]:
        """Return pairs of integers (pool ids), flat: a, b, a, b …"""
        values = self.values(key)
        if set(map(type, values)) - {tuple, list} or set(map(len, values)) - {2}:
            raise self._bad(key, "not pairs")
        flat = list(chain.from_iterable(values))
        if set(map(type, flat)) - {int}:
            raise self._bad(key, "not pairs of whole numbers")
        return self._unsigned(flat, key)

    def lists(self, key: str) -> list[Sequence[Any]]:
        """Return lists, an empty one where a record has none."""
        values = [() if value is _ABSENT else value for value in self.values(key)]
        if set(map(type, values)) - {tuple, list}:
            raise self._bad(key, "not lists")
        return values

    def count_unknown(self, ignored: Ignored, known: Iterable[str] = ()) -> None:
        """Count the keys that were neither asked for nor are in ``known``."""
        asked = sum(len(self) - self._absent[key] for key in self._values)
        if sum(map(len, self.records)) == asked:
            return
        names = {*self._values, *known}
        for name, count in Counter(chain.from_iterable(self.records)).items():
            if name not in names:
                ignored.add(f"{self.kind} key", name, count)

    def _typed(self, key: str, wanted: type) -> list[Any]:
        values = self.values(key)
        strange = set(map(type, values)) - {wanted}
        if object in strange:
            raise self._bad(key, "missing in some")
        if strange:
            raise self._bad(key, f"not {wanted.__name__} but {min(kind.__name__ for kind in strange)}")
        return values

    def _unsigned(self, values: list[int], key: str) -> array[int]:
        try:
            return array("Q", values)
        except OverflowError:
            if min(values) < -(1 << 63) or max(values) > MASK_64:
                raise self._bad(key, "beyond 64 bits") from None
            return array("Q", [value & MASK_64 for value in values])

    def _bad(self, key: str, what: str) -> BadInputError:
        return BadInputError(f"its {self.kind}s' {key} is {what}")
