"""What opening a file tells its caller: how far it is, that it was cancelled, and names that are safe to show."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from vramscope.errors import BadInputError

MAX_SHOWN = 300


class Progress(NamedTuple):
    """How far an opening is: ``stage`` is "looking", "reading" (both in bytes) or "building" (in events)."""

    stage: str
    done: int
    total: int


class OpeningCancelled(BadInputError):
    """The caller asked to stop."""


def shown(path: Path) -> str:
    """Return a path as one line of plain characters: a file's name may hold anything."""
    return printable(str(path))


def printable(text: str) -> str:
    """Return ``text`` without what moves a terminal's cursor, and not longer than a line or two."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= MAX_SHOWN else f"{plain[:MAX_SHOWN]}…"
