"""Random programs for an allocator, and how the simulated one runs them: shared by the golden and the differential tests."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from vramscope.allocator import Allocator, OutOfMemory, PoolId, Settings, TraceEntry
from vramscope.units import GIB, KIB, MIB

CAPACITY_BYTES = 4 * GIB

# An operation is a list, as JSON gives it back: ["malloc", name, bytes, stream], ["free", name], ["record_stream", name, stream],
# ["busy", flag] (while set, other streams do not get on), ["empty_cache"], ["begin_pool", pool], ["end_pool"],
# ["drop_pool", pool], ["check"]. Streams and pools are indices.
Operation = list[Any]
_SIZES = (
    300,
    600,
    5 * KIB,
    200 * KIB,
    900 * KIB,
    MIB,
    MIB + 1,
    3 * MIB,
    9 * MIB,
    11 * MIB,
    33 * MIB,
    150 * MIB,
    420 * MIB,
)


def random_program(seed: int, operations: int, *, streams: int = 3, pools: int = 0) -> list[Operation]:
    """Return a program that fills a device of CAPACITY_BYTES again and again, with a check every 25 operations."""
    draw = random.Random(seed)
    program: list[Operation] = []
    live: list[int] = []
    diverted = False
    for name in range(operations):
        roll = draw.random()
        if roll < 0.52 or not live:
            size = max(1, int(draw.choice(_SIZES) * draw.choice((1, 1, draw.uniform(0.5, 1.6)))))
            program.append(["malloc", name, size, draw.choice((0, 0, 0, *range(1, streams)))])
            live.append(name)
        elif roll < 0.94:
            gone = live.pop(draw.randrange(len(live)))
            if draw.random() < 0.15:
                program += [["record_stream", gone, stream] for stream in draw.sample(range(streams), 2)]
            program.append(["free", gone])
        elif roll < 0.97:
            program.append(["busy", draw.random() < 0.5])
        elif pools and roll < 0.985:
            program.append(["end_pool"] if diverted else ["begin_pool", draw.randrange(pools)])
            diverted = not diverted
        else:
            program.append(["empty_cache"] if draw.random() < 0.4 else ["check"])
        if name % 25 == 24:
            program.append(["check"])
    program += [["end_pool"]] if diverted else []
    # One only: PyTorch releases several freeable pools in the order of a hash table.
    program += [["drop_pool", 0], ["check"]] if pools else []
    program += [["free", name] for name in live[::2]]
    return [*program, ["empty_cache"], ["check"], *(["free", name] for name in live[1::2]), ["empty_cache"], ["check"]]


class Simulation:
    """The simulated allocator as a program sees it: each method is an operation. Other streams get on unless ``busy``."""

    def __init__(self, settings: Settings, *, streams: Sequence[int], pools: Sequence[PoolId] = ()) -> None:
        self.events: list[TraceEntry] = []
        self.allocator = Allocator(CAPACITY_BYTES, settings, clock=lambda: 0, on_event=self.events.append)
        self.streams, self.pools = streams, pools
        for pool in pools:
            self.allocator.hold_pool(pool)
        self.addresses: dict[int, int] = {}
        self.results: list[int | str] = []
        self.checks: list[dict[str, Any]] = []
        self.is_busy = False

    def malloc(self, name: int, size: int, stream: int) -> None:
        if not self.is_busy:
            self.allocator.complete_events()
        try:
            self.addresses[name] = self.allocator.malloc(size, self.streams[stream])
            self.results.append(self.addresses[name])
        except OutOfMemory as error:
            self.results.append(str(error))

    def free(self, name: int) -> None:
        if name in self.addresses:
            self.allocator.free(self.addresses.pop(name))

    def record_stream(self, name: int, stream: int) -> None:
        if name in self.addresses:
            self.allocator.record_stream(self.addresses[name], self.streams[stream])

    def busy(self, flag: bool) -> None:
        self.is_busy = flag

    def empty_cache(self) -> None:
        self.allocator.empty_cache()

    def begin_pool(self, pool: int) -> None:
        self.allocator.begin_pool(self.pools[pool])

    def end_pool(self) -> None:
        self.allocator.end_pool()

    def drop_pool(self, pool: int) -> None:
        self.allocator.release_pool(self.pools[pool])
        self.allocator.empty_cache(self.pools[pool])

    def check(self) -> None:
        stats = comparable_stats(self.allocator.memory_stats())
        self.checks.append({"segments": compact(self.allocator.segments()), "stats": copy.deepcopy(stats)})

    def answer(self) -> dict[str, Any]:
        events = comparable_events([event[:4] for event in self.events])
        return {"results": self.results, "checks": self.checks, "events": events}


def simulate(
    program: Sequence[Operation], settings: Settings, *, streams: Sequence[int], pools: Sequence[PoolId] = ()
) -> dict[str, Any]:
    """Run a program on the simulated allocator, its invariants checked after each operation.

    ``streams`` and ``pools`` are what the program's indices stand for. Returns {"results": for each malloc its address or the
    error's text; "checks": [{"segments", "stats"}]; "events"}.
    """
    simulation = Simulation(settings, streams=streams, pools=pools)
    for action, *arguments in program:
        getattr(simulation, action)(*arguments)
        simulation.allocator.validate()
    return simulation.answer()


def compact(segments: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Return segments and blocks without keys and frames; a free block's stale request is left out."""
    return [
        [
            *(segment[key] for key in ("address", "total_size", "active_size", "requested_size", "stream")),
            segment["segment_type"],
            list(segment["segment_pool_id"]),
            segment["is_expandable"],
            [
                [b["address"], b["size"], b["state"], b["requested_size"] if b["state"] != "inactive" else None]
                for b in segment["blocks"]
            ],
        ]
        for segment in segments
    ]


def comparable_events(events: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Return [action, address, bytes, stream] of each event, runs of free_completed sorted.

    PyTorch walks the streams of pending frees in the order of a hash table, so the order inside such a run means nothing.
    """
    result: list[list[Any]] = []
    run: list[list[Any]] = []
    for event in map(list, events):
        if event[0] == "free_completed":
            run.append(event)
            continue
        result += [*sorted(run), event]
        run = []
    return result + sorted(run)


def driver_events(events: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return what was asked of the driver and refused: a program and its results already tell of each block's events."""
    return [event for event in events if event[0].startswith("segment_") or event[0] == "oom"]


def comparable_stats(stats: dict[str, Any]) -> dict[str, Any]:
    """Return statistics as JSON can hold them."""
    by_pool = {str(pool): counter for pool, counter in stats["reserved_bytes_by_private_pools"].items()}
    return {**stats, "reserved_bytes_by_private_pools": by_pool}


def certain(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer less the peaks and sums that depend on the order in which PyTorch walks the streams of pending frees.

    Of two neighbours freed in one such walk the second one merges, so the way to the same inactive split bytes differs.
    """
    result = copy.deepcopy(answer)
    for check in result["checks"]:
        for name in ("inactive_split", "inactive_split_bytes"):
            check["stats"][name] = {pool: counter["current"] for pool, counter in check["stats"][name].items()}
    return result


def without_other_streams(program: Sequence[Operation]) -> list[Operation]:
    """Return a program in which no free waits for another stream, so that every figure is certain."""
    return [operation for operation in program if operation[0] != "record_stream"]
