"""The simulated allocator against what torch 2.14.1's own did, recorded by tests/pretend_gpu/record_allocator_traces.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.allocator_traces import certain, driver_events, simulate
from vramscope.allocator import parse_alloc_conf

RECORDED = sorted((Path(__file__).parents[2] / "data" / "allocator").glob("*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_program_goes_as_it_did_on_the_real_allocator(path: Path) -> None:
    # GIVEN a program that the real allocator has run
    recorded = json.loads(path.read_text())

    # WHEN the simulated one runs it, its invariants checked after each operation
    settings = parse_alloc_conf(recorded["alloc_conf"])
    pools, graph_pools = ([tuple(pool) for pool in recorded[key]] for key in ("pools", "graph_pools"))
    found = simulate(
        recorded["program"],
        settings,
        streams=recorded["streams"],
        pools=pools,
        pool_options=recorded["pool_options"],
        graph_pools=graph_pools,
    )

    # THEN every address, error text and segment is the same, and in the end every block and counter
    expected = {name: recorded[name] for name in ("results", "checks", "events")}
    found |= {"checks": found["checks"][-1:], "events": driver_events(found["events"])}
    assert json.loads(json.dumps(certain(found))) == certain(expected)


def test_the_recorded_programs_reach_what_they_are_for() -> None:
    recorded = {path.stem: json.loads(path.read_text()) for path in RECORDED}
    actions = {name: {event[0] for event in trace["events"]} for name, trace in recorded.items()}
    assert {"segment_alloc", "segment_free", "oom"} <= actions["default"]
    assert any(event[4] in recorded["captures"]["graph_pools"] for event in recorded["captures"]["events"])
    assert {"segment_map", "segment_unmap", "oom"} <= actions["expandable"]
    assert all(trace["checks"][-1]["stats"]["num_alloc_retries"] > 0 for trace in recorded.values())
