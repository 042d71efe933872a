"""What viewers ask: answered from what is known, or by asking a job's agent and waiting for it. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from collectors.announce import text
from collectors.changes import SeriesKey
from collectors.encoding import to_json
from collectors.jobs import Jobs
from collectors.ranks import Rank
from collectors.series import Series
from vramscope.agent.wire import Frame, encode
from vramscope.errors import VramscopeError
from vramscope.records import DumpInfo

# How long a viewer waits for a job, by what it asked.
MAP_WAIT_US = 1_500_000
STACK_WAIT_US = 4_000_000
DUMP_WAIT_US = 60_000_000
# An agent over its budget answers late: it is not asked for a second map before this.
MAP_ASKED_US = 10_000_000


class Send(NamedTuple):
    """Send bytes of whole frames to a connection."""

    connection: int
    data: bytes


class Close(NamedTuple):
    """Close a connection; ``reason`` is a line for the log and the page."""

    connection: int
    reason: str


Instruction = Send | Close


class Waiter(NamedTuple):
    """A viewer's call that waits for a job's answer."""

    connection: int
    call_id: int
    deadline_us: int


class Snapshot(NamedTuple):
    """A dump that a job was asked to write."""

    job_id: str
    rank: int
    path: Path


@dataclass
class Request:
    """What an agent was asked, and who waits for it. ``subject`` is the series of a map, a snapshot, or None for a stack."""

    id: int
    connection: int
    subject: SeriesKey | Snapshot | None
    asked_us: int
    waiters: list[Waiter] = field(default_factory=list)


class Calls:
    """Viewers' calls. ``status()`` gives the collector's own; ``dump_bytes(path)`` a file's size, or raises VramscopeError."""

    def __init__(
        self,
        jobs: Jobs,
        dumps_folder: Path,
        *,
        status: Callable[[], dict[str, Any]],
        dump_bytes: Callable[[Path], int],
    ) -> None:
        self._jobs = jobs
        self._dumps_folder = dumps_folder
        self._status = status
        self._dump_bytes = dump_bytes
        self._ids = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self.dumps: dict[str, DumpInfo] = {}

    @property
    def waiting(self) -> bool:
        """Whether somebody waits, so that ``tick`` must come often."""
        return any(request.waiters for request in self._requests.values())

    def handle(self, connection: int, frame: Frame, now_us: int) -> list[Instruction]:
        """Answer a ``call``, now or later. What cannot be answered gets a reply with one line."""
        call_id, params = frame.header.get("call_id"), frame.header.get("params")
        if type(call_id) is not int or not isinstance(params, dict):
            return [Close(connection, "a viewer's call has no call_id or no params")]
        waiter = Waiter(connection, call_id, 0)
        try:
            return self._answer(waiter, frame.header.get("method"), params, now_us)
        except VramscopeError as error:
            return [_refuse(waiter, str(error))]

    def map_arrived(self, key: SeriesKey, frame: Frame) -> list[Instruction]:
        """A job sent a map, asked or not: it is fresh for all who wait for one."""
        requests = [request for request in self._requests.values() if request.subject == key]
        found = [send for request in requests for send in self._give_map(request)]
        self._requests = {
            number: request
            for number, request in self._requests.items()
            if request not in requests or number != frame.header.get("request_id")
        }
        return found

    def reply_arrived(self, connection: int, frame: Frame, now_us: int) -> list[Instruction]:
        """A job answered a request, or said why it cannot."""
        request = self._requests.get(_number(frame.header.get("request_id")))
        if request is None or request.connection != connection:
            return []
        del self._requests[request.id]
        if isinstance(request.subject, SeriesKey):
            return self._give_map(request)
        try:
            if not frame.header.get("ok"):
                raise VramscopeError(text(frame.header.get("error")) or "the job could not, and did not say why")
            subject = request.subject
            result = self._dump_written(subject, now_us) if isinstance(subject, Snapshot) else _stack(frame)
        except VramscopeError as error:
            return [_refuse(waiter, str(error)) for waiter in request.waiters]
        return [_reply(waiter, result) for waiter in request.waiters]

    def closed(self, connection: int) -> list[Instruction]:
        """A connection is gone: nobody waits on it any more, and an agent's will answer nothing."""
        found: list[Instruction] = []
        for request in list(self._requests.values()):
            request.waiters = [waiter for waiter in request.waiters if waiter.connection != connection]
            if request.connection == connection:
                del self._requests[request.id]
                found += self._give_up(request, request.waiters, "the job's agent disconnected before it answered")
        return found

    def tick(self, now_us: int) -> list[Instruction]:
        """Answer those who have waited long enough."""
        found: list[Instruction] = []
        for request in list(self._requests.values()):
            late = [waiter for waiter in request.waiters if waiter.deadline_us <= now_us]
            request.waiters = [waiter for waiter in request.waiters if waiter.deadline_us > now_us]
            found += self._give_up(request, late, "the job did not answer in time; is it busy in one long operation?")
            if not request.waiters and now_us - request.asked_us >= MAP_ASKED_US:
                del self._requests[request.id]
        return found

    def _answer(self, waiter: Waiter, method: Any, params: dict[str, Any], now_us: int) -> list[Instruction]:
        if method == "status":
            return [_reply(waiter, self._status())]
        if method == "jobs":
            return [_reply(waiter, {"jobs": [to_json(job.record()) for job in self._jobs.by_id.values()]})]
        if method == "readings":
            return [_reply(waiter, {"readings": [to_json(found) for found in self._jobs.readings.values()]})]
        if method == "dumps":
            return [_reply(waiter, {"dumps": self._list_dumps(params.get("job_id"))})]
        if method == "dump":
            return self._ask_dump(waiter, params, now_us)
        if method in ("stats", "map", "stack"):
            return self._answer_device(waiter, method, params, now_us)
        raise VramscopeError(f"this collector does not know the call {text(method)[:40]!r}")

    def _answer_device(self, waiter: Waiter, method: str, params: dict[str, Any], now_us: int) -> list[Instruction]:
        device, number = _number(params.get("device")), params.get("rank")
        found = self._jobs.find(text(params.get("job_id")), device, None if number is None else _number(number))
        if found is None:
            raise VramscopeError(
                f"no job {text(params.get('job_id'))} with rank {text(number)} and GPU {device} is known"
            )
        job, rank, series = found
        if method == "map":
            key = SeriesKey(job.id, rank.info.rank, device)
            return self._ask_map(waiter, rank, key, _number(params.get("max_age_us")), now_us)
        if method == "stack":
            question = {"device": device, "address": _number(params.get("address"))}
            return self._ask(waiter, rank, "stack", None, question, now_us, STACK_WAIT_US)
        if not series.counters:
            raise VramscopeError(f"no figures of GPU {device} have arrived since this collector started")
        return [_reply(waiter, to_json(self._jobs.stats(job, rank, device)))]

    def _ask_map(self, waiter: Waiter, rank: Rank, key: SeriesKey, max_age_us: int, now_us: int) -> list[Instruction]:
        series = rank.series[key.device]
        fresh = series.map is not None and now_us - series.map_received_us <= max_age_us
        if fresh or rank.connection is None:
            return [_map_reply(waiter, series)]
        for request in self._requests.values():
            if request.subject == key:
                # Not from now: while an agent is over its budget, each viewer's thread would be held again and again.
                request.waiters.append(waiter._replace(deadline_us=request.asked_us + MAP_WAIT_US))
                return []
        return self._ask(waiter, rank, "map", key, {"device": key.device}, now_us, MAP_WAIT_US)

    def _ask_dump(self, waiter: Waiter, params: dict[str, Any], now_us: int) -> list[Instruction]:
        job, number = self._jobs.by_id.get(text(params.get("job_id"))), params.get("rank")
        if job is None:
            raise VramscopeError(f"no job {text(params.get('job_id'))} is known")
        rank = job.ranks.get(min(job.ranks) if number is None else _number(number))
        if rank is None:
            raise VramscopeError(f"the job {job.key.name} has no rank {text(number)}")
        path = self._dumps_folder / f"{job.id}-rank{rank.info.rank}-{now_us}.pickle"
        subject = Snapshot(job.id, rank.info.rank, path)
        return self._ask(waiter, rank, "dump", subject, {"path": str(path)}, now_us, DUMP_WAIT_US)

    def _ask(
        self,
        waiter: Waiter,
        rank: Rank,
        what: str,
        subject: SeriesKey | Snapshot | None,
        question: dict[str, Any],
        now_us: int,
        wait_us: int,
    ) -> list[Instruction]:
        """Send a question to a rank's agent, for ``waiter`` and others that may join."""
        if rank.connection is None:
            raise VramscopeError(
                "the job has ended; its last map and its history are still shown"
                if rank.ended
                else "the job's agent is disconnected at the moment; try again in a few seconds"
            )
        request = Request(next(self._ids), rank.connection, subject, now_us)
        request.waiters.append(waiter._replace(deadline_us=now_us + wait_us))
        self._requests[request.id] = request
        return [Send(rank.connection, encode({"kind": "request", "request_id": request.id, "what": what, **question}))]

    def _give_map(self, request: Request) -> list[Instruction]:
        waiters, request.waiters = request.waiters, []
        return self._give_up(request, waiters, "")

    def _give_up(self, request: Request, waiters: list[Waiter], reason: str) -> list[Instruction]:
        """Answer ``waiters`` with the newest map, or with the reason why there is no answer."""
        if not isinstance(request.subject, SeriesKey):
            return [_refuse(waiter, reason) for waiter in waiters]
        found = self._jobs.find(request.subject.job_id, request.subject.device, request.subject.rank)
        return [
            _refuse(waiter, "the job is gone") if found is None else _map_reply(waiter, found[2]) for waiter in waiters
        ]

    def _dump_written(self, subject: Snapshot, now_us: int) -> dict[str, Any]:
        file_bytes = self._dump_bytes(subject.path)
        found = DumpInfo(subject.path.stem, subject.job_id, subject.rank, now_us, str(subject.path), file_bytes)
        self.dumps[found.id] = found
        self._jobs.ledger.dump(found)
        return to_json(found)

    def _list_dumps(self, job_id: Any) -> list[dict[str, Any]]:
        found = [dump for dump in self.dumps.values() if job_id in (None, dump.job_id)]
        return [to_json(dump) for dump in sorted(found, key=lambda dump: -dump.time_unix_us)]


