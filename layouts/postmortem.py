"""The *Post-mortem* page: what leads to a snapshot file, and the open file's timeline, segment map, details and tables."""

from __future__ import annotations

from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids as shared_ids
from dashboard import postmortem_ids as ids
from layouts import charts, parts, postmortem_tables, shell

RECORDING = (
    "torch.cuda.memory._record_memory_history()\n"
    "…  # the part of the training that matters\n"
    'torch.cuda.memory._dump_snapshot("snapshot.pickle")'
)
TIMELINE_EXPLAINED = (
    "Every band is one allocation for as long as it lived, stacked in the order in which they were made. The hatched band on top is "
    "the sum of those too small to be drawn; the outline is the exact total.",
    "drag: move · Ctrl + wheel: zoom · click: select · arrows, + and −: move and zoom · [ and ]: step by event · 0: whole",
)


def layout(base_path: str) -> Component:
    """Return the component tree of the page below ``base_path``."""
    body = [
        html.Main([_opener(), _picture()]),
        html.Footer(id=ids.FOOTER),
        html.Div(id=shared_ids.MAP_TIP, role="tooltip", hidden=True),
    ]
    return shell.page(shell.POSTMORTEM, base_path, _header(), body, skip_to=(ids.MEMORY, "memory timeline"))


def _header() -> list[Component]:
    search = html.Div(
        [
            parts.search(ids.SEARCH, "0x7f…, >=1GiB or text", "Search by address, size or stack"),
            html.Div(id=ids.SEARCH_HITS, className="card search-hits", hidden=True, **{"aria-live": "polite"}),
        ],
        className="search",
    )
    return [
        html.Div(
            dcc.Dropdown(id=ids.FILE, options=[], clearable=False, placeholder="no file is open"),
            className="job-picker",
        ),
        html.Button("Open …", id=ids.OPEN_ANOTHER, className="button", **{"aria-expanded": "false"}),
        shell.picker("Rank", ids.RANK_PICKER, ids.RANK, ids.RANK_MENU),
        shell.picker("GPU", ids.GPU_PICKER, ids.GPU, ids.GPU_MENU),
        html.Div(className="grow"),
        search,
        html.Button("Copy link", id=ids.COPY_LINK, className="button"),
        shell.theme(),
    ]


def _opener() -> Component:
    drop = html.Label(
        [
            html.B("Drop a snapshot anywhere on this page"),
            html.Span("or choose a file: .pickle, .json, .html, also gzip or zstd, of any size", className="muted"),
            # Its element is made by the script: Dash has no plain file input, and dcc.Upload holds a file in memory.
            html.Span(id=ids.FILE_INPUT),
        ],
        id=ids.DROP_ZONE,
        className="drop-zone",
    )
    opening = html.Div(
        [
            html.Div([html.B(id=ids.OPENING_NAME), html.Span(id=ids.OPENING_STAGE, className="muted")]),
            html.Div(
                html.Span(className="fill active"), id=ids.OPENING_BAR, className="bar", **{"aria-hidden": "true"}
            ),
            html.Button("Cancel", id=ids.OPENING_CANCEL, className="button small"),
        ],
        id=ids.OPENING,
        className="opening",
        role="status",
        hidden=True,
    )
    recording = html.Div(
        [html.Pre(RECORDING), dcc.Clipboard(content=RECORDING, title="Copy the lines", className="copy")],
        className="line-to-add",
    )
    files = html.Div(
        [
            html.H1("Open a memory snapshot"),
            drop,
            opening,
            html.Div(id=ids.OPENING_ERROR, className="banner bad", role="alert", hidden=True),
            html.Div(id=ids.FILE_LIST),
            html.H2("No snapshot yet?"),
            html.P("PyTorch writes one with these lines; the Live page writes one of a running job."),
            recording,
            html.P(["From a shell on this machine: ", html.Code("vramscope open FILE")], className="muted"),
        ],
        className="card opener-files",
    )
    return html.Section([files, _paste_box()], id=ids.OPENER, className="opener")


def _paste_box() -> Component:
    return html.Div(
        [
            html.H2("Only the error message?"),
            html.P("Paste an out-of-memory error or a memory_summary() table; logs around it do not matter."),
            dcc.Textarea(
                id=ids.PASTE,
                placeholder="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …",
                spellCheck="false",
                className="paste",
                title="Out-of-memory message or memory summary",
            ),
            html.Button("Read it", id=ids.PASTE_READ, className="button primary"),
            html.Div(id=ids.PASTE_FOUND, role="status", className="paste-found"),
        ],
        className="card opener-paste",
    )


def _picture() -> Component:
    left = html.Div(
        [_timeline(), html.Div([_steps(), charts.segment_map(charts.map_axes())], className="moment")], className="left"
    )
    right = html.Div([_details(), postmortem_tables.tabs()], className="right")
    return html.Div(
        [html.Div([html.Div(id=ids.MESSAGES, role="status"), _oom()], className="findings"), left, right],
        id=ids.PICTURE,
        className="picture",
        hidden=True,
    )


