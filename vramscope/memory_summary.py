"""Tables of ``torch.cuda.memory_summary()`` of every release, found in pasted text, checked, and read in bytes.

The format is PyTorch's own (``torch/cuda/memory.py``), also ``torch_npu``'s: nine metrics of four columns, each followed by
its large and small pool unless abbreviated, then two rows of oversize counts. Releases before 2.0 print KB, MB and GB for the
same powers of 1024, and have no row of requested memory. People and language models also make such tables up: what PyTorch
cannot have printed is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from vramscope.errors import BadInputError
from vramscope.pasted_text import read_pasted

# The columns, in order: current, peak, total allocated, total freed.
CURRENT, PEAK, ALLOCATED, FREED = range(4)

# The metrics in the order in which they are printed; {} is the backend's word for its device.
_SIZES = ("Allocated memory", "Active memory", "Requested memory", "{} reserved memory", "Non-releasable memory")
_POOLED = (*_SIZES, "Allocations", "Active allocs", "{} reserved segments", "Non-releasable allocs")
_METRICS = (*_POOLED, "Oversize allocations", "Oversize {} segments")
_NAMES = {
    name.replace(" ", "").replace("-", "").lower(): (order, name)
    for order, metric in enumerate(_METRICS)
    for name in (metric.replace("{}", device) for device in ("GPU", "NPU", "XPU", "MLU", "MUSA"))
}

_CELL = r"(\d{1,20})((?:[kmgtp]i?)?b|[km])?"
_TOKEN = re.compile(
    r"pytorch[a-z]{2,8}memorysummary,deviceid(?P<device>\d{1,4})"
    r"|ooms:(?P<ooms>\d{1,12})\|{1,2}[a-z]{2,8}mallocretries:(?P<retries>\d{1,12})"
    r"|(?P<titles>metric\|curusage\|peakusage\|totalloc\|totfreed)"
    rf"|(?:(?P<name>{'|'.join(_NAMES)})|from(?P<pool>large|small)pool)\|{_CELL}\|{_CELL}\|{_CELL}\|{_CELL}\|"
)
# Between two rows: a name with numbers or a size behind it, or with a size in it.
_OTHER_ROW = re.compile(
    r"\|([a-z][^|]{0,60})(?:(?:\|[\d.-]{1,20}[a-z]{0,3}){2,4}|\|[\d.-]{1,20}[kmg]i?b)\|"
    r"|\|([a-z][^|]{0,40}\d[kmg]i?b[^|]{0,20})\|[^|]{0,40}\|[^|]{0,40}\|"
)
# Rows farther apart than this, in characters without blanks, belong to different tables.
_TABLE_GAP = 600

# A column takes the next unit from so many of the one before on, by the metric's first row.
_NEXT_SIZE, _NEXT_COUNT = 768 * 1024, 750 * 1000


class Cell(NamedTuple):
    """A printed whole number of ``unit`` bytes (or pieces), rounded down: the truth is up to ``unit - 1`` larger."""

    number: int
    unit: int
    unit_name: str

    @property
    def value(self) -> int:
        return self.number * self.unit


Row = tuple[Cell, Cell, Cell, Cell]


@dataclass(frozen=True)
class SummaryTable:
    """A table, or what is left of one: ``metrics[name][pool]`` is a row, pool being "all", "large" or "small".

    ``device``, ``ooms`` and ``retries`` are None where the paste does not hold the table's head.
    """

    device: int | None
    ooms: int | None
    retries: int | None
    metrics: dict[str, dict[str, Row]]

    def to_json(self) -> dict[str, Any]:
        """Return ``rows`` in bytes (or pieces) as printed, and in ``tolerances`` how much larger the truth may be."""
        counts = {} if self.ooms is None else {"ooms": self.ooms, "retries": self.retries}
        return {
            "device": self.device,
            "rows": self._each_cell(lambda cell: cell.value),
            "tolerances": self._each_cell(lambda cell: cell.unit - 1),
            **counts,
        }

    def _each_cell(self, figure: Callable[[Cell], int]) -> dict[str, dict[str, list[int]]]:
        return {
            name: {pool: [figure(cell) for cell in row] for pool, row in pools.items()}
            for name, pools in self.metrics.items()
        }


def read_summaries(text: str) -> list[SummaryTable]:
    """Return the tables of a paste, in order. Raises BadInputError where one is not as PyTorch prints it."""
    squeezed = read_pasted(text, cells=True).squeezed
    tables = []
    for tokens in _groups(squeezed):
        _refuse_other_rows(squeezed, tokens)
        table = _table(tokens)
        if table.metrics or table.ooms is not None:
            _check(table)
            tables.append(table)
    return tables


def _groups(squeezed: str) -> Iterator[list[re.Match[str]]]:
    """Yield the head and the rows of each table; a pool's rows before any metric say nothing and are dropped."""
    group: list[re.Match[str]] = []
    last_order = 0
    for token in _TOKEN.finditer(squeezed):
        order = _order(token)
        if group and (token.start() - group[-1].end() > _TABLE_GAP or (order is not None and order <= last_order)):
            yield group
            group = []
        if order is not None:
            last_order = order
        elif not group:
            continue
        group.append(token)
    if group:
        yield group


