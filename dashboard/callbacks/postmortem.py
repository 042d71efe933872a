"""What the *Post-mortem* page does: the paste box here, everything else in the browser, which asks the routes itself."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State

from dashboard import ids as shared_ids
from dashboard import postmortem_ids as ids
from dashboard.callbacks import pasted


def register(app: Dash) -> None:
    """Add the page's callbacks to ``app``."""
    app.callback(
        Output(ids.PASTE_FOUND, "children"),
        Input(ids.PASTE_READ, "n_clicks"),
        State(ids.PASTE, "value"),
        prevent_initial_call=True,
    )(lambda pressed, text: pasted.reading(text or ""))

    def in_browser(name: str, *dependencies: Any) -> None:
        app.clientside_callback(ClientsideFunction("postmortem", name), *dependencies)

    in_browser("theme", Input(shared_ids.THEME, "value"))
    in_browser("pickFile", Input(ids.FILE, "value"))
    in_browser("pickRank", Input(ids.RANK, "value"), Input(ids.RANK_MENU, "value"))
    in_browser("pickDevice", Input(ids.GPU, "value"), Input(ids.GPU_MENU, "value"))
    in_browser("pickOom", Input(ids.OOM_PICKER, "value"))
    in_browser("timelineOptions", Input(ids.MEMORY_AXIS, "value"), Input(ids.MEMORY_COLOUR, "value"))
    in_browser(
        "mapOptions",
        Input(shared_ids.MAP_COLOUR, "value"),
        Input(shared_ids.MAP_SORT, "value"),
        Input(shared_ids.MAP_POOL, "value"),
        Input(shared_ids.MAP_VIEW, "value"),
    )
    in_browser("exportMap", Input(shared_ids.MAP_EXPORT, "n_clicks"))
    in_browser("showTab", Input(ids.TAB, "value"))
    in_browser("stacksOptions", Input(ids.STACKS_AT, "value"), Input(ids.STACKS_TEXT, "value"))
    in_browser("rowsText", Input(ids.ROWS_TEXT, "value"))
    for table in ids.TABLES:
        grid = ids.table_grid(table)
        in_browser("rows", Output(grid, "getRowsResponse"), Input(grid, "getRowsRequest"), State(grid, "id"))
        in_browser("pickRow", Input(grid, "selectedRows"))
