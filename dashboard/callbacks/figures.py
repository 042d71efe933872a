"""The GPU's bar and the six figures, once a second."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output
from dash.development.base_component import Component
from dash.exceptions import PreventUpdate

from dashboard import ids
from dashboard.figures import cards, states
from dashboard.figures.selection import Selection, find_rank
from layouts import parts
from vramscope.records import DeviceStats, LiveData, Timeline
from vramscope.units import format_bytes

MINUTE_US = 60_000_000


def register(app: Dash, live: LiveData) -> None:
    def show_figures(tick: int, selection: dict[str, Any] | None, size: str | None) -> tuple[Any, ...]:
        chosen = Selection(**(selection or {}))
        found = find_rank(live.jobs(), chosen)
        stats = live.stats(chosen.job, chosen.device, chosen.rank) if chosen.job and chosen.device is not None else None
        if found is None:
            raise PreventUpdate
        name = states.device_name(found[1], chosen.device)
        if stats is None:
            return name, None, None, *map(_body, cards.no_figures())
        device = states.find_device(found[1], chosen.device)
        if device is not None and device.backend == "cudaMallocAsync":
            stats = cards.without_statistics(stats)
        figures = cards.figures(stats, _last_minute(live, stats), cards.parse_size(size))
        return name, *_device_bar(stats), *map(_body, figures)

    app.callback(
        Output(ids.DEVICE_NAME, "children"),
        Output(ids.DEVICE_BAR, "children"),
        Output(ids.DEVICE_PARTS, "children"),
        *(Output(name, "children") for name in ids.CARDS),
        Input(ids.TICK, "n_intervals"),
        Input(ids.SELECTION, "data"),
        Input(ids.FIT_SIZE, "value"),
    )(show_figures)


def _body(figure: cards.Figure) -> list[Component]:
    return parts.figure_body(figure.value, figure.unit, figure.detail, figure.bar)


def _last_minute(live: LiveData, stats: DeviceStats) -> Timeline | None:
    end = stats.time_unix_us
    return live.timeline(
        stats.job_id, stats.device, stats.rank, from_unix_us=end - MINUTE_US, to_unix_us=end, points=60
    )


def _device_bar(stats: DeviceStats) -> tuple[Any, Any]:
    found, total = cards.device_parts(stats), cards.total_bytes(stats)
    shown = total or sum(part.size_bytes for part in found) or 1
    bar = parts.stacked_bar([(part.colour, part.size_bytes / shown) for part in found], "bar device-bar")
    texts = [(part.colour, f"{format_bytes(part.size_bytes)} {part.name}") for part in found]
    return bar, parts.legend(texts)