def _order(token: re.Match[str]) -> int | None:
    """Return the token's place in a table, or None for a pool's row."""
    if token["name"]:
        return _NAMES[token["name"]][0]
    if token["pool"]:
        return None
    return -3 if token["device"] else -2 if token["ooms"] else -1


def _refuse_other_rows(squeezed: str, tokens: list[re.Match[str]]) -> None:
    """Raise BadInputError where rows that PyTorch does not print stand between the others, or behind the last."""
    end = tokens[-1].end()
    gaps = [(one.end() - 1, other.start() + 1) for one, other in pairwise(tokens)]
    others = [other for gap in gaps if (other := _OTHER_ROW.search(squeezed, *gap))]
    last = _OTHER_ROW.match("|" + squeezed[end : end + _TABLE_GAP].lstrip("|"))
    # A row of PyTorch's own behind the last is one that the paste cut.
    if last and last[1] not in (*_NAMES, "fromlargepool", "fromsmallpool"):
        others.append(last)
    if others:
        raise _refusal(f'it has a row "{others[0][1] or others[0][2]}"')


def _table(tokens: list[re.Match[str]]) -> SummaryTable:
    head: dict[str, int] = {}
    metrics: dict[str, dict[str, Row]] = {}
    for token in tokens:
        if token["name"]:
            metrics[_NAMES[token["name"]][1]] = {"all": _row(token)}
        elif token["pool"] and metrics:
            name, pools = next(reversed(metrics.items()))
            if token["pool"] in pools:
                raise _refusal(f'"{name}" has two rows of its {token["pool"]} pool')
            pools[token["pool"]] = _row(token)
        else:
            head |= {key: int(token[key]) for key in ("device", "ooms", "retries") if token[key]}
    return SummaryTable(head.get("device"), head.get("ooms"), head.get("retries"), metrics)


def _row(token: re.Match[str]) -> Row:
    texts = token.groups()[-8:]
    one, two, three, four = (
        _cell(int(number), unit or "") for number, unit in zip(texts[::2], texts[1::2], strict=True)
    )
    return one, two, three, four


def _cell(number: int, unit_name: str) -> Cell:
    base = 1024 if unit_name.endswith("b") else 1000
    return Cell(number, base ** "bkmgtp".index(unit_name[:1] or "b"), unit_name)


def _check(table: SummaryTable) -> None:
    """Raise BadInputError where PyTorch cannot have printed ``table``."""
    _check_pools(table)
    rows = [row for pools in table.metrics.values() for row in pools.values()]
    endings = {cell.unit_name[1:] for row in rows for cell in row if len(cell.unit_name) > 1}
    if len(endings) > 1:
        raise _refusal("it has units of two releases, as MB and MiB")
    for name, pools in table.metrics.items():
        for column in range(4):
            _check_unit(name, pools, column)
            _check_sum(name, pools, column)
        for row in pools.values():
            if row[PEAK].value + row[PEAK].unit <= row[CURRENT].value:
                raise _refusal(f'"{name}" is now above its own peak')


def _check_pools(table: SummaryTable) -> None:
    """Every metric has both pools, or, in an abbreviated table, none has; a cut may take the last ones."""
    pooled = [(name, len(pools)) for name, pools in table.metrics.items() if not name.startswith("Oversize")]
    if len(pooled) == len(table.metrics):
        *pooled, _ = pooled or [("", 0)]
    if len({count for _, count in pooled}) > 1 or any(count == 2 for _, count in pooled):
        raise _refusal("some of its metrics have no rows of the large and the small pool")


def _check_unit(name: str, pools: dict[str, Row], column: int) -> None:
    first = pools["all"][column]
    base, following = (1024, _NEXT_SIZE) if name.endswith("memory") else (1000, _NEXT_COUNT)
    smallest = following // base if first.unit > 1 else 0
    units = {row[column].unit_name for row in pools.values()}
    if not smallest <= first.number < following or len(units) > 1 or first.unit_name.endswith("b") != (base == 1024):
        raise _refusal(f'the row "{name}" has a cell {first.number} {first.unit_name}'.rstrip())


def _check_sum(name: str, pools: dict[str, Row], column: int) -> None:
    if len(pools) < 3:
        return
    whole, large, small = (pools[pool][column].number for pool in ("all", "large", "small"))
    rounding = 1 if pools["all"][column].unit > 1 else 0
    # A peak is of its pool alone; and cudaMallocAsync fills in no pools.
    least = max(large, small) if column == PEAK else large + small
    if not least <= whole <= large + small + rounding and large + small > 0:
        raise _refusal(f'the pools of "{name}" do not add up to it')


def _refusal(why: str) -> BadInputError:
    return BadInputError(f"this memory summary is not as PyTorch prints it: {why}; paste the program's own output")