def _oom() -> Component:
    return html.Section(
        [
            html.Div(
                [
                    html.H1("Out of memory"),
                    html.Div(
                        dcc.Dropdown(id=ids.OOM_PICKER, options=[], clearable=False, searchable=False),
                        className="oom-picker",
                    ),
                    html.Button("Show the moment", id=ids.OOM_SHOW, className="button small"),
                ],
                className="oom-head",
            ),
            html.P(id=ids.OOM_VERDICT, className="oom-verdict"),
            html.Div(id=ids.OOM_FACTS, className="oom-facts"),
        ],
        id=ids.OOM,
        className="card oom",
        hidden=True,
        **{"aria-label": "Out of memory"},
    )


def _timeline() -> Component:
    controls = html.Div(
        [
            html.Button("Whole", id=ids.SHOW_WHOLE, className="button small"),
            html.Button("Peak", id=ids.TO_PEAK, className="button small", title="Go to the highest level"),
            html.Button("OOM", id=ids.TO_OOM, className="button small", title="Go to the out-of-memory", hidden=True),
            parts.buttons(ids.MEMORY_AXIS, (("time", "Time"), ("step", "Events")), "time", "Axis"),
            parts.buttons(
                ids.MEMORY_COLOUR,
                (("category", "Owner"), ("stack", "Stack"), ("size", "Size"), ("stream", "Stream")),
                "category",
                "Colour by",
            ),
            html.Button("PNG", id=ids.MEMORY_EXPORT, className="button small", title="Save the timeline as PNG"),
        ],
        className="controls",
    )
    return html.Section(
        [
            parts.panel_head(
                "Active memory timeline",
                html.Div(className="grow"),
                controls,
                explained=TIMELINE_EXPLAINED,
            ),
            html.Div(
                [
                    html.Div(id=ids.MEMORY_LEGEND, className="legend memory-legend"),
                    html.Span(id=ids.MEMORY_SUMMARY, className="sub"),
                ],
                id=ids.MEMORY_KEY,
                className="memory-key",
            ),
            html.Div(
                [html.Canvas(id=ids.MEMORY_CANVAS, **{"aria-hidden": "true"}), _memory_axes()],
                id=ids.MEMORY,
                className="memory",
                tabIndex="0",
                role="application",
                **{
                    "aria-label": "Active memory timeline: arrow keys move, + and - zoom, [ and ] step by event",
                    "aria-describedby": ids.MEMORY_ALOUD,
                },
            ),
            html.Canvas(id=ids.MEMORY_OVERVIEW, className="overview", title="Drag to choose a range"),
            html.Div(id=ids.MEMORY_NONE, className="memory-none", hidden=True),
            html.Div(id=ids.MEMORY_ALOUD, className="aloud", **{"aria-live": "polite"}),
        ],
        className="card panel memory-panel",
    )


def _memory_axes() -> Component:
    axis = {"zeroline": False, "showgrid": False}
    figure: dict[str, Any] = {
        "data": [{"type": "scatter", "x": [], "y": [], "hoverinfo": "skip"}],
        "layout": {
            "uirevision": "memory",
            "margin": {"l": 74, "r": 14, "t": 34, "b": 24},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "showlegend": False,
            "dragmode": "pan",
            "hovermode": False,
            "xaxis": {**axis, "range": [0, 1]},
            "yaxis": {**axis, "range": [0, 1], "fixedrange": True, "showticklabels": False},
        },
    }
    return dcc.Graph(id=ids.MEMORY_GRAPH, figure=figure, config=charts.GRAPH_CONFIG, responsive=True)


def _steps() -> Component:
    return html.Div(
        [
            html.Button("←", id=ids.STEP_BACK, className="button small", title="One event back: [", **_label("Back")),
            html.Button("→", id=ids.STEP_ON, className="button small", title="One event on: ]", **_label("On")),
            html.Span(id=ids.MOMENT_EVENT, className="moment-event", role="status"),
            html.Span(id=ids.MOMENT_NOTE, className="sub"),
        ],
        className="steps",
    )


def _label(text: str) -> dict[str, str]:
    return {"aria-label": f"{text} by one event"}


def _details() -> Component:
    return html.Section(
        [
            parts.panel_head(
                "Selected allocation", html.Div(className="grow"), html.Span(id=ids.DETAILS_BADGE, className="badge")
            ),
            html.Div(
                html.P("Click a band of the timeline, a block of the map, or a row of a table.", className="muted"),
                id=ids.DETAILS,
                className="facts",
            ),
            html.Div(id=ids.DETAILS_STACK),
        ],
        className="card panel block-panel",
    )
