"""Blocks, the segments they are cut from, and the sorted sets of free and unmapped blocks of a pool."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

# A stack, innermost frame first: (filename, line, name).
Frames = tuple[tuple[str, int, str], ...]
PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)


class Segment:
    """What one cudaMalloc gave or, where ``page_bytes`` is not 0, the address space of an expandable segment.

    ``number`` counts segments in the order in which they were made.
    """

    __slots__ = ("address", "first", "is_expandable", "number", "page_bytes", "pool", "size_bytes", "stream")

    def __init__(
        self, address: int, size_bytes: int, stream: int, pool: Pool, number: int, page_bytes: int = 0
    ) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.stream = stream
        self.pool = pool
        self.number = number
        self.page_bytes = page_bytes
        self.is_expandable = page_bytes > 0
        self.first: Block | None = None

    def blocks(self) -> Iterator[Block]:
        block = self.first
        while block is not None:
            yield block
            block = block.next


class Block:
    """A piece of a segment. ``mapped`` is False for address space of an expandable segment that has no memory behind it.

    A block is ``is_idle`` from the end of one use to the beginning of the next; one that is neither idle nor ``allocated`` is
    pending: ``events`` counts the uses by other streams that its free waits for, and while a graph is captured ``stream_uses``
    keeps their streams (``capture_uses`` those that were recorded in a capture). ``rank`` stands between size and address where
    free blocks are sorted. ``frames`` are those of its allocation, ``segment_frames`` (on the first block of a mapped range)
    those of its segment's.
    """

    __slots__ = (
        "address",
        "allocated",
        "capture_uses",
        "events",
        "frames",
        "is_idle",
        "mapped",
        "next",
        "prev",
        "rank",
        "requested_bytes",
        "searches_at_insert",
        "segment",
        "segment_frames",
        "size_bytes",
        "stream_uses",
    )

    def __init__(self, segment: Segment, address: int, size_bytes: int, rank: int, mapped: bool = True) -> None:
        self.segment = segment
        self.address = address
        self.size_bytes = size_bytes
        self.rank = rank
        self.mapped = mapped
        self.is_idle = True
        self.allocated = False
        self.requested_bytes = 0
        self.events = 0
        self.stream_uses: set[int] | None = None
        self.capture_uses: set[int] | None = None
        self.prev: Block | None = None
        self.next: Block | None = None
        self.frames: Frames = ()
        self.segment_frames: Frames = ()
        self.searches_at_insert = 0

    @property
    def is_split(self) -> bool:
        return self.prev is not None or self.next is not None

    @property
    def end(self) -> int:
        return self.address + self.size_bytes

    def expandable_bytes(self) -> int:
        """Return the size to which this block can grow in place: its own and that of unmapped space behind it."""
        behind = self.next
        return self.size_bytes + (behind.size_bytes if behind is not None and not behind.mapped else 0)

    def link_between(self, before: Block | None, after: Block | None) -> None:
        """Put this block between two neighbours of its segment."""
        self.prev, self.next = before, after
        if before is None:
            self.segment.first = self
        else:
            before.next = self
        if after is not None:
            after.prev = self


# A block as its set sorts it. No two entries are equal before the block, which is never compared.
Entry = tuple[int, int, int, Block]


class BlockSet:
    """Blocks sorted by stream and then by size, rank and address, or by address alone.

    None of these may change while a block is in the set.
    """

    __slots__ = ("_by_size", "_by_stream")

    def __init__(self, *, by_size: bool) -> None:
        self._by_size = by_size
        self._by_stream: dict[int, list[Entry]] = {}

    def insert(self, block: Block) -> None:
        entry = (block.size_bytes, block.rank, block.address, block) if self._by_size else (0, 0, block.address, block)
        entries = self._by_stream.get(block.segment.stream)
        if entries is None:
            self._by_stream[block.segment.stream] = [entry]
        else:
            insort(entries, entry)

    def remove(self, block: Block) -> None:
        entries = self._by_stream[block.segment.stream]
        key = (block.size_bytes, block.rank, block.address) if self._by_size else (0, 0, block.address)
        # A shorter tuple sorts right before the longer ones that begin with it.
        index = bisect_left(entries, key)
        if index == len(entries) or entries[index][3] is not block:
            raise KeyError(f"the block at {block.address:#x} is not in the set")
        del entries[index]

    def of_stream(self, stream: int) -> list[Entry]:
        """Return the set's own sorted list for a stream: read it, and do not hold it across a change."""
        return self._by_stream.get(stream, [])

    def __iter__(self) -> Iterator[Block]:
        for stream in sorted(self._by_stream):
            for entry in self._by_stream[stream]:
                yield entry[3]


def first_of_size(entries: list[Entry], size_bytes: int) -> int:
    """Return the place of the first entry of at least ``size_bytes`` in a list that is sorted by size."""
    return bisect_left(entries, (size_bytes,))


class Pool:
    """The free and unmapped blocks of one size class: the small or the large half of the default or of a private pool."""

    __slots__ = ("free", "id", "is_small", "searches", "splits", "unmapped")

    def __init__(self, *, is_small: bool, id: PoolId = DEFAULT_POOL, splits: bool = True) -> None:
        self.is_small = is_small
        self.id = id
        self.splits = splits
        self.free = BlockSet(by_size=True)
        self.unmapped = BlockSet(by_size=False)
        # Searches for a free block so far: garbage collection tells the age of a block by them.
        self.searches = 0

    def insert_free(self, block: Block) -> None:
        block.searches_at_insert = self.searches
        self.free.insert(block)

    def age(self, block: Block) -> int:
        return self.searches - block.searches_at_insert


def try_merge(block: Block, neighbour: Block | None) -> int:
    """Merge an idle ``neighbour`` in the same mapped state into ``block``; return the bytes gained, or 0."""
    if neighbour is None or not neighbour.is_idle or neighbour.mapped != block.mapped:
        return 0
    pool = block.segment.pool
    (pool.free if neighbour.mapped else pool.unmapped).remove(neighbour)
    if neighbour is block.prev:
        block.address = neighbour.address
        block.segment_frames = neighbour.segment_frames
        block.link_between(neighbour.prev, block.next)
    else:
        block.link_between(block.prev, neighbour.next)
    block.size_bytes += neighbour.size_bytes
    return neighbour.size_bytes
