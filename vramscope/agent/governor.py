"""Decides when the next counters and the next map may be taken, so that the agent's cost stays under its budget.

Pure: the clock is an argument (monotonic microseconds). Two rules keep the budget, whatever a sample costs:

- Counters: at most ``counters_hz``, and each sample pays for itself: one that took ``c`` µs puts off the next by at least
  ``c / (budget / 2)`` µs.
- Maps: what the budget leaves after everything else in the window pays for them in the same way.

A dump is what a user asked for: it is in the reported cost and in the longest pause, but puts nothing off.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

WINDOW_US = 10_000_000
_SLOT_US = 500_000
# Counters may use this share of the budget, and maps at least this share of it.
_COUNTERS_SHARE = 0.5
_LEAST_MAP_SHARE = 0.25
# Maps aim a tenth below the budget, since what everything else costs is known only for the past.
_AIM = 0.9
# A job whose last optimizer step is longer ago gets its maps from the agent's own thread.
STEPS_ACTIVE_US = 2_000_000


class CostWindow:
    """What was spent in the last WINDOW_US, in slots of half a second, so that its size does not depend on the rate."""

    def __init__(self) -> None:
        self._slots: deque[tuple[int, float]] = deque()

    def add(self, now_us: int, cost_us: float) -> None:
        slot = now_us // _SLOT_US
        if self._slots and self._slots[-1][0] >= slot:
            self._slots[-1] = (self._slots[-1][0], self._slots[-1][1] + cost_us)
        else:
            self._slots.append((slot, cost_us))
        self._drop_old(now_us)

    def ratio(self, now_us: int) -> float:
        """Return the share of the last WINDOW_US (also where the agent is younger) that was spent."""
        self._drop_old(now_us)
        return sum(cost for _, cost in self._slots) / WINDOW_US

    def _drop_old(self, now_us: int) -> None:
        oldest = (now_us - WINDOW_US) // _SLOT_US
        while self._slots and self._slots[0][0] <= oldest:
            self._slots.popleft()


class _Tokens:
    """Counters' credit: at most two samples, so that the timer, which waits for both, leaves one for the hooks."""

    def __init__(self) -> None:
        self._count = 2.0
        self._at_us: int | None = None

    def count(self, now_us: int, interval_us: float) -> float:
        elapsed = 0 if self._at_us is None else now_us - self._at_us
        return min(2.0, self._count + elapsed / interval_us)

    def take(self, now_us: int, interval_us: float) -> None:
        self._count = max(0.0, self.count(now_us, interval_us) - 1)
        self._at_us = now_us


@dataclass
class Governor:
    """The agent's budget. ``counters_hz`` and ``map_interval_us`` are what is wanted; the cost may stretch both."""

    budget_ratio: float
    counters_hz: float
    map_interval_us: int
    longest_pause_us: int = 0
    last_map_us: int | None = None
    _total: CostWindow = field(default_factory=CostWindow)
    _maps: CostWindow = field(default_factory=CostWindow)
    _tokens: _Tokens = field(default_factory=_Tokens)
    _counters_cost_us: float = 0.0
    _phase_at_us: dict[str, int] = field(default_factory=dict)
    _map_at_us: int | None = None
    _step_map_at_us: int | None = None
    _step_at_us: int | None = None

    def counters_due(self, now_us: int, phase: str) -> bool:
        """Return whether counters may be taken now.

        The phase that was sampled the longest ago goes first, else a fast loop would always show the same one.
        """
        tokens = self._tokens.count(now_us, self.counters_interval_us())
        if phase == "timer":
            return tokens >= 2.0
        first = self._phase_at_us.setdefault(phase, 0) <= min(self._phase_at_us.values())
        return tokens >= (1.0 if first else 2.0)

    def timer_wait_us(self, now_us: int) -> int:
        """Return how long until the timer may take counters, if nothing else does before."""
        interval_us = self.counters_interval_us()
        return round((2.0 - self._tokens.count(now_us, interval_us)) * interval_us)

    def took_counters(self, now_us: int, phase: str, cost_us: float) -> None:
        """Record that counters were taken and what they cost; the next ones wait accordingly."""
        self._tokens.take(now_us, self.counters_interval_us())
        self._counters_cost_us = cost_us
        if phase != "timer":
            self._phase_at_us[phase] = now_us

    def counters_interval_us(self) -> float:
        """Return the interval that is kept now: what is wanted, or what the last sample's cost asks for."""
        return max(1e6 / self.counters_hz, self._counters_cost_us / (self.budget_ratio * _COUNTERS_SHARE))

    def stepped(self, now_us: int) -> None:
        """Record that the optimizer stepped."""
        self._step_at_us = now_us

    def map_due(self, now_us: int, *, at_step_end: bool, requested: bool) -> bool:
        """Return whether a map is to be taken now.

        While the job steps, the history's maps are those of step ends, which show what persists from step to step;
        a request may be answered at any moment, but does not take the place of an overdue map of a step's end.
        """
        step_map_due = self._overdue(self._step_map_at_us, now_us)
        if at_step_end:
            wanted = step_map_due
        elif step_map_due and self._step_at_us is not None and now_us - self._step_at_us < STEPS_ACTIVE_US:
            wanted = False
        else:
            wanted = requested or self._overdue(self._map_at_us, now_us)
        return wanted and (self._map_at_us is None or now_us - self._map_at_us >= self._map_pause_us(now_us))

    def took_map(self, now_us: int, cost_us: float, *, at_step_end: bool) -> None:
        """Record that a map was taken, and what it cost with its columns."""
        self._maps.add(now_us, cost_us)
        self._map_at_us = now_us
        self.last_map_us = round(cost_us)
        if at_step_end:
            self._step_map_at_us = now_us

    def spent(self, now_us: int, cost_us: float, pause_us: float = 0.0) -> None:
        """Add to the cost: ``cost_us`` in all, ``pause_us`` the longest time in it for which the job stood still."""
        self._total.add(now_us, cost_us)
        self.longest_pause_us = max(self.longest_pause_us, round(pause_us))

    def report(self, now_us: int) -> dict[str, float | int | None]:
        """Return the ``agent`` field of a ``counters`` message, without ``dropped_frames``."""
        return {
            "cost_ratio": round(self._total.ratio(now_us), 6),
            "budget_ratio": self.budget_ratio,
            "last_map_us": self.last_map_us,
            "longest_pause_us": self.longest_pause_us,
            "counters_hz": round(1e6 / self.counters_interval_us(), 2),
            "map_interval_us": round(max(self.map_interval_us, self._map_pause_us(now_us))),
        }

    def _overdue(self, last_us: int | None, now_us: int) -> bool:
        return last_us is None or now_us - last_us >= self.map_interval_us

    def _map_pause_us(self, now_us: int) -> float:
        """Return how long after a map the next one has to wait, for the budget that everything else leaves."""
        if self.last_map_us is None:
            return 0.0
        other_ratio = self._total.ratio(now_us) - self._maps.ratio(now_us)
        share = max(_AIM * self.budget_ratio - other_ratio, self.budget_ratio * _LEAST_MAP_SHARE)
        return self.last_map_us / share
