"""Names of tensors, with real modules and optimizers on the CPU."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest
import torch

from vramscope.agent.categories import CATEGORIES
from vramscope.agent.tensors import TensorRegistry
from vramscope.errors import BadInputError


def span(tensor: Any) -> tuple[int, int, int] | None:
    """Treat the CPU as device 0."""
    storage = tensor.untyped_storage()
    return (0, storage.data_ptr(), storage.nbytes()) if storage.nbytes() else None


def rows(registry: TensorRegistry) -> list[tuple[str, str, str, str, int]]:
    """Return (category, name, shape, dtype, bytes) of device 0, in order."""
    found = registry.columns(span).get(0)
    if found is None:
        return []
    labels = json.loads(found.labels_column())
    return [
        (CATEGORIES[code], *label, size)
        for code, label, size in zip(found.category, labels, found.size_bytes, strict=True)
    ]


class Tied(torch.nn.Module):
    """A layer whose weight two names share, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(3, dtype=torch.float64))


def test_parameters_gradients_buffers_and_optimizer_state_have_full_names() -> None:
    # GIVEN a model that has taken a step
    model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    registry = TensorRegistry()
    registry.add(model, optimizer)

    # WHEN
    found = rows(registry)

    # THEN
    names = {(category, name) for category, name, *_ in found}
    assert ("parameter", "0.weight") in names
    assert ("gradient", "0.weight") in names
    assert ("buffer", "1.running_mean") in names
    assert ("optimizer state", "exp_avg of 0.weight") in names
    assert ("optimizer state", "exp_avg_sq of 1.bias") in names
    assert ("parameter", "0.weight", "(2, 4)", "float32", 32) in found


def test_a_shared_storage_counts_once_for_its_first_name() -> None:
    model = Tied()
    registry = TensorRegistry()
    registry.add(model)
    assert [(category, name) for category, name, *_ in rows(registry)] == [
        ("parameter", "first.weight"),
        ("buffer", "scale"),
    ]


def test_an_optimizer_without_its_model_names_by_group_and_place() -> None:
    # GIVEN
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD([{"params": [layer.weight]}, {"params": [layer.bias]}], lr=0.1, momentum=0.9)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    registry = TensorRegistry()
    registry.add(optimizer=optimizer)

    # THEN
    assert {(category, name) for category, name, *_ in rows(registry)} == {
        ("parameter", "group 0, parameter 0"),
        ("gradient", "group 0, parameter 0"),
        ("optimizer state", "momentum_buffer of group 0, parameter 0"),
        ("parameter", "group 1, parameter 0"),
        ("gradient", "group 1, parameter 0"),
        ("optimizer state", "momentum_buffer of group 1, parameter 0"),
    }


def test_lists_in_an_optimizers_state_are_named_too() -> None:
    # GIVEN L-BFGS, which keeps lists of old directions
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=3)

    def loss() -> Any:
        optimizer.zero_grad()
        value = (layer(torch.ones(4, 2)) - 3).pow(2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    registry = TensorRegistry()
    registry.add(layer, optimizer)

    # THEN
    assert any(name.startswith("old_dirs of weight") for _, name, *_ in rows(registry))


def test_two_models_are_told_apart_by_their_class() -> None:
    registry = TensorRegistry()
    first, second = torch.nn.Linear(2, 2, bias=False), Tied()
    registry.add(first)
    registry.add(second)
    registry.add(first)
    assert [name for _, name, *_ in rows(registry)] == ["Linear.weight", "Tied.first.weight", "Tied.scale"]


def test_the_registry_keeps_no_model_and_no_optimizer_alive() -> None:
    # GIVEN
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    registry = TensorRegistry()
    registry.add(model, optimizer)
    assert rows(registry)
    gone = weakref.ref(model), weakref.ref(optimizer)

    # WHEN
    del model, optimizer
    gc.collect()

    # THEN
    assert [reference() for reference in gone] == [None, None]
    assert rows(registry) == []


class Changing(torch.nn.Module):
    """Its buffers change under the first ``failures`` walks, as a job's own thread may do."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.failures = failures

    def named_buffers(self, *arguments: Any, **settings: Any) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("dictionary changed size during iteration")
        return super().named_buffers(*arguments, **settings)


@pytest.mark.parametrize(("failures", "names"), [(1, ["weight"]), (99, [])])
def test_a_model_that_changes_during_the_walk_is_walked_again(failures: int, names: list[str]) -> None:
    model = Changing(failures)
    registry = TensorRegistry()
    registry.add(model)
    assert [name for _, name, *_ in rows(registry)] == names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": [torch.nn.Linear(1, 1)]}, r"attach\(model=…\) takes one torch.nn.Module, not list"),
        ({"optimizer": {"lr": 1}}, r"attach\(optimizer=…\) takes one torch optimizer, not dict"),
    ],
)
def test_other_things_are_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        TensorRegistry().add(**arguments)


@pytest.mark.parametrize("error", [LookupError, RuntimeError])
def test_a_model_that_cannot_tell_its_parameters_costs_the_names_and_says_why(error: type[Exception]) -> None:
    # GIVEN a model with a named_parameters of its own, which fails
    class Shy(torch.nn.Linear):
        fails = True

        def named_parameters(self, *args: Any, **named: Any) -> Any:
            if self.fails:
                raise error("not today")
            return super().named_parameters(*args, **named)

    registry = TensorRegistry()
    model = Shy(2, 2)
    registry.add(model)

    # WHEN its tensors are walked THEN there are none, and a line says why
    assert rows(registry) == []
    assert registry.problem is not None
    assert f"{error.__name__}: not today" in registry.problem

    # WHEN it works again THEN so do the names
    model.fails = False
    assert len(rows(registry)) == 2
    assert registry.problem is None
