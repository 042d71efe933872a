"""The pickers of job, rank and GPU: one callback, because each depends on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from dash import Dash, Input, Output, State, no_update
from dash.exceptions import PreventUpdate

from dashboard import ids
from dashboard.figures.selection import MOST_BUTTONS, Choices, Selection, from_search, resolve
from vramscope.records import LiveData

_PICKED = {
    ids.JOB: "job",
    ids.RANK: "rank",
    ids.RANK_MENU: "rank",
    ids.GPU: "device",
    ids.GPU_MENU: "device",
}


def register(app: Dash, live: LiveData) -> None:
    picker_outputs = {
        f"{name}.{prop}": Output(name, prop)
        for name in (ids.JOB, ids.RANK, ids.RANK_MENU, ids.GPU, ids.GPU_MENU)
        for prop in ("options", "value")
    }

    def choose(
        tick: int | None,
        values: dict[str, Any],
        search: str | None,
        selection: dict[str, Any] | None,
        shown: dict[str, Any],
    ) -> dict[str, Any]:
        wished = picked(Selection(**selection), values) if selection else from_search(search)
        choices = resolve(live.jobs(), wished)
        outputs = picker_properties(choices)
        if selection == outputs["selection"] and all(shown[name] == outputs[f"{name}.options"] for name in _PICKED):
            raise PreventUpdate
        if selection == outputs["selection"]:
            outputs["selection"] = no_update
        return outputs

    app.callback(
        output={
            **picker_outputs,
            "rank_class": Output(ids.RANK_PICKER, "className"),
            "gpu_class": Output(ids.GPU_PICKER, "className"),
            "simulated": Output(ids.SIMULATED, "hidden"),
            "empty": Output(ids.EMPTY, "hidden"),
            "picture": Output(ids.PICTURE, "hidden"),
            "selection": Output(ids.SELECTION, "data"),
        },
        inputs={"tick": Input(ids.TICK, "n_intervals"), "values": {name: Input(name, "value") for name in _PICKED}},
        state={
            "search": State(ids.URL, "search"),
            "selection": State(ids.SELECTION, "data"),
            "shown": {name: State(name, "options") for name in _PICKED},
        },
    )(choose)


def picked(shown: Selection, values: dict[str, Any]) -> Selection:
    """Return the selection with what the pickers ask for beyond it.

    What triggered the callback cannot tell: a tick that comes while a pick is being answered takes its place, and Dash drops
    the answer to the pick.
    """
    changes = {
        part: values[name]
        for name, part in _PICKED.items()
        if values.get(name) is not None and values[name] != getattr(shown, part)
    }
    return replace(shown, **changes)


def picker_properties(choices: Choices) -> dict[str, Any]:
    """Return every property of the pickers, and what of the page is visible, for ``choices``."""
    selection = choices.selection
    return {
        f"{ids.JOB}.options": _options(choices.jobs),
        f"{ids.JOB}.value": selection.job,
        **_either(ids.RANK, ids.RANK_MENU, choices.ranks, selection.rank),
        **_either(ids.GPU, ids.GPU_MENU, choices.devices, selection.device),
        "rank_class": _class_name(choices.ranks),
        "gpu_class": _class_name(choices.devices),
        "simulated": not choices.simulated,
        "empty": bool(choices.jobs),
        "picture": not choices.jobs,
        "selection": asdict(selection),
    }


def _either(row: str, menu: str, offered: Sequence[tuple[int, str]], value: int | None) -> dict[str, Any]:
    """Return options and value for the row of buttons or for the menu, and nothing for the other of the two."""
    used, unused = (row, menu) if len(offered) <= MOST_BUTTONS else (menu, row)
    return {
        f"{used}.options": _options(offered),
        f"{used}.value": value,
        f"{unused}.options": [],
        f"{unused}.value": None,
    }


def _class_name(offered: Sequence[tuple[int, str]]) -> str:
    """Return the picker's class: without a choice it is hidden, with many it is a menu."""
    if len(offered) < 2:
        return "picker hidden"
    return "picker" if len(offered) <= MOST_BUTTONS else "picker menu"


def _options(offered: Sequence[tuple[Any, str]]) -> list[dict[str, Any]]:
    return [{"value": value, "label": label} for value, label in offered]
