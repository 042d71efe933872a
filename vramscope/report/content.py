"""What a report says about one device of a snapshot, gathered before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from vramscope.agent.categories import CATEGORIES
from vramscope.columns import INACTIVE
from vramscope.compare.live_stacks import StackFacts, by_category, by_site, live_stacks
from vramscope.compare.rows import Part, merged
from vramscope.compare.side import END, OOM, PEAK, Side, device_out_of_memory, side_of, trace_of_device
from vramscope.compare.stack_names import Frame, StackNames
from vramscope.compare.totals import totals
from vramscope.trace.columns import BEFORE, TracedSnapshot
from vramscope.trace.moment import moment_at
from vramscope.trace.out_of_memory import out_of_memory

MOST_ALLOCATIONS = 25
MOST_OUT_OF_MEMORIES = 5

Shorten = Callable[[str], str]


@dataclass(frozen=True)
class Allocation:
    """A live block: where it came from and since when; ``first_event`` is None where the trace does not tell."""

    size_bytes: int
    address: int
    category: str
    site: str
    first_event: int | None
    age_us: int | None
    is_exact: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class OutOfMemory:
    """A request that failed at ``event``: in one line what the figures of that moment say."""

    event: int
    rounded_request_bytes: int
    device_free_bytes: int
    largest_hole_bytes: int | None
    verdict: str
    site: str


@dataclass(frozen=True, eq=False)
class Content:
    """Everything that a report shows; ``categories`` and ``sites`` are the live bytes by each, the largest first."""

    side: Side
    facts: StackFacts
    out_of_memories: tuple[OutOfMemory, ...]
    totals: dict[str, int | None]
    categories: tuple[Part, ...]
    sites: tuple[Part, ...]
    largest: tuple[Allocation, ...]


def content_of(
    traced: TracedSnapshot, *, name: str, device: int | None = None, at: str | None = None, shorten: Shorten = str
) -> Content:
    """Return what a report of ``name`` shows.

    Without a ``device`` it is the first that ran out of memory, else the first in use; without ``at`` the last
    out-of-memory, else the peak, else the end. ``shorten`` is applied to the file name of every frame. Raises BadInputError
    where the file does not have that device or moment.
    """
    side = _side(traced, name, device_out_of_memory(traced) if device is None else device, at)
    facts = StackFacts(side.described, StackNames(shorten=shorten))
    live = live_stacks(side, facts)
    return Content(
        side=side,
        facts=facts,
        out_of_memories=tuple(_out_of_memories(side, facts)),
        totals=totals(side),
        categories=_largest_first(merged(by_category(live)).values()),
        sites=_largest_first(merged(by_site(live)).values()),
        largest=tuple(_allocation(side, block, facts, shorten) for block in _largest_blocks(side)),
    )


def _side(traced: TracedSnapshot, name: str, device: int | None, at: str | None) -> Side:
    if at is not None:
        return side_of(traced, name=name, device=device, at=at)
    trace = trace_of_device(traced, device, name)
    if trace.tells_moments and len(trace.events.oom_event):
        return side_of(traced, name=name, device=device, at=OOM)
    return side_of(traced, name=name, device=device, at=PEAK if trace.tells_moments and trace.peak else END)


def _out_of_memories(side: Side, facts: StackFacts) -> Iterator[OutOfMemory]:
    events = side.trace.events
    for place, event in enumerate(events.oom_event.tolist()[:MOST_OUT_OF_MEMORIES]):
        found = out_of_memory(side.described, place, moment_at(side.trace, event) if side.trace.tells_moments else None)
        yield OutOfMemory(
            event=event,
            rounded_request_bytes=found["rounded_request_bytes"],
            device_free_bytes=found["device_free_bytes"],
            largest_hole_bytes=found["largest_hole_bytes"],
            verdict=found["verdict"],
            site=facts.site(int(events.stack[event])),
        )


def _largest_first(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: (-part.size_bytes, part.label)))


def _largest_blocks(side: Side) -> list[int]:
    live = np.flatnonzero(side.state.block_state != INACTIVE)
    order = np.argsort(-side.state.block_bytes[live].astype(np.float64), kind="stable")
    blocks: list[int] = live[order[:MOST_ALLOCATIONS]].tolist()
    return blocks


def _allocation(side: Side, block: int, facts: StackFacts, shorten: Shorten) -> Allocation:
    state, trace, moment = side.state, side.trace, side.moment
    stack, place = int(moment.block_stack[block]), int(moment.block_allocation[block])
    first_event = int(trace.allocations.first_event[place]) if place >= 0 else BEFORE
    times = None if first_event == BEFORE else trace.events.time_us
    frames = side.traced.snapshot.frames(stack)
    return Allocation(
        size_bytes=int(state.block_bytes[block]),
        address=int(state.block_address[block]),
        category=CATEGORIES[facts.category(stack)],
        site=facts.site(stack),
        first_event=None if first_event == BEFORE else first_event,
        age_us=None if times is None else int(times[moment.event] - times[first_event]),
        is_exact=not moment.uncertain_block[block],
        frames=tuple((shorten(file), line, function) for file, line, function in frames),
    )
