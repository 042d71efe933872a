"""The frame around every page: header, page links, messages and the page itself."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from layouts import live, parts

# How often the figures, the pickers and the table are refreshed; the map and the timeline have their own, faster pulse.
TICK_MS = 1000


def layout() -> Component:
    """Return the component tree of the whole application."""
    return html.Div(
        [
            dcc.Location(id=ids.URL, refresh=False),
            dcc.Interval(id=ids.TICK, interval=TICK_MS),
            dcc.Store(id=ids.SELECTION),
            dcc.Store(id=ids.PAUSED, data=False),
            dcc.Store(id=ids.CHARTS_DUE),
            dcc.Store(id=ids.SELECTED_BLOCK),
            html.A("Skip to the segment map", href=f"#{ids.MAP}", className="skip"),
            _header(),
            html.Div(
                "The dashboard does not answer – retrying. The page keeps its last picture.",
                id=ids.SERVER_GONE,
                className="banner bad",
                role="alert",
                hidden=True,
            ),
            html.Div(id=ids.BANNERS, role="status"),
            html.Main([live.empty(), live.picture()]),
            html.Footer(id=ids.FOOTER),
            live.dump_panel(),
            html.Div(id=ids.MAP_TIP, role="tooltip", hidden=True),
        ],
        className="shell",
    )


def _header() -> Component:
    return html.Header(
        [
            html.Div([html.I(className="logo"), "vramscope"], className="brand"),
            html.Nav(html.A("Live", href="", **{"aria-current": "page"}), **{"aria-label": "Pages"}),
            html.Div(
                dcc.Dropdown(
                    id=ids.JOB, options=[], clearable=False, searchable=False, placeholder="no job yet", className="job"
                ),
                className="job-picker",
            ),
            html.Span(
                "simulated GPU",
                id=ids.SIMULATED,
                className="badge simulated",
                title="This job's GPU is a simulation of PyTorch's allocator, not a device.",
                hidden=True,
            ),
            _picker("Rank", ids.RANK_PICKER, ids.RANK, ids.RANK_MENU),
            _picker("GPU", ids.GPU_PICKER, ids.GPU, ids.GPU_MENU),
            html.Div(className="grow"),
            html.Div(
                [
                    html.I(className="dot"),
                    html.Span("connecting", id=ids.LIGHT_TEXT, role="status"),
                    html.Span(
                        id=ids.LIGHT_RATE,
                        title="maps a second, and how old the newest was when it was painted",
                    ),
                ],
                id=ids.LIGHT,
                className="light",
            ),
            parts.buttons(
                ids.THEME,
                (("system", "Auto"), ("light", "Light"), ("dark", "Dark")),
                "system",
                "Theme",
                remembered=True,
            ),
            html.Button("Pause", id=ids.PAUSE, className="button", **{"aria-pressed": "false"}),
            html.Div(
                [
                    html.Button("Dump snapshot", id=ids.DUMP, className="button primary"),
                    html.Button(
                        "▾",
                        id=ids.DUMPS,
                        className="button primary",
                        title="Snapshots written so far",
                        **{"aria-label": "Snapshots written so far"},
                    ),
                ],
                className="split",
            ),
        ],
        className="top",
    )


def _picker(label: str, host: str, name: str, menu: str) -> Component:
    """Return a picker that is a row of buttons, or a menu where there are more than a row can hold."""
    return html.Div(
        [
            html.Span(label, className="picker-label"),
            html.Div(
                dcc.RadioItems(id=name, options=[], inline=True, className="joined"),
                role="group",
                **{"aria-label": label},
            ),
            dcc.Dropdown(id=menu, options=[], clearable=False),
        ],
        id=host,
        className="picker hidden",
    )
