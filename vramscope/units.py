"""Bytes, ratios and times as text: the only place where a unit is converted."""

from __future__ import annotations

import re

from vramscope.errors import BadInputError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

MISSING = "–"
# Fifteen digits are more than any memory has, and a double holds them exactly.
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]i?B?|B)?", re.ASCII | re.IGNORECASE)


def format_bytes(size_bytes: int | None) -> str:
    """Return "61.8 GiB", "512 B" …, or a dash where the reading is missing (None is never 0)."""
    value, unit = split_bytes(size_bytes)
    return f"{value} {unit}".strip()


def split_bytes(size_bytes: int | None) -> tuple[str, str]:
    """Return the number and the unit apart, for a figure drawn large with its unit small."""
    if size_bytes is None:
        return MISSING, ""
    magnitude = abs(size_bytes)
    for unit_bytes, unit in ((GIB << 10, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if magnitude >= unit_bytes:
            value = size_bytes / unit_bytes
            return (f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"), unit
    return str(size_bytes), "B"


def format_ratio(ratio: float | None) -> str:
    """Return "12 %" (one decimal under 10 %), or a dash where it is missing."""
    if ratio is None:
        return MISSING
    percent = ratio * 100
    return f"{percent:.1f} %" if 0 < abs(percent) < 10 else f"{percent:.0f} %"


def format_address(address: int) -> str:
    """Return an address as PyTorch's viewer prints it: 0x and lower-case hexadecimal."""
    return f"0x{address:x}"


def parse_bytes(text: str) -> int:
    """Return the bytes of "24 GiB", "512m", "1.5 GB" (decimal) or "1048576". Raises BadInputError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{text[:40]!r} is not a size; write it as 24GiB, 512MiB or a number of bytes")
    unit = (match[2] or "b").lower()
    base = 1000 if unit in ("kb", "mb", "gb", "tb") else 1024
    return int(float(match[1]) * base ** "bkmgt".index(unit[0]))
