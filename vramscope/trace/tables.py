"""The tables of the post-mortem page: which rows, in which order, and what each of them says."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vramscope.agent.categories import CATEGORIES
from vramscope.columns import INACTIVE
from vramscope.snapshot.columns import I32, I64, NONE
from vramscope.trace.categories import frame_label
from vramscope.trace.columns import BEFORE, Bools, Moment
from vramscope.trace.described import NO_SITE, ONLY_TORCH, Described, event_codes, segment_pool
from vramscope.trace.live import alive_at, is_there
from vramscope.trace.stack_tree import stacks_with
from vramscope.units import format_address

ALLOCATION_SORTS = ("bytes", "lifetime", "first_event", "address")
EVENT_SORTS = ("event", "bytes")
SITE_SORTS = ("bytes", "peak_bytes", "allocated_bytes", "count")
SEGMENT_SORTS = ("bytes", "address", "free_bytes")


class Order(NamedTuple):
    """How rows are sorted: by which column, and whether the largest come first; equal ones stay in their own order."""

    sort: str
    is_descending: bool

    def of(self, key: npt.NDArray[Any]) -> I64:
        """Return the places of the rows with these keys (whole numbers of at most 64 bits), in order."""
        if not self.is_descending:
            return np.argsort(key, kind="stable")
        # Both signed and unsigned numbers turn round without overflow this way.
        return np.argsort(~key, kind="stable")


def allocation_order(described: Described, order: Order, *, text: str = "", event: int | None = None) -> I64:
    """Return the allocations with ``text`` in their stack, of ``event`` if given, sorted by one of ALLOCATION_SORTS."""
    own = described.trace.allocations
    wanted = _with_text(described, own.stack, text)
    if event is not None:
        wanted &= is_there(own.first_event, own.last_event, event)
    chosen = np.flatnonzero(wanted)
    if order.sort == "lifetime":
        key = own.last_event[chosen] - own.first_event[chosen]
        times = described.trace.events.time_us
        if times is not None and len(times):
            places = np.concatenate([times[:1], times, times[-1:]])
            key = places[own.last_event[chosen] + 1] - places[own.first_event[chosen] + 1]
        return chosen[order.of(key)]
    column = {"bytes": own.block_bytes, "first_event": own.first_event, "address": own.address}[order.sort]
    return chosen[order.of(column[chosen])]


def allocation_row(described: Described, allocation: int) -> dict[str, Any]:
    """Return the row of an allocation; what happened outside the trace is None."""
    own, count = described.trace.allocations, described.trace.event_count
    first, last = int(own.first_event[allocation]), int(own.last_event[allocation])
    first_us, last_us = described.time_us(first), described.time_us(last)
    stack = int(own.stack[allocation])
    return {
        "allocation": allocation,
        "bytes": int(own.block_bytes[allocation]),
        "requested_bytes": int(own.requested_bytes[allocation]),
        "is_exact": bool(own.is_exact[allocation]),
        "address": format_address(int(own.address[allocation])),
        "first_event": None if first == BEFORE else first,
        "last_event": None if last == count else last,
        "lifetime_us": None if first_us is None or last_us is None else last_us - first_us,
        "lifetime_events": None if first == BEFORE or last == count else last - first,
        "stream": str(int(own.stream[allocation])),
        "category": described.category(stack),
        "site": described.site(stack),
    }


def event_order(described: Described, order: Order, *, text: str = "", kinds: list[str] | None = None) -> I64:
    """Return the events with ``text`` in their stack, of ``kinds`` if given, sorted by one of EVENT_SORTS."""
    events = described.trace.events
    wanted = _with_text(described, events.stack, text)
    if kinds:
        wanted &= np.isin(events.action, event_codes(kinds))
    chosen = np.flatnonzero(wanted)
    if order.sort == "event":
        return chosen[::-1] if order.is_descending else chosen
    return chosen[order.of(events.size_bytes[chosen])]


def site_rows(described: Described, order: Order, *, event: int, text: str = "") -> list[dict[str, Any]]:
    """Return the allocation sites, sorted by one of SITE_SORTS; those of several categories have a row for each.

    ``bytes`` are alive after ``event``, ``peak_bytes`` at the peak, ``allocated_bytes`` were allocated within the trace or before.
    """
    own, trace = described.trace.allocations, described.trace
    at_peak = None if trace.peak is None else alive_at(trace, trace.peak.event)
    now = alive_at(trace, event)
    ever_stack = own.stack if len(own) else now.stack
    keys, place = np.unique(_site_keys(described, ever_stack), return_inverse=True)
    bytes_now, count_now = _sums(keys, _site_keys(described, now.stack), now.size_bytes)
    peak_bytes = None if at_peak is None else _sums(keys, _site_keys(described, at_peak.stack), at_peak.size_bytes)[0]
    allocated = np.zeros(len(keys), np.int64)
    if len(own):
        np.add.at(allocated, place, own.block_bytes.astype(np.int64))
    columns = {"bytes": bytes_now, "count": count_now, "allocated_bytes": allocated, "peak_bytes": peak_bytes}
    key = columns[order.sort]
    ranked = order.of(bytes_now if key is None else key)
    ever = np.bincount(place, minlength=len(keys))
    rows = []
    for row in ranked.tolist():
        site, category = divmod(int(keys[row]), len(CATEGORIES))
        rows.append(
            {
                "site": _site_words(described, site - 2),
                "category": CATEGORIES[category],
                "count": int(count_now[row]),
                "bytes": int(bytes_now[row]),
                "peak_bytes": None if peak_bytes is None else int(peak_bytes[row]),
                "allocated_bytes": int(allocated[row]) if len(own) else None,
                "allocations": int(ever[row]) if len(own) else None,
            }
        )
    return [row for row in rows if text.casefold() in str(row["site"]).casefold()]


def segment_rows(described: Described, order: Order, moment: Moment, *, text: str = "") -> list[dict[str, Any]]:
    """Return the segments of ``moment``, sorted by one of SEGMENT_SORTS."""
    state = moment.state
    if not state.segment_count:
        return []
    starts = state.segment_first_block[:-1].astype(np.intp)
    free = np.where(state.block_state == INACTIVE, state.block_bytes, np.uint64(0))
    free_bytes = np.add.reduceat(free, starts)
    largest_free = np.maximum.reduceat(free, starts)
    blocks = np.diff(state.segment_first_block.astype(np.int64))
    key = {"bytes": state.segment_total_bytes, "address": state.segment_address, "free_bytes": free_bytes}[order.sort]
    rows = [
        {
            "address": format_address(int(state.segment_address[segment])),
            "bytes": int(state.segment_total_bytes[segment]),
            "active_bytes": int(state.segment_total_bytes[segment]) - int(free_bytes[segment]),
            "free_bytes": int(free_bytes[segment]),
            "largest_free_bytes": int(largest_free[segment]),
            "blocks": int(blocks[segment]),
            "stream": str(int(state.segment_stream[segment])),
            "pool": segment_pool(state, segment),
            "kind": "small" if state.segment_is_small[segment] else "large",
            "is_expandable": bool(state.segment_is_expandable[segment]),
            "site": described.site(int(moment.segment_stack[segment])),
        }
        for segment in order.of(key).tolist()
    ]
    return [row for row in rows if text.casefold() in str(row["site"]).casefold()]


def _with_text(described: Described, stack: I32, text: str) -> Bools:
    if not text:
        return np.ones(len(stack), np.bool_)
    has = stacks_with(described.snapshot, text)
    found = np.zeros(len(stack), np.bool_)
    found[stack != NONE] = has[stack[stack != NONE]]
    return found


def _site_keys(described: Described, stack: I32) -> I64:
    """Return a number for the site and the category of each stack: 0 no stack, 1 none outside torch, else the frame + 2."""
    site = np.zeros(len(stack), np.int64)
    known = stack != NONE
    site[known] = described.sites[stack[known]].astype(np.int64) + 2
    return site * len(CATEGORIES) + described.categories(stack)


def _site_words(described: Described, frame: int) -> str:
    if frame >= 0:
        return frame_label(described.snapshot, frame)
    return ONLY_TORCH if frame == NONE else NO_SITE


def _sums(keys: I64, found: I64, size_bytes: I64) -> tuple[I64, I64]:
    """Return the bytes and the number of what is found under each of the sorted keys."""
    place = np.searchsorted(keys, found)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, place, size_bytes)
    return sums, np.bincount(place, minlength=len(keys)).astype(np.int64)
