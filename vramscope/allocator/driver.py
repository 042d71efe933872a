"""The pretend driver: how much memory the device has left, and at which addresses it comes (lowest first fit)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from vramscope.allocator.rounding import round_up
from vramscope.units import MIB

PAGE_BYTES = 2 * MIB

# The layout of the pretend GPU in vramscope/pretend_gpu: 4 TiB of addresses for cudaMalloc on each of 8 devices, then
# 16 TiB for reservations. A real driver chooses otherwise.
_ARENA_ADDRESS = 0x2000_0000_0000
_ARENA_BYTES = 1 << 42
_RESERVATIONS_ADDRESS = _ARENA_ADDRESS + 8 * _ARENA_BYTES
_RESERVATIONS_BYTES = 16 << 40


class _AddressSpace:
    """A range of addresses whose free gaps are kept sorted; an address is taken from the lowest gap that is large enough."""

    def __init__(self, begin: int, size_bytes: int) -> None:
        self._gaps = [(begin, begin + size_bytes)]
        self._taken: dict[int, int] = {}

    def take(self, size_bytes: int) -> int | None:
        for index, (begin, end) in enumerate(self._gaps):
            if end - begin >= size_bytes:
                rest = [(begin + size_bytes, end)] if end - begin > size_bytes else []
                self._gaps[index : index + 1] = rest
                self._taken[begin] = size_bytes
                return begin
        return None

    def take_at(self, address: int, size_bytes: int) -> None:
        """Note that a range is taken, which may lie outside of the space: another driver chose its address."""
        end = address + size_bytes
        cut = []
        for begin, gap_end in self._gaps:
            cut += [(max(begin, low), min(gap_end, high)) for low, high in ((0, address), (end, gap_end))]
        self._gaps = [(low, high) for low, high in cut if low < high]
        self._taken[address] = size_bytes

    def give_back(self, address: int) -> int:
        """Free the range taken at ``address`` and return its size. Raises KeyError where none was taken."""
        size_bytes = self._taken.pop(address)
        begin, end = address, address + size_bytes
        index = bisect_left(self._gaps, (begin, end))
        first, last = index, index
        if index < len(self._gaps) and self._gaps[index][0] == end:
            end, last = self._gaps[index][1], index + 1
        if index and self._gaps[index - 1][1] == begin:
            begin, first = self._gaps[index - 1][0], index - 1
        self._gaps[first:last] = [(begin, end)]
        return size_bytes


class Driver:
    """One device: ``capacity_bytes`` in all, of which ``other_bytes`` are held by somebody else.

    ``other_processes`` has the bytes of those holders whose process ids are known.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        device: int = 0,
        other_bytes: int = 0,
        other_processes: Mapping[int, int] | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.other_bytes = other_bytes
        self.other_processes = dict(other_processes or {})
        self.used_bytes = 0
        self._arena = _AddressSpace(_ARENA_ADDRESS + device * _ARENA_BYTES, _ARENA_BYTES)
        self._reservations = _AddressSpace(_RESERVATIONS_ADDRESS, _RESERVATIONS_BYTES)

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.other_bytes - self.used_bytes

    def malloc(self, size_bytes: int) -> int | None:
        """Return the address of new memory (cudaMalloc), or None where there is not enough."""
        size_bytes = round_up(size_bytes, PAGE_BYTES)
        if not self.map(size_bytes):
            return None
        address = self._arena.take(size_bytes)
        if address is None:
            self.unmap(size_bytes)
        return address

    def adopt(self, address: int, size_bytes: int) -> None:
        """Take over a segment that cudaMalloc gave before; the caller makes sure that there is room for it."""
        size_bytes = round_up(size_bytes, PAGE_BYTES)
        self.used_bytes += size_bytes
        self._arena.take_at(address, size_bytes)

    def adopt_reservation(self, address: int, size_bytes: int) -> None:
        """Take over address space that was reserved before, without what is mapped behind it."""
        self._reservations.take_at(address, size_bytes)

    def free(self, address: int) -> None:
        """Give memory back (cudaFree)."""
        self.unmap(self._arena.give_back(address))

    def reserve(self, size_bytes: int) -> int | None:
        """Return the address of address space without memory (cuMemAddressReserve), or None."""
        return self._reservations.take(size_bytes)

    def unreserve(self, address: int) -> None:
        self._reservations.give_back(address)

    def map(self, size_bytes: int) -> bool:
        """Put memory behind whole pages (cuMemCreate and cuMemMap), all of it or nothing."""
        if size_bytes > self.free_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def unmap(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
