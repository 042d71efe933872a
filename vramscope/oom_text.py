"""Out-of-memory messages of every PyTorch release and backend, and of some neighbours, found in pasted text.

A message is read clause by clause: each number with a unit is taken for what the words before or behind it call it, and
marks say which library failed and how (``vramscope/oom_formats.py``). Clauses and marks that lie together are one message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from vramscope.oom_formats import BEFORE, BEHIND, MARKS, MENTION, RETRY, Clause, Mark
from vramscope.pasted_text import PastedText, read_pasted

# Clauses farther apart than this, in characters without blanks, belong to different messages.
MESSAGE_GAP = 400
# 2**64 bytes are printed for a limit that was not set and for a process that NVML could not see.
NO_SIZE_BYTES = 1 << 63

_UNITS = {
    unit.lower(): (unit, 1024**power) for power in range(1, 5) for unit in ("_KMGT"[power] + end for end in ("iB", "B"))
}
_UNITS["bytes"] = ("bytes", 1)
_SIZE = re.compile(r"(?<!\d)(?<!\d\.)(\d{1,20})(?:\.(\d{1,9}))?(bytes|[kmgt]i?b)")
_BEFORE_WORDS = tuple(clause.words for clause in BEFORE)
_BEHIND_WORDS = tuple(clause.words for clause in BEHIND)
_LONGEST = max(map(len, _BEFORE_WORDS))
_PROCESS = re.compile(r"process(\d{1,10})has$")
_DEVICE = re.compile(r"\([a-z]{2,4}(\d{1,4});$|(\d{0,4})hasatotalcapaci?tyof$")


@dataclass(frozen=True)
class Size:
    """A size as printed, and what it says: the true value lies within ``tolerance_bytes`` of ``size_bytes``."""

    text: str
    size_bytes: int
    tolerance_bytes: int

    @property
    def least_bytes(self) -> int:
        return max(0, self.size_bytes - self.tolerance_bytes)

    @property
    def most_bytes(self) -> int:
        return self.size_bytes + self.tolerance_bytes

    def to_facts(self) -> dict[str, Any]:
        return {"text": self.text, "bytes": self.size_bytes, "tolerance": self.tolerance_bytes}


@dataclass(frozen=True)
class OutOfMemory:
    """One message, or while it is put together a part of one.

    ``sizes`` holds what the text names, None where it prints no real size; what it does not name is absent. ``start`` and ``end``
    lie in the squeezed text; two messages are equal where they say the same, wherever and however often.
    """

    start: int = field(compare=False)
    end: int = field(compare=False)
    certain: bool = field(default=True, compare=False)
    backend: str = ""
    kind: str = ""
    device: int | None = None
    names_device: bool = False
    rank: int | None = None
    sizes: dict[str, Size | None] = field(default_factory=dict)
    processes: tuple[tuple[int, Size | None], ...] = ()
    exact_tried_bytes: int | None = None
    times: int = field(default=1, compare=False)

    @property
    def has_numbers(self) -> bool:
        return bool(self.sizes or self.processes or self.exact_tried_bytes is not None)

    def to_facts(self) -> dict[str, Any]:
        """Return the message as JSON: a key is absent where the message says nothing, null where it gives none."""
        facts: dict[str, Any] = {"backend": self.backend}
        if self.times > 1:
            facts["same_event_times"] = self.times
        if not self.has_numbers:
            facts["no_numbers"] = True
        if self.kind not in ("", MENTION):
            facts[self.kind] = True
        if self.device is not None or self.names_device:
            facts["device"] = self.device
        if self.rank is not None:
            facts["rank"] = self.rank
        if self.sizes and "tried" not in self.sizes:
            facts["tried"] = None  # the beginning was cut: every message with sizes has it
        facts |= {key: size and size.to_facts() for key, size in self.sizes.items()}
        if self.processes:
            facts["processes"] = [
                {"pid": pid, "in_use": in_use and in_use.to_facts()} for pid, in_use in self.processes
            ]
        if self.exact_tried_bytes is not None:
            facts["exact_tried_bytes"] = self.exact_tried_bytes
        return facts


def read_out_of_memory(text: str) -> list[OutOfMemory]:
    """Return the out-of-memory messages of a paste, in order; the same one again and again is one with ``times``."""
    pasted = read_pasted(text)
    found = list(_finish(_join(_fragments(pasted.squeezed)), pasted))
    # Warnings and mentions count only where there is nothing better.
    for lesser in ((RETRY, MENTION), (MENTION,), ()):
        if messages := [message for message in found if message.kind not in lesser]:
            return [replace(message, times=sum(1 for _ in same)) for message, same in groupby(messages)]
    return []


def facts_of(messages: list[OutOfMemory]) -> dict[str, Any]:
    """Return one message's facts, or ``events`` where there are several, beside the backend where they share one."""
    events = [message.to_facts() for message in messages]
    if len(events) < 2:
        return events[0] if events else {}
    if len({event["backend"] for event in events}) > 1:
        return {"events": events}
    shared = {"backend": events[0]["backend"]}
    return {**shared, "events": [{key: event[key] for key in event if key not in shared} for event in events]}


