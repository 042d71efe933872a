"""Memory summaries read back from text as people paste it, and made-up ones refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.errors import BadInputError
from vramscope.memory_summary import Cell, SummaryTable, read_summaries
from vramscope.oom_reading import describe_table
from vramscope.units import GIB, KIB, MIB

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "summary"

SIZES = ("Allocated memory", "Active memory", "Requested memory", "GPU reserved memory", "Non-releasable memory")
COUNTS = ("Allocations", "Active allocs", "GPU reserved segments", "Non-releasable allocs")
OVERSIZE = ("Oversize allocations", "Oversize GPU segments")
BINARY, OLD = ("B  ", "KiB", "MiB", "GiB", "TiB", "PiB"), ("B ", "KB", "MB", "GB", "TB", "PB")

# A metric's large and small pool: current, peak, allocated and freed of each.
Pools = tuple[tuple[int, int, int, int], tuple[int, int, int, int]]
QUIET: Pools = ((3 * GIB, 5 * GIB, 40 * GIB, 37 * GIB), (40 * MIB, 60 * MIB, 900 * MIB, 860 * MIB))


def cell(value: int, first: int, units: tuple[str, ...], limit: int, base: int) -> str:
    """Return a cell as PyTorch prints it: the unit follows the metric's first row, the value is rounded down."""
    power = 0
    while first >= limit and power < len(units) - 1:
        first, value, power = first // base, value // base, power + 1
    return f"{value:{6 if len(units[0]) == 3 else 7}d} {units[power]}"


def summary(
    metrics: dict[str, Pools],
    *,
    device: int = 0,
    units: tuple[str, ...] = BINARY,
    abbreviated: bool = False,
    ooms: int = 0,
) -> str:
    """Return the text of ``torch.cuda.memory_summary()``, by its own template."""
    lines = ["=" * 75, f" {'':16} PyTorch CUDA memory summary, device ID {device:<17d} ", "-" * 75]
    lines += [f"  {'':9} CUDA OOMs: {ooms:<12d} | {'':6} cudaMalloc retries: {ooms:<8d}  ", "=" * 75]
    lines += ["        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  "]
    for name, pools in metrics.items():
        lines.append("-" * 75)
        whole = [large + small for large, small in zip(*pools, strict=True)]
        rows = [(name, whole)]
        if not abbreviated and not name.startswith("Oversize"):
            rows += [("      from large pool", list(pools[0])), ("      from small pool", list(pools[1]))]
        for label, row in rows:
            formats = (units, 768 * 1024, 1024) if name.endswith("memory") else ((" ", "K", "M"), 750 * 1000, 1000)
            cells = [cell(value, first, *formats) for value, first in zip(row, whole, strict=True)]
            end = "" if name.endswith("memory") else " "
            lines.append(f" {label:<21} | " + " | ".join(text + end for text in cells) + " ")
    return "|" + "|\n|".join([*lines, "=" * 75]) + "|\n"


def everything(pools: Pools = QUIET) -> dict[str, Pools]:
    few: Pools = ((3, 5, 40, 37), (4, 6, 900, 896))
    return dict.fromkeys(SIZES, pools) | dict.fromkeys((*COUNTS, *OVERSIZE), few)


def only(tables: list[SummaryTable]) -> SummaryTable:
    (table,) = tables
    return table