def _stack(frame: Frame) -> dict[str, Any]:
    frames = frame.header.get("frames")
    try:
        found = [[text(file), int(line), text(name)] for file, line, name in frames or []]
    except (TypeError, ValueError, OverflowError):
        raise VramscopeError("the job answered with a stack that this version cannot read") from None
    reason = frame.header.get("reason")
    return {"frames": found, "reason": None if reason is None else text(reason)}


def _number(found: Any) -> int:
    """Return a parameter that must be an integer. Raises VramscopeError otherwise."""
    if type(found) is not int:
        raise VramscopeError(f"a call needs a whole number where it has {text(found)[:40]!r}")
    return found


def _reply(waiter: Waiter, result: dict[str, Any]) -> Send:
    return Send(waiter.connection, encode({"kind": "reply", "call_id": waiter.call_id, "ok": True, "result": result}))


def _refuse(waiter: Waiter, reason: str) -> Send:
    return Send(waiter.connection, encode({"kind": "reply", "call_id": waiter.call_id, "ok": False, "error": reason}))


def _map_reply(waiter: Waiter, series: Series) -> Send:
    if series.map is None:
        return _refuse(waiter, "no map has arrived yet: the job has not used this GPU, or its agent is over its budget")
    header = {"kind": "reply", "call_id": waiter.call_id, "ok": True, "result": {}}
    return Send(waiter.connection, series.map_frame(header))
