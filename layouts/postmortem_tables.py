"""The tabs of the *Post-mortem* page: stacks, tables whose rows come from the server as they are scrolled to, and settings."""

from __future__ import annotations

from typing import Any

import dash_ag_grid
from dash import dcc, html
from dash.development.base_component import Component

from dashboard import postmortem_ids as ids
from layouts import charts, parts
from layouts.details import GRID_THEME

_TABS = (
    ("stacks", "Stacks"),
    ("allocations", "Largest"),
    ("sites", "Sites"),
    ("events", "Events"),
    ("segments", "Segments"),
    ("settings", "Settings"),
)
ROWS_AT_ONCE = 200


def _bytes(field: str, name: str, *, sort: str | None = None) -> dict[str, Any]:
    return {
        "field": field,
        "headerName": name,
        "width": 84,
        "type": "rightAligned",
        "sortable": True,
        "valueFormatter": {"function": "vramscopeBytes(params.value)"},
        **({"sort": sort} if sort else {}),
    }


def _number(field: str, name: str, width: int, *, sortable: bool = False) -> dict[str, Any]:
    return {"field": field, "headerName": name, "width": width, "type": "rightAligned", "sortable": sortable}


def _text(field: str, name: str, flex: float = 1.0) -> dict[str, Any]:
    return {"field": field, "headerName": name, "flex": flex, "minWidth": 80, "tooltipField": field}


_SITE = {
    **_text("site", "Allocated by", 1.6),
    "minWidth": 150,
    "valueFormatter": {"function": "vramscopeSite(params.value)"},
}
_ADDRESS = {"field": "address", "headerName": "Address", "width": 126}

_COLUMNS: dict[str, list[dict[str, Any]]] = {
    "allocations": [
        _bytes("bytes", "Size", sort="desc"),
        _text("category", "Owner", 0.7),
        _SITE,
        {
            **_number("first_event", "From", 74, sortable=True),
            "valueFormatter": {"function": "params.value === null ? 'before' : params.value"},
        },
        {
            **_number("last_event", "To", 66),
            "valueFormatter": {"function": "params.value === null ? 'end' : params.value"},
        },
    ],
    "sites": [
        _bytes("bytes", "Now", sort="desc"),
        _number("count", "Blocks", 72, sortable=True),
        _SITE,
        _bytes("peak_bytes", "At the peak"),
        _bytes("allocated_bytes", "Ever"),
    ],
    "events": [
        {**_number("event", "Event", 82, sortable=True), "sort": "asc"},
        {"field": "action", "headerName": "Action", "width": 118},
        _bytes("bytes", "Size"),
        {**_SITE, "headerName": "By", "minWidth": 110},
        _ADDRESS,
    ],
    "segments": [
        _bytes("bytes", "Size", sort="desc"),
        _bytes("free_bytes", "Free"),
        {**_bytes("largest_free_bytes", "Largest hole"), "sortable": False, "width": 100},
        _text("pool", "Pool"),
        {**_ADDRESS, "sortable": True},
    ],
}


def tabs() -> Component:
    """Return the panel of the tabs; a script shows one of them."""
    return html.Section(
        [
            html.Div([parts.buttons(ids.TAB, _TABS, "stacks", "What to show")], className="panel-head tab-head"),
            html.Div(
                [
                    parts.search(ids.ROWS_TEXT, "Filter by text", "Filter the rows by text"),
                    html.Span(id=ids.ROWS_NOTE, className="sub", role="status"),
                ],
                className="rows-head",
                hidden=True,
            ),
            _stacks(),
            *(_table(table) for table in ids.TABLES),
            html.P(id=ids.TAB_NONE, className="memory-none", hidden=True),
            html.Div(id=ids.SETTINGS, className="settings", hidden=True, tabIndex="0"),
        ],
        className="card panel tabs-panel",
    )


def _stacks() -> Component:
    figure = {
        "data": [],
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "xaxis": {"visible": False},
            "yaxis": {"visible": False},
        },
    }
    return html.Div(
        [
            html.Div(
                [
                    parts.buttons(
                        ids.STACKS_AT,
                        (("event", "Cursor"), ("peak", "Peak"), ("range", "Allocated in view")),
                        "event",
                        "Stacks of",
                    ),
                    parts.search(ids.STACKS_TEXT, "Filter by text", "Filter the stacks by text"),
                ],
                className="rows-head",
            ),
            html.P(id=ids.STACKS_NOTE, className="sub stacks-note", role="status"),
            html.Div(
                dcc.Graph(id=ids.STACKS_GRAPH, figure=figure, config=charts.GRAPH_CONFIG, responsive=True),
                className="stacks",
            ),
        ],
        id=ids.STACKS_PANEL,
        className="tab-body",
    )


def _table(table: str) -> Component:
    return html.Div(
        dash_ag_grid.AgGrid(
            id=ids.table_grid(table),
            rowModelType="infinite",
            columnDefs=_COLUMNS[table],
            defaultColDef={"resizable": True, "sortable": False, "suppressHeaderMenuButton": True},
            className="owner-grid",
            style={"height": "100%", "width": "100%"},
            dashGridOptions={
                "theme": {"function": GRID_THEME},
                "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
                "rowHeight": 28,
                "headerHeight": 32,
                "cacheBlockSize": ROWS_AT_ONCE,
                "maxBlocksInCache": 20,
                "animateRows": False,
                "suppressMultiSort": True,
            },
        ),
        id=ids.table_panel(table),
        className="tab-body",
        hidden=True,
    )
