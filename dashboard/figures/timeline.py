"""The fragmentation timeline as a Plotly figure: lines with their low and high, gaps as gaps, and marks.

Colours are written as ``var(--name)``; the page puts in what the theme gives. Times are Unix milliseconds in UTC; the page
moves them to its own time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vramscope.records import Mark, Timeline
from vramscope.units import GIB, MIB

F64 = npt.NDArray[np.float64]

# What is drawn, in drawing order: name in HISTORY, label, colour, dash, width.
LINES = (
    ("nvml_used_bytes", "used on the device", "var(--line-device)", "dot", 1.2),
    ("reserved_bytes", "reserved", "var(--line-reserved)", "solid", 1.4),
    ("largest_fit_bytes", "largest fit", "var(--line-fit)", "dashdot", 1.4),
    ("inactive_split_bytes", "inactive split", "var(--line-split)", "dash", 1.6),
    ("active_bytes", "active", "var(--line-active)", "solid", 1.8),
)
BANDED = "active_bytes"
MARK_COLOURS = {"oom": "var(--bad)", "retry": "var(--mark-retry)", "user": "var(--accent)"}
MARK_ORDER = ("oom", "retry", "user", "start", "end", "gap")
MOST_MARKS = 60
LABEL_ROWS = 2
LABEL_ROW_PX = 14
CHARACTER_PX = 6.2
LONGEST_LABEL = 24


@dataclass(frozen=True)
class Window:
    """The wished-for range in µs: the last ``window_s`` seconds before ``now_us``, or from..to; otherwise everything."""

    now_us: int
    window_s: int | None = None
    from_us: int | None = None
    to_us: int | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        if self.from_us is not None and self.to_us is not None:
            return self.from_us, max(self.to_us, self.from_us + 1)
        if self.window_s:
            return self.now_us - self.window_s * 1_000_000, self.now_us
        return None, None


def figure(found: Timeline, window: Window, *, width_px: int) -> dict[str, Any]:
    """Return ``{"data", "layout", "note", "range_ms"}`` of ``found``; ``width_px`` is for the labels' places."""
    start_ms, end_ms = _range_ms(found, window)
    x = found.time_unix_us / 1000
    top = _top_bytes(found)
    unit_bytes, unit = (GIB, "GiB") if top >= 2 * GIB else (MIB, "MiB")
    data = [_band(found, x, unit_bytes)]
    data += [_line(found, x, unit_bytes, unit, *line) for line in LINES if _known(found, line[0])]
    marks = [mark for mark in found.marks if start_ms <= mark.time_unix_us / 1000 <= end_ms]
    data += _step_ticks([mark for mark in marks if mark.kind == "step"])
    shapes, annotations, unlabelled = _marks([m for m in marks if m.kind != "step"], start_ms, end_ms, width_px)
    layout = {
        "shapes": shapes,
        "annotations": annotations,
        "xaxis": {"range": [start_ms, end_ms], "type": "date", "tickformat": _tick_format(end_ms - start_ms)},
        "yaxis": {"range": [0, top / unit_bytes], "ticksuffix": f" {unit}"},
    }
    note = _note(found, unlabelled)
    return {"data": data, "layout": layout, "note": note, "range_ms": [start_ms, end_ms]}


def _range_ms(found: Timeline, window: Window) -> tuple[float, float]:
    start, end = window.bounds()
    if start is None or end is None:
        first = found.first_unix_us if found.first_unix_us is not None else window.now_us - 60_000_000
        last = found.last_unix_us if found.last_unix_us is not None else window.now_us
        start, end = first, max(last, first + 1_000_000)
    return start / 1000, end / 1000


def _tick_format(width_ms: float) -> str:
    if width_ms < 2 * 3600_000:
        return "%H:%M:%S"
    return "%H:%M" if width_ms < 36 * 3600_000 else "%b %d %H:%M"


def _known(found: Timeline, name: str) -> bool:
    return name in found.high and not bool(np.all(np.isnan(found.high[name])))


def _top_bytes(found: Timeline) -> float:
    """Return the top of the axis: a round number over everything drawn, so that it stays while the lines move."""
    highest = max((float(np.nanmax(found.high[line[0]])) for line in LINES if _known(found, line[0])), default=0.0)
    return nice_top(highest * 1.04)


def nice_top(size_bytes: float) -> float:
    """Return the next of 1, 1.25, 1.5, 1.75 × 16 MiB × 2**k at or above ``size_bytes``."""
    step = 16.0 * MIB
    while True:
        for factor in (1.0, 1.25, 1.5, 1.75):
            if step * factor >= size_bytes:
                return step * factor
        step *= 2


