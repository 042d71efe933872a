"""The error for a request that no memory was found for, with the text of PyTorch 2.14."""

from __future__ import annotations

from vramscope.allocator.search import Request
from vramscope.allocator.state import State
from vramscope.errors import VramscopeError
from vramscope.units import GIB, KIB, MIB

_ADVICE = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


def format_size(size_bytes: int) -> str:
    """Return a size as PyTorch's messages print it: exactly 1 GiB is "1024.00 MiB"."""
    if size_bytes <= KIB:
        return f"{size_bytes} bytes"
    for limit_bytes, unit_bytes, unit in ((MIB, KIB, "KiB"), (GIB, MIB, "MiB")):
        if size_bytes <= limit_bytes:
            return f"{size_bytes / unit_bytes:.2f} {unit}"
    return f"{size_bytes / GIB:.2f} GiB"


class OutOfMemory(VramscopeError):
    """No memory for a request; the text is PyTorch's. ``tried_bytes`` is the segment that the driver was asked for."""

    def __init__(self, text: str, *, requested_bytes: int, tried_bytes: int, device_free_bytes: int) -> None:
        super().__init__(text)
        self.requested_bytes = requested_bytes
        self.tried_bytes = tried_bytes
        self.device_free_bytes = device_free_bytes


def out_of_memory(state: State, request: Request) -> OutOfMemory:
    """Count and record that a request failed, and return the error to raise."""
    free_bytes = state.driver.free_bytes
    state.record("oom", free_bytes, request.block_bytes, request.stream, request.pool.id, request.frames)
    state.statistics.num_ooms += 1
    return _error(state, request, _text(state, request.segment_bytes))


def preempted(state: State, request: Request) -> OutOfMemory:
    """Count that the driver was not even asked (throw_on_cudamalloc_oom), and return the error to raise."""
    state.statistics.num_oom_rejections += 1
    text = (
        "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit."
        f" Requested size: {format_size(request.requested_bytes)}"
    )
    return _error(state, request, text)


def _error(state: State, request: Request, text: str) -> OutOfMemory:
    return OutOfMemory(
        text,
        requested_bytes=request.requested_bytes,
        tried_bytes=request.segment_bytes,
        device_free_bytes=state.driver.free_bytes,
    )


def _text(state: State, tried_bytes: int) -> str:
    """Return PyTorch's message. Of the other processes it names those that NVML tells of, this one last."""
    driver, limit_bytes = state.driver, state.limit_bytes
    allocated_bytes = state.statistics.allocated_bytes.current
    halves = [half for private in state.private_pools.values() for half in (private.small, private.large)]
    # What PyTorch calls "allocated in private pools" are the free blocks that only those pools can use.
    private_bytes = sum(block.size_bytes for half in halves for block in half.free)
    others = "".join(
        f"Process {pid} has {format_size(used)} memory in use. " for pid, used in driver.other_processes.items()
    )
    limit = f"{format_size(limit_bytes)} allowed; " if limit_bytes is not None else ""
    private = f"with {format_size(private_bytes)} allocated in private pools (e.g., CUDA Graphs), "
    return (
        f"CUDA out of memory. Tried to allocate {format_size(tried_bytes)}."
        f" GPU {state.device} has a total capacity of {format_size(driver.capacity_bytes)}"
        f" of which {format_size(driver.free_bytes)} is free."
        f" {others}Including non-PyTorch memory, this process has {format_size(driver.used_bytes)} memory in use. {limit}"
        f"Of the allocated memory {format_size(allocated_bytes + private_bytes)} is allocated by PyTorch,"
        f" {private if private_bytes else ''}"
        f"and {format_size(state.reserved_bytes - allocated_bytes - private_bytes)}"
        f" is reserved by PyTorch but unallocated.{'' if state.settings.expandable_segments else _ADVICE}"
    )
