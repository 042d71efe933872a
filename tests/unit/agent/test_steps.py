"""Torch's hooks as the agent uses them, with real optimizers and models on the CPU."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from vramscope.agent.steps import StepHooks
from vramscope.agent.tensors import TensorRegistry


class Job:
    """A model, its optimizer, and what the hooks told of its steps."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.registry = TensorRegistry()
        self.phases: list[str] = []
        self.hooks = StepHooks(torch, self.registry, self.phases.append)
        self.hooks.install()

    def step(self, model: Any = None) -> None:
        (model or self.model)(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()


@pytest.fixture
def job() -> Iterator[Job]:
    found = Job()
    yield found
    found.hooks.remove()


def test_each_step_tells_its_phases_in_order(job: Job) -> None:
    # GIVEN
    job.hooks.watch(job.model)
    assert job.hooks.step is None

    # WHEN
    job.step()

    # THEN
    assert job.phases == ["forward_end", "backward_end", "step_end"]
    assert job.hooks.step == 1


def test_after_remove_nothing_is_told_and_torch_is_as_it_was(job: Job) -> None:
    # GIVEN
    job.hooks.watch(job.model)

    # WHEN
    job.hooks.remove()
    job.step()

    # THEN
    assert job.phases == []
    assert len(job.model._forward_hooks) == 0


def test_the_first_optimizer_counts_where_none_is_registered(job: Job) -> None:
    # GIVEN a second optimizer that also steps
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)

    # WHEN
    job.optimizer.step()
    other.step()
    other.step()

    # THEN
    assert job.hooks.step == 1


def test_a_registered_optimizer_counts_though_another_stepped_first(job: Job) -> None:
    # GIVEN
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    job.registry.add(optimizer=job.optimizer)

    # WHEN
    other.step()
    job.optimizer.step()
    other.step()
    job.optimizer.step()

    # THEN the step before the registered one's first was counted too
    assert job.hooks.step == 3


def test_a_new_optimizer_takes_over_from_one_that_is_gone(job: Job) -> None:
    # GIVEN
    first = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    first.step()
    del first

    # WHEN
    job.optimizer.step()

    # THEN
    assert job.hooks.step == 2


def test_copies_and_checkpoints_of_the_model_do_not_carry_the_hook(job: Job) -> None:
    # GIVEN a watched model, an averaged copy of it and a checkpoint of the whole
    job.hooks.watch(job.model)
    averaged = copy.deepcopy(job.model)
    checkpoint = io.BytesIO()
    torch.save(job.model, checkpoint)

    # WHEN
    checkpoint.seek(0)
    loaded = torch.load(checkpoint, weights_only=False)
    outputs = [model(torch.ones(1, 4)) for model in (averaged, loaded)]

    # THEN they run, tell nothing, and need no vramscope to be read
    assert all(output.shape == (1, 4) for output in outputs)
    assert job.phases == []
    assert b"vramscope" not in checkpoint.getvalue()


@pytest.mark.filterwarnings("ignore")  # torch.compile's own
def test_a_watched_model_still_compiles_into_one_graph(job: Job) -> None:
    # GIVEN
    job.hooks.watch(job.model)
    compiled = torch.compile(job.model, backend="eager", fullgraph=True)

    # WHEN
    job.step(compiled)
    job.step(compiled)

    # THEN the traced hook is folded away, and the optimizer's hooks still tell of the steps
    assert job.phases == ["backward_end", "step_end"] * 2
    assert job.hooks.step == 2


def test_a_compiled_model_gets_no_hook(job: Job) -> None:
    # GIVEN
    wrapped = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    in_place = torch.nn.Linear(4, 4)
    in_place.compile(backend="eager")

    # WHEN
    for model in (wrapped, in_place):
        job.hooks.watch(model)

    # THEN
    assert len(wrapped._forward_hooks) == 0
    assert len(in_place._forward_hooks) == 0
