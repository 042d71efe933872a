"""What differs between two sides: totals, and live bytes by owner category, allocation site and stack, and segments by class."""

from __future__ import annotations

from dataclasses import dataclass

from vramscope.compare.live_stacks import StackFacts, by_category, by_site, by_stack, live_stacks
from vramscope.compare.rows import Row, rows_of
from vramscope.compare.segment_classes import segment_parts
from vramscope.compare.side import Side
from vramscope.compare.stack_names import StackNames
from vramscope.compare.totals import totals


@dataclass(frozen=True)
class Figure:
    """One total on both sides; None is what does not follow from that side's file."""

    name: str
    a: int | None
    b: int | None

    @property
    def difference(self) -> int | None:
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, eq=False)
class Difference:
    """All that differs. Bytes of ``categories``, ``sites`` and ``stacks`` are of live blocks (active: pending frees included),
    those of ``segments`` of whole segments; the rows of each sum to the totals of both sides, to the byte.
    """

    a: Side
    b: Side
    totals: tuple[Figure, ...]
    categories: tuple[Row, ...]
    sites: tuple[Row, ...]
    stacks: tuple[Row, ...]
    segments: tuple[Row, ...]
    notes: tuple[str, ...]


def difference(a: Side, b: Side, *, ignore_lines: bool = False) -> Difference:
    """Return what differs from ``a`` to ``b``. With ``ignore_lines`` frames are the same where file and function are."""
    names = StackNames(ignore_lines=ignore_lines)
    live_a, live_b = (live_stacks(side, StackFacts(side.described, names)) for side in (a, b))
    same_file = a.traced is b.traced
    return Difference(
        a=a,
        b=b,
        totals=_totals(a, b),
        categories=rows_of(by_category(live_a), by_category(live_b)),
        sites=rows_of(by_site(live_a), by_site(live_b)),
        stacks=rows_of(by_stack(live_a), by_stack(live_b)),
        segments=rows_of(*(segment_parts(side.state, same_file=same_file) for side in (a, b))),
        notes=tuple(f"{letter}: {line}" for letter, side in (("A", a), ("B", b)) for line in side.notes),
    )


def _totals(a: Side, b: Side) -> tuple[Figure, ...]:
    of_a, of_b = totals(a), totals(b)
    return tuple(Figure(name, of_a[name], of_b[name]) for name in of_a)
