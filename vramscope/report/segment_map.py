"""The segments of one moment as an SVG: a line each, the largest first, its blocks in the colours of their owners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from vramscope.columns import ACTIVE_PENDING_FREE, INACTIVE, DeviceMap
from vramscope.report.markup import Markup, element
from vramscope.units import format_bytes, format_ratio

MOST_LINES = 48
WIDTH, LEFT, RIGHT = 1100, 96, 70
LINE_HEIGHT, BAR_HEIGHT = 15, 11
# A block that is drawn wider tells what it is where the pointer rests on it.
TELLING_WIDTH = 6
COLUMNS = WIDTH - LEFT - RIGHT

FREE, PENDING = "free", "pending"


class _Run(NamedTuple):
    """Columns ``begin:end`` of a line, which show ``block``."""

    begin: int
    end: int
    block: int


def segment_map(state: DeviceMap, owner: Callable[[int], int], describe: Callable[[int], str]) -> Markup:
    """Return the picture of ``state``; ``owner(block)`` is a category's code, ``describe(block)`` is in words.

    A column of a line shows the block in its middle. Segments beyond MOST_LINES are left out; :func:`left_out` counts them.
    """
    order = np.argsort(-state.segment_total_bytes.astype(np.float64), kind="stable")[:MOST_LINES]
    lines = [_line(state, int(segment), row, owner, describe) for row, segment in enumerate(order.tolist())]
    height = max(len(lines), 1) * LINE_HEIGHT
    return element(
        "svg",
        *lines,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"The {len(lines)} largest of {state.segment_count} segments and their blocks",
        class_="map",
    )


def left_out(state: DeviceMap) -> tuple[int, int]:
    """Return how many segments the picture does not show, and their bytes."""
    sizes = np.sort(state.segment_total_bytes.astype(np.int64))
    hidden = sizes[: max(len(sizes) - MOST_LINES, 0)]
    return len(hidden), int(hidden.sum())


def _line(
    state: DeviceMap, segment: int, row: int, owner: Callable[[int], int], describe: Callable[[int], str]
) -> Markup:
    low, high = (int(state.segment_first_block[place]) for place in (segment, segment + 1))
    total = int(state.segment_total_bytes[segment])
    live = state.block_state[low:high] != INACTIVE
    used = int(state.block_bytes[low:high][live].astype(np.int64).sum())
    y = row * LINE_HEIGHT
    by_colour: dict[str, list[str]] = defaultdict(list)
    telling = []
    for run in _runs(state, low, high, int(state.segment_address[segment]), total):
        colour = _colour(state, run.block, owner)
        width = run.end - run.begin
        if width >= TELLING_WIDTH:
            title = element("title", describe(run.block))
            place = {"x": LEFT + run.begin, "y": y, "width": width, "height": BAR_HEIGHT}
            telling.append(element("rect", title, class_=f"block {colour}", **place))
        else:
            by_colour[colour].append(f"M{LEFT + run.begin} {y}h{width}v{BAR_HEIGHT}h-{width}z")
    narrow = [element("path", d="".join(parts), class_=colour) for colour, parts in by_colour.items()]
    text_y = y + BAR_HEIGHT - 1.5
    return element(
        "g",
        element("text", format_bytes(total), x=LEFT - 6, y=text_y, text_anchor="end"),
        *narrow,
        *telling,
        element("text", f"{format_ratio(used / total)} used", x=WIDTH - RIGHT + 6, y=text_y),
    )


def _colour(state: DeviceMap, block: int, owner: Callable[[int], int]) -> str:
    """Return the class of a block's colour."""
    if state.block_state[block] == INACTIVE:
        return FREE
    return PENDING if state.block_state[block] == ACTIVE_PENDING_FREE else f"owner-{owner(block)}"


def _runs(state: DeviceMap, low: int, high: int, address: int, total: int) -> Iterator[_Run]:
    """Yield which columns of a line show which of the blocks ``low:high``, each column the block in its middle."""
    ends = (state.block_address[low:high] - np.uint64(address) + state.block_bytes[low:high]).astype(np.float64)
    middles = (np.arange(COLUMNS) + 0.5) * (total / COLUMNS)
    shown = low + np.minimum(np.searchsorted(ends, middles, side="right"), high - low - 1)
    edges = np.flatnonzero(np.diff(shown, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield _Run(begin, end, int(shown[begin]))
