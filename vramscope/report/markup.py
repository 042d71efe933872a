"""HTML and SVG elements as text: whatever is not markup made here is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Elements without an end tag in HTML; in SVG all have one or end in a slash.
_VOID = ("meta", "br")


class Markup(str):
    """Text that :func:`element` made; every other text is a file's or ours, and is escaped before it goes into one."""

    __slots__ = ()


def element(name: str, /, *content: str | None, **attributes: object) -> Markup:
    """Return the element ``name``; ``class_`` is the attribute class, ``data_x`` data-x. None is left out everywhere."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(part for part in content if part is not None)}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Return ``parts`` one after the other, those that are not Markup escaped."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))
