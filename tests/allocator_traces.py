"""Random programs for an allocator, and how the simulated one runs them: shared by the golden and the differential tests."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from vramscope.allocator import Allocator, OutOfMemory, PoolId, Settings, TraceEntry
from vramscope.units import GIB, KIB, MIB

CAPACITY_BYTES = 4 * GIB

# An operation is a list, as JSON gives it back: ["malloc", name, bytes, stream], ["free", name], ["record_stream", name, stream],
# ["busy", flag] (while set, other streams do not get on), ["empty_cache"], ["begin_pool", pool], ["end_pool"],
# ["drop_pool", pool], ["begin_capture", graph, graph whose pool it shares or None], ["end_capture"], ["drop_graph", graph],
# ["aside", flag] (while set, a capture's stream is not current for frees and the like), ["check"].
# Streams, pools and graphs are indices; the last stream is the one that is captured.
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


def random_program(
    seed: int, operations: int, *, streams: int = 3, pools: int = 0, captures: bool = False
) -> list[Operation]:
    """Return a program that fills a device of CAPACITY_BYTES again and again, with a check every 25 operations.

    With ``captures`` graphs are captured on stream ``streams``, one after the other.
    """
    draw = random.Random(seed)
    program: list[Operation] = []
    live: list[int] = []
    scopes = _Scopes(draw, streams, pools, captures)
    for name in range(operations):
        roll = draw.random()
        if roll < 0.52 or not live:
            size = max(1, int(draw.choice(_SIZES) * draw.choice((1, 1, draw.uniform(0.5, 1.6)))))
            program.append(["malloc", name, size, scopes.stream()])
            live.append(name)
        elif roll < 0.94:
            gone = live.pop(draw.randrange(len(live)))
            if draw.random() < 0.15:
                program += [["record_stream", gone, stream] for stream in draw.sample(range(streams), 2)]
            program.append(["free", gone])
        elif roll < 0.97:
            program.append(["busy", draw.random() < 0.5])
        elif roll < 0.985 and (pools or captures):
            program += scopes.change()
        else:
            program.append(["empty_cache"] if draw.random() < 0.4 else ["check"])
        if name % 25 == 24:
            program.append(["check"])
    program += scopes.close()
    program += [["free", name] for name in live[::2]]
    return [*program, ["empty_cache"], ["check"], *(["free", name] for name in live[1::2]), ["empty_cache"], ["check"]]


class _Scopes:
    """The pools that a program has diverted its requests to, and its captures; each ends before what began earlier does."""

    def __init__(self, draw: random.Random, streams: int, pools: int, captures: bool) -> None:
        self._draw, self._streams, self._pools, self._captures = draw, streams, pools, captures
        self._open: list[str] = []
        self._graphs = 0
        self._kept: list[int] = []

    def stream(self) -> int:
        """Return the stream of the next request: the captured one in most of a capture, else mostly the default one."""
        if "end_capture" in self._open and self._draw.random() < 0.7:
            return self._streams
        stream: int = self._draw.choice((0, 0, 0, *range(1, self._streams)))
        return stream

    def change(self) -> list[Operation]:
        """Return operations that end what was begun last, or begin something, or drop a graph."""
        if "end_capture" in self._open and self._draw.random() < 0.4:
            return [["aside", self._draw.random() < 0.5]]
        if self._open and (len(self._open) > 1 or self._draw.random() < 0.7):
            return [[self._open.pop()]]
        if self._captures and "end_capture" not in self._open and (not self._pools or self._draw.random() < 0.6):
            return self._begin_capture()
        if not self._pools or "end_pool" in self._open:
            return []
        self._open.append("end_pool")
        return [["begin_pool", self._draw.randrange(self._pools)]]

    def close(self) -> list[Operation]:
        """Return operations that end everything, and drop a pool."""
        ends: list[Operation] = [[end] for end in reversed(self._open)]
        drops: list[Operation] = [["drop_graph", graph] for graph in self._kept]
        if self._pools:
            drops += [["drop_pool", 0], ["check"]]
        return ends + drops

    def _begin_capture(self) -> list[Operation]:
        shared = self._draw.choice([None, *self._kept])
        gone = [graph for graph in self._kept if graph != shared and self._draw.random() < 0.5]
        self._kept = [graph for graph in self._kept if graph not in gone] + [self._graphs]
        self._graphs += 1
        self._open.append("end_capture")
        program: list[Operation] = [["drop_graph", graph] for graph in gone]
        program.append(["begin_capture", self._graphs - 1, shared])
        return program


class Simulation:
    """The simulated allocator as a program sees it: each method is an operation. Other streams get on unless ``busy``.

    ``streams``, ``pools`` and ``graph_pools`` are what the program's indices stand for; ``pool_options`` are hold_pool's.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        streams: Sequence[int],
        pools: Sequence[PoolId] = (),
        pool_options: Sequence[Mapping[str, bool]] = (),
        graph_pools: Sequence[PoolId] = (),
    ) -> None:
        self.events: list[TraceEntry] = []
        self.allocator = Allocator(CAPACITY_BYTES, settings, clock=lambda: 0, on_event=self.events.append)
        self.streams, self.pools, self.graph_pools = streams, pools, graph_pools
        for pool, options in zip(pools, pool_options or [{}] * len(pools), strict=True):
            self.allocator.hold_pool(pool, **options)
        self.addresses: dict[int, int] = {}
        self.results: list[int | str] = []
        self.checks: list[dict[str, Any]] = []
        self.is_busy = self.is_capturing = False

    def malloc(self, name: int, size: int, stream: int) -> None:
        # Torch asks an event when it polls, which it does not for the stream of a capture.
        if not self.is_busy and not (self.is_capturing and stream == len(self.streams) - 1):
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

    def begin_capture(self, graph: int, shared: int | None) -> None:
        assert shared is None or self.graph_pools[graph] == self.graph_pools[shared]
        self.allocator.begin_capture(self.graph_pools[graph], [self.streams[-1]])
        self.is_capturing = True

    def end_capture(self) -> None:
        self.allocator.end_capture()
        self.is_capturing = False

    def aside(self, flag: bool) -> None:
        self.allocator.use_stream(self.streams[0] if flag else None)

    def drop_graph(self, graph: int) -> None:
        self.allocator.release_pool(self.graph_pools[graph])

    def check(self) -> None:
        stats = comparable_stats(self.allocator.memory_stats())
        self.checks.append({"segments": compact(self.allocator.segments()), "stats": copy.deepcopy(stats)})

    def answer(self) -> dict[str, Any]:
        events = comparable_events([[*event[:4], list(event.pool_id)] for event in self.events])
        return {"results": self.results, "checks": self.checks, "events": events}


