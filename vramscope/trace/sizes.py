"""How large the block of each allocation was: an event tells its request, and a block is often larger."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vramscope.allocator.rounding import SMALL_LIMIT_BYTES, SMALL_SEGMENT_BYTES
from vramscope.columns import U64, DeviceMap
from vramscope.snapshot.columns import I64, DeviceSnapshot, Settings
from vramscope.trace.block_rules import BlockRules, block_rules_of, rounded_to_least
from vramscope.trace.columns import BEFORE, Allocations, Bools, SegmentSpans
from vramscope.trace.gaps import Gaps, gaps_of


class Sizes(NamedTuple):
    """Columns of shape (N,), as of Allocations; ``wrong`` counts allocations that cannot have been where they are said to be."""

    block_bytes: U64
    is_exact: Bools
    wrong: int
    notes: tuple[str, ...]


def block_sizes(
    found: DeviceSnapshot, settings: Settings, allocations: Allocations, told_by: I64, spans: SegmentSpans | None
) -> Sizes:
    """Return the sizes, and where they are certain. ``spans`` None: the segments do not follow from the file.

    A block of the final state has its size. A block of the small pool, or of an expandable segment, is its request rounded and
    no more. One of the large pool may keep what is left of the free block that it took: that one began where it begins and
    ended at the next block or at its segment's end, whatever the sizes of the others. Last, where a block was made right
    behind another, that is where the other ended.
    """
    known, pieces = allocations.final_block >= 0, _pieces(found.state, spans)
    final_bytes = np.zeros(len(allocations), np.uint64)
    final_bytes[known] = found.state.block_bytes[allocations.final_block[known]]
    rules = block_rules_of(settings, has_pieces=bool(len(pieces[0])))
    notes = () if np.all(known) else rules.notes
    rounded = rules.rounded(allocations.requested_bytes)
    splits = _pool_splits(found, allocations, told_by, spans)
    is_large = (rounded > SMALL_LIMIT_BYTES) & ~_in_ranges(allocations.address, *pieces)
    is_exact = ~is_large & splits
    rounding_holds = not np.any(known & ((rounded > final_bytes) | (is_exact & (rounded != final_bytes))))
    if not rounding_holds:
        notes += ("blocks of the final state are not their requests rounded as the settings say",)
        rounded, is_exact = rounded_to_least(allocations.requested_bytes), known
    sizes, is_exact, wrong = np.where(known, final_bytes, rounded), is_exact | known, 0
    if spans is not None and np.any(is_large & ~is_exact):
        gaps = gaps_of(allocations, spans, is_large, len(found.events))
        certain = np.where(known, final_bytes, gaps.seen_bytes)
        has_no_room = (gaps.gap_bytes < sizes) | ((certain > 0) & (certain < allocations.requested_bytes))
        wrong = int(np.count_nonzero(is_large & has_no_room))
        by_rule, follows = _by_rule(allocations, rounded, splits, rules, gaps)
        if not rounding_holds or np.any(follows & (certain > 0) & (by_rule != certain)):
            follows = np.zeros(len(allocations), np.bool_)
        is_full = gaps.gap_bytes == rounded
        sizes = np.where(certain > 0, certain, np.where(follows, by_rule, sizes))
        is_exact |= is_large & ((certain > 0) | follows | is_full)
    uncertain = int(np.count_nonzero(~is_exact))
    if uncertain:
        notes += (
            f"the sizes of {uncertain} blocks that are gone are not certain: what is shown are their requests, rounded",
        )
    return Sizes(sizes, is_exact, wrong, notes)


def _by_rule(allocations: Allocations, rounded: U64, splits: Bools, rules: BlockRules, gaps: Gaps) -> tuple[U64, Bools]:
    """Return the sizes that blocks of the large pool got out of their gaps, and where that is certain."""
    rest = gaps.gap_bytes - rounded
    is_below = np.ones(len(rounded), np.bool_) if rules.max_split_bytes is None else rounded < rules.max_split_bytes
    is_split = is_below & (rest > SMALL_LIMIT_BYTES)
    # With expandable segments on even a small rest is split off; which they were at the time is not recorded.
    follows = np.where(is_split, splits, rules.is_expandable is False) & (allocations.first_event > BEFORE)
    return np.where(is_split, rounded, gaps.gap_bytes), follows


def _pieces(state: DeviceMap, spans: SegmentSpans | None) -> tuple[U64, U64]:
    """Return begins and ends of the address ranges that expandable segments ever had."""
    begin, size = state.segment_address, state.segment_total_bytes
    is_piece = state.segment_is_expandable > 0
    if spans is not None:
        begin, size, is_piece = spans.address, spans.total_bytes, spans.is_expandable > 0
    begin = begin[is_piece]
    # Of pieces at different times some lie in others.
    return begin, np.maximum.accumulate(begin + size[is_piece])


def _in_ranges(address: U64, begins: U64, ends: U64) -> Bools:
    """Return which addresses lie in the ranges, whose begins are sorted and whose ends rise."""
    place = np.searchsorted(begins, address, side="right") - 1
    inside = place >= 0
    inside[inside] = address[inside] < ends[place[inside]]
    return inside


def _pool_splits(found: DeviceSnapshot, allocations: Allocations, told_by: I64, spans: SegmentSpans | None) -> Bools:
    """Return for each allocation whether its pool splits blocks for certain: a private one may have been made not to.

    One that splits has a block that begins elsewhere than a segment, or than a page of an expandable one.
    """
    pools = _pools(found, allocations, told_by)
    is_default: Bools = ~np.any(pools, axis=1)
    if np.all(is_default) or spans is None:
        return is_default
    different, pool = np.unique(pools, axis=0, return_inverse=True)
    splits = np.zeros(len(different), np.bool_)
    is_inner = ~np.isin(allocations.address, spans.address) & (
        allocations.address % np.uint64(SMALL_SEGMENT_BYTES) != 0
    )
    splits[pool[is_inner]] = True
    is_default |= splits[pool]
    return is_default


def _pools(found: DeviceSnapshot, allocations: Allocations, told_by: I64) -> U64:
    """Return both numbers of each allocation's pool (N, 2), as its event or else the final segment around it says."""
    state, events = found.state, found.events
    pools = np.zeros((len(allocations), 2), np.uint64)
    if np.any(state.segment_pool_a) or np.any(state.segment_pool_b):
        place = np.searchsorted(state.segment_address, allocations.address, side="right") - 1
        inside = np.flatnonzero(place >= 0)
        ends = state.segment_address + state.segment_total_bytes
        inside = inside[allocations.address[inside] < ends[place[inside]]]
        pools[inside] = np.stack([state.segment_pool_a, state.segment_pool_b], axis=1)[place[inside]]
    if events.pool_a is not None and events.pool_b is not None:
        told = np.flatnonzero(told_by >= 0)
        pools[told] = np.stack([events.pool_a, events.pool_b], axis=1)[told_by[told]]
    return pools
