"""The selected block: its facts every second, its stack when it is selected."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, html, no_update
from dash.exceptions import PreventUpdate

from dashboard import ids, maps
from dashboard.figures import block_facts
from dashboard.figures.selection import Selection
from vramscope.records import LiveData, StackReply

HINT = "Click a block in the map, or a row of the table below, to see what it is and where it was allocated."
MOST_FRAMES = 40
# The pulse of the map keeps a fresh one; asking the job for another would only make the click wait.
MAP_AGE_S = 30.0


def register(app: Dash, live: LiveData) -> None:
    def show_facts(address: str | None, selection: dict[str, Any] | None, tick: int) -> tuple[Any, Any]:
        chosen = Selection(**(selection or {}))
        if address is None or chosen.job is None or chosen.device is None:
            return html.P(HINT, className="muted"), ""
        found = live.device_map(chosen.job, chosen.device, chosen.rank, max_age_s=MAP_AGE_S)
        if found is None:
            raise PreventUpdate
        facts = block_facts.find(found, maps.owners_of(found), int(address, 16))
        if facts is None:
            return html.P(f"There is no block at {address} any more.", className="muted"), "gone"
        pairs = [part for label, text in block_facts.rows(facts) for part in (html.Dt(label), html.Dd(text))]
        return html.Dl(pairs), facts.owner or "free"

    app.callback(
        Output(ids.BLOCK_FACTS, "children"),
        Output(ids.BLOCK_BADGE, "children"),
        Input(ids.SELECTED_BLOCK, "data"),
        Input(ids.SELECTION, "data"),
        Input(ids.TICK, "n_intervals"),
    )(show_facts)

    def show_stack(address: str | None, selection: dict[str, Any] | None) -> Any:
        chosen = Selection(**(selection or {}))
        if address is None or chosen.job is None or chosen.device is None:
            return no_update if address else None
        return stack(live.stack(chosen.job, chosen.device, chosen.rank, int(address, 16)))

    app.callback(
        Output(ids.BLOCK_STACK, "children"),
        Input(ids.SELECTED_BLOCK, "data"),
        Input(ids.SELECTION, "data"),
    )(show_stack)


def short_path(filename: str) -> str:
    """Return the last two parts of a path: enough to know the file, and short enough for its column."""
    return "/".join(filename.split("/")[-2:])


def stack(reply: StackReply) -> Any:
    """Return the frames, innermost first, or the reason why there are none."""
    if not reply.frames:
        return html.P(reply.reason or "no stack is known for this block", className="muted stack-reason")
    lines = [
        html.Div([html.Span(f"{short_path(filename)}:{line} ", className="muted"), html.B(name)], title=filename)
        for filename, line, name in reply.frames[:MOST_FRAMES]
    ]
    if len(reply.frames) > MOST_FRAMES:
        lines.append(html.Div(f"+ {len(reply.frames) - MOST_FRAMES} frames", className="muted"))
    return html.Div(
        lines, className="stack", tabIndex="0", **{"aria-label": "Stack of the allocation, innermost first"}
    )
