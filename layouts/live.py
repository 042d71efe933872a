"""The *Live* page: the GPU as one bar, six figures, the segment map, the timeline, the selected block and the owners."""

from __future__ import annotations

from typing import Any

import dash_ag_grid
from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from layouts import parts

LINE_TO_ADD = "import vramscope; vramscope.attach(model, optimizer)"

# What each figure means, in one sentence for a beginner, and how it is made.
EXPLANATIONS = {
    ids.CARD_ACTIVE: (
        "Active",
        "Memory that tensors use now, and blocks already freed that another stream still has to finish with.",
        "active = allocated + pending free",
    ),
    ids.CARD_RESERVED: (
        "Reserved",
        "What PyTorch has taken from the GPU: memory in use, and free memory it keeps to hand out again.",
        "reserved = sum of the segments = active + cached free",
    ),
    ids.CARD_INACTIVE_SPLIT: (
        "Inactive split",
        "Free memory that PyTorch cannot give back, because a tensor lives in the same segment. The share is the stranded ratio.",
        "stranded ratio = inactive split / reserved",
    ),
    ids.CARD_LARGEST_FIT: (
        "Largest request that fits",
        "The largest single tensor that could be allocated now, after all that PyTorch would try. It needs one unbroken hole.",
        "largest of: a cached block, a new segment, a new segment after releasing cached ones",
    ),
    ids.CARD_RETRIES: (
        "Allocation retries",
        "How often PyTorch had to empty its cache and ask the GPU again. Each one stalls the job; many announce an out-of-memory.",
        "num_alloc_retries, num_ooms of torch.cuda.memory_stats()",
    ),
    ids.CARD_OTHERS: (
        "Not PyTorch's",
        "Memory of this GPU that no PyTorch allocator of this job reserved: CUDA context, libraries, NCCL, other programs.",
        "estimate = NVML used − reserved − reserved by the job's other ranks",
    ),
}


MAP_EXPLAINED = (
    "Every line is a segment: memory that PyTorch took from the GPU in one piece. Blue is in use, yellow is free and kept for "
    "later. A request needs one unbroken free stretch, so many small yellow ones do not help a large tensor.",
    "wheel: more lines · Ctrl + wheel: zoom · drag: move · arrows, Enter, Escape: choose a block · 0: show all",
)
TIMELINE_EXPLAINED = (
    "How the memory developed. The band shows the lowest and the highest of what each point stands for. Reserved far above active "
    "is cached memory; a largest fit that falls while reserved stays is fragmentation.",
    "drag: go back in time · arrows, + and −: move and zoom · 0: back to now",
)


def empty() -> Component:
    """Return what is shown while no job is known: what to do, and what is being waited for."""
    return html.Section(
        [
            html.H1("No job is connected yet"),
            html.P("Add one line to a training script on this machine, after the model and the optimizer exist:"),
            html.Div(
                [html.Code(LINE_TO_ADD), dcc.Clipboard(content=LINE_TO_ADD, title="Copy the line", className="copy")],
                className="line-to-add",
            ),
            html.P(
                ["The job may run already or start later: this page picks it up by itself, within a second or two."]
            ),
            html.H2("No GPU at hand?"),
            html.P(["This trains a GPT of a billion parameters on a simulated GPU and opens it here:"]),
            html.Div(
                [
                    html.Code("vramscope demo"),
                    dcc.Clipboard(content="vramscope demo", title="Copy the command", className="copy"),
                ],
                className="line-to-add",
            ),
            html.P([html.I(className="waiting"), "Waiting for a job to say hello …"], className="muted", role="status"),
        ],
        id=ids.EMPTY,
        className="card empty",
        hidden=True,
    )


def picture() -> Component:
    """Return everything that shows a job's memory."""
    return html.Div(
        [
            _device(),
            _figures(),
            html.Div([_map(), _timeline()], className="left"),
            html.Div([_block(), _owners()], className="right"),
        ],
        id=ids.PICTURE,
        className="picture",
        hidden=True,
    )


def _device() -> Component:
    return html.Section(
        [
            html.Div(
                [html.H1(id=ids.DEVICE_NAME), html.Div(id=ids.DEVICE_PARTS, className="legend")],
                className="device-head",
            ),
            html.Div(id=ids.DEVICE_BAR),
        ],
        className="card device",
        **{"aria-label": "The whole GPU"},
    )


