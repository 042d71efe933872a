"""The allocator's counters, in the shape of ``torch._C._cuda_memoryStats(device)``."""

from __future__ import annotations

from typing import Any

from vramscope.allocator.blocks import DEFAULT_POOL, PoolId

_BY_POOL = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)


class Counter:
    """A figure with its peak and the sums of its increases and decreases."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Add ``amount``, which is a decrease where it is negative."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            self.peak = max(self.peak, self.current)
        else:
            self.freed -= amount

    def as_dict(self) -> dict[str, int]:
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}


class PoolCounter:
    """A counter for the small pool, the large pool and both."""

    __slots__ = ("all", "large", "small")

    def __init__(self) -> None:
        self.all, self.small, self.large = Counter(), Counter(), Counter()

    def add(self, amount: int, is_small: bool) -> None:
        self.all.add(amount)
        (self.small if is_small else self.large).add(amount)

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {"all": self.all.as_dict(), "small_pool": self.small.as_dict(), "large_pool": self.large.as_dict()}


class Statistics:
    """All counters of one device, by the names of PyTorch's ``DeviceStats``; private pools count under their size class."""

    def __init__(self) -> None:
        self.allocation = PoolCounter()
        self.segment = PoolCounter()
        self.active = PoolCounter()
        self.inactive_split = PoolCounter()
        self.allocated_bytes = PoolCounter()
        self.reserved_bytes = PoolCounter()
        self.active_bytes = PoolCounter()
        self.inactive_split_bytes = PoolCounter()
        self.requested_bytes = PoolCounter()
        # A pool's counter stays when the pool is gone, as in PyTorch.
        self.reserved_bytes_by_private_pools: dict[PoolId, PoolCounter] = {}
        self.oversize_allocations = Counter()
        self.oversize_segments = Counter()
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def add_reserved(self, amount_bytes: int, is_small: bool, pool_id: PoolId) -> None:
        self.reserved_bytes.add(amount_bytes, is_small)
        if pool_id != DEFAULT_POOL:
            self.reserved_bytes_by_private_pools.setdefault(pool_id, PoolCounter()).add(amount_bytes, is_small)

    def as_dict(self, max_split_size_bytes: int | None) -> dict[str, Any]:
        """Return the nested form; ``max_split_size`` is -1 where there is no limit, as PyTorch prints it.

        ``num_oom_rejections`` is 0 because the option that rejects (throw_on_cudamalloc_oom) is not simulated.
        """
        by_pool = {pool_id: counter.as_dict() for pool_id, counter in self.reserved_bytes_by_private_pools.items()}
        return {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "max_split_size": -1 if max_split_size_bytes is None else max_split_size_bytes,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_oom_rejections": 0,
            **{name: getattr(self, name).as_dict() for name in _BY_POOL},
            "reserved_bytes_by_private_pools": by_pool,
            "oversize_allocations": self.oversize_allocations.as_dict(),
            "oversize_segments": self.oversize_segments.as_dict(),
        }
