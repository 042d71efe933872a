"""Puts Plotly's parts of the page in, once the browser says that the first picture does not have to wait for them."""

from __future__ import annotations

from dash import Dash, Input, Output
from dash.development.base_component import Component

from dashboard import ids
from layouts import charts


def register(app: Dash) -> None:
    def insert(due: bool) -> tuple[Component, Component]:
        return charts.map_axes(), charts.timeline_plot()

    app.callback(
        Output(ids.MAP_AXES, "children"),
        Output(ids.TIMELINE, "children"),
        Input(ids.CHARTS_DUE, "data"),
        prevent_initial_call=True,
    )(insert)
