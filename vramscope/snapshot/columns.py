"""A memory snapshot as frozen numpy columns: the final state and the trace of each device, stacks, annotations and settings."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vramscope.columns import U8, U32, U64, DeviceMap

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

# Trace actions in the order of their codes (torch 2.14); those of later releases get UNKNOWN_ACTION and are counted.
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
)
ACTION_CODE = {name: code for code, name in enumerate(ACTIONS)}
UNKNOWN_ACTION = 255

# The device number of pinned host memory.
HOST = -1

# No stack.
NONE = -1

# No device, nor the pinned memory of a machine, has more; pictures count their bytes up to here.
MOST_BYTES = 1 << 45

Setting = str | int | float | bool | None
Settings = dict[str, Setting | dict[str, Setting]]


@dataclass(frozen=True, eq=False)
class Texts:
    """N texts as UTF-8: text ``i`` lies in ``utf8[first[i]:first[i + 1]]``; ``first`` has shape (N + 1,)."""

    first: U64
    utf8: U8

    def __len__(self) -> int:
        return len(self.first) - 1

    def get(self, index: int) -> str:
        """Return text ``index``."""
        raw = self.utf8[int(self.first[index]) : int(self.first[index + 1])]
        return raw.tobytes().decode("utf-8", "replace")


@dataclass(frozen=True, eq=False)
class Stacks:
    """K different stacks over F different frames, each frame from the innermost out.

    The frames of stack ``k`` are ``stack_frame[stack_first[k]:stack_first[k + 1]]``; ``frame_file`` and ``frame_name`` (F,) are
    indices of the snapshot's texts, ``frame_line`` (F,) the line.
    """

    stack_first: U32
    stack_frame: U32
    frame_file: I32
    frame_line: I64
    frame_name: I32

    def __len__(self) -> int:
        return len(self.stack_first) - 1


@dataclass(frozen=True, eq=False)
class Events:
    """The trace of one device, in its order; all columns have shape (E,) but those of ``oom_``, which have (O,).

    ``size_bytes`` is what PyTorch writes there: the *requested* bytes of alloc and free_*, the real bytes of segment_*,
    the rounded request of oom, the active bytes of snapshot. ``address`` means nothing for oom, nor do address, size and
    stream for an action that this version does not know. A column is None where the release that wrote the file had none
    (or not for every event): ``time_us`` (Unix time) before 2.2, the pool's two numbers before 2.12, ``compile_context``
    before 2.8, ``user_metadata`` before 2.10; the last two are indices of the snapshot's texts, ``stack`` one of its stacks.
    ``oom_event`` are the positions of the oom events, ``oom_device_free_bytes`` what the driver had free at each.
    """

    action: U8
    address: U64
    size_bytes: U64
    stream: U64
    stack: I32
    oom_event: U32
    oom_device_free_bytes: U64
    time_us: I64 | None = None
    pool_a: U64 | None = None
    pool_b: U64 | None = None
    compile_context: I32 | None = None
    user_metadata: I32 | None = None

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, eq=False)
class DeviceSnapshot:
    """One device (or HOST: pinned memory) at the moment of the snapshot, with the trace that led there.

    ``state`` are its segments and blocks; ``segment_stack`` (S,) and ``block_stack`` (B,) are their stacks. ``stated_*`` sum the
    totals that the segments state of themselves. ``requested_bytes`` of blocks and segments is not known before torch
    2.0: then ``stated_requested_bytes`` is None and the column is 0. ``contradiction`` says in one line how the file
    contradicts itself, None where blocks fill their segments and sum to the stated totals.
    """

    device: int
    state: DeviceMap
    segment_stack: I32
    block_stack: I32
    events: Events
    stated_allocated_bytes: int
    stated_active_bytes: int
    stated_requested_bytes: int | None
    contradiction: str | None = None


@dataclass(frozen=True, eq=False)
class Annotations:
    """``external_annotations``: named regions, as START and END on a device; columns have shape (A,)."""

    is_start: U8
    name: I32
    device: I32
    time_us: I64

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Everything of one file. ``devices`` are those that it names, by number; ``host`` is pinned memory (torch 2.14).

    ``container`` is what the file was ("pickle, protocol 4", "JSON in gzip" …); ``torch_version_guess`` is from the keys that
    are there. ``ignored`` counts what was passed over, by name; ``notes`` are lines about the file that its reader should know.
    """

    container: str
    torch_version_guess: str
    devices: tuple[DeviceSnapshot, ...]
    host: DeviceSnapshot | None
    stacks: Stacks
    texts: Texts
    annotations: Annotations
    settings: Settings
    ignored: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def frames(self, stack: int) -> list[tuple[str, int, str]]:
        """Return (file, line, function) of each frame of ``stack``, from the innermost out; none for NONE."""
        if stack == NONE:
            return []
        stacks, texts = self.stacks, self.texts
        low, high = int(stacks.stack_first[stack]), int(stacks.stack_first[stack + 1])
        return [
            (texts.get(int(stacks.frame_file[f])), int(stacks.frame_line[f]), texts.get(int(stacks.frame_name[f])))
            for f in stacks.stack_frame[low:high].tolist()
        ]


def exact_sum(values: U64) -> int:
    """Return the sum of 64-bit numbers as a Python integer, which cannot overflow."""
    high, low = values >> np.uint64(32), values & np.uint64(0xFFFF_FFFF)
    return (int(high.sum(dtype=np.uint64)) << 32) + int(low.sum(dtype=np.uint64))
