"""How like the recording a replay under the recorded settings runs: by addresses, by segments and by the peak."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass

import numpy as np

from vramscope.allocator import TraceEntry
from vramscope.allocator.rounding import SMALL_LIMIT_BYTES
from vramscope.columns import DeviceMap
from vramscope.replay.operations import FAILED, REQUEST
from vramscope.replay.recording import Recording
from vramscope.replay.run import Replay
from vramscope.snapshot.columns import ACTION_CODE, ACTIONS
from vramscope.trace.columns import DeviceTrace

_SEGMENT_ACTIONS = ("segment_alloc", "segment_free", "segment_map", "segment_unmap")

# A segment: a plain one by its number; all expandable ones of a stream, pool and size class are one.
Segment = int | tuple[int, int, bool]


@dataclass(frozen=True)
class Fidelity:
    """Shares from 0 to 1; None where the recording has nothing to compare.

    ``addresses``: of the recorded allocations, those that lie at the same offset of the same segment. Which segment of the
    replay is which of the recording is decided once, by the first allocation in either; those from before the trace are
    themselves. ``segments``: of the segments and pages taken and given back, those that the other side took or gave back for the
    same request with the same size. ``peak``: the lower peak of reserved bytes by the higher. ``first_difference`` is the
    event of the first allocation that lies elsewhere.
    """

    addresses: float | None
    segments: float | None
    peak: float | None
    first_difference: int | None

    @property
    def is_full(self) -> bool:
        """Return whether nothing differs."""
        return all(share in (None, 1.0) for share in (self.addresses, self.segments, self.peak))

    def explained(self, recording: Recording, replay: Replay) -> tuple[str, ...]:
        """Return a line for each thing that is known to make a replay differ, none where nothing differs.

        The doubts of the recording are further ones.
        """
        if self.is_full:
            return ()
        found = [
            (
                self.first_difference is not None,
                f"the first allocation that lies elsewhere is at event {self.first_difference}",
            ),
            (
                recording.settings.order == "2.11",
                "up to torch 2.11 the address decides between equal free blocks, and which addresses the driver gives to"
                " new segments is not simulated",
            ),
            (
                not replay.ran_through,
                "the replay ran out of memory where the job did not, and ended there",
            ),
        ]
        return tuple(line for holds, line in found if holds)


class _Segments:
    """The plain segments of one side as they come and go."""

    def __init__(self, start: DeviceMap | None) -> None:
        self._bases: list[int] = []
        self._known: dict[int, tuple[int, int]] = {}
        self._number = 0
        if start is not None:
            plain = np.flatnonzero(start.segment_is_expandable == 0)
            for row in plain.tolist():
                self.add(int(start.segment_address[row]), int(start.segment_total_bytes[row]))

    @property
    def count(self) -> int:
        return len(self._bases)

    def add(self, base: int, size_bytes: int) -> None:
        if base not in self._known:
            insort(self._bases, base)
        self._number += 1
        self._known[base] = (size_bytes, self._number)

    def remove(self, base: int) -> None:
        if self._known.pop(base, None) is not None:
            del self._bases[bisect_right(self._bases, base) - 1]

    def at(self, address: int) -> tuple[int, int] | None:
        """Return the number of the plain segment at ``address`` and the offset in it, None where there is none."""
        place = bisect_right(self._bases, address) - 1
        if place < 0:
            return None
        base = self._bases[place]
        size_bytes, number = self._known[base]
        return (number, address - base) if address < base + size_bytes else None


class Comparison:
    """Watches a replay and compares it with the recording."""

    def __init__(self, recording: Recording, trace: DeviceTrace) -> None:
        operations, events = recording.operations, trace.events
        self._operations, self._trace = operations, trace
        self._recorded, self._replayed = _Segments(recording.start), _Segments(recording.start)
        # Numbers of both sides begin with the same segments, which are themselves.
        numbers = range(1, self._recorded.count + 1)
        self._pairs: dict[Segment, tuple[Segment, int]] = {number: (number, 0) for number in numbers}
        self._taken: dict[Segment, Segment] = {number: number for number in numbers}
        codes = [ACTION_CODE[name] for name in _SEGMENT_ACTIONS]
        steps = np.flatnonzero(np.isin(events.action, codes))
        self._requests = operations.event[(operations.kind == REQUEST) | (operations.kind == FAILED)]
        step_request = np.searchsorted(self._requests, steps).tolist()
        self._place_request = np.searchsorted(self._requests, operations.event).tolist()
        self._steps = list(
            zip(
                steps.tolist(),
                [ACTIONS[code] for code in events.action[steps].tolist()],
                events.address[steps].tolist(),
                events.size_bytes[steps].tolist(),
                strict=True,
            )
        )
        self._next_step = 0
        self._recorded_steps = Counter(
            (request, action, size) for request, (_, action, _, size) in zip(step_request, self._steps, strict=True)
        )
        self._replayed_steps: Counter[tuple[int, str, int]] = Counter()
        self._event = operations.event.tolist()
        self._now = 0
        self._same = 0
        self._first_difference: int | None = None

    def begin(self, place: int) -> None:
        self._now = place
        event = self._event[place]
        while self._next_step < len(self._steps) and self._steps[self._next_step][0] <= event:
            _, action, address, size_bytes = self._steps[self._next_step]
            _follow(self._recorded, action, address, size_bytes)
            self._next_step += 1

    def entry(self, entry: TraceEntry) -> None:
        if entry.action in _SEGMENT_ACTIONS:
            self._replayed_steps[self._place_request[self._now], entry.action, entry.size_bytes] += 1
            _follow(self._replayed, entry.action, entry.address, entry.size_bytes)

    def served(self, place: int, address: int) -> None:
        slot = int(self._operations.slot[place])
        if slot < 0:
            return
        if self._is_same(place, int(self._trace.allocations.address[slot]), address):
            self._same += 1
        elif self._first_difference is None:
            self._first_difference = self._event[place]

    def _is_same(self, place: int, recorded: int, replayed: int) -> bool:
        one, one_offset = self._place(self._recorded, place, recorded)
        other, other_offset = self._place(self._replayed, place, replayed)
        shift = one_offset - other_offset
        if one not in self._pairs and other not in self._taken:
            # Where expandable segments begin is not known: the first allocation decides.
            is_new_pair = shift == 0 if isinstance(one, int) else not isinstance(other, int)
            if not is_new_pair:
                return False
            self._pairs[one], self._taken[other] = (other, shift), one
        return self._pairs.get(one) == (other, shift)

    def _place(self, segments: _Segments, place: int, address: int) -> tuple[Segment, int]:
        found = segments.at(address)
        if found is not None:
            return found
        operations = self._operations
        is_small = int(operations.size_bytes[place]) <= SMALL_LIMIT_BYTES
        return (int(operations.stream[place]), int(operations.pool[place]), is_small), address

    def result(self, replay: Replay) -> Fidelity:
        """Return the shares when the replay is over."""
        served = int(np.count_nonzero(self._operations.kind == REQUEST))
        steps = max(self._recorded_steps.total(), self._replayed_steps.total())
        both = (self._recorded_steps & self._replayed_steps).total()
        peak = None
        if self._trace.reserved_bytes is not None:
            peaks = sorted((int(self._trace.reserved_bytes.max()), replay.peak_reserved_bytes))
            peak = peaks[0] / peaks[1] if peaks[1] else 1.0
        return Fidelity(
            addresses=self._same / served if served else None,
            segments=both / steps if steps else None,
            peak=peak,
            first_difference=self._first_difference,
        )


def _follow(segments: _Segments, action: str, address: int, size_bytes: int) -> None:
    if action == "segment_alloc":
        segments.add(address, size_bytes)
    elif action == "segment_free":
        segments.remove(address)
