"""Which tensor or category each block of a map belongs to, by stated rules, so that the bytes add up exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vramscope.agent.categories import CATEGORIES, CODE
from vramscope.columns import INACTIVE, U8, U64, DeviceMap

I32 = npt.NDArray[np.int32]

# The category code of a block that is not active.
NO_OWNER = 255

RULES = {
    "named": "a tensor of the registered model or optimizer lies in this block",
    "activation": "no named tensor lies here; the block was not live when the last step ended",
    "unknown": "no named tensor lies here; the block was live when the last step ended, or no step has ended yet",
}


@dataclass(frozen=True, eq=False)
class BlockOwners:
    """The owner of each block of a map with B blocks and T named tensors.

    ``category`` (B,): a code of CATEGORIES, or NO_OWNER where the block is inactive. ``tensor`` (B,): the index of the tensor that
    names the block (the one with most bytes in it), or -1. ``tensor_block`` (T,): the active block in which the
    tensor lies, or -1. ``tensor_share_bytes`` (T,): the bytes of that block that count as the tensor's.

    The shares of a block's tensors add up to the block: overlaps count once, for the tensor that begins first, and what no
    tensor covers (rounding) counts for the tensor that names the block.
    """

    category: U8
    tensor: I32
    tensor_block: I32
    tensor_share_bytes: U64

    def rule(self, block: int) -> str | None:
        """Return the rule that named the owner of a block, or None where the block is inactive."""
        if self.category[block] == NO_OWNER:
            return None
        return _rule(int(self.tensor[block]), int(self.category[block]))


@dataclass(frozen=True)
class OwnerRow:
    """One owner: a named tensor, or an active block that no tensor names (then ``name``, ``shape`` and ``dtype`` are empty)."""

    category: str
    name: str
    shape: str
    dtype: str
    bytes: int
    address: int
    rule: str


def assign(found: DeviceMap) -> BlockOwners:
    """Return the owners of ``found``'s blocks; see RULES for how an owner is found."""
    active = found.block_state != INACTIVE
    tensor_block = _blocks_of_tensors(found, active)
    inside = np.flatnonzero(tensor_block >= 0)
    tensor = np.full(found.block_count, -1, np.int32)
    # The last of repeated indices wins: the most bytes, and of equals the first tensor.
    by_bytes = inside[np.lexsort((-inside, found.tensor_bytes[inside]))]
    tensor[tensor_block[by_bytes]] = by_bytes
    category = np.where(active, CODE["unknown"], NO_OWNER).astype(np.uint8)
    named = tensor >= 0
    if found.boundary_address is not None:
        unnamed = active & ~named
        category[unnamed & ~_contained(found.block_address, found.boundary_address)] = CODE["activation"]
    category[named] = found.tensor_category[tensor[named]]
    return BlockOwners(category, tensor, tensor_block, _shares(found, tensor, tensor_block, inside))


def top_tensors(found: DeviceMap, owners: BlockOwners, limit: int | None = None) -> list[OwnerRow]:
    """Return the owners with the most bytes, largest first; without a limit their bytes add up to the active bytes.

    A named tensor counts with its share (see BlockOwners); an active block that no tensor names is a row of its own.
    """
    tensors = np.flatnonzero(owners.tensor_share_bytes)
    blocks = _unnamed(owners)
    sizes = np.concatenate([owners.tensor_share_bytes[tensors], found.block_bytes[blocks]]).astype(np.int64)
    order = np.argsort(-sizes, kind="stable")[:limit].tolist()
    return [
        _tensor_row(found, owners, int(tensors[place]))
        if place < len(tensors)
        else _block_row(found, owners, int(blocks[place - len(tensors)]))
        for place in order
    ]


def count(owners: BlockOwners) -> int:
    """Return how many rows ``top_tensors`` has without a limit."""
    return int(np.count_nonzero(owners.tensor_share_bytes)) + len(_unnamed(owners))


def totals(found: DeviceMap, owners: BlockOwners) -> dict[str, int]:
    """Return the bytes of each category that has any; they add up to the active bytes."""
    blocks = _unnamed(owners)
    sums = np.zeros(len(CATEGORIES), np.int64)
    np.add.at(sums, found.tensor_category, owners.tensor_share_bytes.astype(np.int64))
    np.add.at(sums, owners.category[blocks], found.block_bytes[blocks].astype(np.int64))
    return {name: int(size_bytes) for name, size_bytes in zip(CATEGORIES, sums, strict=True) if size_bytes}


def _blocks_of_tensors(found: DeviceMap, active: npt.NDArray[np.bool_]) -> I32:
    """Return for each tensor the active block that contains all of it, or -1, shape (T,)."""
    if not found.block_count:
        return np.full(len(found.tensor_address), -1, np.int32)
    block = np.maximum(np.searchsorted(found.block_address, found.tensor_address, side="right") - 1, 0)
    begins = found.tensor_address >= found.block_address[block]
    ends = found.tensor_address + found.tensor_bytes <= found.block_address[block] + found.block_bytes[block]
    inside = begins & ends & active[block] & (found.tensor_bytes > 0)
    return np.where(inside, block, -1).astype(np.int32)


def _contained(addresses: U64, among: U64) -> npt.NDArray[np.bool_]:
    known = np.sort(among)
    if not len(known):
        return np.zeros(len(addresses), np.bool_)
    place = np.minimum(np.searchsorted(known, addresses), len(known) - 1)
    return np.asarray(known[place] == addresses)


def _shares(found: DeviceMap, tensor: I32, tensor_block: I32, inside: npt.NDArray[np.intp]) -> U64:
    shares = np.zeros(len(found.tensor_address), np.uint64)
    if not len(inside):
        return shares
    ordered = inside[np.lexsort((-found.tensor_bytes[inside].astype(np.int64), found.tensor_address[inside]))]
    begin = found.tensor_address[ordered]
    end = begin + found.tensor_bytes[ordered]
    covered_to = np.concatenate([np.zeros(1, np.uint64), np.maximum.accumulate(end)[:-1]])
    shares[ordered] = np.maximum(end, covered_to) - np.maximum(begin, covered_to)
    covered = np.zeros(found.block_count, np.uint64)
    np.add.at(covered, tensor_block[ordered], shares[ordered])
    named = np.flatnonzero(tensor >= 0)
    shares[tensor[named]] += found.block_bytes[named] - covered[named]
    return shares


def _unnamed(owners: BlockOwners) -> npt.NDArray[np.intp]:
    return np.flatnonzero((owners.tensor < 0) & (owners.category != NO_OWNER))


def _rule(tensor: int, category: int) -> str:
    return RULES["named" if tensor >= 0 else CATEGORIES[category]]


def _tensor_row(found: DeviceMap, owners: BlockOwners, tensor: int) -> OwnerRow:
    name, shape, dtype = found.tensor_labels[tensor]
    code = int(found.tensor_category[tensor])
    size_bytes = int(owners.tensor_share_bytes[tensor])
    address = int(found.tensor_address[tensor])
    return OwnerRow(CATEGORIES[code], name, shape, dtype, size_bytes, address, _rule(tensor, code))


def _block_row(found: DeviceMap, owners: BlockOwners, block: int) -> OwnerRow:
    code = int(owners.category[block])
    size_bytes, address = int(found.block_bytes[block]), int(found.block_address[block])
    return OwnerRow(CATEGORIES[code], "", "", "", size_bytes, address, _rule(-1, code))
