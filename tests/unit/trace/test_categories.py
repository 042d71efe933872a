"""Owners and sites are estimated from frames, each by a rule that can be told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.segments import segment
from tests.unit.snapshot.trees import frame, tree
from tests.unit.trace.views import TORCH, columns
from vramscope.agent.categories import CATEGORIES
from vramscope.snapshot.columns import NONE
from vramscope.trace.categories import NO_RULE, frame_label, rules_of, sites_of
from vramscope.units import MIB

MINE = frame("train_step", 40, "/home/me/torch_jobs/train.py")
LINEAR = frame("forward", 125, f"{TORCH}/nn/modules/linear.py")


def with_stacks(*stacks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a snapshot with a live block for each stack, innermost frame first."""
    blocks = segment(*[(MIB, "live")] * len(stacks))
    for block, stack in zip(blocks["blocks"], stacks, strict=True):
        block["frames"] = stack
    return tree(blocks)


def category(*frames: dict[str, Any]) -> str:
    snapshot = columns(with_stacks(list(frames)))
    return CATEGORIES[rules_of(snapshot).category[snapshot.devices[0].block_stack[0]]]


@pytest.mark.parametrize(
    ("owner", "inner"),
    [
        ("activation", LINEAR),
        ("activation", frame("linear", 9, f"{TORCH}/nn/functional.py")),
        ("activation", frame("forward", 9, "/home/me/model.py")),
        ("parameter", frame("_apply", 9, f"{TORCH}/nn/modules/module.py")),
        ("parameter", frame("__init__", 9, f"{TORCH}/nn/modules/linear.py")),
        ("parameter", frame("load", 9, f"{TORCH}/serialization.py")),
        ("gradient", frame("backward", 9, f"{TORCH}/_tensor.py")),
        ("gradient", frame("torch::autograd::Engine::evaluate_function(…)", 0, "??")),
        ("optimizer state", frame("_init_group", 9, f"{TORCH}/optim/adamw.py")),
        ("optimizer state", frame("_single_tensor_sgd", 9, f"{TORCH}/optim/sgd.py")),
        ("temporary", frame("_multi_tensor_adam", 9, f"{TORCH}/optim/adam.py")),
        ("communication", frame("all_gather", 9, f"{TORCH}/distributed/distributed_c10d.py")),
        ("library workspace", frame("at::cuda::getCUDABlasLtWorkspace()", 0, "??")),
        ("KV cache", frame("update", 9, "/env/lib/site-packages/transformers/cache_utils.py")),
        ("input", frame("default_collate", 9, f"{TORCH}/utils/data/_utils/collate.py")),
        ("unknown", frame("zeros", 9, "/home/me/train.py")),
        # The command that starts the ranks is of torch/distributed too.
        ("unknown", frame("main", 9, f"{TORCH}/distributed/run.py")),
    ],
)
def test_a_frame_tells_the_owner(owner: str, inner: dict[str, Any]) -> None:
    assert category(inner, MINE) == owner


def test_the_innermost_frame_that_tells_decides() -> None:
    # GIVEN a forward pass that a backward runs again (checkpointing), and a backward within a forward
    forward, backward = LINEAR, frame("backward", 9, f"{TORCH}/_tensor.py")

    # WHEN, THEN
    assert category(forward, backward, MINE) == "activation"
    assert category(backward, forward, MINE) == "gradient"


def test_windows_paths_are_read_as_any() -> None:
    assert category(frame("_init_group", 9, TORCH.replace("/", "\\") + "\\optim\\adam.py")) == "optimizer state"


def test_the_rule_is_told_with_each_and_so_is_its_absence() -> None:
    # GIVEN
    snapshot = columns(with_stacks([LINEAR, MINE], [MINE]))
    known, unknown = snapshot.devices[0].block_stack.tolist()

    # WHEN
    rules = rules_of(snapshot)

    # THEN
    assert "forward" in rules.why(known)
    assert rules.why(unknown) == NO_RULE
    assert rules.why(NONE) == "it has no stack"


def test_the_site_is_the_first_frame_outside_torch() -> None:
    # GIVEN stacks through torch and C++, of torch only, and none
    native = frame("at::native::empty_cuda(long)", 0, "??")
    snapshot = columns(with_stacks([native, LINEAR, MINE, frame("main", 1)], [native, LINEAR], []))
    mine, only_torch, none = snapshot.devices[0].block_stack.tolist()

    # WHEN
    sites = sites_of(snapshot)

    # THEN
    assert frame_label(snapshot, int(sites[mine])) == "train_step (/home/me/torch_jobs/train.py:40)"
    assert sites[only_torch] == NONE
    assert none == NONE


def test_a_folder_of_the_users_that_is_called_torch_is_not_torch() -> None:
    snapshot = columns(with_stacks([frame("train", 3, "/home/me/torch/train.py")]))
    assert sites_of(snapshot)[0] != NONE


def test_a_snapshot_without_stacks_has_no_categories() -> None:
    assert len(rules_of(columns(tree(segment((MIB, "live"))))).category) == 0
