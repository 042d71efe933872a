"""The table of owners and its totals, every second tick: reading needs no more."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, ctx, html
from dash.exceptions import PreventUpdate

from dashboard import ids, maps
from dashboard.figures import owner_table
from dashboard.figures.selection import Selection
from layouts import parts
from vramscope.records import LiveData

# The pulse of the map keeps a fresh one, which is what the table should tell about too.
MAP_AGE_S = 30.0


def register(app: Dash, live: LiveData) -> None:
    def show_owners(tick: int | None, selection: dict[str, Any] | None) -> tuple[Any, ...]:
        chosen = Selection(**(selection or {}))
        if ctx.triggered_id == ids.TICK and tick and tick % 2:
            raise PreventUpdate
        if chosen.job is None or chosen.device is None:
            return [], [], [], ""
        found = live.device_map(chosen.job, chosen.device, chosen.rank, max_age_s=MAP_AGE_S)
        if found is None:
            return [], [], [], "no map has arrived yet"
        owners = maps.owners_of(found)
        bar, texts, largest, whole = owner_table.shares(found, owners)
        rows = owner_table.rows(found, owners)
        legend = [*parts.legend(texts, largest), html.Span(whole)]
        return rows, parts.stacked_bar(bar, "bar owner-bar"), legend, owner_table.note(owners, len(rows))

    app.callback(
        Output(ids.OWNER_GRID, "rowData"),
        Output(ids.OWNER_BAR, "children"),
        Output(ids.OWNER_PARTS, "children"),
        Output(ids.OWNER_NOTE, "children"),
        Input(ids.TICK, "n_intervals"),
        Input(ids.SELECTION, "data"),
    )(show_owners)
