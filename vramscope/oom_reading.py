"""What an out-of-memory message and a memory summary say, in plain words: what the numbers can tell, and what they cannot.

Every comparison holds with the rounding of both sides; where rounding could turn it over, nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable

from vramscope.memory_summary import CURRENT, PEAK, SummaryTable
from vramscope.oom_formats import DISGUISED, FOREIGN, OUTSIDE, RETRY
from vramscope.oom_text import OutOfMemory, Size
from vramscope.units import MISSING, format_bytes

_BACKENDS = {
    "cuda-async": "CUDA (cudaMallocAsync)",
    "paddle": "PaddlePaddle",
    "tensorflow": "TensorFlow",
    "cpu": "Host",
}

# The rows of a reading: the first are shown as missing where a message lacks them.
_ALWAYS = {"tried": "tried to allocate", "free": "free on the device", "total": "capacity", "allocated": "allocated"}
_WHERE_NAMED = {
    "private_pools": "of that in private pools",
    "active": "active",
    "reserved": "reserved in total",
    "unallocated": "reserved, unallocated",
    "cached": "cached, unallocated",
    "in_use": "in use by this process",
    "other": "other allocations",
    "allowed": "PyTorch's limit",
}
_KINDS = {
    DISGUISED: "This failure is usually an out-of-memory whose message could not be built: it gives no numbers.",
    OUTSIDE: "The driver or a library said so, not PyTorch's caching allocator, and gave no numbers.",
    FOREIGN: "This does not come from PyTorch's allocator of GPU memory.",
    RETRY: "A warning: one cudaMalloc failed. PyTorch frees its cache and tries again; the error itself is not in the text.",
}


def describe(message: OutOfMemory) -> list[str]:
    """Return the lines of one message's reading: a title, its figures, and what follows from them."""
    place = "" if message.device is None else f" on device {message.device}"
    rank = "" if message.rank is None else f", rank {message.rank}"
    times = "" if message.times == 1 else f" ({message.times} times the same)"
    if message.kind == FOREIGN and not message.has_numbers:
        return ["Not an out-of-memory message of PyTorch's", f"  - {_KINDS[FOREIGN]}"]
    title = f"{_BACKENDS.get(message.backend, message.backend.upper())} out of memory{place}{rank}{times}"
    return [title, *_figures(message), *(f"  - {line}" for line in findings(message))]


def describe_table(table: SummaryTable) -> list[str]:
    """Return the lines of a memory summary's reading; its sizes are rounded down."""
    place = MISSING if table.device is None else str(table.device)
    lines = [f"Memory summary of device {place} (sizes rounded down)"]
    for name, pools in table.metrics.items():
        if name.endswith("memory"):
            current, peak = (format_bytes(pools["all"][column].value) for column in (CURRENT, PEAK))
            lines.append(f"  {name:<24}{current:>12} now {peak:>12} peak")
    if table.ooms is not None:
        lines.append(f"  out-of-memory errors {table.ooms}, retries after freeing the cache {table.retries}")
    return lines


def named_sizes(message: OutOfMemory) -> list[tuple[str, Size | None]]:
    """Return what a message says of sizes, by their names in plain words; None where it gives no real size, or none at all."""
    sizes = message.sizes
    if message.exact_tried_bytes is not None:
        sizes = {**sizes, "tried": Size(f"{message.exact_tried_bytes} bytes", message.exact_tried_bytes, 0)}
    rows = [(label, sizes.get(key)) for key, label in _ALWAYS.items()]
    rows += [(label, sizes[key]) for key, label in _WHERE_NAMED.items() if key in sizes]
    return [*rows, *((f"in use by process {pid}", size) for pid, size in message.processes)]


def _figures(message: OutOfMemory) -> list[str]:
    if not message.has_numbers:
        return []
    missing = {_WHERE_NAMED["allowed"]: "none"}
    return [
        f"  {label:<28}{size.text if size else missing.get(label, MISSING):>14}" for label, size in named_sizes(message)
    ]


