"""Blocks, the segments they are cut from, and the sorted sets of free and unmapped blocks of a pool."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

# A stack, innermost frame first: (filename, line, name).
Frames = tuple[tuple[str, int, str], ...]
PoolId = tuple[int, int]
DEFAULT_POOL: PoolId = (0, 0)

# The key by which a set is sorted within one stream.
Key = Callable[["Block"], tuple[int, ...]]


@dataclass(slots=True, eq=False)
class Segment:
    """What one cudaMalloc gave or, where ``page_bytes`` is not 0, the address space of an expandable segment."""

    address: int
    size_bytes: int
    stream: int
    pool: Pool
    number: int
    page_bytes: int = 0
    first: Block = field(init=False)

    @property
    def is_expandable(self) -> bool:
        return self.page_bytes > 0

    def blocks(self) -> Iterator[Block]:
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment. ``mapped`` is False for address space of an expandable segment that has no memory behind it.

    ``events`` counts the other streams that may still use the block after its free; ``frames`` are those of its allocation,
    ``segment_frames`` (on the first block of a mapped range) those of its segment's.
    """

    segment: Segment
    address: int
    size_bytes: int
    number: int
    mapped: bool = True
    allocated: bool = False
    requested_bytes: int = 0
    events: int = 0
    stream_uses: set[int] = field(default_factory=set)
    prev: Block | None = None
    next: Block | None = None
    frames: Frames = ()
    segment_frames: Frames = ()
    searches_at_insert: int = 0

    @property
    def is_idle(self) -> bool:
        return not self.allocated and not self.events

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


# How the free blocks of a stream are sorted, by the first release that does it so.
ORDERS: dict[str, Key] = {
    "2.11": lambda block: (block.size_bytes, block.address),
    "2.12": lambda block: (block.size_bytes, block.number),
    "2.13": lambda block: (block.size_bytes, block.segment.number, block.address),
}


class BlockSet:
    """Blocks sorted by stream and then by a key, which must not change while a block is in the set."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._by_stream: dict[int, list[Block]] = {}

    def insert(self, block: Block) -> None:
        insort(self._by_stream.setdefault(block.segment.stream, []), block, key=self._key)

    def remove(self, block: Block) -> None:
        blocks = self._by_stream[block.segment.stream]
        index = bisect_left(blocks, self._key(block), key=self._key)
        if index == len(blocks) or blocks[index] is not block:
            raise KeyError(f"the block at {block.address:#x} is not in the set")
        del blocks[index]

    def of_stream(self, stream: int) -> list[Block]:
        """Return the set's own sorted list for a stream: read it, and do not hold it across a change."""
        return self._by_stream.get(stream, [])

    def index(self, stream: int, *key: int) -> int:
        """Return the place in ``of_stream(stream)`` of the first block whose key is not below ``key``."""
        return bisect_left(self.of_stream(stream), key, key=self._key)

    def __iter__(self) -> Iterator[Block]:
        for stream in sorted(self._by_stream):
            yield from self._by_stream[stream]


class Pool:
    """The free and unmapped blocks of one size class: the small or the large half of the default or of a private pool."""

    def __init__(self, *, is_small: bool, order: str, id: PoolId = DEFAULT_POOL) -> None:
        self.is_small = is_small
        self.id = id
        self.free = BlockSet(ORDERS[order])
        self.unmapped = BlockSet(lambda block: (block.address,))
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
