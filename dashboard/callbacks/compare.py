"""What the *Compare* page does: one callback for the pickers, which depend on each other, and one that compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from dashboard import compare_ids as ids
from dashboard import ids as shared_ids
from dashboard.figures import compare_lines, compared
from dashboard.figures.compared import Choice, Selection
from dashboard.files import SnapshotFiles, listing
from dashboard.files_opening import CLOSED, FAILED, OPEN, OpeningState
from layouts import compare
from vramscope.compare.difference import Difference, difference
from vramscope.compare.side import Side, side_of, trace_of_device
from vramscope.errors import VramscopeError
from vramscope.trace.columns import TracedSnapshot

_PICKERS = {"file": ids.file, "device": ids.device, "moment": ids.moment, "event": ids.event}


def register(app: Dash, files: SnapshotFiles) -> None:
    """Add the page's callbacks to ``app``; they open and read ``files``."""
    _register_pickers(app, files)
    _register_result(app, files)
    app.clientside_callback(
        ClientsideFunction("vramscope", "showCompared"), Input(ids.SHOWN_URL, "data"), prevent_initial_call=True
    )
    app.clientside_callback(ClientsideFunction("vramscope", "theme"), Input(shared_ids.THEME, "value"))


def _register_pickers(app: Dash, files: SnapshotFiles) -> None:
    outputs = {
        f"{name}_{side}.{prop}": Output(element(side), prop)
        for side in ids.SIDES
        for name, element in _PICKERS.items()
        for prop in (("value",) if name == "event" else ("options", "value"))
    }
    outputs |= {f"status_{side}": Output(ids.status(side), "children") for side in ids.SIDES}
    outputs |= {f"event_{side}.class": Output(ids.event_label(side), "className") for side in ids.SIDES}
    outputs |= {"align": Output(ids.ALIGN, "value"), "ignore_lines": Output(ids.IGNORE_LINES, "value")}
    outputs |= {"selection": Output(ids.SELECTION, "data"), "url": Output(ids.SHOWN_URL, "data")}
    values = {
        f"{name}_{side}": Input(element(side), "value") for side in ids.SIDES for name, element in _PICKERS.items()
    }
    values |= {"align": Input(ids.ALIGN, "value"), "ignore_lines": Input(ids.IGNORE_LINES, "value")}
    values |= {"swaps": Input(ids.SWAP, "n_clicks")}

    def choose(
        tick: int | None,
        values: dict[str, Any],
        search: str | None,
        stored: dict[str, Any] | None,
        shown: dict[str, Any],
    ) -> dict[str, Any]:
        found = pickers(files, search, values, stored)
        changed = {name: no_update if shown[name] == value else value for name, value in found.items()}
        if all(value is no_update for value in changed.values()):
            raise PreventUpdate
        return changed

    app.callback(
        output=outputs,
        inputs={"tick": Input(ids.TICK, "n_intervals"), "values": values},
        state={
            "search": State(ids.URL, "search"),
            "stored": State(ids.SELECTION, "data"),
            "shown": {name: State(own.component_id, own.component_property) for name, own in outputs.items()},
        },
    )(choose)


