"""What the *Compare* page compares: from its URL and its pickers to two sides, and what the pickers offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from dashboard.figures.compare_lines import ALIGNMENTS, START
from vramscope.compare.side import END, OOM, PEAK, event_of, trace_of_device
from vramscope.errors import BadInputError
from vramscope.trace.columns import DeviceTrace, TracedSnapshot

EVENT = "event"
NAMED = (END, PEAK, OOM)
MOST_DIGITS = 18


@dataclass(frozen=True)
class Choice:
    """What one side is wished to be; ``device`` None is the first in use, ``at`` as of vramscope.compare.side."""

    file: str | None = None
    device: int | None = None
    at: str = END


@dataclass(frozen=True)
class Selection:
    """Both sides, where the timelines are aligned, whether lines of frames count, and how often the sides were swapped."""

    a: Choice = Choice()
    b: Choice = Choice()
    align: str = START
    ignore_lines: bool = False
    swaps: int = 0


def from_search(search: str | None) -> Selection:
    """Return the selection in a URL's query; what cannot be read is left open."""
    found = {key: values[0] for key, values in parse_qs((search or "").removeprefix("?")).items()}
    a, b = (
        Choice(found.get(side), _number(found.get(f"{side}_gpu")), _moment(found.get(f"{side}_at"))) for side in "ab"
    )
    align = found.get("align", START)
    return Selection(a, b, align if align in ALIGNMENTS else START, found.get("lines") == "ignored")


def to_search(selection: Selection) -> str:
    """Return the query that :func:`from_search` reads; defaults are left out."""
    given: dict[str, str] = {}
    for side, choice in (("a", selection.a), ("b", selection.b)):
        if choice.file is not None:
            given[side] = choice.file
        if choice.device is not None:
            given[f"{side}_gpu"] = str(choice.device)
        if choice.at != END:
            given[f"{side}_at"] = choice.at
    if selection.align != START:
        given["align"] = selection.align
    if selection.ignore_lines:
        given["lines"] = "ignored"
    return f"?{urlencode(given)}" if given else ""


def from_store(stored: Mapping[str, Any]) -> Selection:
    """Return the selection that the page keeps as JSON."""
    return Selection(**{**stored, "a": Choice(**stored["a"]), "b": Choice(**stored["b"])})


def picked(shown: Selection, values: Mapping[str, Any], events: Sequence[int | None]) -> Selection:
    """Return the selection after what the pickers hold; ``events`` are those of the shown moments, where a count begins."""
    a, b = (
        _picked_side(choice, {name: values[f"{name}_{side}"] for name in ("file", "device", "moment", "event")}, event)
        for side, choice, event in (("a", shown.a, events[0]), ("b", shown.b, events[1]))
    )
    found = replace(
        shown,
        a=a,
        b=b,
        align=values["align"] if values["align"] in ALIGNMENTS else shown.align,
        ignore_lines=bool(values["ignore_lines"]),
    )
    swaps = values["swaps"] or 0
    return found if swaps == shown.swaps else replace(found, a=found.b, b=found.a, swaps=swaps)


def _picked_side(choice: Choice, own: Mapping[str, Any], event: int | None) -> Choice:
    if own["file"] is not None and own["file"] != choice.file:
        return Choice(own["file"])
    if own["device"] is not None and own["device"] != choice.device:
        return replace(choice, device=own["device"], at=choice.at if choice.at in NAMED else END)
    shown_moment = choice.at if choice.at in NAMED else EVENT
    if own["moment"] is not None and own["moment"] != shown_moment:
        return replace(choice, at=str(max(event or 0, 0)) if own["moment"] == EVENT else own["moment"])
    if shown_moment == EVENT and own["event"] is not None and str(own["event"]) != choice.at:
        return replace(choice, at=_moment(str(own["event"])))
    return choice


def resolved(choice: Choice, traced: TracedSnapshot) -> Choice:
    """Return the nearest choice that ``traced`` has: an unknown device gives way to the first, an unknown moment to the end."""
    try:
        trace = trace_of_device(traced, choice.device, "")
    except BadInputError:
        if not traced.traces:
            return replace(choice, device=None, at=END)
        trace = trace_of_device(traced, None, "")
    if moment_of(trace, choice.at) is None:
        return replace(choice, device=trace.device, at=END)
    return replace(choice, device=trace.device)


def moment_of(trace: DeviceTrace, at: str) -> int | None:
    """Return the event of a moment, None where the trace has no such moment."""
    try:
        return event_of(trace, at, "")
    except BadInputError:
        return None


def moments(trace: DeviceTrace) -> list[tuple[str, str]]:
    """Return what the picker of a side's moment offers, as (value, label)."""
    offered = [(END, "end")]
    if trace.contradiction is not None or trace.reserved_bytes is None:
        return offered
    if trace.peak is not None:
        offered.append((PEAK, "peak"))
    if len(trace.events.oom_event):
        offered.append((OOM, "out of memory (last)"))
    return [*offered, (EVENT, "event number …")] if trace.event_count else offered


def _moment(text: str | None) -> str:
    known = text in NAMED or (text is not None and text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS)
    return str(text) if known else END


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
