"""Snapshots that the job writes on request: the button, its answer, and the list, to open or to download."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from dash import Dash, Input, Output, State, ctx, html

from dashboard import ids
from dashboard.files import SnapshotFiles
from layouts.shell import PAGES, POSTMORTEM
from vramscope.errors import VramscopeError
from vramscope.records import DumpInfo, LiveData
from vramscope.units import format_bytes


def register(app: Dash, live: LiveData, files: SnapshotFiles) -> None:
    def dump(pressed: int, listed: int, closed: int, selection: dict[str, Any] | None) -> tuple[Any, ...]:
        if ctx.triggered_id == ids.DUMP_CLOSE:
            return True, "", []
        job = (selection or {}).get("job")
        if job is None:
            return False, html.Span("No job is connected, so none can write a snapshot.", className="warn"), []
        message = _write(live, job, (selection or {}).get("rank")) if ctx.triggered_id == ids.DUMP else ""
        return False, message, listing(live.dumps(job), files.id_of_dump, app.config.requests_pathname_prefix)

    app.callback(
        Output(ids.DUMP_PANEL, "hidden"),
        Output(ids.DUMP_MESSAGE, "children"),
        Output(ids.DUMP_LIST, "children"),
        Input(ids.DUMP, "n_clicks"),
        Input(ids.DUMPS, "n_clicks"),
        Input(ids.DUMP_CLOSE, "n_clicks"),
        State(ids.SELECTION, "data"),
        prevent_initial_call=True,
    )(dump)


def _write(live: LiveData, job: str, rank: int | None) -> Any:
    try:
        return html.Span(answer(live.dump(job, rank)), className="ok")
    except VramscopeError as error:
        return html.Span(str(error), className="bad")


def answer(written: DumpInfo) -> str:
    """Return the line that says what was written."""
    name = PurePath(written.path).name
    return f"Rank {written.rank} wrote {name} ({format_bytes(written.file_bytes)})."


def listing(dumps: Sequence[DumpInfo], id_of_dump: Callable[[DumpInfo], str | None], prefix: str) -> Any:
    """Return the list of snapshots, newest first, each to open on the Post-mortem page and to download."""
    entries = [
        _entry(found, id_of_dump(found), prefix) for found in sorted(dumps, key=lambda found: -found.time_unix_us)
    ]
    return html.Ul(entries) if entries else html.P("No snapshot has been written yet.", className="muted")


def _entry(found: DumpInfo, file_id: str | None, prefix: str) -> html.Li:
    """Return a snapshot's line; ``file_id`` is None where its file is gone."""
    name = PurePath(found.path).name
    about = f"rank {found.rank} · {format_bytes(found.file_bytes)} · " + time.strftime(
        "%H:%M:%S", time.localtime(found.time_unix_us / 1e6)
    )
    if file_id is None:
        return html.Li([html.Span(name), html.Span(f"{about} · its file is gone", className="muted")])
    download = html.A("download", href=f"{prefix}dumps/{quote(found.id, safe='')}", download="")
    return html.Li(
        [
            html.A(name, href=f"{prefix}{PAGES[POSTMORTEM]}?file={file_id}", title="Open on the Post-mortem page"),
            html.Span([f"{about} · ", download], className="muted"),
        ]
    )