def _band(found: Timeline, x: F64, unit_bytes: int) -> dict[str, Any]:
    """Return the area between the low and the high of the active bytes, a closed polygon for each unbroken run."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    low, high = found.low.get(BANDED), found.high.get(BANDED)
    if low is not None and high is not None:
        for begin, end in runs(~np.isnan(high) & ~np.isnan(low)):
            own = slice(begin, end)
            xs += [*x[own].tolist(), *x[own][::-1].tolist(), None]
            ys += [*(high[own] / unit_bytes).tolist(), *(low[own][::-1] / unit_bytes).tolist(), None]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": xs,
        "y": ys,
        "fill": "toself",
        "fillcolor": "var(--band-active)",
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def runs(known: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the (begin, end) of each unbroken run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


def _line(
    found: Timeline, x: F64, unit_bytes: int, unit: str, name: str, label: str, colour: str, dash: str, width: float
) -> dict[str, Any]:
    high = found.high[name] / unit_bytes
    low = found.low[name] / unit_bytes if name in found.low else high
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label,
        "x": x,
        "y": high,
        "customdata": low,
        "hovertemplate": f"%{{customdata:.2f}} – %{{y:.2f}} {unit}",
        "line": {"color": colour, "dash": dash, "width": width},
        "connectgaps": False,
    }


def _step_ticks(steps: Sequence[Mark]) -> list[dict[str, Any]]:
    if not steps:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "step",
            "x": [mark.time_unix_us / 1000 for mark in steps],
            "y": [0] * len(steps),
            "text": [escape(f"step {mark.label}") for mark in steps],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"symbol": "line-ns", "size": 9, "line": {"width": 1, "color": "var(--muted)"}},
            "cliponaxis": False,
        }
    ]


def _marks(
    marks: Sequence[Mark], start_ms: float, end_ms: float, width_px: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Return the lines and the labels of ``marks``, and how many of them stay without a label or are left out."""
    chosen = sorted(marks, key=lambda mark: MARK_ORDER.index(mark.kind) if mark.kind in MARK_ORDER else len(MARK_ORDER))
    shown = chosen[:MOST_MARKS]
    scale = width_px / max(end_ms - start_ms, 1)
    texts = [_label(mark) for mark in shown]
    positions = [(mark.time_unix_us / 1000 - start_ms) * scale for mark in shown]
    places = place_labels(positions, [len(text) * CHARACTER_PX + 8 for text in texts], width_px)
    shapes, annotations = [], []
    for mark, text, place in zip(shown, texts, places, strict=True):
        colour = MARK_COLOURS.get(mark.kind, "var(--muted)")
        dash = "dot" if mark.kind == "user" else "solid"
        x = mark.time_unix_us / 1000
        shapes.append(
            {
                "type": "line",
                "x0": x,
                "x1": x,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": colour, "width": 1.4, "dash": dash},
            }
        )
        if place is not None:
            row, left = place
            annotations.append(
                {
                    **{
                        "x": x,
                        "y": 1,
                        "yref": "paper",
                        "yanchor": "bottom",
                        "yshift": (LABEL_ROWS - 1 - row) * LABEL_ROW_PX,
                        "showarrow": False,
                    },
                    **{"xanchor": "right" if left else "left", "xshift": -3 if left else 3},
                    **{"text": escape(text), "font": {"color": colour, "size": 11}},
                }
            )
    # Later shapes lie on top, and the important ones come first in the list.
    return shapes[::-1], annotations, len(marks) - len(annotations)


def place_labels(
    positions_px: Sequence[float], widths_px: Sequence[float], width_px: float
) -> list[tuple[int, bool] | None]:
    """Return for each label its row and whether it stands left of its mark; None where there is no room for it.

    Earlier labels choose first, so the important ones come first. A label that would leave the plot on the right stands left.
    """
    taken: list[list[tuple[float, float]]] = [[] for _ in range(LABEL_ROWS)]
    places: list[tuple[int, bool] | None] = []
    for position, width in zip(positions_px, widths_px, strict=True):
        left = position + width > width_px
        begin, end = (position - width, position) if left else (position, position + width)
        row = next((n for n, spans in enumerate(taken) if all(end <= a or b <= begin for a, b in spans)), None)
        places.append(None if row is None else (row, left))
        if row is not None:
            taken[row].append((begin, end))
    return places


def _label(mark: Mark) -> str:
    text = " ".join(mark.label.split()) or mark.kind
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def escape(text: str) -> str:
    """Return ``text`` so that Plotly, which reads a subset of HTML in labels, shows it as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _note(found: Timeline, unlabelled: int) -> str:
    if not len(found.time_unix_us):
        return "no samples in this range"
    points = "raw samples"
    if found.resolution_us:
        width_ms = found.resolution_us / 1000
        width = f"{width_ms:.0f} ms" if width_ms < 1000 else f"{width_ms / 1000:.3g} s"
        points = f"each point: lowest to highest of {width}"
    left = found.marks_left_out + unlabelled
    return f"{points} · {left} marks without a label" if left else points
