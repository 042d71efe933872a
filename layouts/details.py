"""The right column of the *Live* page: the selected block over the top tensors by owner."""

from __future__ import annotations

from typing import Any

import dash_ag_grid
from dash import html
from dash.development.base_component import Component

from dashboard import ids
from layouts import parts


def block() -> Component:
    return html.Section(
        [
            parts.panel_head(
                "Selected block", html.Div(className="grow"), html.Span(id=ids.BLOCK_BADGE, className="badge")
            ),
            html.Div(id=ids.BLOCK_FACTS, className="facts"),
            html.Div(id=ids.BLOCK_STACK),
        ],
        className="card panel block-panel",
    )


def _text_column(field: str, name: str, flex: float, least_px: int) -> dict[str, Any]:
    return {
        "field": field,
        "headerName": name,
        "flex": flex,
        "minWidth": least_px,
        "tooltipField": field,
        "filter": "agTextColumnFilter",
    }


_COLUMNS: list[dict[str, Any]] = [
    {**_text_column("owner", "Owner", 1.35, 84), "maxWidth": 108},
    _text_column("name", "Tensor", 1.45, 84),
    {**_text_column("shape", "Shape", 1.2, 56), "maxWidth": 124},
    {**_text_column("type", "Type", 0.6, 48), "maxWidth": 48, "tooltipField": "dtype"},
    {
        "field": "mib",
        "headerName": "MiB",
        "width": 66,
        "type": "rightAligned",
        "filter": "agNumberColumnFilter",
        "valueFormatter": {"function": "d3.format(',.1f')(params.value)"},
    },
]

# The grid takes its colours from the page's own variables, so that one switch turns both.
GRID_THEME = (
    "themeQuartz.withParams({fontSize: 12, fontFamily: 'inherit', rowHeight: 28, headerHeight: 32, wrapperBorder: false,"
    " backgroundColor: 'var(--panel)', foregroundColor: 'var(--text)', borderColor: 'var(--line)',"
    " headerBackgroundColor: 'var(--panel)', headerTextColor: 'var(--muted)', accentColor: 'var(--accent)',"
    " cellHorizontalPadding: 7, browserColorScheme: 'inherit'})"
)


def owners() -> Component:
    return html.Section(
        [
            parts.panel_head(
                "Top tensors by owner",
                html.Span(id=ids.OWNER_NOTE, className="sub"),
                html.Div(className="grow"),
                html.Button("CSV", id=ids.OWNER_CSV, className="button small", title="Save the table as CSV"),
            ),
            html.Div(
                [html.Div(id=ids.OWNER_BAR), html.Div(id=ids.OWNER_PARTS, className="legend")], className="owner-totals"
            ),
            dash_ag_grid.AgGrid(
                id=ids.OWNER_GRID,
                rowData=[],
                columnDefs=_COLUMNS,
                defaultColDef={"sortable": True, "resizable": True, "suppressHeaderMenuButton": True},
                getRowId="params.data.id",
                csvExportParams={"fileName": "vramscope-owners.csv"},
                # The two functions are those of assets/owner_grid.js.
                className="owner-grid",
                style={"height": "100%", "width": "100%"},
                dashGridOptions={
                    "theme": {"function": GRID_THEME},
                    "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
                    "animateRows": False,
                    "defaultCsvExportParams": {"processCellCallback": {"function": "csvCell(params)"}},
                    "tabToNextCell": {"function": "leaveTable()"},
                },
            ),
        ],
        className="card panel owner-panel",
    )