def figures(most: int) -> st.SearchStrategy[tuple[int, int, int, int]]:
    """Return a pool's current, peak, allocated and freed, of any magnitude up to ``most``."""
    number = st.one_of(st.integers(0, 2048), st.integers(0, most))
    return st.tuples(number, number, number).map(
        lambda drawn: (drawn[0], sum(drawn[:2]), drawn[0] + drawn[2], drawn[2])
    )


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not here")
def test_every_shared_case_reads_as_its_tables_and_fakes_are_refused() -> None:
    wrong = []
    for file in sorted(CASES.glob("*.txt")):
        wanted = json.loads(file.with_suffix(".json").read_text())
        try:
            found = [table.to_json() for table in read_summaries(file.read_text(encoding="utf-8"))]
        except BadInputError:
            if wanted["real"]:
                wrong.append(file.name)
            continue
        for table in found:
            del table["tolerances"]
        if found != wanted["tables"]:
            wrong.append(file.name)
    assert wrong == []


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_table_reads_back_within_its_tolerance(data: st.DataObject) -> None:
    # GIVEN any figures whose peaks are at least the current ones and not above the pools' peaks together, printed by any
    # release, pasted with any prefix
    units = data.draw(st.sampled_from((BINARY, OLD)))
    names = [name for name in (*SIZES, *COUNTS) if units is BINARY or name != "Requested memory"]
    metrics: dict[str, Pools] = {
        name: data.draw(st.tuples(*(figures(1 << (48 if name in SIZES else 35)),) * 2), name) for name in names
    }
    prefix = data.draw(
        st.sampled_from(("", "# ", "> ", "[rank1]: ", "ERROR 04-01 23:46:56 [engine.py:160] ", "Memory: "))
    )
    text = summary(metrics, units=units, device=data.draw(st.integers(0, 15)))
    text = "\n".join(prefix + line for line in text.splitlines())

    # WHEN
    found = only(read_summaries(f"step 3\n{text}\ndone")).to_json()

    # THEN
    assert set(found["rows"]) == set(metrics)
    for name, (large, small) in metrics.items():
        whole = [one + other for one, other in zip(large, small, strict=True)]
        for pool, truth in (("all", whole), ("large", large), ("small", small)):
            read, tolerances = found["rows"][name][pool], found["tolerances"][name][pool]
            for value, tolerance, exact in zip(read, tolerances, truth, strict=True):
                assert 0 <= exact - value <= tolerance


@settings(max_examples=40, deadline=None)
@given(width=st.integers(20, 200))
def test_a_table_wrapped_by_a_narrow_terminal_reads_the_same(width: int) -> None:
    text = summary(everything())
    wrapped = "\n".join(line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width))
    assert read_summaries(wrapped) == read_summaries(text)


def test_an_abbreviated_table_has_no_pools() -> None:
    table = only(read_summaries(summary(everything(), abbreviated=True, device=3, ooms=2)))
    assert (table.device, table.ooms, table.retries) == (3, 2, 2)
    assert {tuple(pools) for pools in table.metrics.values()} == {("all",)}


def test_two_tables_of_one_device_stay_two() -> None:
    text = summary(everything())
    assert len(read_summaries(f"before\n{text}\nafter\n{text}")) == 2


@pytest.mark.parametrize("lines", range(7, 40))
def test_a_table_cut_anywhere_gives_what_is_left(lines: int) -> None:
    # GIVEN the first lines of a table, the last of them cut in the middle of its cells
    whole = only(read_summaries(summary(everything())))
    kept = summary(everything()).splitlines()[: lines + 1]
    kept[-1] = kept[-1][:45]

    # WHEN
    tables = read_summaries("\n".join(kept))

    # THEN each row that it still holds is right, and the cut one is not there
    for name, pools in only(tables).metrics.items():
        assert pools.items() <= whole.metrics[name].items()
    assert sum(len(pools) for table in tables for pools in table.metrics.values()) == sum(
        bool(re.match(r"\| *[A-Za-z-][^|]*\|[ 0-9]", line)) for line in kept[6:-1]
    )


def test_a_table_without_its_head_has_no_device() -> None:
    lines = summary(everything()).splitlines()
    table = only(read_summaries("\n".join(lines[8:])))  # from a pool's row on, whose metric is gone
    assert (table.device, table.ooms) == (None, None)
    assert next(iter(table.metrics)) == "Active memory"
    assert "ooms" not in table.to_json()


def test_a_table_of_the_asynchronous_backend_has_empty_pools() -> None:
    # GIVEN that cudaMallocAsync fills in the first row's current and peak only
    text = summary({"Allocated memory": ((5 * GIB, 6 * GIB, 0, 0), (0, 0, 0, 0))}).replace("5120 MiB", "   0 MiB", 2)
    text = re.sub(r"(from large pool.*?)6144 MiB", r"\1   0 MiB", text).replace("   0 MiB", "5120 MiB", 1)

    # THEN
    rows = only(read_summaries(text)).metrics["Allocated memory"]
    assert rows["all"][0] == Cell(5120, MIB, "mib")
    assert rows["large"][0].value == rows["small"][0].value == 0