def findings(message: OutOfMemory) -> list[str]:
    """Return what follows from a message, a sentence each."""
    found = [_KINDS[message.kind]] if message.kind in _KINDS else []
    if message.kind != FOREIGN and message.sizes:
        found += [line for finding in _FINDINGS if (line := finding(message))]
        found.append(
            "The message alone cannot say how large the largest hole is, nor what holds the memory: a snapshot can "
            "(torch.cuda.memory._dump_snapshot)."
        )
    elif not message.has_numbers and not found:
        found = ["The text holds no number: it was cut, or this release prints none."]
    return found


def _what_was_tried(message: OutOfMemory) -> str | None:
    if "tried" not in message.sizes or message.backend in ("cuda-async", "mps"):
        return None
    return "What was tried is the segment that PyTorch wanted from the device, not the tensor: 20 MiB for 1 to 10 MiB."


def _more_than_the_device(message: OutOfMemory) -> str | None:
    tried, total = message.sizes.get("tried"), message.sizes.get("total")
    if tried and total and tried.least_bytes > total.most_bytes:
        return "More was asked for than the whole device has: no allocator setting can help."
    return None


def _limit(message: OutOfMemory) -> str | None:
    if allowed := message.sizes.get("allowed"):
        return f"PyTorch was allowed {allowed.text} only (a memory fraction or watermark), however much the device has."
    return None


def _free_was_enough(message: OutOfMemory) -> str | None:
    tried, free = message.sizes.get("tried"), message.sizes.get("free")
    if tried and free and free.least_bytes > tried.most_bytes and not message.sizes.get("allowed"):
        return (
            "More was free than was asked for, and the numbers do not say why it failed: a limit that this release does not "
            "print, memory freed a moment later, or the system's own limit (Windows, WSL)."
        )
    return None


def _packed(message: OutOfMemory) -> str | None:
    tried, free, idle = message.sizes.get("tried"), message.sizes.get("free"), _idle_bytes(message)
    if not (tried and free and idle) or free.least_bytes > tried.most_bytes or _more_than_the_device(message):
        return None
    least, most = free.least_bytes + idle[0], free.most_bytes + idle[1]
    about = f"Free and reserved but unallocated memory are about {format_bytes((least + most) // 2)} together"
    if most < tried.least_bytes:
        return f"{about}: even packed without a gap, the request would not have fitted."
    if least > tried.most_bytes:
        return f"{about}, more than was asked for: holes in PyTorch's segments can be the cause."
    return None


def _outside(message: OutOfMemory) -> str | None:
    total, free, allocated = (message.sizes.get(key) for key in ("total", "free", "allocated"))
    idle = _idle_bytes(message)
    if not (total and free and allocated and idle):
        return None
    least = total.least_bytes - free.most_bytes - allocated.most_bytes - idle[1]
    if least <= 0:
        return None
    return f"At least {format_bytes(least)} are held outside PyTorch's allocator: other processes, CUDA contexts, libraries."


def _contradictions(message: OutOfMemory) -> str | None:
    for smaller, larger, why in (
        (
            "total",
            "free",
            "More is free than the device has: the capacity is not the memory in use here (integrated GPU).",
        ),
        (
            "total",
            "allocated",
            "More is allocated than the device has: the driver lends the host's memory (Windows, WSL).",
        ),
        ("in_use", "allocated", "The driver did not see this process (a container): its figure in use is no reading."),
    ):
        less, more = message.sizes.get(smaller), message.sizes.get(larger)
        if less and more and more.least_bytes > less.most_bytes:
            return why
    return None


def _idle_bytes(message: OutOfMemory) -> tuple[int, int] | None:
    """Return the least and most bytes that PyTorch reserved and did not use: printed, or from the reserved total."""
    sizes = message.sizes
    if idle := sizes.get("unallocated") or sizes.get("cached"):
        return idle.least_bytes, idle.most_bytes
    reserved, allocated = sizes.get("reserved"), sizes.get("allocated")
    if reserved and allocated:
        return _less(reserved, allocated)
    return None


def _less(whole: Size, part: Size) -> tuple[int, int]:
    return max(0, whole.least_bytes - part.most_bytes), max(0, whole.most_bytes - part.least_bytes)


_FINDINGS: tuple[Callable[[OutOfMemory], str | None], ...] = (
    _what_was_tried,
    _more_than_the_device,
    _limit,
    _free_was_enough,
    _outside,
    _packed,
    _contradictions,
)
