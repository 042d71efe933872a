"""What other settings would have done: the recorded ones first, to say how far to trust it, then the others on all cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess

from vramscope.allocator import Settings, parse_alloc_conf
from vramscope.errors import BadInputError, VramscopeError
from vramscope.replay.fidelity import Comparison, Fidelity
from vramscope.replay.recording import Recording
from vramscope.replay.run import Replay, replay
from vramscope.trace.columns import DeviceTrace


@dataclass(frozen=True, eq=False)
class WhatIf:
    """``replays`` has the recorded settings first; ``fidelity`` is theirs in the room that the job had.

    ``explained`` are lines about what makes the two differ.
    """

    recording: Recording
    replays: tuple[Replay, ...]
    fidelity: Fidelity
    explained: tuple[str, ...]


def settings_of_texts(texts: Sequence[str], *, knows_capacity: bool) -> list[Settings]:
    """Return the settings. Raises BadInputError with one line for a text that PyTorch refuses, or that needs the card's size."""
    found = [parse_alloc_conf(text) for text in texts]
    for settings in found:
        needs_capacity = settings.per_process_memory_fraction is not None or settings.throw_on_cudamalloc_oom
        if needs_capacity and not knows_capacity:
            raise BadInputError(
                f"allocator settings {settings.text!r} count from the size of the card, which no file has: give it with --capacity"
            )
    return found


def what_if(
    recording: Recording,
    trace: DeviceTrace,
    others: Sequence[Settings],
    *,
    capacity_bytes: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> WhatIf:
    """Replay ``recording``, which is that of ``trace``, under the recorded settings and under each of ``others``.

    ``capacity_bytes`` is what the process may reserve, None for what it could when it was recorded. ``progress`` is called with the
    replays done and their number. Raises BadInputError where the state before the trace does not fit on that card.
    """
    total = 1 + (capacity_bytes is not None) + len(others)
    progress(0, total)
    room_bytes = recording.room_bytes or recording.ample_bytes
    comparison = Comparison(recording, trace)
    first = replay(recording, recording.settings, room_bytes, comparison)
    fidelity = comparison.result(first)
    settled = replace(recording, operations=recording.operations.settled(first.own_releases))
    # Which release is of torch is not recorded; the order of equal blocks is that of the job.
    wanted = [replace(settings, order=recording.settings.order) for settings in others]
    if capacity_bytes is not None:
        wanted.insert(0, recording.settings)
    progress(1, total)
    found = _side_by_side(settled, wanted, capacity_bytes or room_bytes, lambda done: progress(1 + done, total))
    return WhatIf(
        recording=recording,
        replays=tuple(found if capacity_bytes is not None else [first, *found]),
        fidelity=fidelity,
        explained=fidelity.explained(recording, first),
    )


def _side_by_side(
    recording: Recording, wanted: Sequence[Settings], capacity_bytes: int, progress: Callable[[int], None]
) -> list[Replay]:
    """Return a replay of each settings, from processes of their own that end with this call, however it ends."""
    if not wanted:
        return []
    processes = min(len(wanted), os.cpu_count() or 1)
    context = multiprocessing.get_context("spawn")
    known = set(multiprocessing.active_children())
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin_child) as executor:
        try:
            with _signals_put_off():
                futures = [executor.submit(replay, recording, settings, capacity_bytes) for settings in wanted]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                progress(done)
            return [future.result() for future in futures]
        except BrokenProcessPool:
            raise VramscopeError(
                "a process of the replay was ended from outside; is there enough memory? Try fewer settings at once"
            ) from None
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for child in set(multiprocessing.active_children()) - known:
                child.kill()


@contextmanager
def _signals_put_off() -> Iterator[None]:
    """Start children that no signal of a terminal reaches, and none halfway: they inherit what is blocked here."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_child() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    """End this process when its parent is gone, also where that was killed and could say nothing."""
    parent.join()
    os._exit(1)
