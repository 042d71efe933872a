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
    """A figure with its peak and the sum of its increases; the sum of its decreases is what is left between the two."""

    __slots__ = ("allocated", "current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = 0

    def increase(self, amount: int) -> None:
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def decrease(self, amount: int) -> None:
        self.current -= amount

    def as_dict(self) -> dict[str, int]:
        freed = self.allocated - self.current
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": freed}


class PoolCounter:
    """A counter for the small pool and one for the large pool; ``peak`` is that of both together."""

    __slots__ = ("large", "peak", "small")

    def __init__(self) -> None:
        self.small, self.large = Counter(), Counter()
        self.peak = 0

    @property
    def current(self) -> int:
        return self.small.current + self.large.current

    def increase(self, amount: int, is_small: bool) -> None:
        # Counter.increase() written out: five counters go up with every request.
        half = self.small if is_small else self.large
        half.current += amount
        half.allocated += amount
        if half.current > half.peak:
            half.peak = half.current
        current = self.small.current + self.large.current
        if current > self.peak:
            self.peak = current

    def decrease(self, amount: int, is_small: bool) -> None:
        (self.small if is_small else self.large).current -= amount

    def change(self, amount: int, is_small: bool) -> None:
        """Increase, or decrease where ``amount`` is negative."""
        if amount > 0:
            self.increase(amount, is_small)
        else:
            self.decrease(-amount, is_small)

    def as_dict(self) -> dict[str, dict[str, int]]:
        allocated, current = self.small.allocated + self.large.allocated, self.current
        both = {"current": current, "peak": self.peak, "allocated": allocated, "freed": allocated - current}
        return {"all": both, "small_pool": self.small.as_dict(), "large_pool": self.large.as_dict()}


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
        self.num_oom_rejections = 0

    def change_reserved(self, amount_bytes: int, is_small: bool, pool_id: PoolId) -> None:
        """Count memory that was taken from the driver or, where ``amount_bytes`` is negative, given back."""
        self.reserved_bytes.change(amount_bytes, is_small)
        if pool_id != DEFAULT_POOL:
            self.reserved_bytes_by_private_pools.setdefault(pool_id, PoolCounter()).change(amount_bytes, is_small)

    def as_dict(self, max_split_size: int) -> dict[str, Any]:
        """Return the nested form, with the ``max_split_size`` of the settings, -1 where there is no limit."""
        by_pool = {pool_id: counter.as_dict() for pool_id, counter in self.reserved_bytes_by_private_pools.items()}
        return {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "max_split_size": max_split_size,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_oom_rejections": self.num_oom_rejections,
            **{name: getattr(self, name).as_dict() for name in _BY_POOL},
            "reserved_bytes_by_private_pools": by_pool,
            "oversize_allocations": self.oversize_allocations.as_dict(),
            "oversize_segments": self.oversize_segments.as_dict(),
        }
