"""Reads the arguments of the post-mortem routes; what cannot be used is refused with one line and HTTP's 400."""

from __future__ import annotations

import math
from collections.abc import Sequence

import flask

from vramscope.errors import BadInputError

LONGEST_TEXT = 500
MAX_ADDRESS = (1 << 64) - 1


def integer(name: str, default: int, *, low: int, high: int) -> int:
    """Return a whole number from ``low`` to ``high``."""
    text = flask.request.args.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= 19 and low <= int(text) <= high:
        return int(text)
    raise BadInputError(f"{name!r} must be a whole number from {low} to {high}, not {text[:40]!r}")


def number(name: str, default: float) -> float:
    """Return a finite number."""
    text = flask.request.args.get(name)
    if text is None:
        return default
    try:
        found = float(text[:40])
    except ValueError:
        found = math.nan
    if math.isfinite(found):
        return found
    raise BadInputError(f"{name!r} must be a number, not {text[:40]!r}")


def choice(name: str, allowed: Sequence[str], default: str | None = None) -> str:
    """Return one of ``allowed``, the first of them where there is no ``default``."""
    found = flask.request.args.get(name, default or allowed[0])
    if found in allowed:
        return found
    raise BadInputError(f"{name!r} is one of {', '.join(allowed)}, not {found[:40]!r}")


def choices(name: str, allowed: Sequence[str]) -> list[str]:
    """Return those of ``allowed`` that are given with commas between; none where it is left out."""
    found = [part for part in flask.request.args.get(name, "").split(",") if part]
    unknown = [part for part in found if part not in allowed]
    if unknown:
        raise BadInputError(f"{name!r} is of {', '.join(allowed)}, not {unknown[0][:40]!r}")
    return found


def text(name: str) -> str:
    """Return a text, empty where it is left out."""
    return flask.request.args.get(name, "")[:LONGEST_TEXT].strip()


def address() -> int:
    """Return the argument ``address``, in hexadecimal after 0x, else in decimal."""
    given = flask.request.args.get("address", "")
    try:
        found = int(given[:24], 16 if given[:2].lower() == "0x" else 10)
    except ValueError:
        found = -1
    if 0 <= found <= MAX_ADDRESS:
        return found
    raise BadInputError(f"'address' is a number below 2**64, as 0x7f… or in decimal, not {given[:40]!r}")
