"""The memory in use over the trace as an SVG: the largest allocations as layers, the rest as one, reserved as a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vramscope.report.markup import Markup, element
from vramscope.report.samples import Layers, layers_of, samples_of
from vramscope.snapshot.columns import I64
from vramscope.trace.timeline_view import STEP, TIME, Axis, Timeline
from vramscope.units import GIB, KIB, MIB, format_bytes

COLUMNS = 620
MOST_LAYERS = 300
WIDTH, LEFT, RIGHT = 1100, 74, 12
TOP, PLOT_HEIGHT, BOTTOM = 30, 300, 22
COLUMN_WIDTH = (WIDTH - LEFT - RIGHT) / COLUMNS
MOST_MARKS = 12
LABEL_WIDTH = 110
TICKS = 5

# A moment with its name: (event, words, the class of its line).
Mark = tuple[int, str, str]


def timeline(
    found: Timeline, *, owner: Callable[[int], int], describe: Callable[[int], str], marks: Sequence[Mark]
) -> Markup:
    """Return the picture of the whole of ``found``, over time where its events have times.

    A column shows the moment of it at which most was in use. ``owner(stack)`` is a category's code, ``describe(stack)`` is in words.
    """
    samples = samples_of(found, found.axes.get(TIME, found.axes[STEP]), COLUMNS)
    layers = layers_of(found, samples, MOST_LAYERS)
    reserved = samples.reserved_bytes
    highest = int(samples.in_use_bytes.max() if reserved is None else reserved.max())
    step = tick_bytes(highest)
    top = max(-(-highest // step), 1) * step
    return element(
        "svg",
        *_grid(samples.axis, top, step),
        element("path", d=_area(samples.in_use_bytes * 0, samples.in_use_bytes, 0, top), class_="rest"),
        *_layers(found, layers, top, owner, describe),
        element("path", d=_steps(samples.in_use_bytes, 0, top), class_="total"),
        None if reserved is None else element("path", d=_steps(reserved, 0, top), class_="reserved"),
        *_marks(samples.axis, marks[:MOST_MARKS]),
        viewBox=f"0 0 {WIDTH} {TOP + PLOT_HEIGHT + BOTTOM}",
        role="img",
        aria_label=f"Memory in use over the trace, at most {format_bytes(int(samples.in_use_bytes.max()))}",
        class_="timeline",
    )


def tick_bytes(highest: int) -> int:
    """Return the distance of the axis's lines: a power of two, so that at most TICKS of them are needed."""
    step = KIB
    while step * TICKS < highest:
        step *= 2
    return step


def _x(column: float) -> str:
    return _short(LEFT + column * COLUMN_WIDTH)


def _y(size_bytes: float, top: int) -> str:
    return _short(TOP + PLOT_HEIGHT * (1 - size_bytes / top))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(axis: Axis, top: int, step: int) -> Iterator[Markup]:
    for size_bytes in range(0, top + 1, step):
        y = _y(size_bytes, top)
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")
        yield element("text", _tick(size_bytes), x=LEFT - 6, y=float(y) + 4, text_anchor="end")
    for part in range(TICKS + 1):
        at = part / TICKS
        words = _moment(axis, at)
        anchor = "start" if not part else "end" if part == TICKS else "middle"
        yield element("text", words, x=_x(at * COLUMNS), y=TOP + PLOT_HEIGHT + 16, text_anchor=anchor)


def _tick(size_bytes: int) -> str:
    for unit_bytes, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= unit_bytes:
            return f"{size_bytes // unit_bytes} {unit}" if not size_bytes % unit_bytes else format_bytes(size_bytes)
    return f"{size_bytes} B"


def _moment(axis: Axis, share: float) -> str:
    span = (axis.end - axis.begin) * share
    return f"{span / 1e6:.3f} s" if axis.name == TIME else f"event {max(axis.begin + span, 0):.0f}"


def _layers(
    found: Timeline, layers: Layers, top: int, owner: Callable[[int], int], describe: Callable[[int], str]
) -> Iterator[Markup]:
    rows = zip(
        *(column.tolist() for column in (layers.allocation, layers.first, layers.end, layers.size_bytes)), strict=True
    )
    for place, (allocation, first, end, size) in enumerate(rows):
        stack = int(found.trace.allocations.stack[allocation])
        base = layers.base_bytes[place, first:end]
        title = element("title", f"{format_bytes(size)}, {describe(stack)}")
        yield element("path", title, d=_area(base, base + size, first, top), class_=f"block owner-{owner(stack)}")


def _area(low: I64, high: I64, first: int, top: int) -> str:
    """Return the outline of what lies between two levels of the columns from ``first`` on."""
    return f"{_steps(high, first, top)}L{_steps(low[::-1], first, top, backwards=True)[1:]}z"


def _steps(levels: I64, first: int, top: int, *, backwards: bool = False) -> str:
    """Return a line over the columns' levels; only where the level changes is there a point."""
    starts = np.flatnonzero(np.diff(levels, prepend=levels[0] - 1))
    edges = [*starts.tolist(), len(levels)]
    if backwards:
        edges = [len(levels) - edge for edge in edges]
    x = [_x(first + edge) for edge in edges]
    y = [_y(level, top) for level in levels[starts].tolist()]
    return f"M{x[0]} {y[0]}" + "".join(
        f"H{x[n + 1]}" + (f"V{y[n + 1]}" if n + 1 < len(y) else "") for n in range(len(y))
    )


def _marks(axis: Axis, marks: Sequence[Mark]) -> Iterator[Markup]:
    """Yield the marks' lines, and their labels in two rows; a label without room is left out, its line's title has it."""
    free_from = [0.0, 0.0]
    for event, words, class_ in sorted(marks):
        x = LEFT + (axis.at(event) - axis.begin) / (axis.end - axis.begin) * (WIDTH - LEFT - RIGHT)
        title = element("title", words)
        yield element("line", title, x1=_short(x), x2=_short(x), y1=TOP, y2=TOP + PLOT_HEIGHT, class_=class_)
        begin = x if x + LABEL_WIDTH < WIDTH else x - LABEL_WIDTH
        row = next((row for row, free in enumerate(free_from) if free <= begin), None)
        if row is not None:
            free_from[row] = begin + LABEL_WIDTH
            anchor = "start" if begin == x else "end"
            yield element("text", words, x=_short(x), y=TOP - 5 - 13 * row, text_anchor=anchor, class_=f"{class_}-text")
