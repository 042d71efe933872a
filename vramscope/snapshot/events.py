"""Trace entries of one device → columns; their stacks are read by themselves."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from vramscope.snapshot.columns import ACTION_CODE, I32, UNKNOWN_ACTION, Events
from vramscope.snapshot.fields import MASK_64, Codes, Ignored, Table

OOM = ACTION_CODE["oom"]
# Later releases added these; a column is there if every event has the key. The letter is the array's type.
OPTIONAL = {"time_us": "q", "pool_id": "Q", "compile_context": "i", "user_metadata": "i"}

# Browsers count no further without losing units; in µs that is the year 2255.
MAX_TIME_US = 1 << 53


class EventColumns:
    """Grows the columns of one trace; ``texts`` are the whole snapshot's."""

    def __init__(self, texts: Codes, ignored: Ignored) -> None:
        self._texts, self._ignored = texts, ignored
        self._action = array("B")
        self._address, self._size, self._stream = array("Q"), array("Q"), array("Q")
        self._oom_event, self._oom_free = array("I"), array("Q")
        self._optional = {key: array(letter) for key, letter in OPTIONAL.items()}

    def __len__(self) -> int:
        return len(self._action)

    def add(self, entries: Sequence[Any]) -> None:
        """Take the next entries. Raises BadInputError where they are not trace entries."""
        table = Table("event", entries)
        actions = array("B", table.codes("action", _Actions(self._ignored)))
        if OOM in actions or UNKNOWN_ACTION in actions:
            self._take_free(table, actions)
            table = Table("event", [_with_address(*pair) for pair in zip(entries, actions, strict=True)])
            table.values("action")
        self._action.extend(actions)
        self._address.extend(table.unsigned("addr"))
        self._size.extend(table.sizes("size"))
        self._stream.extend(table.unsigned("stream"))
        table.lists("frames")
        for key, column in list(self._optional.items()):
            if table.has(key):
                column.extend(self._read(table, key))
            else:
                del self._optional[key]
        table.count_unknown(self._ignored, known=("device_free", *OPTIONAL))

    def optional_keys(self) -> set[str]:
        """Return the keys of later releases that every event had."""
        return set(self._optional) if len(self) else set()

    def build(self, stack: I32) -> Events:
        """Return the columns, with ``stack`` the stack of each event."""
        columns = {key: np.asarray(column) for key, column in self._optional.items()}
        pool = columns.pop("pool_id", None)
        if pool is not None:
            columns |= {"pool_a": pool[::2].copy(), "pool_b": pool[1::2].copy()}
        times = columns.get("time_us")
        if times is not None and len(times) and not -MAX_TIME_US < times.min() <= times.max() < MAX_TIME_US:
            del columns["time_us"]
            self._ignored.add("event", "time_us that no clock shows", len(times))
        return Events(
            action=np.asarray(self._action),
            address=np.asarray(self._address),
            size_bytes=np.asarray(self._size),
            stream=np.asarray(self._stream),
            stack=stack,
            oom_event=np.asarray(self._oom_event),
            oom_device_free_bytes=np.asarray(self._oom_free),
            **columns,
        )

    def _take_free(self, table: Table, actions: array[int]) -> None:
        ooms = [place for place, action in enumerate(actions) if action == OOM]
        self._oom_event.extend(len(self) + place for place in ooms)
        self._oom_free.extend(Table("oom event", [table.records[place] for place in ooms]).sizes("device_free"))

    def _read(self, table: Table, key: str) -> array[int]:
        if key == "time_us":
            return table.signed(key)
        return table.pairs(key) if key == "pool_id" else table.codes(key, self._texts)


class _Actions(dict[str, int]):
    """The codes of the known actions; others are UNKNOWN_ACTION and counted."""

    def __init__(self, ignored: Ignored) -> None:
        super().__init__(ACTION_CODE)
        self._ignored = ignored

    def __missing__(self, action: str) -> int:
        self._ignored.add("action", action)
        return UNKNOWN_ACTION


def _with_address(entry: dict[Any, Any], action: int) -> dict[Any, Any]:
    """Return the entry with what every other one has: an oom has no address, a later release's action who knows what."""
    if action == OOM:
        return {"addr": 0, **entry}
    if action != UNKNOWN_ACTION:
        return entry
    numbers = {key: entry.get(key) for key in ("addr", "size", "stream")}
    return {**entry, **{key: value if _is_unsigned(value) else 0 for key, value in numbers.items()}}


def _is_unsigned(value: object) -> bool:
    return type(value) is int and 0 <= value <= MASK_64
