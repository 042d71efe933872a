"""The two large pictures of the *Live* page: the segment map and the fragmentation timeline."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from layouts import parts

MAP_EXPLAINED = (
    "Every line is a segment: memory that PyTorch took from the GPU in one piece. By state, blue is in use, and yellow "
    "is free and kept for later. A request needs one unbroken free stretch, so many small yellow ones do not help a large tensor.",
    "wheel: more lines · Ctrl + wheel: zoom · drag: move · arrows, Enter, Escape: choose a block · 0: show all",
)
TIMELINE_EXPLAINED = (
    "How the memory developed. The band shows the lowest and the highest of what each point stands for. Reserved far above active "
    "is cached memory; a largest fit that falls while reserved stays is fragmentation.",
    "drag: go back in time · arrows, + and −: move and zoom · 0: back to now",
)


def segment_map(axes: Component | None = None) -> Component:
    """Return the panel of the map; without ``axes`` they come later, once the first picture is painted."""
    controls = html.Div(
        [
            parts.buttons(ids.MAP_COLOUR, (("state", "State"), ("owner", "Owner")), "state", "Colour by"),
            parts.buttons(ids.MAP_SORT, (("size", "Size"), ("address", "Address")), "size", "Sort by"),
            parts.buttons(ids.MAP_POOL, (("all", "All"), ("large", "Large"), ("small", "Small")), "all", "Pools"),
            parts.buttons(ids.MAP_VIEW, (("map", "Map"), ("table", "Table")), "map", "View"),
            html.Button("PNG", id=ids.MAP_EXPORT, className="button small", title="Save the map as PNG"),
        ],
        className="controls",
    )
    return html.Section(
        [
            parts.panel_head(
                "Segment map",
                html.Span(id=ids.MAP_SUMMARY, className="sub"),
                html.Div(className="grow"),
                controls,
                explained=MAP_EXPLAINED,
            ),
            html.Div(id=ids.MAP_LEGEND, className="legend map-legend"),
            html.Div(
                [
                    html.Canvas(id=ids.MAP_CANVAS, **{"aria-hidden": "true"}),
                    html.Div(axes, id=ids.MAP_AXES),
                    html.Span(id=ids.MAP_LINES, className="map-lines"),
                ],
                id=ids.MAP,
                className="map",
                tabIndex="0",
                role="application",
                **{
                    "aria-label": "Segment map: arrow keys move between blocks, Enter selects one, Escape clears",
                    "aria-describedby": ids.MAP_ALOUD,
                },
            ),
            html.Div(id=ids.MAP_TABLE, className="map-table", hidden=True, tabIndex="0"),
            html.Div(id=ids.MAP_ALOUD, className="aloud", **{"aria-live": "polite"}),
        ],
        className="card panel map-panel",
    )


GRAPH_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    # Plotly 7's "Share chart" uploads to Plotly's cloud; nothing here leaves the machine.
    "showSendToCloud": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d"],
}


def map_axes() -> Component:
    """Return the axes that the map's canvas follows: x is the share of a line, y its number from the top.

    They are no part of the first layout: the canvas paints without them, and Plotly takes half a second to start.
    """
    axis = {"zeroline": False, "showgrid": False}
    figure = {
        "data": [{"type": "scatter", "x": [], "y": [], "hoverinfo": "skip"}],
        "layout": {
            "uirevision": "map",
            "margin": {"l": 148, "r": 76, "t": 4, "b": 24},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "dragmode": "pan",
            "hovermode": False,
            "xaxis": {**axis, "range": [0, 1], "minallowed": 0, "maxallowed": 1, "tickformat": ".0%", "nticks": 6},
            # The page takes a return to this range, Plotly's "reset axes", as the wish to see everything.
            "yaxis": {**axis, "range": [1, 0], "showticklabels": False},
        },
    }
    return dcc.Graph(id=ids.MAP_GRAPH, figure=figure, config=GRAPH_CONFIG, responsive=True)


def timeline_plot() -> Component:
    """Return the timeline's empty plot, which comes after the first picture of the map as the map's axes do."""
    figure = {"data": [], "layout": {"uirevision": "timeline", "paper_bgcolor": "rgba(0,0,0,0)"}}
    return dcc.Graph(id=ids.TIMELINE_GRAPH, figure=figure, config=GRAPH_CONFIG, responsive=True)


def timeline() -> Component:
    windows = (("60", "1 min"), ("600", "10 min"), ("3600", "1 h"), ("0", "All"))
    keys = (
        ("line-active", "active"),
        ("line-reserved", "reserved"),
        ("line-split", "inactive split"),
        ("line-fit", "largest fit"),
        ("line-device", "used on the device"),
    )
    return html.Section(
        [
            parts.panel_head(
                "Fragmentation timeline",
                html.Div(className="grow"),
                html.Button("Back to now", id=ids.TIMELINE_NOW, className="button small", hidden=True),
                parts.buttons(ids.TIMELINE_WINDOW, windows, "60", "Window"),
                explained=TIMELINE_EXPLAINED,
            ),
            html.Div(
                [
                    *(html.Span([html.I(className=f"stroke {key}"), text]) for key, text in keys),
                    html.Span(id=ids.TIMELINE_NOTE, className="legend-note"),
                ],
                className="legend map-legend",
            ),
            html.Div(
                id=ids.TIMELINE,
                className="timeline",
                tabIndex="0",
                role="group",
                **{"aria-label": "Fragmentation timeline: arrow keys move, + and - zoom, 0 goes back to now"},
            ),
        ],
        className="card panel",
    )
