"""The tables of a comparison: what each name stands for on both sides, largest difference first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Change = Literal["only in A", "only in B", "grown", "shrunk", "the same"]


@dataclass(frozen=True)
class Part:
    """Some blocks or segments of one side; parts of one ``key`` make a row. ``stack`` is a stack of its file, or None."""

    key: Hashable
    label: str
    size_bytes: int
    count: int
    stack: int | None = None


@dataclass(frozen=True)
class Row:
    """Bytes and count of what ``label`` names, on side A and on side B.

    ``stack_a`` and ``stack_b`` are the stack of its largest part in each file, None where there is none.
    """

    label: str
    a_bytes: int = 0
    b_bytes: int = 0
    a_count: int = 0
    b_count: int = 0
    stack_a: int | None = None
    stack_b: int | None = None

    @property
    def difference_bytes(self) -> int:
        return self.b_bytes - self.a_bytes

    @property
    def change(self) -> Change:
        if not self.a_count and self.b_count:
            return "only in B"
        if self.a_count and not self.b_count:
            return "only in A"
        if self.difference_bytes:
            return "grown" if self.difference_bytes > 0 else "shrunk"
        return "the same"


def rows_of(a: Iterable[Part], b: Iterable[Part]) -> tuple[Row, ...]:
    """Return a row for each key of the parts of both sides, by how much it differs, then by size, then by name."""
    of_a, of_b = merged(a), merged(b)
    nothing = Part(None, "", 0, 0)
    rows = []
    for key in of_a | of_b:
        in_a, in_b = of_a.get(key, nothing), of_b.get(key, nothing)
        label = in_a.label or in_b.label
        sizes, counts = (in_a.size_bytes, in_b.size_bytes), (in_a.count, in_b.count)
        rows.append(Row(label, *sizes, *counts, in_a.stack, in_b.stack))
    return tuple(sorted(rows, key=lambda row: (-abs(row.difference_bytes), -row.a_bytes - row.b_bytes, row.label)))


def merged(parts: Iterable[Part]) -> dict[Hashable, Part]:
    """Return the sums of the parts of each key, with the label and the stack of the largest one."""
    groups: dict[Hashable, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.key, []).append(part)
    return {key: own[0] if len(own) == 1 else _sum(own) for key, own in groups.items()}


def _sum(parts: Sequence[Part]) -> Part:
    largest = max(parts, key=lambda part: part.size_bytes)
    return replace(largest, size_bytes=sum(part.size_bytes for part in parts), count=sum(part.count for part in parts))


def cut(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """Return the first ``most`` rows, and one with the sums of the others, so that the table still adds up."""
    shown, rest = tuple(rows[:most]), rows[most:]
    return (*shown, replace(total(rest), label=f"{len(rest)} more")) if rest else shown


def total(rows: Sequence[Row]) -> Row:
    """Return the sums of all rows."""
    columns = ((row.a_bytes, row.b_bytes, row.a_count, row.b_count) for row in rows)
    return Row("all", *map(sum, zip(*columns, strict=True))) if rows else Row("all")
