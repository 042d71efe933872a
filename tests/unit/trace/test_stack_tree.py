"""The tree of stacks holds every byte, however many of its nodes are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.figures.stacks import figure
from tests.unit.snapshot.trees import frame
from tests.unit.trace.test_categories import with_stacks
from tests.unit.trace.views import columns
from vramscope.trace.stack_tree import NO_STACK, ROOT, StackTree, stack_tree, stacks_with

Stack = list[dict[str, Any]]


def tree_of(stacks: list[Stack], sizes: list[int], most: int = 2000) -> StackTree:
    """Return the tree of blocks with these stacks, innermost frame first."""
    snapshot = columns(with_stacks(*stacks))
    return stack_tree(snapshot, snapshot.devices[0].block_stack, np.array(sizes, np.int64), most=most)


def outward(*names: str) -> Stack:
    """Return a stack from the outermost frame's name to the innermost's."""
    return [frame(name) for name in reversed(names)]


def children(tree: StackTree, parent: int) -> dict[str, int]:
    return {
        tree.label[node].split(" ")[0]: tree.size_bytes[node]
        for node in range(len(tree.label))
        if tree.parent[node] == parent
    }


def test_the_root_is_the_outermost_frame_and_shared_frames_are_one_node() -> None:
    # GIVEN
    stacks = [
        outward("main", "run", "model", "linear"),
        outward("main", "run", "model", "norm"),
        outward("main", "run", "loss"),
    ]

    # WHEN
    tree = tree_of(stacks, [10, 20, 5])

    # THEN main and run, which all share, are the root
    assert (tree.label[0], tree.size_bytes[0], tree.count[0]) == (ROOT, 35, 3)
    assert children(tree, 0) == {"model": 30, "loss": 5}
    model = tree.label.index(next(label for label in tree.label if label.startswith("model")))
    assert children(tree, model) == {"linear": 10, "norm": 20}


def test_frames_with_one_way_on_are_one_node_that_names_first_and_last() -> None:
    tree = tree_of([outward("main", "a", "b", "c", "d"), outward("main", "x")], [10, 20])
    assert any(label.startswith("a ") and "… 2 more …" in label and "d (" in label for label in tree.label)


def test_a_single_stack_is_a_node_below_the_root() -> None:
    # GIVEN blocks that all have the same stack WHEN
    tree = tree_of([outward("main", "a", "b"), outward("main", "a", "b")], [10, 20])
    # THEN it can be read
    assert tree.size_bytes == [30, 30]
    assert tree.label[1].startswith("main ")
    assert "b (" in tree.label[1]


def test_blocks_without_a_stack_are_shown_as_such() -> None:
    tree = tree_of([outward("main", "a"), []], [10, 7])
    assert tree.size_bytes[tree.label.index(NO_STACK)] == 7
    assert tree.size_bytes[0] == 17


def test_stacks_that_end_where_others_go_on_keep_their_bytes() -> None:
    # GIVEN a function that allocates itself and calls another that does
    tree = tree_of([outward("main", "a"), outward("main", "a", "b"), outward("main", "c")], [10, 5, 1])

    # THEN
    assert children(tree, 0)["a"] == 15


@settings(deadline=None)
@given(
    stacks=st.lists(st.lists(st.sampled_from("abcdef"), max_size=5), min_size=1, max_size=40),
    most=st.integers(4, 60),
    data=st.data(),
)
def test_no_byte_is_lost_or_counted_twice(stacks: list[list[str]], most: int, data: st.DataObject) -> None:
    # GIVEN
    sizes = [data.draw(st.integers(1, 1 << 50)) for _ in stacks]

    # WHEN
    tree = tree_of([outward(*names) for names in stacks], sizes, most)

    # THEN the root has every byte, and no node less than its children
    assert tree.size_bytes[0] == sum(sizes)
    assert tree.count[0] == len(sizes)
    assert len(tree.label) <= most
    for node in range(len(tree.label)):
        own = [child for child, parent in enumerate(tree.parent) if parent == node]
        assert sum(tree.size_bytes[child] for child in own) <= tree.size_bytes[node]
        assert sum(tree.count[child] for child in own) <= tree.count[node]
        assert node == 0 or tree.parent[node] < node
    # AND with room for all, a function that begins stacks has what begins with it
    whole = tree_of([outward(*names) for names in stacks], sizes)
    if len({names[0] for names in stacks if names}) > 1 and all(stacks):
        first = {name: sum(s for s, names in zip(sizes, stacks, strict=True) if names[0] == name) for name in "abcdef"}
        assert children(whole, 0) == {name: size for name, size in first.items() if size}


def test_too_many_children_become_one_node_with_their_exact_sum() -> None:
    # GIVEN 300 functions below one
    stacks, sizes = [outward("main", f"f{number}") for number in range(300)], list(range(1, 301))

    # WHEN
    tree = tree_of(stacks, sizes)

    # THEN the largest 100 are shown
    assert tree.left_out == 200
    assert tree.size_bytes[tree.label.index("200 more")] == sum(range(1, 201))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("LINEAR", [True, False]), ("train.py", [True, True]), ("nothing", [False, False]), ("", [True, True])],
)
def test_a_text_is_found_in_functions_and_files_whatever_its_case(text: str, expected: list[bool]) -> None:
    snapshot = columns(with_stacks(outward("main", "Linear"), outward("main", "norm")))
    assert stacks_with(snapshot, text)[snapshot.devices[0].block_stack].tolist() == expected


def test_the_figure_shows_names_as_text_and_never_as_tags() -> None:
    # GIVEN a function whose name is markup
    tree = tree_of([outward("main", "<img src=x onerror=alert(1)>"), outward("main", "<lambda>")], [10, 20])

    # WHEN
    drawn = figure(tree)["data"][0]

    # THEN
    assert "<img" not in str(drawn)
    assert drawn["branchvalues"] == "total"
    assert len(set(drawn["ids"])) == len(drawn["ids"])
    assert set(drawn["parents"]) <= {"", *drawn["ids"]}