def _fragments(squeezed: str) -> list[OutOfMemory]:
    """Return each clause and mark as a message of its own, in order."""
    found = [_marked(mark, match) for mark in MARKS for match in mark.pattern.finditer(squeezed)]
    found += [part for match in _SIZE.finditer(squeezed) if (part := _sized(squeezed, match))]
    return sorted(found, key=lambda part: part.start)


def _marked(mark: Mark, match: re.Match[str]) -> OutOfMemory:
    groups = match.groupdict()
    backend, device, exact = (groups.pop(name, None) for name in ("backend", "device", "exact"))
    return OutOfMemory(
        start=match.start(),
        end=match.end(),
        backend=mark.backend or backend or "",
        kind=mark.kind,
        device=int(device) if device else None,
        sizes={key: Size(f"{number} bytes", int(number), 0) for key, number in groups.items()},
        exact_tried_bytes=int(exact) if exact else None,
    )


def _sized(squeezed: str, match: re.Match[str]) -> OutOfMemory | None:
    """Return what the words around a size say of it, or None where they say nothing that is known."""
    start, end = match.span()
    before = squeezed[max(0, start - _LONGEST - 1) : start].rstrip(":")
    if before.endswith("has") and (process := _PROCESS.search(before)):
        return OutOfMemory(start, end, processes=((int(process[1]), _size_of(match)),))
    clause = _clause(squeezed, before, end)
    if clause is None:
        return None
    size = _size_of(match)
    part = OutOfMemory(start, end, certain=clause.certain, sizes={clause.key: size})
    if clause.key == "total" and (device := _DEVICE.search(before)):
        digits = device[1] or device[2]
        return replace(part, device=int(digits) if digits else None, names_device=True)
    return part


def _clause(squeezed: str, before: str, end: int) -> Clause | None:
    if before.endswith(_BEFORE_WORDS):
        return next(clause for clause in BEFORE if before.endswith(clause.words))
    if squeezed.startswith(_BEHIND_WORDS, end):
        for clause in BEHIND:
            if squeezed.startswith(clause.words, end) and (not clause.after or before[-1:] in tuple(clause.after)):
                return clause
    return None


def _size_of(match: re.Match[str]) -> Size | None:
    whole, decimals, (unit, unit_bytes) = match[1], match[2] or "", _UNITS[match[3]]
    number = f"{whole}.{decimals}" if decimals else whole
    parts = 10 ** len(decimals)
    # Printing rounds to half of the last digit; one byte more, for this result is rounded too. Bytes are exact.
    tolerance_bytes = (unit_bytes + parts) // (2 * parts) + 1 if unit_bytes > 1 else 0
    size_bytes = (2 * int(whole + decimals) * unit_bytes + parts) // (2 * parts)
    if size_bytes >= NO_SIZE_BYTES:
        return None
    return Size(f"{number} {unit}", size_bytes, tolerance_bytes)


def _join(fragments: Iterable[OutOfMemory]) -> Iterator[OutOfMemory]:
    """Put fragments that belong together into one message; drop those that mean nothing alone."""
    current: OutOfMemory | None = None
    for part in fragments:
        if current and part.start - current.end <= MESSAGE_GAP and _belongs(current, part):
            current = _joined(current, part)
        elif part.certain:
            if current:
                yield current
            current = part
    if current:
        yield current


def _belongs(current: OutOfMemory, part: OutOfMemory) -> bool:
    if part.has_numbers and not part.kind:
        return current.kind != RETRY and not (current.sizes.keys() & part.sizes.keys())
    return not current.has_numbers and (current.kind == MENTION or part.kind in (current.kind, MENTION))


def _joined(current: OutOfMemory, part: OutOfMemory) -> OutOfMemory:
    kind = current.kind if part.kind == MENTION or (part.has_numbers and current.kind != MENTION) else part.kind
    return replace(
        current,
        end=max(current.end, part.end),
        backend=part.backend or current.backend,
        kind=kind,
        device=current.device if part.device is None else part.device,
        names_device=current.names_device or part.names_device,
        sizes={**current.sizes, **part.sizes},
        processes=current.processes + part.processes,
        exact_tried_bytes=current.exact_tried_bytes if part.exact_tried_bytes is None else part.exact_tried_bytes,
    )


def _finish(messages: Iterable[OutOfMemory], pasted: PastedText) -> Iterator[OutOfMemory]:
    """Add what a whole message tells: its rank, and its backend where no mark named one."""
    for message in messages:
        rank = pasted.rank_at(message.start)
        backend = message.backend or _backend_by_advice(pasted.squeezed[message.start : message.end + MESSAGE_GAP])
        yield replace(message, rank=rank, backend=backend)


def _backend_by_advice(squeezed: str) -> str:
    """Guess the backend of a message whose head is missing; most are CUDA's."""
    hints = {
        "pytorch_hip_alloc_conf": "hip",
        "hipgraphs": "hip",
        "(npu": "npu",
        "pleaseuseempty_cache": "xpu",
        "otherallocations:": "mps",
        "devicelimit:": "cuda-async",
    }
    return next((backend for words, backend in hints.items() if words in squeezed), "cuda")
