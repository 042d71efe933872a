"""The public functions ``attach``, ``detach`` and ``mark``, and the one agent of this process."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from vramscope.agent.absent_source import AbsentSource
from vramscope.agent.agent import Agent
from vramscope.agent.job import Identity, identify
from vramscope.agent.paths import check_socket_path, runtime_folder, socket_path
from vramscope.agent.sampler import unix_us
from vramscope.agent.source import Source
from vramscope.agent.torch_source import TorchSource
from vramscope.errors import BadInputError, one_line

DETACH_TIMEOUT_S = 2.0
EXIT_TIMEOUT_S = 0.2

logger = logging.getLogger("vramscope")

_lock = threading.Lock()
_agent: Agent | None = None


def attach(
    model: Any = None,
    optimizer: Any = None,
    *,
    name: str | None = None,
    socket: str | os.PathLike[str] | None = None,
    budget_ratio: float = 0.01,
    counters_hz: float = 10.0,
    source: Source | None = None,
) -> Agent:
    """Show this process's GPU memory in vramscope, and return its agent; call it again to register more.

    ``model`` and ``optimizer`` (held weakly) give their tensors names. ``name`` is the job's, by default the script's. ``socket`` is
    the collector's, by default where ``vramscope collect`` makes it. ``budget_ratio`` is the share of wall time the agent may
    cost, ``counters_hz`` the most samples a second. ``source`` replaces torch's CUDA allocator (the simulated GPU does).

    A missing collector, torch or CUDA is no error: the job runs on, and a line is logged where something is to be told.
    Raises BadInputError only where an argument cannot be used.
    """
    global _agent
    _check(name, socket, budget_ratio, counters_hz)
    with _lock:
        if _agent is not None:
            _agent.add(model, optimizer)
            return _agent
        found = _new_agent(name, socket, budget_ratio, counters_hz, source)
        found.add(model, optimizer)
        try:
            found.start()
        except (OSError, RuntimeError) as error:  # this process may open no more files, or start no more threads
            found.abandon()
            logger.warning("vramscope: the agent could not start (%s); this job is not shown", one_line(error))
        else:
            _agent = found
        return found


def detach() -> None:
    """Take the agent out of this process; nothing happens where there is none."""
    _stop("detached", DETACH_TIMEOUT_S)


def mark(label: str) -> None:
    """Put a mark, such as "epoch 3", on the timeline; nothing happens where no agent is attached."""
    found = _agent
    if found is not None:
        found.mark(label)


def _check(name: object, socket: object, budget_ratio: object, counters_hz: object) -> None:
    if not _is_number(budget_ratio, 0.0001, 1) or not _is_number(counters_hz, 0.01, 1000):
        raise BadInputError(
            "attach needs a budget_ratio from 0.0001 to 1 and a counters_hz from 0.01 to 1000, "
            f"not {budget_ratio!r} and {counters_hz!r}"
        )
    if name is not None and not isinstance(name, str):
        raise BadInputError(f"attach(name=…) takes a str, not {type(name).__name__}")
    if socket is not None and not (isinstance(socket, str) or hasattr(socket, "__fspath__")):
        raise BadInputError(f"attach(socket=…) takes a path, not {type(socket).__name__}")


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and low <= value <= high


def _new_agent(
    name: str | None,
    socket: str | os.PathLike[str] | None,
    budget_ratio: float,
    counters_hz: float,
    source: Source | None,
) -> Agent:
    torch = _torch()
    if source is None:
        source = _source(torch)
    return Agent(
        source, _identity(name), _path(socket), budget_ratio=budget_ratio, counters_hz=counters_hz, torch=torch
    )


def _identity(name: str | None) -> Identity:
    return identify(
        os.environ, sys.argv, pid=os.getpid(), parent_pid=os.getppid(), started_unix_us=unix_us(), name=name
    )


def _path(socket: str | os.PathLike[str] | None) -> Path | None:
    """Return the socket's path, or None, with a line in the log, where there can be no such socket."""
    try:
        # Absolute, since the job may change its folder.
        if socket is None:
            return socket_path(runtime_folder().absolute())
        path = Path(os.fsdecode(socket)).absolute()
        check_socket_path(path)
    except BadInputError as problem:
        logger.warning("vramscope: %s; this job is not shown", problem)
        return None
    return path


def _torch() -> ModuleType | None:
    try:
        import torch
    except (ImportError, OSError):  # OSError: a library of torch's is missing or broken
        return None
    return torch  # type: ignore[no-any-return]


def _source(torch: ModuleType | None) -> Source:
    if torch is not None and (torch.version.cuda or torch.version.hip):
        return TorchSource(torch)
    if torch is None:
        found = AbsentSource("torch cannot be imported here, so there is no GPU memory to show", "none")
    else:
        found = AbsentSource(
            f"this torch ({torch.__version__}) was built without CUDA, so there is no GPU memory to show",
            str(torch.__version__),
        )
    logger.warning("vramscope: %s", found.reason)
    return found


def _stop(reason: str, timeout_s: float) -> None:
    global _agent
    with _lock:
        found, _agent = _agent, None
    if found is not None:
        found.stop(reason, timeout_s)


def _in_forked_child() -> None:
    """Leave the agent to the parent: a child (a DataLoader's worker) is silent until it attaches itself."""
    global _agent, _lock
    _lock = threading.Lock()
    found, _agent = _agent, None
    if found is not None:
        found.abandon()


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(_stop, "exited", EXIT_TIMEOUT_S)
