"""The allocator's options, those that are known to harm each other, and what a snapshot records of them."""

from __future__ import annotations

from dataclasses import dataclass

from vramscope.allocator.rounding import LARGE_SEGMENT_BYTES

# From the newest: torch's release (major, minor) since which free blocks are sorted so.
_ORDERS = (((2, 13), "2.13"), ((2, 12), "2.12"), ((0, 0), "2.11"))


@dataclass(frozen=True)
class Settings:
    """The options of torch 2.14's native allocator that decide where memory goes, with its defaults.

    ``max_split_size_bytes`` None is no limit; ``max_non_split_rounding_bytes`` None is the large segment size. ``order`` names the
    first release whose order of free blocks is used ("2.11" stands for all before 2.12): by stream and size, and then

    - "2.11": by address,
    - "2.12": by a counter of blocks in the order in which they were made,
    - "2.13": by a counter of segments, and in a segment by address.

    Nothing else of older releases is simulated. ``text`` is what was parsed.
    """

    expandable_segments: bool = False
    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int | None = None
    roundup_power2_divisions: tuple[int, ...] = ()
    garbage_collection_threshold: float = 0.0
    per_process_memory_fraction: float | None = None
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    throw_on_cudamalloc_oom: bool = False
    graph_capture_record_stream_reuse: bool = False
    order: str = "2.13"
    text: str = ""

    @property
    def non_split_rounding_bytes(self) -> int:
        """How much larger than an oversize request the block may be that serves it."""
        if self.max_non_split_rounding_bytes is None:
            return self.large_segment_bytes
        return self.max_non_split_rounding_bytes

    @property
    def max_split_size(self) -> int:
        """The limit as PyTorch prints it: a signed number of 64 bits, -1 for none."""
        return (
            -1 if self.max_split_size_bytes is None else (self.max_split_size_bytes + (1 << 63)) % (1 << 64) - (1 << 63)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is known to be wrong with these options together, one line each."""
        found = [
            (
                self.max_split_size_bytes is not None and self.expandable_segments,
                "max_split_size_mb with expandable_segments: free blocks above the limit are not used for smaller requests, and"
                " new pages are mapped instead, so that reserved memory may grow without end (pytorch#193400)",
            ),
            (
                self.garbage_collection_threshold > 0 and not self._has_limit,
                "garbage_collection_threshold does nothing without per_process_memory_fraction below 1",
            ),
            (
                self.garbage_collection_threshold > 0 and self.expandable_segments,
                "garbage_collection_threshold does not free pages of expandable_segments",
            ),
            (
                self.max_non_split_rounding_bytes is not None and self.max_split_size_bytes is None,
                "max_non_split_rounding_mb does nothing without max_split_size_mb",
            ),
            (
                self.graph_capture_record_stream_reuse,
                "graph_capture_record_stream_reuse is not simulated: it follows the nodes of a graph",
            ),
        ]
        return tuple(line for holds, line in found if holds)

    @property
    def _has_limit(self) -> bool:
        return self.per_process_memory_fraction is not None and self.per_process_memory_fraction < 1

    def is_oversize(self, block_bytes: int) -> bool:
        """Return whether blocks of this size are never split."""
        return self.max_split_size_bytes is not None and block_bytes >= self.max_split_size_bytes

    def limit_bytes(self, capacity_bytes: int) -> int | None:
        """Return how much may be reserved under the memory fraction, or None where there is no such limit."""
        fraction = self.per_process_memory_fraction
        return None if fraction is None or fraction >= 1 else int(fraction * capacity_bytes)


def order_of(torch_version: str) -> str:
    """Return the :attr:`Settings.order` of a release of torch ("2.14.1+cu130"). Raises ValueError for another text."""
    major, minor = (int(part) for part in torch_version.split(".")[:2])
    return next(order for first, order in _ORDERS if (major, minor) >= first)