def pickers(
    files: SnapshotFiles, search: str | None, values: Mapping[str, Any], stored: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return every property of the pickers, and the selection; files that it names are opened."""
    if stored is None:
        selection = compared.from_search(search)
    else:
        before = compared.from_store(stored["selection"])
        events = [_event(_traced(files, choice), choice) for choice in (before.a, before.b)]
        selection = compared.picked(before, values, events)
    options = [{"value": row["file"], "label": _file_label(row)} for row in listing(files)]
    found: dict[str, Any] = {}
    choices = []
    is_ready = True
    for side, wished in (("a", selection.a), ("b", selection.b)):
        state = _opening(files, wished, is_new=wished.file != values[f"file_{side}"])
        traced = _traced(files, wished)
        choice = wished if traced is None else compared.resolved(wished, traced)
        found |= _side_properties(side, choice, traced, options)
        found[f"status_{side}"] = _status(choice, state)
        choices.append(choice)
        is_ready &= traced is not None
    selection = replace(selection, a=choices[0], b=choices[1])
    found["align"], found["ignore_lines"] = selection.align, ["yes"] if selection.ignore_lines else []
    found["selection"] = {"selection": asdict(selection), "ready": is_ready}
    found["url"] = compared.to_search(selection)
    return found


def _file_label(row: Mapping[str, Any]) -> str:
    if row["job"] is None:
        return str(row["name"])
    return f"{row['name']} · {row['job_name'] or row['job']}, rank {row['rank']}"


def _opening(files: SnapshotFiles, choice: Choice, *, is_new: bool) -> OpeningState:
    """Return how far the file of ``choice`` is, and begin to open it; one that failed is tried again when it is picked anew."""
    if choice.file is None:
        return OpeningState(CLOSED)
    try:
        state = files.state(choice.file)
        if state.state == CLOSED or (state.state == FAILED and is_new):
            files.start(choice.file)
            state = files.state(choice.file)
        return state
    except VramscopeError as error:
        return OpeningState(FAILED, error=str(error))


def _status(choice: Choice, state: OpeningState) -> str:
    if choice.file is None or state.state == OPEN:
        return ""
    if state.error is not None:
        return state.error
    if state.progress is None:
        return f"{state.state} …"
    return f"{state.progress.stage} {min(100 * state.progress.done // max(state.progress.total, 1), 100)} %"


def _traced(files: SnapshotFiles, choice: Choice) -> TracedSnapshot | None:
    """Return the snapshot of ``choice`` where it is open."""
    try:
        return None if choice.file is None else files.opened(choice.file).traced
    except VramscopeError:
        return None


def _event(traced: TracedSnapshot | None, choice: Choice) -> int | None:
    """Return the event of a shown moment, None where that is not known."""
    if traced is None or choice.device is None:
        return None
    return compared.moment_of(trace_of_device(traced, choice.device, ""), choice.at)


def _side_properties(
    side: str, choice: Choice, traced: TracedSnapshot | None, files: list[dict[str, Any]]
) -> dict[str, Any]:
    devices: list[dict[str, Any]] = []
    moments: list[dict[str, Any]] = []
    if traced is not None and choice.device is not None:
        devices = [{"value": trace.device, "label": str(trace.device)} for trace in traced.traces]
        offered = compared.moments(trace_of_device(traced, choice.device, ""))
        moments = [{"value": value, "label": label} for value, label in offered]
    is_event = choice.at not in compared.NAMED
    return {
        f"file_{side}.options": files,
        f"file_{side}.value": choice.file,
        f"device_{side}.options": devices,
        f"device_{side}.value": choice.device if devices else None,
        f"moment_{side}.options": moments,
        f"moment_{side}.value": (compared.EVENT if is_event else choice.at) if moments else None,
        f"event_{side}.value": int(choice.at) if is_event else None,
        f"event_{side}.class": "event" if is_event else "event hidden",
    }


def _register_result(app: Dash, files: SnapshotFiles) -> None:
    def show(stored: dict[str, Any] | None) -> tuple[Any, ...]:
        if stored is None or not stored["ready"]:
            return (None, None, None, "", None, None, False, True)
        selection = compared.from_store(stored["selection"])
        try:
            a, b = _side(files, selection.a), _side(files, selection.b)
            found = difference(a, b, ignore_lines=selection.ignore_lines)
        except VramscopeError as error:
            return (compare.message(str(error)), None, None, "", None, None, True, True)
        lines = _lines(files, selection, found)
        return (
            None,
            compare.totals(found),
            compare_lines.figure(lines, selection.align),
            compare_lines.note(lines),
            compare.tables(found),
            compare.notes(found),
            True,
            False,
        )

    app.callback(
        Output(ids.MESSAGE, "children"),
        Output(ids.TOTALS, "children"),
        Output(ids.LINES, "figure"),
        Output(ids.LINES_NOTE, "children"),
        Output(ids.TABLES, "children"),
        Output(ids.NOTES, "children"),
        Output(ids.EMPTY, "hidden"),
        Output(ids.RESULT, "hidden"),
        Input(ids.SELECTION, "data"),
    )(show)


def _side(files: SnapshotFiles, choice: Choice) -> Side:
    file = str(choice.file)
    return side_of(files.opened(file).traced, name=files.record(file).name, device=choice.device, at=choice.at)


def _lines(files: SnapshotFiles, selection: Selection, found: Difference) -> list[compare_lines.Line]:
    lines = []
    for letter, choice, side in (("A", selection.a, found.a), ("B", selection.b, found.b)):
        timeline = files.opened(str(choice.file)).devices[side.trace.device].timeline
        lines.append(compare_lines.Line(letter, timeline, side.moment.event))
    return lines
