"""The agent: a daemon thread beside the training that samples within its budget and talks to the collector."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

from vramscope.agent.announce import hello_frame
from vramscope.agent.governor import Governor
from vramscope.agent.job import Identity
from vramscope.agent.link import Link
from vramscope.agent.requests import answer, failure
from vramscope.agent.sampler import LONGEST_LABEL, Sampler, mark_frame, unix_us
from vramscope.agent.source import Source
from vramscope.agent.steps import StepHooks
from vramscope.agent.tensors import TensorRegistry
from vramscope.agent.waker import Waker
from vramscope.agent.wire import Frame, encode
from vramscope.errors import one_line

DEFAULT_MAP_INTERVAL_US = 2_000_000
STEP_MARK_INTERVAL_US = 250_000
REFRESH_INTERVAL_US = 1_000_000
QUIET_AFTER_FAILURE_US = 1_000_000
BYE_DEADLINE_US = 150_000
# A budget can be over when a map is asked for; then it is looked at again this often.
_REQUEST_WAIT_US = 50_000
_LONGEST_WAIT_US = 1_000_000
_SHORTEST_WAIT_US = 5_000

logger = logging.getLogger("vramscope")


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class Agent:
    """What ``attach`` returns. ``mark`` and ``add`` may be called from any thread; nothing here blocks or raises into the job.

    Two threads sample: the agent's own, and the training thread at the ends of forward, backward and step. ``_sampling`` guards
    the sampler and the governor; the training thread never waits for it.
    """

    def __init__(
        self,
        source: Source,
        identity: Identity,
        socket_path: Path | None,
        *,
        budget_ratio: float,
        counters_hz: float,
        torch: ModuleType | None,
    ) -> None:
        self._source = source
        self._identity = identity
        self._counters_hz = counters_hz
        self._registry = TensorRegistry()
        self._sampler = Sampler(source, self._registry)
        self._governor = Governor(budget_ratio, counters_hz, DEFAULT_MAP_INTERVAL_US)
        self._sampling = threading.Lock()
        self._link = Link(socket_path, self._hello, self._welcome)
        self._hooks = StepHooks(torch, self._registry, self._on_phase) if torch is not None else None
        self._marks: deque[tuple[str, str, int, int | None]] = deque(maxlen=256)
        self._map_requests: dict[int, int] = {}
        self._announced_notes: list[str] = []
        self._failures = 0
        self._failure_notes: list[str] = []
        self._quiet_until_us = 0
        self._step_marked_us = 0
        self._refreshed_us: int | None = None
        self._stop_reason: str | None = None
        self._waker: Waker | None = None
        self._thread = threading.Thread(target=self._run, name="vramscope-agent", daemon=True)

    # What the job calls.

    @property
    def connected(self) -> bool:
        """Whether a collector has welcomed this agent."""
        return self._link.welcomed

    @property
    def step(self) -> int | None:
        """How many steps the optimizer has taken since attach, None before the first."""
        return self._hooks.step if self._hooks is not None else None

    def start(self) -> None:
        """Start the thread and put the hooks in. Raises OSError or RuntimeError where the process may have no more of something."""
        self._waker = Waker()
        self._thread.start()
        if self._hooks is not None:
            self._hooks.install()

    def add(self, model: Any = None, optimizer: Any = None) -> None:
        """Register a model and an optimizer, whose tensors are then known by name. Raises BadInputError for other things."""
        new_model = model is not None and all(known is not model for known in self._registry.models())
        self._registry.add(model, optimizer)
        if new_model and self._hooks is not None:
            self._hooks.watch(model)

    def mark(self, label: str) -> None:
        """Put a mark with ``label`` on the timeline. Without a collector the last 256 are kept for when there is one."""
        self._marks.append(("user", _label(label), unix_us(), self.step))
        self._wake()

    def stop(self, reason: str, timeout_s: float) -> None:
        """Say bye, take the hooks out and end the thread, waiting for it at most ``timeout_s``."""
        if self._hooks is not None:
            self._hooks.remove()
        self._stop_reason = reason
        self._wake()
        self._thread.join(timeout_s)

    def abandon(self) -> None:
        """Forget everything where there is no agent thread: in a forked child, whose connection is its parent's."""
        if self._hooks is not None:
            self._hooks.remove()
        self._link.close()
        if self._waker is not None:
            self._waker.close()

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.wake()

    # The training thread.

    def _on_phase(self, phase: str) -> None:
        begin_ns = time.perf_counter_ns()
        if not self._link.welcomed:
            return
        if phase == "step_end":
            self._mark_step()
        if not self._sampling.acquire(blocking=False):
            return
        try:
            now_us = monotonic_us()
            if phase == "step_end":
                self._governor.stepped(now_us)
            if self._sample(phase, now_us):
                self._wake()
        except Exception as error:  # noqa: BLE001 - the boundary to the job: nothing of ours may stop a training step
            self._failed(error)
        finally:
            pause_us = (time.perf_counter_ns() - begin_ns) / 1000
            self._governor.spent(monotonic_us(), pause_us, pause_us)
            self._sampling.release()

    def _mark_step(self) -> None:
        now_us = unix_us()
        if now_us - self._step_marked_us >= STEP_MARK_INTERVAL_US:
            self._step_marked_us = now_us
            self._marks.append(("step", str(self.step), now_us, self.step))

    # Both threads, under the lock.

    def _sample(self, phase: str, now_us: int) -> bool:
        """Take what is due and queue it; return whether anything was."""
        if not self._sampler.devices or now_us < self._quiet_until_us:
            return False
        at_step_end = phase == "step_end"
        requested = bool(self._map_requests)
        took = False
        if self._sampler.mappable and self._governor.map_due(now_us, at_step_end=at_step_end, requested=requested):
            self._take_maps(at_step_end)
            took = True
        if self._governor.counters_due(now_us, phase):
            self._take_counters(phase)
            took = True
        return took

    def _take_maps(self, at_step_end: bool) -> None:
        begin_ns = self._clock_ns()
        requests, self._map_requests = self._map_requests, {}
        taken = self._sampler.maps(at="step_end" if at_step_end else "any", step=self.step, request_ids=requests)
        for frame in taken.frames:
            self._link.send(frame)
        cost_us = (self._clock_ns() - begin_ns) / 1000
        if self._in_own_thread():
            # The job stood still during the snapshot; the thread's CPU time is added in _run.
            self._governor.spent(monotonic_us(), taken.waited_us, taken.pause_us)
            cost_us += taken.waited_us
        self._governor.took_map(monotonic_us(), cost_us, at_step_end=at_step_end)

    def _take_counters(self, phase: str) -> None:
        begin_ns = self._clock_ns()
        report = {
            **self._governor.report(monotonic_us()),
            "dropped_frames": self._link.dropped_frames,
            "failures": self._failures,
        }
        for frame in self._sampler.counters(phase=phase, step=self.step, agent=report):
            self._link.send(frame)
        self._governor.took_counters(monotonic_us(), phase, (self._clock_ns() - begin_ns) / 1000)

    def _in_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _clock_ns(self) -> int:
        """Read the clock that tells what the job pays: CPU time beside it, wall time in its own thread."""
        return time.thread_time_ns() if self._in_own_thread() else time.perf_counter_ns()

    # The agent's thread.

    def _run(self) -> None:
        assert self._waker is not None
        try:
            while self._stop_reason is None:
                self._turn_safely()
                self._waker.sleep(self._link.connection, self._wait_us(monotonic_us()))
            self._say_bye(self._stop_reason, self._waker)
            self._waker.close()
        except Exception as error:  # noqa: BLE001 - the top of the thread: a job may close our files, to become a daemon say
            logger.warning("vramscope: the agent has ended (%s); the job goes on unseen", one_line(error))

    def _turn_safely(self) -> None:
        begin_ns = time.thread_time_ns()
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001 - whatever a source raises, the next turn may do better
            self._failed(error)
        with self._sampling:
            self._governor.spent(monotonic_us(), (time.thread_time_ns() - begin_ns) / 1000)

    def _turn(self) -> None:
        now_us = monotonic_us()
        self._link.connect_if_due(now_us)
        for request in self._link.receive(now_us):
            self._handle(request)
        if self._link.welcomed:
            with self._sampling:
                self._refresh_if_due(now_us)
                self._sample("timer", now_us)
            self._send_marks()
        self._link.flush(now_us)

    def _send_marks(self) -> None:
        while self._marks:
            mark, label, time_unix_us, step = self._marks.popleft()
            self._link.send(mark_frame(mark, label, time_unix_us, step))

    def _refresh_if_due(self, now_us: int) -> None:
        if self._refreshed_us is not None and now_us - self._refreshed_us < REFRESH_INTERVAL_US:
            return
        self._refreshed_us = now_us
        if self._sampler.refresh() or self._notes() != self._announced_notes:
            self._link.send(encode({"kind": "notes", **self._announcement()}))

    def _handle(self, request: Frame) -> None:
        header = request.header
        if header.get("what") == "map" and header.get("device") in self._sampler.mappable:
            with self._sampling:
                self._map_requests[header["device"]] = header["request_id"]
            return
        if header.get("what") == "map":
            fields = failure(f"device {header.get('device')} has no map in this job")
        else:
            with self._sampling:
                begin_us = monotonic_us()
                fields = answer(header, self._source)
                # Its CPU time is in the turn's; the pause is what the job may have felt.
                self._governor.spent(monotonic_us(), 0, monotonic_us() - begin_us)
        self._link.send(encode({"kind": "reply", "request_id": header.get("request_id"), **fields}))

    def _wait_us(self, now_us: int) -> int:
        if self._link.connection is None:
            wanted = self._link.wait_us(now_us) if not self._link.given_up else _LONGEST_WAIT_US
        elif not self._link.welcomed or not self._sampler.devices:
            wanted = _LONGEST_WAIT_US
        elif self._map_requests:
            wanted = _REQUEST_WAIT_US
        else:
            wanted = self._governor.timer_wait_us(now_us)
        return min(max(wanted, self._quiet_until_us - now_us, _SHORTEST_WAIT_US), _LONGEST_WAIT_US)

    def _say_bye(self, reason: str, waker: Waker) -> None:
        self._send_marks()
        self._link.send(encode({"kind": "bye", "reason": reason}))
        deadline_us = monotonic_us() + BYE_DEADLINE_US
        while (connection := self._link.connection) and connection.queued_bytes and monotonic_us() < deadline_us:
            self._link.flush(monotonic_us())
            waker.sleep(self._link.connection, _SHORTEST_WAIT_US)
        self._link.close()

    def _hello(self) -> bytes:
        return hello_frame(self._identity, self._source, **self._announcement())

    def _announcement(self) -> dict[str, Any]:
        self._announced_notes = self._notes()
        return {"notes": self._announced_notes, "devices": [found._asdict() for found in self._sampler.devices]}

    def _notes(self) -> list[str]:
        problem = self._registry.problem
        return [*self._identity.notes, *self._source.notes(), *self._failure_notes, *([problem] if problem else [])]

    def _welcome(self, header: dict[str, Any]) -> None:
        counters_hz, map_interval_us = header.get("counters_hz"), header.get("map_interval_us")
        if isinstance(counters_hz, (int, float)) and counters_hz >= 0.01:
            self._governor.counters_hz = min(self._counters_hz, float(counters_hz))
        if isinstance(map_interval_us, int) and map_interval_us > 0:
            self._governor.map_interval_us = map_interval_us

    def _failed(self, error: Exception) -> None:
        """Count a failure, say the first one, and sample nothing for a while: the next try would hardly do better."""
        self._failures += 1
        self._quiet_until_us = monotonic_us() + QUIET_AFTER_FAILURE_US
        if self._failures == 1:
            self._failure_notes = [f"a sample failed and was left out ({one_line(error)})"]
            logger.warning("vramscope: %s; the job goes on", self._failure_notes[0])


def _label(label: object) -> str:
    """Return a mark's text, cut so that 256 of them stay small."""
    try:
        return str(label)[:LONGEST_LABEL]
    except Exception:  # noqa: BLE001 - the boundary to the job: what it marks with may not know its own name
        return f"({type(label).__name__})"
