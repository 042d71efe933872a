"""The rows of one page of a table, as the grid asks for them; the order of the long tables is kept between pages."""

from __future__ import annotations

from typing import Any

import flask

from dashboard import postmortem_arguments as arguments
from dashboard.files_opened import OpenedDevice
from vramscope.errors import BadInputError
from vramscope.trace import tables
from vramscope.trace.described import KINDS

TABLES = {
    "allocations": tables.ALLOCATION_SORTS,
    "sites": tables.SITE_SORTS,
    "events": tables.EVENT_SORTS,
    "segments": tables.SEGMENT_SORTS,
}
MOST_ROWS = 1000
MAX_ROW = 1 << 40


def rows(device: OpenedDevice, event: int) -> dict[str, Any]:
    """Return the rows ``first``..``last`` - 1 of the request's table and how many there are."""
    table = arguments.choice("table", tuple(TABLES))
    first = arguments.integer("first", 0, low=0, high=MAX_ROW)
    last = arguments.integer("last", first + 100, low=first, high=MAX_ROW)
    if last - first > MOST_ROWS:
        raise BadInputError(f"at most {MOST_ROWS} rows at once, not {last - first}")
    sort = arguments.choice("sort", TABLES[table])
    falls = "asc" if sort in ("event", "first_event", "address") else "desc"
    order = tables.Order(sort, arguments.choice("order", ("asc", "desc"), falls) == "desc")
    text, kinds = arguments.text("text"), arguments.choices("only", tuple(KINDS))
    described = device.described
    if table == "allocations":
        at = event if "event" in flask.request.args else None
        places = device.kept(
            (table, order, text, at), lambda: tables.allocation_order(described, order, text=text, event=at)
        )
        return _page([tables.allocation_row(described, place) for place in places[first:last].tolist()], len(places))
    if table == "events":
        places = device.kept(
            (table, order, text, *kinds), lambda: tables.event_order(described, order, text=text, kinds=kinds)
        )
        return _page([described.event_row(place) for place in places[first:last].tolist()], len(places))
    if table == "sites":
        found = tables.site_rows(described, order, event=event, text=text)
    else:
        found = tables.segment_rows(described, order, device.moment(event), text=text)
    return _page(found[first:last], len(found))


def _page(page: list[dict[str, Any]], total: int) -> dict[str, Any]:
    return {"rows": page, "total": total}
