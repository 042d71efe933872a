"""The ids of the elements of the *Compare* page."""

from __future__ import annotations

URL = "compare-url"
TICK = "compare-tick"
SELECTION = "compare-selection"
SHOWN_URL = "compare-shown-url"

# The pickers of each side; a name ends in -a or -b.
SIDES = ("a", "b")


def file(side: str) -> str:
    return f"compare-file-{side}"


def device(side: str) -> str:
    return f"compare-device-{side}"


def moment(side: str) -> str:
    return f"compare-moment-{side}"


def event(side: str) -> str:
    return f"compare-event-{side}"


def event_label(side: str) -> str:
    return f"compare-event-label-{side}"


def status(side: str) -> str:
    return f"compare-status-{side}"


SWAP = "compare-swap"
IGNORE_LINES = "compare-ignore-lines"
ALIGN = "compare-align"

MESSAGE = "compare-message"
EMPTY = "compare-empty"
RESULT = "compare-result"
TOTALS = "compare-totals"
LINES = "compare-lines"
LINES_NOTE = "compare-lines-note"
TABLES = "compare-tables"
NOTES = "compare-notes"
