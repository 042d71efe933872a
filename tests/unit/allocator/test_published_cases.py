"""Fragmentation that people reported, with the totals they published."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from vramscope.allocator import Allocator, OutOfMemory, parse_alloc_conf
from vramscope.units import GIB, MIB

CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "fragmentation"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the published cases are not beside the checkout")


def case(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text())
    return found


def run(allocator: Allocator, operations: list[list[Any]], live: dict[str, int]) -> None:
    """Run ["alloc", name, MiB] and ["free", name]; ``live`` has what is allocated, by name."""
    for action, name, *size_mib in operations:
        if action == "alloc":
            live[name] = allocator.malloc(int(size_mib[0] * MIB))
        else:
            allocator.free(live.pop(name))


def totals_mib(allocator: Allocator) -> dict[str, float]:
    stats = allocator.memory_stats()
    return {name: stats[f"{name}_bytes"]["all"]["current"] / MIB for name in ("allocated", "reserved")}


@pytest.mark.parametrize("conf", ["both", "max_split_size_mb:128", "expandable_segments:True", ""])
def test_max_split_size_with_expandable_segments_grows_without_end(conf: str) -> None:
    # GIVEN pytorch#193400: in each cycle two blocks are freed and a small one between them stays
    facts = case("01-maxsplit-plus-expandable-growth")
    both = conf == "both"
    allocator = Allocator(16_304 * MIB, parse_alloc_conf(facts["config"] if both else conf))
    live: dict[str, int] = {}
    run(allocator, facts["ops_mib"]["initial"], live)
    for cycle in range(facts["ops_mib"]["cycles"]):
        run(allocator, facts["ops_mib"]["cycle"], live)
        # THEN with both options the published totals come out in every cycle that was published
        if both and str(cycle) in facts["expect_mib"]:
            assert totals_mib(allocator) == facts["expect_mib"][str(cycle)]
    # THEN with one of them, or none, reserved stays below 500 MiB
    assert both or totals_mib(allocator)["reserved"] < 500


def test_an_expandable_block_is_not_freed_as_if_cuda_had_allocated_it() -> None:
    # GIVEN pytorch#123548: a large block freed, then smaller ones kept until the device is full
    facts = case("02-maxsplit-plus-expandable-release")
    allocator = Allocator(16 * GIB, parse_alloc_conf(facts["config"]))
    [(_, _, first), _, (_, kept, times)] = facts["ops_bytes"]
    allocator.free(allocator.malloc(first))
    # WHEN it is full
    with pytest.raises(OutOfMemory):
        deque((allocator.malloc(kept) for _ in range(times)), maxlen=0)
    # THEN that was an ordinary out-of-memory error
    allocator.validate()


@pytest.mark.parametrize(("conf", "expected"), [("", "default"), ("max_split_size_mb:20", "max_split_20")])
def test_a_270_mib_weight_pins_a_530_mib_segment(conf: str, expected: str) -> None:
    # GIVEN vllm#41268: for each layer 530 MiB are freed and 270 MiB kept
    facts = case("04-530-270-split")
    allocator = Allocator(80 * GIB, parse_alloc_conf(conf))
    for layer in range(facts["ops_mib"]["cycles"]):
        live: dict[str, int] = {}
        run(allocator, [[*op[:1], f"{op[1]}{layer}", *op[2:]] for op in facts["ops_mib"]["cycle"]], live)
    # THEN the totals are those derived from the report
    assert totals_mib(allocator) == facts["derived_expect_mib"][expected]
