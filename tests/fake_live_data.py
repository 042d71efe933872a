"""A LiveData in memory: made-up jobs and maps of any size, for tests and benchmarks of the page without other processes."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vramscope.agent.categories import CODE
from vramscope.columns import ACTIVE_ALLOCATED, ACTIVE_PENDING_FREE, INACTIVE, DeviceMap
from vramscope.errors import VramscopeError
from vramscope.metrics import CACHED_BLOCK
from vramscope.records import (
    HISTORY,
    CollectorStatus,
    DeviceInfo,
    DeviceReading,
    DeviceStats,
    DumpInfo,
    JobInfo,
    Mark,
    RankInfo,
    StackReply,
    Timeline,
)
from vramscope.units import GIB, MIB

START_UNIX_US = 1_790_000_000_000_000


def make_map(
    blocks: int, *, seed: int = 0, device: int = 0, expandable_share: float = 0.2, total_bytes: int | None = None
) -> DeviceMap:
    """Return a map of about ``blocks`` blocks: few large segments hold most bytes, many small ones most blocks."""
    random = np.random.default_rng(seed)
    segments = max(2, min(1000, blocks // 20))
    counts = np.maximum(1, random.pareto(1.2, segments) + 0.3)
    counts = np.maximum(1, counts / counts.sum() * blocks).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
    total = int(first[-1])
    sizes = np.maximum(1, random.lognormal(6, 2.2, total)).astype(np.uint64) * 512
    if total_bytes is not None:
        units = sizes / 512 * (total_bytes / float(sizes.sum()))
        sizes = np.maximum(1, units).astype(np.uint64) * 512
    segment_bytes = np.add.reduceat(sizes, first[:-1].astype(np.intp))
    gaps = np.where(random.random(segments) < 0.5, 0, 64 * MIB).astype(np.uint64)
    address = 0x7F3A_0000_0000 + np.concatenate([[0], np.cumsum(segment_bytes + gaps)[:-1]]).astype(np.uint64)
    ends = np.cumsum(sizes)
    offset = ends - sizes - np.repeat((ends - sizes)[first[:-1].astype(np.intp)], counts)
    state = random.choice([ACTIVE_ALLOCATED, INACTIVE, ACTIVE_PENDING_FREE], total, p=[0.82, 0.16, 0.02]).astype(
        np.uint8
    )
    block_address = np.repeat(address, counts) + offset
    named = np.flatnonzero((state == ACTIVE_ALLOCATED) & (random.random(total) < 0.5))[:5000]
    kinds = ("parameter", "gradient", "optimizer state")
    return DeviceMap(
        device=device,
        time_unix_us=int(time.time() * 1e6),
        segment_address=address,
        segment_total_bytes=segment_bytes,
        segment_stream=random.choice([0, 0, 0, 7], segments).astype(np.uint64),
        segment_pool_a=np.zeros(segments, np.uint64),
        segment_pool_b=(random.random(segments) < 0.05).astype(np.uint64),
        segment_is_small=(segment_bytes <= 2 * MIB).astype(np.uint8),
        segment_is_expandable=(random.random(segments) < expandable_share).astype(np.uint8),
        segment_first_block=first,
        block_address=block_address,
        block_bytes=sizes,
        block_requested_bytes=sizes - np.uint64(100),
        block_state=state,
        tensor_address=block_address[named],
        tensor_bytes=sizes[named] - np.uint64(100),
        tensor_category=np.array([CODE[kinds[i % 3]] for i in range(len(named))], np.uint8),
        tensor_labels=tuple(
            (f"layers.{i // 12}.attn.w{i % 12}", "(2048, 2048)", "bfloat16") for i in range(len(named))
        ),
        boundary_address=block_address[state == ACTIVE_ALLOCATED][::2],
    )


def churn(found: DeviceMap, *, share: float = 0.05, seed: int | None = None) -> DeviceMap:
    """Return ``found`` with the state of a share of its blocks drawn again, and its version advanced."""
    random = np.random.default_rng(seed)
    state = found.block_state.copy()
    chosen = random.integers(0, len(state), max(1, int(len(state) * share)))
    state[chosen] = random.choice([ACTIVE_ALLOCATED, INACTIVE], len(chosen), p=[0.8, 0.2])
    return replace(found, block_state=state, version=found.version + 1, time_unix_us=int(time.time() * 1e6))


@dataclass
class FakeLiveData:
    """Implements vramscope.records.LiveData. ``connected`` and ``ended`` can be switched by a test at any time."""

    blocks: int = 6000
    ranks: int = 2
    devices: int = 1
    connected: bool = True
    ended: bool = False
    no_jobs: bool = False
    messages: tuple[str, ...] = ()
    job_name: str = "llama3-8b-sft"
    simulated: bool = False
    updates_per_s: float = 4.0
    capacity_bytes: int = 80 * GIB
    history_s: int = 1200
    tensor_prefix: str = "layers."
    mark_label: str = "epoch 3"
    notes: tuple[str, ...] = ()
    expandable: bool = False
    dumps_folder: Path = Path(tempfile.gettempdir())
    _maps: dict[tuple[int, int], DeviceMap] = field(default_factory=dict)
    _dumps: list[DumpInfo] = field(default_factory=list)

    def status(self) -> CollectorStatus:
        return CollectorStatus(self.connected, self.messages, nvml_available=True)

    def jobs(self) -> list[JobInfo]:
        if self.no_jobs:
            return []
        ranks = tuple(
            RankInfo(
                rank=rank,
                local_rank=rank,
                pid=4000 + rank,
                host="node-03",
                started_unix_us=START_UNIX_US,
                ended_unix_us=int(time.time() * 1e6) if self.ended else None,
                end_reason="exited" if self.ended else None,
                torch_version="2.14.1",
                alloc_conf={},
                map_way="history-free",
                notes=self.notes,
                devices=tuple(
                    DeviceInfo(device, "NVIDIA H100 80GB HBM3", f"GPU-{rank}{device}", self.capacity_bytes)
                    for device in range(self.devices)
                ),
            )
            for rank in range(self.ranks)
        )
        return [JobInfo("job-1", self.job_name, self.ranks, self.simulated, ranks)]

    def _known(self, job_id: str, device: int, rank: int | None) -> bool:
        known_rank = rank is None or 0 <= rank < self.ranks
        return job_id == "job-1" and not self.no_jobs and 0 <= device < self.devices and known_rank

    def stats(self, job_id: str, device: int, rank: int | None = None) -> DeviceStats | None:
        if not self._known(job_id, device, rank):
            return None
        found = self._map(device, rank or 0)
        reserved = int(found.segment_total_bytes.sum())
        active = int(found.block_bytes[found.block_state != INACTIVE].sum())
        counters: dict[str, int | None] = {
            "reserved_bytes": reserved,
            "reserved_peak_bytes": reserved + GIB,
            "allocated_bytes": active,
            "active_bytes": active,
            "active_peak_bytes": active + GIB // 2,
            "requested_bytes": active - 100 * found.block_count,
            "inactive_split_bytes": reserved - active,
            "num_alloc_retries": 3,
            "num_ooms": 0,
            "device_free_bytes": self.capacity_bytes - reserved - 3 * GIB,
            "device_total_bytes": self.capacity_bytes,
        }
        free = found.block_bytes[found.block_state == INACTIVE]
        figures: dict[str, int | float | str | None] = {
            "largest_free_block_bytes": int(free.max(initial=0)),
            "largest_fit_bytes": int(free.max(initial=0)),
            "largest_fit_way": CACHED_BLOCK,
            "releasable_bytes": 200 * MIB,
            "rounding_waste_bytes": 100 * found.block_count,
            "stranded_ratio": (reserved - active) / reserved,
            "external_fragmentation_ratio": 1 - int(free.max(initial=0)) / max(1, int(free.sum())),
        }
        reading = DeviceReading(
            uuid=f"GPU-{rank or 0}{device}",
            nvml_index=0,
            name="NVIDIA H100 80GB HBM3",
            time_unix_us=found.time_unix_us,
            total_bytes=self.capacity_bytes,
            used_bytes=reserved + 3 * GIB,
        )
        agent = {
            "cost_ratio": 0.004,
            "budget_ratio": 0.01,
            "last_map_us": 2100,
            "counters_hz": 10.0,
            "map_interval_us": 250_000,
        }
        return DeviceStats(
            job_id=job_id,
            rank=rank or 0,
            device=device,
            time_unix_us=found.time_unix_us,
            step=1204,
            counters=counters,
            from_map=figures,
            map_time_unix_us=found.time_unix_us,
            agent=agent,
            nvml=reading,
            reserved_by_others_bytes=0,
        )

    def _map(self, device: int, rank: int) -> DeviceMap:
        key = (rank, device)
        found = self._maps.get(key)
        now = int(time.time() * 1e6)
        if found is None:
            found = self._new_map(rank * 8 + device, device)
        elif not self.ended and now - found.time_unix_us > 1e6 / self.updates_per_s:
            found = churn(found)
        self._maps[key] = found
        return found

    def _new_map(self, seed: int, device: int) -> DeviceMap:
        found = make_map(
            self.blocks,
            seed=seed,
            device=device,
            expandable_share=1.0 if self.expandable else 0.2,
            total_bytes=72 * GIB,
        )
        if self.expandable:
            # One reservation: what lies between its ranges is unmapped.
            same = np.zeros(found.segment_count, np.uint64)
            small = np.zeros(found.segment_count, np.uint8)
            found = replace(found, segment_stream=same, segment_pool_b=same, segment_is_small=small)
        labels = tuple(
            (self.tensor_prefix + name.removeprefix("layers."), shape, dtype)
            for name, shape, dtype in found.tensor_labels
        )
        return replace(found, tensor_labels=labels)

    def device_map(
        self, job_id: str, device: int, rank: int | None = None, *, max_age_s: float = 0.25
    ) -> DeviceMap | None:
        return self._map(device, rank or 0) if self._known(job_id, device, rank) else None

    def timeline(
        self,
        job_id: str,
        device: int,
        rank: int | None = None,
        *,
        from_unix_us: int | None,
        to_unix_us: int | None,
        points: int,
    ) -> Timeline | None:
        if not self._known(job_id, device, rank):
            return None
        last = int(time.time() * 1e6)
        first = last - self.history_s * 1_000_000
        start, end = max(first, from_unix_us or first), min(last, to_unix_us or last)
        moments = np.linspace(start, end, max(2, points)).astype(np.int64)
        seconds = (moments - START_UNIX_US) / 1e6
        wave = np.sin(seconds / 4)
        low = {name: np.full(len(moments), np.nan) for name in HISTORY}
        low["active_bytes"] = (58 + 3 * wave) * GIB
        low["reserved_bytes"] = np.full(len(moments), 72.0 * GIB)
        low["inactive_split_bytes"] = (11 + np.cos(seconds / 9)) * GIB
        low["nvml_used_bytes"] = np.full(len(moments), 75.0 * GIB)
        low["largest_fit_bytes"] = (1.5 + np.sin(seconds / 7)) * GIB
        hole = (moments // 1_000_000 % 300) < 20
        for values in low.values():
            values[hole] = np.nan
        high = {name: values * 1.01 for name, values in low.items()}
        step_us = max((end - start) // 40, 1)
        steps = range(start - start % step_us + step_us, end, step_us)
        marks = (
            Mark((start + end) // 2, rank or 0, "retry", "allocation retry", device),
            Mark(start + (end - start) // 4, rank or 0, "user", self.mark_label),
            *(Mark(moment, rank or 0, "step", str(moment // step_us)) for moment in steps),
        )
        return Timeline(
            moments, low, high, (end - start) // len(moments), marks, first_unix_us=first, last_unix_us=last
        )

    def readings(self) -> list[DeviceReading]:
        found = [self.stats("job-1", device) for device in range(self.devices)]
        return [stats.nvml for stats in found if stats is not None and stats.nvml is not None]

    def stack(self, job_id: str, device: int, rank: int | None, address: int) -> StackReply:
        if address % 1024:
            return StackReply(reason="history recording is off in this job, so blocks have no stacks")
        return StackReply((("train.py", 88, "main"), ("model.py", 612, "forward")))

    def dump(self, job_id: str, rank: int | None = None) -> DumpInfo:
        if self.ended or not self._known(job_id, 0, rank):
            raise VramscopeError("the job has ended, so it cannot write a snapshot; its last map is still shown")
        path = self.dumps_folder / f"vramscope-fake-{len(self._dumps)}.pickle"
        path.write_bytes(bytes(12345))
        moment_us = int(time.time() * 1e6)
        self._dumps.append(DumpInfo(f"dump-{len(self._dumps)}", job_id, rank or 0, moment_us, str(path), 12345))
        return self._dumps[-1]

    def dumps(self, job_id: str | None = None) -> list[DumpInfo]:
        return list(self._dumps)
