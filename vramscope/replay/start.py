"""What a file tells of the job's allocator beside its segments and blocks: its settings, and what the driver had free."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from vramscope.allocator import Settings, order_of, recorded_settings
from vramscope.snapshot.columns import Snapshot
from vramscope.trace.columns import DeviceTrace


class Free(NamedTuple):
    """What the driver has free at some event, by the out-of-memory ``oom_event``; measured there if it is that event."""

    size_bytes: int
    oom_event: int


def settings_of(snapshot: Snapshot) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings of the job that left ``snapshot``, and a line for each thing that they leave open.

    Those that count from the size of the card, which no file has, are left out.
    """
    settings, doubts = recorded_settings(snapshot.settings)
    guess = snapshot.torch_version_guess
    if not guess.endswith("or later"):
        settings = replace(settings, order=order_of(re.findall(r"\d+\.\d+", guess)[-1]))
    line = f"torch is {guess}, as the file looks: equal free blocks are taken in the order of {settings.order}"
    if settings.per_process_memory_fraction is None and not settings.throw_on_cudamalloc_oom:
        return settings, (*doubts, line)
    left_out = (
        "per_process_memory_fraction and throw_on_cudamalloc_oom are left out: the size of the card is not recorded"
    )
    usable = replace(settings, per_process_memory_fraction=None, throw_on_cudamalloc_oom=False)
    return usable, (*doubts, line, left_out)


def free_at(trace: DeviceTrace, event: int) -> Free | None:
    """Return what the driver had free after ``event``, None where no out-of-memory tells.

    An out-of-memory states it. From there on it is what the process has not taken since, if no other process took or gave any.
    """
    if not len(trace.events.oom_event):
        return None
    distance = abs(trace.events.oom_event.astype(int) - event)
    place = int(distance.argmin())
    oom_event, free_bytes = int(trace.events.oom_event[place]), int(trace.events.oom_device_free_bytes[place])
    if oom_event == event:
        return Free(free_bytes, oom_event)
    if trace.reserved_bytes is None:
        return None
    reserved = trace.reserved_bytes
    return Free(max(0, free_bytes + int(reserved[oom_event + 1]) - int(reserved[event + 1])), oom_event)
