"""PyTorch's names of block states and counters, with their codes on the wire. Standard library only."""

from __future__ import annotations

# Block states, in the order of their codes; the names are PyTorch's (docstrings also say active_awaiting_free).
STATES = ("active_allocated", "active_pending_free", "inactive")
ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE = range(len(STATES))
STATE_CODE = {**{name: code for code, name in enumerate(STATES)}, "active_awaiting_free": 1}

# The counters an agent sends for each device, at up to 10 Hz, with the place in torch._C._cuda_memoryStats().
COUNTERS: dict[str, tuple[str, ...]] = {
    "reserved_bytes": ("reserved_bytes", "all", "current"),
    "reserved_peak_bytes": ("reserved_bytes", "all", "peak"),
    "allocated_bytes": ("allocated_bytes", "all", "current"),
    "allocated_peak_bytes": ("allocated_bytes", "all", "peak"),
    "active_bytes": ("active_bytes", "all", "current"),
    "active_peak_bytes": ("active_bytes", "all", "peak"),
    "requested_bytes": ("requested_bytes", "all", "current"),
    "inactive_split_bytes": ("inactive_split_bytes", "all", "current"),
    "segments": ("segment", "all", "current"),
    "active_blocks": ("active", "all", "current"),
    "inactive_split_blocks": ("inactive_split", "all", "current"),
    "allocations": ("allocation", "all", "allocated"),
    "num_alloc_retries": ("num_alloc_retries",),
    "num_ooms": ("num_ooms",),
    # From cudaMemGetInfo (once a second) or the simulated driver; None where it could not be asked.
    "device_free_bytes": (),
    "device_total_bytes": (),
}