def test_a_table_of_an_npu_is_read_too() -> None:
    text = summary(everything()).replace("CUDA", "NPU").replace("GPU", "NPU").replace("cudaMalloc", "npuMalloc")
    table = only(read_summaries(text))
    assert "NPU reserved memory" in table.metrics
    assert table.ooms == 0


def test_log_lines_between_the_rows_do_no_harm() -> None:
    lines = summary(everything()).splitlines()
    lines[9:9] = ["INFO step 3, loss 0.25", "epoch 1:  50%|#####     | 5/10 [00:10<00:10, 1.2it/s]"]
    assert read_summaries("\n".join(lines)) == read_summaries(summary(everything()))


def changed(old: str, new: str) -> str:
    text = summary(everything())
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed("| Active memory         |", "| Cached memory         |"), 'a row "cachedmemory"'),
        (summary(everything()).replace("|====", "| Fragmentation | 12 | 14 | 15 | 16 |\n|====", 3), "fragmentation"),
        (summary(everything()) .rstrip() + "\n| Largest free block | 10 MB | 20 MB | |", "largestfreeblock"),
        (changed("3112 MiB", "   3 GiB"), "3 gib"),
        (changed("3112 MiB", "9112 MiB"), "do not add up"),
        (changed("3112 MiB", "3112 MB "), "two releases"),
        (changed("5180 MiB", "5100 MiB"), "do not add up"),
        (summary({"Oversize allocations": ((12, 5, 40, 28), (0, 0, 0, 0))}), "above its own peak"),
        (changed("    7    |      11    ", "  7 MiB  |      11    "), "7 mib"),
        (re.sub(r"\|       from small pool.*\n", "", summary(everything()), count=1), "small pool"),
        (re.sub(r"(\|       from small pool.*\n)", r"\1\1", summary(everything()), count=1), "two rows"),
        (summary({}).replace("|====", "| Allocated memory | 3.5 GB | 4.5 GB | 9.0 GB | 1.0 GB |\n|====", 3), "allocatedmemory"),
        (summary({}).replace("|====", "| Allocated memory | 3072 MB | |\n|====", 3), "allocatedmemory"),
    ],
)  # fmt: skip
def test_what_pytorch_cannot_have_printed_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadInputError, match=re.escape(why)) as refused:
        read_summaries(text)
    assert "\n" not in str(refused.value)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(summary(everything()).split(" "))), max_size=60))
def test_any_text_is_read_or_refused(parts: list[str]) -> None:
    try:
        tables = read_summaries(" ".join(parts))
    except BadInputError:
        return
    assert all(describe_table(table) for table in tables)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["| Allocated memory | 1 B | 1 B ", "gpu reserved ", "|a", "1", "ooms:0|", "|\n"])
def test_a_megabyte_of_anything_ends_soon(piece: str) -> None:
    assert read_summaries(piece * (MIB // len(piece))) == []


def test_a_reading_shows_sizes_and_errors() -> None:
    lines = describe_table(only(read_summaries(summary(everything(), device=1, ooms=4))))
    assert lines[0].startswith("Memory summary of device 1 ")
    assert "3.04 GiB now" in lines[1]
    assert lines[-1].startswith("  out-of-memory errors 4, ")


def test_old_units_are_powers_of_1024() -> None:
    pools: Pools = ((900 * KIB, 900 * KIB, 900 * KIB, 0), (0, 0, 0, 0))
    table = only(read_summaries(summary({"Allocated memory": pools}, units=OLD)))
    assert table.to_json()["rows"]["Allocated memory"]["all"] == [900 * KIB, 900 * KIB, 900 * KIB, 0]
    assert table.to_json()["tolerances"]["Allocated memory"]["all"] == [1023, 1023, 1023, 0]
