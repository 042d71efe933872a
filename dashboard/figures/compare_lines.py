"""Two memory timelines on one axis as a Plotly figure, aligned at their start, their peak or the compared moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vramscope.snapshot.columns import I64
from vramscope.trace.timeline_view import BLOCK_BYTES, STEP, TIME, Axis, Timeline, view
from vramscope.units import GIB, MIB

START, PEAK, MOMENT = "start", "peak", "moment"
ALIGNMENTS = (START, PEAK, MOMENT)

# Each column is its least and its most: at most 2,000 points a line.
COLUMNS = 1000
# Colours that stand on a light and on a dark page.
COLOURS = ("#3f8ae0", "#d9822b")


@dataclass(frozen=True)
class Line:
    """One side's timeline; ``letter`` is "A" or "B", ``event`` the compared moment. ``timeline`` is None where there is none."""

    letter: str
    timeline: Timeline | None
    event: int


def figure(lines: Sequence[Line], align: str) -> dict[str, Any]:
    """Return ``{"data", "layout"}`` of both timelines; times are in seconds, counted from where both are aligned."""
    known = [(line, line.timeline, colour) for line, colour in zip(lines, COLOURS, strict=True) if line.timeline]
    name = TIME if known and all(TIME in timeline.axes for _, timeline, _ in known) else STEP
    highest = max((_highest(timeline) for _, timeline, _ in known), default=0)
    unit_bytes, unit = (GIB, "GiB") if highest >= 2 * GIB else (MIB, "MiB")
    data: list[dict[str, Any]] = []
    shapes = []
    for line, timeline, colour in known:
        axis = timeline.axes[name]
        origin, scale = _origin(line, timeline, axis, align), 1e6 if name == TIME else 1.0
        data += _traces(line, timeline, axis, origin, scale, colour, unit_bytes, unit)
        shapes.append(_mark((axis.at(line.event) - origin) / scale, colour))
    where = {START: "the start of each trace", PEAK: "the peak of each trace", MOMENT: "the compared moments"}[align]
    layout = {
        "xaxis": {
            "title": {"text": f"{'seconds' if name == TIME else 'events'} from {where}"},
            "zeroline": align != START,
        },
        "yaxis": {"ticksuffix": f" {unit}", "rangemode": "tozero"},
        "shapes": shapes,
        "margin": {"l": 74, "r": 14, "t": 8, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified",
        "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        "uirevision": f"{name} {align}",
    }
    return {"data": data, "layout": layout}


def note(lines: Sequence[Line]) -> str:
    """Return in one line what the figure shows, and what it cannot."""
    without = [line.letter for line in lines if line.timeline is None]
    if without:
        return f"{' and '.join(without)}: no allocations were recorded, so there is no line"
    bases = {line.letter: line.timeline.basis for line in lines if line.timeline is not None}
    kinds = {letter: "active" if basis == BLOCK_BYTES else "requested" for letter, basis in bases.items()}
    same = len(set(kinds.values())) == 1
    shown = next(iter(kinds.values())) if same else ", ".join(f"{letter} {kind}" for letter, kind in kinds.items())
    return f"{shown} bytes, the least and the most of each column; dotted: reserved"


def _highest(timeline: Timeline) -> int:
    reserved = timeline.trace.reserved_bytes
    return int(timeline.level.max() if reserved is None else reserved.max())


def _origin(line: Line, timeline: Timeline, axis: Axis, align: str) -> float:
    if align == MOMENT:
        return axis.at(line.event)
    peak = timeline.peak if align == PEAK else None
    return axis.begin if peak is None else axis.at(peak.event)


def _traces(
    line: Line, timeline: Timeline, axis: Axis, origin: float, scale: float, colour: str, unit_bytes: int, unit: str
) -> list[dict[str, Any]]:
    shown = view(timeline, axis, axis.begin, axis.end, COLUMNS, most=1)
    x = (shown.begin + np.arange(COLUMNS) * ((shown.end - shown.begin) / COLUMNS) - origin) / scale
    kind = "active" if timeline.basis == BLOCK_BYTES else "requested"
    common = {"type": "scatter", "mode": "lines", "hovertemplate": f"%{{y:.2f}} {unit}"}
    traces = [
        {
            **common,
            "name": f"{line.letter} {kind}",
            "x": np.repeat(x, 2).tolist(),
            "y": (_woven(shown.low, shown.high) / unit_bytes).tolist(),
            "line": {"color": colour, "width": 1.6},
        }
    ]
    if shown.reserved is not None:
        traces.append(
            {
                **common,
                "name": f"{line.letter} reserved",
                "x": x.tolist(),
                "y": (shown.reserved / unit_bytes).tolist(),
                "line": {"color": colour, "width": 1.2, "dash": "dot", "shape": "hv"},
            }
        )
    return traces


def _woven(low: I64, high: I64) -> I64:
    """Return the least and the most of each column in turns, so that a line through them fills what lies between."""
    return np.stack([low, high], axis=1).reshape(-1)


def _mark(x: float, colour: str) -> dict[str, Any]:
    """Return the line of a compared moment."""
    return {
        **{"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"},
        "line": {"color": colour, "width": 1, "dash": "dash"},
    }
