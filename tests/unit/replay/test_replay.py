"""A replay under the recorded settings is the recording again, and under others what the allocator does when it is asked directly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.allocator_traces import CAPACITY_BYTES, Operation, random_program
from tests.unit.compare.jobs import traced
from tests.unit.replay.programs import fragmented
from tests.unit.trace.jobs import job
from vramscope.allocator import Allocator, Settings, parse_alloc_conf
from vramscope.errors import BadInputError
from vramscope.replay.fidelity import Comparison, Fidelity
from vramscope.replay.operations import DROP_POOL, EMPTY_CACHE, FAILED, FREE, RELEASE, REQUEST, operations_of
from vramscope.replay.recording import Recording, recording_of
from vramscope.replay.run import Replay, replay
from vramscope.trace.columns import TracedSnapshot
from vramscope.trace.opening import open_traced
from vramscope.units import GIB, MIB

CASES = Path(__file__).parents[3].parent / "shared" / "cases" / "snapshots"
CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:64,expandable_segments:True",
    "roundup_power2_divisions:4",
)
FULL = Fidelity(addresses=1.0, segments=1.0, peak=1.0, first_difference=None)


def recorded(content: dict[str, Any]) -> tuple[TracedSnapshot, Recording]:
    found = traced(content)
    return found, recording_of(found.snapshot, found.traces[0])


def again(content: dict[str, Any], capacity_bytes: int) -> tuple[Replay, Fidelity]:
    """Replay under the recorded settings."""
    found, recording = recorded(content)
    comparison = Comparison(recording, found.traces[0])
    result = replay(recording, recording.settings, capacity_bytes, comparison)
    return result, comparison.result(result)


def program(seed: int, *, pools: int = 0) -> list[Operation]:
    """Return a program in which no free waits for another stream: what a retry then waits for is in no trace."""
    operations = random_program(seed, 500, pools=pools)
    return [operation for operation in operations if operation[0] not in ("record_stream", "busy")]


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("seed", range(4))
def test_a_whole_trace_is_replayed_to_the_byte(conf: str, seed: int) -> None:
    # GIVEN a job that ran out of memory again and again
    done = job(program(seed), parse_alloc_conf(conf))
    result, fidelity = again(done.content, CAPACITY_BYTES)
    # THEN every address, segment and counter is that of the job
    assert fidelity == FULL
    stats = list(done.stats.values())[-1]
    assert result.peak_reserved_bytes == stats["reserved_bytes"]["all"]["peak"]
    assert result.peak_active_bytes == stats["active_bytes"]["all"]["peak"]
    assert (result.retries, result.device_mallocs) == (stats["num_alloc_retries"], stats["num_device_alloc"])
    assert (result.oom is not None) == (stats["num_ooms"] > 0)
    assert result.ran_through


@pytest.mark.parametrize("seed", range(3))
def test_private_pools_are_replayed_too(seed: int) -> None:
    done = job(program(seed, pools=2), Settings(), pools=[{}, {}])
    _, fidelity = again(done.content, CAPACITY_BYTES)
    assert fidelity == FULL


def test_a_ring_that_begins_in_mid_run_is_continued_from_what_lay_there() -> None:
    # GIVEN blocks of certain sizes from before the ring: small ones, and large ones that fill their segments
    allocator = Allocator(GIB, trace_max_entries=12)
    before = [allocator.malloc(size) for size in (30 * MIB, 700, 40 * MIB, 900, 512)]
    allocator.free(before[0])
    later = [allocator.malloc(size) for size in (10 * MIB, 500, 8 * MIB, 50 * MIB)]
    for address in (before[1], before[2], later[0]):
        allocator.free(address)
    allocator.malloc(33 * MIB)
    result, fidelity = again(allocator.snapshot(), GIB)
    # THEN it goes on in them
    assert fidelity.is_full
    assert fidelity.addresses == 1.0
    assert result.reserved_bytes[-1] == allocator.reserved_bytes


@pytest.mark.parametrize("last", [5, 50, 300])
def test_any_end_of_a_trace_can_be_replayed(last: int) -> None:
    # GIVEN a ring that kept few events, so that some sizes are not certain
    content = job(program(1), Settings()).kept(last)
    found, recording = recorded(content)
    result = replay(recording, recording.settings, CAPACITY_BYTES)
    # THEN it begins with what was reserved then, and what is not certain is said
    reserved = found.traces[0].reserved_bytes
    assert reserved is not None
    assert result.reserved_bytes[0] == reserved[0] > 0
    assert result.ran_through
    assert any("not certain" in line for line in recording.doubts) == (not found.traces[0].active_is_exact)


@pytest.mark.parametrize("conf", CONFS)
def test_other_settings_give_what_the_allocator_gives_when_it_is_asked_directly(conf: str) -> None:
    # GIVEN a job under the default settings
    requests = [3 * MIB, 900, 19 * MIB, 64 * MIB, 2 * MIB, 70 * MIB, 5 * MIB]
    order = [0, 3, 1, 5, 2, 4, 6]

    def run(allocator: Allocator) -> Allocator:
        addresses = [allocator.malloc(size) for size in requests]
        for name in order[:5]:
            allocator.free(addresses[name])
        addresses += [allocator.malloc(size) for size in reversed(requests)]
        allocator.free(addresses[order[5]])
        return allocator

    _, recording = recorded(run(Allocator(GIB)).snapshot())
    # WHEN it is replayed under others
    found = replay(recording, parse_alloc_conf(conf), GIB)
    # THEN its figures are those of the same requests made directly
    direct = run(Allocator(GIB, parse_alloc_conf(conf)))
    stats = direct.memory_stats()
    assert found.peak_reserved_bytes == stats["reserved_bytes"]["all"]["peak"]
    assert found.peak_active_bytes == stats["active_bytes"]["all"]["peak"]
    assert found.device_mallocs == stats["num_device_alloc"]
    assert found.reserved_bytes[-1] == direct.reserved_bytes


def test_a_request_that_failed_is_served_under_settings_that_leave_no_holes() -> None:
    # GIVEN 60 MiB in three holes, 100 MiB that the driver has, and a request of 120 MiB that failed
    _, recording = recorded(fragmented().snapshot())
    assert recording.room_bytes == 200 * MIB
    failed = replay(recording, recording.settings, 200 * MIB)
    assert failed.oom is not None
    assert (failed.oom.size_bytes, failed.oom.device_free_bytes, failed.ran_through) == (120 * MIB, 100 * MIB, True)
    assert (failed.retries, failed.stranded_at_peak_bytes) == (1, 0)
    served = replay(recording, parse_alloc_conf("expandable_segments:True"), 200 * MIB)
    assert (served.oom, served.retries) == (None, 0)
    assert (served.peak_reserved_bytes, served.stranded_at_peak_bytes) == (200 * MIB, 40 * MIB)


def test_a_request_that_was_served_and_now_fails_ends_the_replay() -> None:
    allocator = Allocator(GIB)
    for size_bytes in (100 * MIB, 200 * MIB, 50 * MIB):
        allocator.malloc(size_bytes)
    _, recording = recorded(allocator.snapshot())
    found = replay(recording, recording.settings, 250 * MIB)
    assert (found.oom is not None, found.ran_through) == (True, False)
    assert found.oom is not None
    assert found.oom.size_bytes == 200 * MIB
    assert found.peak_reserved_bytes == 100 * MIB


def test_the_state_before_the_trace_has_to_fit_on_the_card() -> None:
    allocator = Allocator(GIB, trace_max_entries=2)
    for _ in range(4):
        allocator.malloc(100 * MIB)
    _, recording = recorded(allocator.snapshot())
    with pytest.raises(BadInputError, match=r"more than a card of 150\.0 MiB"):
        replay(recording, recording.settings, 150 * MIB)


def kinds(allocator: Allocator) -> list[int]:
    found: list[int] = operations_of(traced(allocator.snapshot()).traces[0]).kind.tolist()
    return found


def test_a_call_of_empty_cache_is_told_from_what_a_request_releases() -> None:
    # GIVEN cached memory that goes back to the driver with no request for memory behind it
    allocator = Allocator(GIB)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.empty_cache()
    assert kinds(allocator) == [REQUEST, FREE, EMPTY_CACHE]
    # WHEN a request for memory comes behind it, it may have been for that
    allocator.malloc(MIB)
    assert kinds(allocator) == [REQUEST, FREE, RELEASE, REQUEST]
    # THEN the replay sees that the allocator had no reason to
    _, recording = recorded(allocator.snapshot())
    assert len(replay(recording, recording.settings, GIB).own_releases) == 0
    # WHEN the card was full, it had
    allocator = fragmented(110 * MIB)
    _, recording = recorded(allocator.snapshot())
    assert recording.operations.kind.tolist().count(FAILED) == 1
    full = Allocator(50 * MIB)
    full.free(full.malloc(30 * MIB))
    full.malloc(40 * MIB)
    _, recording = recorded(full.snapshot())
    assert kinds(full) == [REQUEST, FREE, RELEASE, REQUEST]
    found = replay(recording, recording.settings, 50 * MIB)
    assert (found.own_releases.tolist(), found.retries) == ([2], 1)
    # THEN other settings are not told to release there, but where the program asked for it
    assert recording.operations.settled(found.own_releases).kind.tolist() == [REQUEST, FREE, REQUEST]
    assert recording.operations.settled(np.zeros(0, np.int64)).kind.tolist() == [REQUEST, FREE, EMPTY_CACHE, REQUEST]


def test_a_private_pool_that_goes_away_is_seen() -> None:
    allocator = Allocator(GIB)
    allocator.hold_pool((0, 1))
    allocator.begin_pool((0, 1))
    allocator.free(allocator.malloc(30 * MIB))
    allocator.end_pool()
    allocator.release_pool((0, 1))
    allocator.empty_cache((0, 1))
    assert kinds(allocator) == [REQUEST, FREE, DROP_POOL]
    _, fidelity = again(allocator.snapshot(), GIB)
    assert fidelity == FULL


def test_frees_that_wait_come_back_when_they_did() -> None:
    # GIVEN a block that another stream still uses when it is freed
    allocator = Allocator(GIB)
    address = allocator.malloc(30 * MIB)
    allocator.record_stream(address, 5)
    allocator.free(address)
    allocator.malloc(25 * MIB)
    allocator.complete_events()
    allocator.malloc(27 * MIB)
    _, fidelity = again(allocator.snapshot(), GIB)
    # THEN its memory serves only what came after
    assert fidelity == FULL
    _, recording = recorded(allocator.snapshot())
    assert any(line.startswith("1 frees waited for other streams") for line in recording.doubts)


def test_a_difference_is_seen_and_explained() -> None:
    # GIVEN a replay under settings that are not those of the job
    done = job(program(1), Settings())
    found, recording = recorded(done.content)
    comparison = Comparison(recording, found.traces[0])
    result = replay(recording, parse_alloc_conf("expandable_segments:True"), CAPACITY_BYTES, comparison)
    fidelity = comparison.result(result)
    assert fidelity.addresses is not None
    assert fidelity.segments is not None
    assert fidelity.addresses < 0.5
    assert fidelity.segments < 0.1
    assert any("lies elsewhere is at event 1" in line for line in fidelity.explained(recording, result))


def test_a_long_line_of_reserved_bytes_keeps_its_extremes() -> None:
    done = job(random_program(3, 5000), Settings())
    result, _ = again(done.content, CAPACITY_BYTES)
    assert len(result.reserved_bytes) == 2000
    assert result.reserved_bytes.max() == result.peak_reserved_bytes
    assert np.all(np.diff(result.reserved_event) >= 0)


def test_without_a_trace_there_is_nothing_to_replay() -> None:
    with pytest.raises(BadInputError, match="no allocations were recorded"):
        recorded(Allocator(GIB, trace_max_entries=0).snapshot())


@pytest.mark.skipif(not CASES.is_dir(), reason="the published cases are not beside the checkout")
@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("01-three-gpus-expandable-oom-on-device-1.pickle", 1.0),
        ("10-1722-segments-trace-starts-mid-run.pickle", 1.0),
        ("11-torch-2.10-inference.pickle", 1.0),
        ("18-torch-2.10-216-segments.pickle", 1.0),
        # Here the driver's addresses decide, which are not simulated.
        ("06-ten-streams-no-time.pickle", 0.42),
        ("14-train-3797-events.pickle", 0.75),
        ("15-segment-free-in-trace.pickle", 0.48),
    ],
)
def test_published_snapshots_are_replayed(name: str, addresses: float) -> None:
    found = open_traced(CASES / name)
    for trace in filter(lambda trace: trace.event_count, found.traces):
        recording = recording_of(found.snapshot, trace)
        comparison = Comparison(recording, trace)
        result = replay(recording, recording.settings, recording.room_bytes or recording.ample_bytes, comparison)
        fidelity = comparison.result(result)
        assert fidelity.peak == 1.0
        assert fidelity.addresses is not None
        assert fidelity.addresses >= addresses
        assert bool(fidelity.explained(recording, result)) == (not fidelity.is_full)
