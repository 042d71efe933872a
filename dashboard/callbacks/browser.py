"""The callbacks that run in the browser: they hand what was picked to the scripts in ``assets/``."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output

from dashboard import ids


def register(app: Dash) -> None:
    def in_browser(name: str, *dependencies: Input | Output) -> None:
        app.clientside_callback(ClientsideFunction("vramscope", name), *dependencies)

    in_browser("select", Input(ids.SELECTION, "data"))
    in_browser(
        "pause",
        Output(ids.PAUSED, "data"),
        Output(ids.PAUSE, "children"),
        Output(ids.PAUSE, "aria-pressed"),
        Input(ids.PAUSE, "n_clicks"),
    )
    in_browser(
        "mapOptions",
        Input(ids.MAP_COLOUR, "value"),
        Input(ids.MAP_SORT, "value"),
        Input(ids.MAP_POOL, "value"),
        Input(ids.MAP_VIEW, "value"),
    )
    in_browser("exportMap", Input(ids.MAP_EXPORT, "n_clicks"))
    in_browser("timelineWindow", Input(ids.TIMELINE_WINDOW, "value"))
    in_browser("backToNow", Input(ids.TIMELINE_NOW, "n_clicks"))
    in_browser("snapshotsShown", Input(ids.DUMP_PANEL, "hidden"))
    in_browser("theme", Input(ids.THEME, "value"))
    in_browser("pickOwner", Input(ids.OWNER_GRID, "selectedRows"))
    in_browser("showBlock", Input(ids.SELECTED_BLOCK, "data"))
    in_browser("exportOwners", Output(ids.OWNER_GRID, "exportDataAsCsv"), Input(ids.OWNER_CSV, "n_clicks"))
