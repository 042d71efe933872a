"""Decides when the next counters and the next map may be taken, so that the agent's cost stays under its budget.

Pure: the clock is an argument (monotonic microseconds). Whatever a sample costs, it pays for itself before the next:

- Counters come at most at ``counters_hz``; one that took ``c`` µs puts off the next by at least ``c / (budget / 2)`` µs. While
  everything but maps costs more than half of the budget, they come once a second.
- Maps are paid for in the same way by what the budget leaves, and wait while the last ten seconds have no room for one. (One that
  costs more than ten seconds of budget waits for a window without maps.) The first, which also loads what maps need, is left out
  of what the next is thought to cost.

A dump is what a user asked for: it is in the reported cost and in the longest pause, but puts no counters off.
"""

from __future__ import annotations

from collections import deque

WINDOW_US = 10_000_000
_SLOT_US = 500_000
# Counters may use this share of the budget, and maps at least this share of it.
_COUNTERS_SHARE = 0.5
_LEAST_MAP_SHARE = 0.25
# Maps aim a tenth below the budget, since what the next one and everything else will cost is only guessed from the past.
_AIM = 0.9
# The guess for a map is the costliest of the last few: an older one counts for this much less with each newer.
_FADE = 0.8
_SLOW_COUNTERS_US = 1_000_000.0
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

    def __init__(self, interval_us: float) -> None:
        self.interval_us = interval_us
        self._count = 2.0
        self._at_us: int | None = None

    def count(self, now_us: int) -> float:
        elapsed = 0 if self._at_us is None else now_us - self._at_us
        return min(2.0, self._count + elapsed / self.interval_us)

    def take(self, now_us: int, interval_us: float) -> None:
        """Use one up; from now on another comes every ``interval_us``."""
        self._count = max(0.0, self.count(now_us) - 1)
        self._at_us = now_us
        self.interval_us = interval_us


class Governor:
    """The agent's budget. ``counters_hz`` and ``map_interval_us`` are what is wanted; the cost may stretch both."""

    def __init__(self, budget_ratio: float, counters_hz: float, map_interval_us: int) -> None:
        self.budget_ratio = budget_ratio
        self.counters_hz = counters_hz
        self.map_interval_us = map_interval_us
        self._longest_pause_us = 0
        self._last_map_us: int | None = None
        self._guessed_map_us = 0.0
        self._total = CostWindow()
        self._maps = CostWindow()
        self._tokens = _Tokens(1e6 / counters_hz)
        self._phase_at_us: dict[str, int] = {}
        self._map_at_us: int | None = None
        self._step_map_at_us: int | None = None
        self._step_at_us: int | None = None

    def counters_due(self, now_us: int, phase: str) -> bool:
        """Return whether counters may be taken now.

        The phase that was sampled the longest ago goes first, else a fast loop would always show the same one.
        """
        tokens = self._tokens.count(now_us)
        if phase == "timer":
            return tokens >= 2.0
        phase_at_us = self._phase_at_us.setdefault(phase, 0)
        return tokens >= 2.0 or (tokens >= 1.0 and phase_at_us <= min(self._phase_at_us.values()))

    def timer_wait_us(self, now_us: int) -> int:
        """Return how long until the timer may take counters, if nothing else does before."""
        return round((2.0 - self._tokens.count(now_us)) * self._tokens.interval_us)

    def took_counters(self, now_us: int, phase: str, cost_us: float) -> None:
        """Record that counters were taken and what they cost; the next ones wait accordingly."""
        half = self.budget_ratio * _COUNTERS_SHARE
        interval_us = max(1e6 / self.counters_hz, cost_us / half)
        if self._other_ratio(now_us) > half:
            interval_us = max(interval_us, _SLOW_COUNTERS_US)
        self._tokens.take(now_us, interval_us)
        if phase != "timer":
            self._phase_at_us[phase] = now_us

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
        return wanted and self._affordable(now_us)

    def took_map(self, now_us: int, cost_us: float, *, at_step_end: bool) -> None:
        """Record that a map was taken, and what it cost with its columns."""
        self._maps.add(now_us, cost_us)
        self._map_at_us = now_us
        # The first one also loads what maps need, so it tells nothing of the next; the window makes that one wait.
        if self._last_map_us is not None:
            self._guessed_map_us = max(cost_us, _FADE * self._guessed_map_us)
        self._last_map_us = round(cost_us)
        if at_step_end:
            self._step_map_at_us = now_us

    def spent(self, now_us: int, cost_us: float, pause_us: float = 0.0) -> None:
        """Add to the cost: ``cost_us`` in all, ``pause_us`` the longest time in it for which the job stood still."""
        self._total.add(now_us, cost_us)
        self._longest_pause_us = max(self._longest_pause_us, round(pause_us))

    def report(self, now_us: int) -> dict[str, float | int | None]:
        """Return the ``agent`` field of a ``counters`` message, as far as it is about the budget."""
        return {
            "cost_ratio": round(self._total.ratio(now_us), 6),
            "budget_ratio": self.budget_ratio,
            "last_map_us": self._last_map_us,
            "longest_pause_us": self._longest_pause_us,
            "counters_hz": round(1e6 / self._tokens.interval_us, 2),
            "map_interval_us": round(max(self.map_interval_us, self._map_pause_us(now_us))),
        }

    def _overdue(self, last_us: int | None, now_us: int) -> bool:
        return last_us is None or now_us - last_us >= self.map_interval_us

    def _affordable(self, now_us: int) -> bool:
        if self._map_at_us is None:
            return True
        if now_us - self._map_at_us < self._map_pause_us(now_us):
            return False
        left_us = (_AIM * self.budget_ratio - self._total.ratio(now_us)) * WINDOW_US
        return self._guessed_map_us <= left_us or self._maps.ratio(now_us) == 0

    def _map_pause_us(self, now_us: int) -> float:
        """Return how long after a map the next one has to wait, for the budget that everything else leaves."""
        share = max(_AIM * self.budget_ratio - self._other_ratio(now_us), _LEAST_MAP_SHARE * self.budget_ratio)
        return self._guessed_map_us / share

    def _other_ratio(self, now_us: int) -> float:
        return self._total.ratio(now_us) - self._maps.ratio(now_us)
