"""Bytes by stack as a tree whose root is the outermost frame, cut to a number of nodes that a picture can show."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from vramscope.columns import U32
from vramscope.snapshot.columns import I32, I64, NONE, Snapshot
from vramscope.trace.categories import frame_label, innermost
from vramscope.trace.columns import Bools

MOST_NODES = 2000
MOST_CHILDREN = 100
ROOT, NO_STACK = "all", "no stack recorded"


@dataclass
class StackTree:
    """Nodes of which parents come first; the first is the root. ``parent`` is a place, -1 for the root.

    The bytes of a node are those of its children and of stacks that end in it, to the byte. Frames that have one way
    on are one node. ``left_out`` counts the children that are within "n more" nodes.
    """

    label: list[str] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    left_out: int = 0

    def add(self, label: str, parent: int, size_bytes: int, count: int) -> int:
        """Add a node and return its place."""
        self.label.append(label)
        self.parent.append(parent)
        self.size_bytes.append(size_bytes)
        self.count.append(count)
        return len(self.label) - 1


@dataclass(frozen=True, eq=False)
class _Branch:
    """Stacks (K,) whose ``depth`` outermost frames are the same, with the bytes and the number of blocks of each."""

    stack: I64
    size_bytes: I64
    count: I64
    depth: int

    def part(self, which: Bools | I64, depth: int) -> _Branch:
        return _Branch(self.stack[which], self.size_bytes[which], self.count[which], depth)


def frames_with(snapshot: Snapshot, text: str) -> Bools:
    """Return which frames (F,) have ``text`` in their function or file, in whatever case."""
    wanted, texts, table = text.casefold(), snapshot.texts, snapshot.stacks
    used = np.unique(np.concatenate([table.frame_file, table.frame_name]))
    has = np.array([wanted in texts.get(place).casefold() for place in used.tolist()], np.bool_)
    if not len(used):
        return np.zeros(0, np.bool_)
    found: Bools = has[np.searchsorted(used, table.frame_file)] | has[np.searchsorted(used, table.frame_name)]
    return found


def stacks_with(snapshot: Snapshot, text: str) -> Bools:
    """Return which stacks (K,) have a frame with ``text``; all where it is empty."""
    if not text:
        return np.ones(len(snapshot.stacks), np.bool_)
    found: Bools = innermost(snapshot.stacks, frames_with(snapshot, text)) != NONE
    return found


def stack_tree(snapshot: Snapshot, stack: I32, size_bytes: I64, *, most: int = MOST_NODES) -> StackTree:
    """Return the tree of blocks of ``size_bytes`` with their ``stack``; the largest branches are followed furthest."""
    different, place, count = np.unique(stack, return_inverse=True, return_counts=True)
    sums = np.zeros(len(different), np.int64)
    np.add.at(sums, place, size_bytes)
    tree = StackTree()
    root = tree.add(ROOT, -1, int(sums.sum()), int(count.sum()))
    whole = _Branch(different.astype(np.int64), sums, count.astype(np.int64), 0)
    unknown = whole.part(whole.stack == NONE, 0)
    if len(unknown.stack):
        tree.add(NO_STACK, root, int(unknown.size_bytes.sum()), int(unknown.count.sum()))
    known = whole.part(whole.stack != NONE, 0)
    if len(known.stack) > 1:  # a single stack is a node of its own: under the root alone nothing would name it
        known, _ = _followed(snapshot, known)
    heap = [(-tree.size_bytes[root], root, known)]
    while heap and len(tree.label) + 2 <= most:
        _, node, branch = heapq.heappop(heap)
        for child, part in _split(snapshot, tree, node, branch, most - len(tree.label) - 1):
            heapq.heappush(heap, (-tree.size_bytes[child], child, part))
    return tree


def _split(snapshot: Snapshot, tree: StackTree, node: int, branch: _Branch, room: int) -> list[tuple[int, _Branch]]:
    """Add the children of ``node`` to the tree, the smallest of too many as one, and return those that may go on."""
    frames = _frames_at(snapshot, branch)
    going = branch.part(frames != NONE, branch.depth)
    different, place = np.unique(frames[frames != NONE], return_inverse=True)
    sums = np.zeros(len(different), np.int64)
    np.add.at(sums, place, going.size_bytes)
    order = np.argsort(-sums, kind="stable")
    kept, rest = order[: min(room, MOST_CHILDREN)], order[min(room, MOST_CHILDREN) :]
    by_child = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[by_child], np.arange(len(different) + 1))
    added = []
    for child in kept.tolist():
        part = going.part(by_child[bounds[child] : bounds[child + 1]], branch.depth)
        end, steps = _followed(snapshot, part)
        label = _label(snapshot, part, end, steps)
        added.append((tree.add(label, node, int(sums[child]), int(part.count.sum())), end))
    if len(rest):
        left = going.part(np.isin(place, rest), branch.depth)
        tree.add(f"{len(rest)} more", node, int(left.size_bytes.sum()), int(left.count.sum()))
        tree.left_out += len(rest)
    return added


def _followed(snapshot: Snapshot, branch: _Branch) -> tuple[_Branch, int]:
    """Return the branch after the frames that all of its stacks share, and how many these are."""
    depth, table = branch.depth, snapshot.stacks.stack_first
    if len(branch.stack) == 1:
        depth = int(table[branch.stack[0] + 1]) - int(table[branch.stack[0]])
    while len(branch.stack) > 1:
        frames = _frames_at(snapshot, _Branch(branch.stack, branch.size_bytes, branch.count, depth))
        if frames[0] == NONE or np.any(frames != frames[0]):
            break
        depth += 1
    return _Branch(branch.stack, branch.size_bytes, branch.count, depth), depth - branch.depth


def _frames_at(snapshot: Snapshot, branch: _Branch) -> I64:
    """Return the frame of each stack at the branch's depth from its outermost, NONE where it has ended."""
    table: U32 = snapshot.stacks.stack_first
    at = table[branch.stack + 1].astype(np.int64) - 1 - branch.depth
    is_there = at >= table[branch.stack]
    frames = np.full(len(at), NONE, np.int64)
    frames[is_there] = snapshot.stacks.stack_frame[at[is_there]]
    return frames


def _label(snapshot: Snapshot, part: _Branch, end: _Branch, steps: int) -> str:
    """Return the frames from one branching to the next in words: the first, and the last where there are more."""
    first = frame_label(snapshot, int(_frames_at(snapshot, part.part(np.arange(1), part.depth))[0]))
    if steps < 2:
        return first
    last = frame_label(snapshot, int(_frames_at(snapshot, end.part(np.arange(1), end.depth - 1))[0]))
    between = f"… {steps - 2} more … " if steps > 2 else ""
    return f"{first} ▸ {between}{last}"