def simulate(
    program: Sequence[Operation],
    settings: Settings,
    *,
    streams: Sequence[int],
    pools: Sequence[PoolId] = (),
    pool_options: Sequence[Mapping[str, bool]] = (),
    graph_pools: Sequence[PoolId] = (),
    validated: str = "",
) -> dict[str, Any]:
    """Run a program on the simulated allocator, its invariants checked after each operation, or after each one ``validated``.

    The other arguments are Simulation's. Returns {"results": for each malloc its address or the error's text; "checks":
    [{"segments", "stats"}]; "events"}.
    """
    simulation = Simulation(settings, streams=streams, pools=pools, pool_options=pool_options, graph_pools=graph_pools)
    for action, *arguments in program:
        getattr(simulation, action)(*arguments)
        if validated in ("", action):
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
    """Return [action, address, bytes, stream, pool] of each event, with what has no certain order sorted.

    PyTorch walks the streams of pending frees, and the private pools that it releases, in the order of a hash table: so the order
    inside a run of free_completed means nothing, nor that of the pools in a run of what the driver gets back.
    """
    result: list[list[Any]] = []
    for kind, run in groupby(map(list, events), key=lambda event: _RUNS.get(event[0], "")):
        result += sorted(run, key=_ORDER[kind])
    return result


_RUNS = {"free_completed": "completed", "segment_free": "released", "segment_unmap": "released"}
_ORDER: dict[str, Callable[[list[Any]], Any]] = {
    "completed": lambda event: event,
    "released": lambda event: event[4],
    "": lambda event: 0,
}


def driver_events(events: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return what was asked of the driver and refused: a program and its results already tell of each block's events."""
    return [event for event in events if event[0].startswith("segment_") or event[0] == "oom"]


def comparable_stats(stats: dict[str, Any]) -> dict[str, Any]:
    """Return statistics as JSON can hold them; releases before 2.13 do not count private pools apart."""
    by_pool = {str(pool): counter for pool, counter in stats.get("reserved_bytes_by_private_pools", {}).items()}
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
