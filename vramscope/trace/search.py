"""Finds allocations by an address in them, by their size, or by a text in their stack."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from vramscope.errors import BadInputError
from vramscope.snapshot.columns import I32, NONE
from vramscope.trace.columns import BEFORE, Bools
from vramscope.trace.described import Described
from vramscope.trace.live import alive_at
from vramscope.trace.stack_tree import stacks_with
from vramscope.units import format_address, format_bytes, parse_bytes

MOST_HITS = 200
_HEX = re.compile(r"0[xX]([0-9a-fA-F]{1,16})")
_ADDRESS = re.compile(r"\d{12,20}", re.ASCII)
_SIZE = re.compile(r"(>=|<=|>|<|=)?\s*([\d.]+\s*(?:[KMGT]i?B?|B))|(>=|<=|>|<|=)\s*(\d+)", re.ASCII | re.IGNORECASE)


class Found(NamedTuple):
    """The largest hits first, at most MOST_HITS of ``total``; ``what`` says what was looked for."""

    hits: list[dict[str, Any]]
    total: int
    what: str


class _Candidates(NamedTuple):
    """All allocations of the trace, or where it has no lifetimes the live blocks of the final state (``allocation`` -1)."""

    allocation: np.ndarray[Any, np.dtype[np.int64]]
    address: np.ndarray[Any, np.dtype[np.uint64]]
    size_bytes: np.ndarray[Any, np.dtype[np.uint64]]
    requested_bytes: np.ndarray[Any, np.dtype[np.uint64]]
    stack: I32


def search(described: Described, query: str) -> Found:
    """Return what ``query`` finds. Raises BadInputError where it is empty."""
    text = query.strip()
    if not text:
        raise BadInputError("type an address (0x7f…), a size (512MiB, >=1GiB) or a part of a stack")
    candidates = _candidates(described)
    matches, what = _matches(described, candidates, text)
    places = np.flatnonzero(matches)
    order = places[np.argsort(~candidates.size_bytes[places], kind="stable")]
    hits = [_hit(described, candidates, place) for place in order[:MOST_HITS].tolist()]
    return Found(hits, len(places), what)


def _candidates(described: Described) -> _Candidates:
    trace = described.trace
    if trace.contradiction is not None:
        alive = alive_at(trace, trace.event_count - 1)
        size = alive.size_bytes.astype(np.uint64)
        return _Candidates(alive.allocation, alive.address, size, size, alive.stack)
    own = trace.allocations
    return _Candidates(np.arange(len(own)), own.address, own.block_bytes, own.requested_bytes, own.stack)


def _matches(described: Described, candidates: _Candidates, text: str) -> tuple[Bools, str]:
    address = _address(text)
    if address is not None:
        begin, wanted = candidates.address, np.uint64(address)
        inside: Bools = (begin <= wanted) & (wanted - begin < candidates.size_bytes)
        return inside, f"allocations around {format_address(address)}"
    size = _SIZE.fullmatch(text)
    if size is not None:
        return _of_size(candidates, size[1] or size[3] or "=", parse_bytes(size[2] or size[4]))
    has = np.append(stacks_with(described.snapshot, text), False)
    return has[candidates.stack], f"allocations with {text[:80]!r} in their stack"


def _address(text: str) -> int | None:
    found = _HEX.fullmatch(text)
    if found is not None:
        return int(found[1], 16)
    return int(text) if _ADDRESS.fullmatch(text) and int(text) < 1 << 64 else None


def _of_size(candidates: _Candidates, relation: str, wanted: int) -> tuple[Bools, str]:
    # No block is as large as that, so that what is wanted may be cut to what a column can hold.
    size, limit = candidates.size_bytes, np.uint64(min(wanted, (1 << 64) - 1))
    if relation == "=":
        exact: Bools = (size == limit) | (candidates.requested_bytes == limit)
        return exact, f"allocations of {format_bytes(wanted)}, as blocks or as requested"
    compared: dict[str, Bools] = {">=": size >= limit, "<=": size <= limit, ">": size > limit, "<": size < limit}
    return compared[relation], f"allocations whose block has {relation} {format_bytes(wanted)}"


def _hit(described: Described, candidates: _Candidates, place: int) -> dict[str, Any]:
    allocation, stack = int(candidates.allocation[place]), int(candidates.stack[place])
    trace, size = described.trace, int(candidates.size_bytes[place])
    address = format_address(int(candidates.address[place]))
    event = trace.event_count - 1 if allocation < 0 else int(trace.allocations.first_event[allocation])
    since = "" if allocation < 0 else " before the trace" if event == BEFORE else f" at event {event}"
    return {
        "kind": "allocation",
        "allocation": None if allocation < 0 else allocation,
        "event": event,
        "bytes": size,
        "address": address,
        "label": f"{format_bytes(size)} at {address}{since}"
        + ("" if stack == NONE else f" by {described.site(stack)}"),
    }