def _figures() -> Component:
    fit = html.Label(
        [
            "Would it fit? ",
            dcc.Input(
                id=ids.FIT_SIZE, type="text", value="2 GiB", debounce=True, maxLength=16, className="fit-size", size="8"
            ),
        ],
        className="fit",
    )
    extra = {ids.CARD_LARGEST_FIT: fit}
    return html.Section(
        [parts.figure_card(name, *EXPLANATIONS[name], extra.get(name)) for name in ids.CARDS],
        className="figures",
        **{"aria-label": "Key figures"},
    )


def _map() -> Component:
    controls = html.Div(
        [
            parts.buttons(ids.MAP_COLOUR, (("state", "State"), ("owner", "Owner")), "state", "Colour by"),
            parts.buttons(ids.MAP_SORT, (("size", "Size"), ("address", "Address")), "size", "Sort by"),
            parts.buttons(ids.MAP_POOL, (("all", "All"), ("large", "Large"), ("small", "Small")), "all", "Pools"),
            parts.buttons(ids.MAP_VIEW, (("map", "Map"), ("table", "Table")), "map", "View"),
            html.Button("Export PNG", id=ids.MAP_EXPORT, className="button small"),
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
                    dcc.Graph(id=ids.MAP_GRAPH, figure=_map_axes(), config=_GRAPH_CONFIG, responsive=True),
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


_GRAPH_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    # Plotly 7's "Share chart" uploads to Plotly's cloud; nothing here leaves the machine.
    "showSendToCloud": False,
    "scrollZoom": False,
    "doubleClick": "reset",
    "modeBarButtonsToRemove": ["toImage", "select2d", "lasso2d", "autoScale2d"],
}


def _map_axes() -> dict[str, Any]:
    """Return an empty figure whose axes the canvas follows: x is the share of a line, y its number from the top."""
    axis = {"zeroline": False, "showgrid": False}
    return {
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
            "yaxis": {**axis, "range": [20, 0], "showticklabels": False},
        },
    }


def _timeline() -> Component:
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
                dcc.Graph(
                    id=ids.TIMELINE_GRAPH,
                    figure={"data": [], "layout": {"uirevision": "timeline", "paper_bgcolor": "rgba(0,0,0,0)"}},
                    config=_GRAPH_CONFIG,
                    responsive=True,
                ),
                id=ids.TIMELINE,
                className="timeline",
                tabIndex="0",
                role="group",
                **{"aria-label": "Fragmentation timeline: arrow keys move, + and - zoom, 0 goes back to now"},
            ),
        ],
        className="card panel timeline-panel",
    )


def _block() -> Component:
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
    _text_column("owner", "Owner", 1.0, 76),
    _text_column("name", "Tensor", 1.7, 84),
    _text_column("shape", "Shape", 0.9, 58),
    _text_column("dtype", "Type", 0.7, 50),
    {
        "field": "mib",
        "headerName": "MiB",
        "width": 72,
        "type": "rightAligned",
        "filter": "agNumberColumnFilter",
        "valueFormatter": {"function": "d3.format(',.1f')(params.value)"},
    },
]

# The grid takes its colours from the page's own variables, so that one switch turns both.
_GRID_THEME = (
    "themeQuartz.withParams({fontSize: 12, fontFamily: 'inherit', rowHeight: 28, headerHeight: 32, wrapperBorder: false,"
    " backgroundColor: 'var(--panel)', foregroundColor: 'var(--text)', borderColor: 'var(--line)',"
    " headerBackgroundColor: 'var(--panel)', headerTextColor: 'var(--muted)', accentColor: 'var(--accent)',"
    " cellHorizontalPadding: 8, browserColorScheme: 'inherit'})"
)


def _owners() -> Component:
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
                className="owner-grid",
                style={"height": "100%", "width": "100%"},
                dashGridOptions={
                    "theme": {"function": _GRID_THEME},
                    "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
                    "animateRows": False,
                },
            ),
        ],
        className="card panel owner-panel",
    )


def dump_panel() -> Component:
    """Return the list of snapshots, which opens over the page."""
    return html.Section(
        [
            parts.panel_head(
                "Snapshots",
                html.Div(className="grow"),
                html.Button("Close", id=ids.DUMP_CLOSE, className="button small"),
            ),
            html.Div(id=ids.DUMP_MESSAGE, role="status", className="dump-message"),
            html.Div(id=ids.DUMP_LIST),
        ],
        id=ids.DUMP_PANEL,
        className="card panel dump-panel",
        hidden=True,
        **{"aria-label": "Snapshots"},
    )
