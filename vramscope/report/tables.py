"""The tables of a report: owners, allocation sites, the largest allocations, settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vramscope.compare.rows import Part
from vramscope.report.content import Allocation, Content
from vramscope.report.markup import Markup, element
from vramscope.snapshot.columns import Setting, Settings
from vramscope.trace.categories import frame_text
from vramscope.units import format_address, format_bytes, format_ratio

MOST_SITES = 25


def section(heading: str, *content: str | None) -> Markup:
    """Return a part of the page under its heading."""
    return element("section", element("h2", heading), *content)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str | None = None) -> Markup:
    """Return a table; a heading that begins with # is over numbers."""
    classes = ["number" if heading.startswith("#") else None for heading in headings]
    head = element("tr", *(element("th", h.lstrip("#"), class_=c) for h, c in zip(headings, classes, strict=True)))
    body = [
        element("tr", *(element("td", cell, class_=c) for cell, c in zip(row, classes, strict=True))) for row in rows
    ]
    top = None if caption is None else element("caption", caption)
    return element("div", element("table", top, element("thead", head), element("tbody", *body)), class_="scroll")


def sites(content: Content) -> Markup:
    """Return the allocation sites with the most live bytes, and the sums of the others."""
    shown, rest = content.sites[:MOST_SITES], content.sites[MOST_SITES:]
    rows = [_part(part, content) for part in shown]
    if rest:
        others = Part("", f"{len(rest)} more", sum(p.size_bytes for p in rest), sum(p.count for p in rest))
        rows.append(_part(others, content))
    caption = f"live bytes {content.side.when}, by the first frame outside torch"
    return section("Allocation sites", table(("#bytes", "#share", "#blocks", "site"), rows, caption=caption))


def _part(part: Part, content: Content) -> tuple[str, str, str, str]:
    share = part.size_bytes / max(content.totals["active_bytes"] or 0, 1)
    return format_bytes(part.size_bytes), format_ratio(share), str(part.count), part.label


def largest(content: Content) -> Markup:
    """Return the largest live allocations, each with its stack to unfold."""
    rows = [
        (_size(found), found.category, _since(found), format_address(found.address), _stack(found))
        for found in content.largest
    ]
    caption = f"live {content.side.when}; owners are estimated from stacks"
    headings = ("#bytes", "owner", "allocated", "address", "stack, the innermost frame first")
    return section("Largest allocations", table(headings, rows, caption=caption))


def _size(found: Allocation) -> str:
    return format_bytes(found.size_bytes) if found.is_exact else f"≈ {format_bytes(found.size_bytes)}"


def _since(found: Allocation) -> str:
    if found.first_event is None:
        return "before the trace"
    age = "" if found.age_us is None else f", {found.age_us / 1e6:.3f} s before"
    return f"at event {found.first_event}{age}"


def _stack(found: Allocation) -> str:
    if not found.frames:
        return found.site
    lines = "\n".join(frame_text(frame) for frame in found.frames)
    return element("details", element("summary", found.site), element("pre", lines))


def settings(found: Settings) -> Markup:
    """Return the allocator's settings as the file has them."""
    rows = [(name, _value(value)) for name, value in found.items()]
    return section("Settings of the allocator", table(("setting", "value"), rows) if rows else "not recorded")


def _value(value: Setting | dict[str, Setting]) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {own}" for key, own in value.items())
    return str(value) or "(empty)"
