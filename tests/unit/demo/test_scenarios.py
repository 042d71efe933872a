from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.unit.demo.conftest import Bench, make_bench
from vramscope.columns import INACTIVE, DeviceMap, check, from_segments
from vramscope.demo import fragmentation, leak, training
from vramscope.demo.job import Pace, Stopped
from vramscope.demo.model import GPT, LARGE, SMALL, build
from vramscope.units import GIB, MIB

SMALL_CARD_BYTES = 8 * GIB


class OnceRefused(Pace):
    """Looks at the job when it waits to try again after its request was refused, and stops it there."""

    def __init__(self) -> None:
        super().__init__(sleep=lambda seconds: None)
        self.look: Callable[[], None] = lambda: None

    def wait(self, seconds: float) -> None:
        if seconds == fragmentation.RETRY_S:
            self.look()
            self.stop()
        super().wait(seconds)


def test_the_large_model_has_over_a_billion_parameters_and_readable_names(bench: Bench) -> None:
    with FakeTensorMode():
        model, _ = build(LARGE)
    assert training.parameters(model) == "1.42 B"
    assert "layers.3.attn.qkv.weight" in dict(model.named_parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_training_marks_the_beginning_of_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN epochs of two steps
    monkeypatch.setattr(training, "STEPS_PER_EPOCH", 2)
    bench = make_bench(steps=5)
    # WHEN five steps are trained
    with FakeTensorMode(), bench.mirror:
        training.run(bench.job)
    # THEN three epochs have begun, and the memory went with the model
    assert bench.marks == ["epoch 1", "epoch 2", "epoch 3"]
    assert bench.live_bytes == 0


def test_a_job_that_is_stopped_ends_within_its_step() -> None:
    bench = make_bench()
    bench.job.pace.stop()
    with FakeTensorMode(), bench.mirror, pytest.raises(Stopped):
        training.run(bench.job)


def test_fragmentation_ends_in_a_request_of_2_gib_that_fails_beside_more_that_is_free() -> None:
    # GIVEN the scenario on a card of 8 GiB, which needs fewer prompts than one of 24
    pace = OnceRefused()
    bench = make_bench(SMALL_CARD_BYTES, pace=pace)
    maps: list[DeviceMap] = []

    def look() -> None:
        with bench.mirror.settled() as allocator:
            allocator.validate()
            maps.append(from_segments(allocator.segments(), device=0))

    pace.look = look
    # WHEN it runs until its first refused request
    with FakeTensorMode(), bench.mirror, pytest.raises(Stopped):
        fragmentation.run(bench.job)
    # THEN PyTorch's error was counted once, said and marked
    assert bench.allocator.memory_stats()["num_ooms"] == 1
    assert bench.marks == ["round 1", "out of memory in round 1: 2 GiB of logits"]
    assert sum("Tried to allocate 2.00 GiB" in line for line in bench.lines) == 1
    # THEN over 3 GiB were free in holes of under 512 MiB, and the driver had less than 2 GiB
    (found,) = maps
    check(found)
    holes = found.block_bytes[found.block_state == INACTIVE]
    assert int(holes.sum()) > 3 * GIB
    assert int(holes.max()) < 512 * MIB
    assert bench.allocator.device_free_bytes < 2 * GIB


def test_the_same_job_runs_through_with_expandable_segments() -> None:
    bench = make_bench(SMALL_CARD_BYTES, alloc_conf="expandable_segments:True", steps=2, pace=OnceRefused())
    with FakeTensorMode(), bench.mirror:
        fragmentation.run(bench.job)
    assert bench.marks == ["round 1", "round 2"]
    with bench.mirror.settled() as allocator:
        allocator.validate()
        assert allocator.memory_stats()["num_ooms"] == 0


def test_the_leak_grows_by_the_logits_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a look at the memory before each step
    bench = make_bench(steps=5)
    held: list[int] = []

    def look_and_step(model: GPT, optimizer: torch.optim.Optimizer) -> Tensor:
        held.append(bench.live_bytes)
        return training.train_step(model, optimizer)

    monkeypatch.setattr(leak, "train_step", look_and_step)
    # WHEN five steps are trained
    with FakeTensorMode(), bench.mirror:
        leak.run(bench.job)
    # THEN each but the first, which makes the optimizer's state, adds its logits in bfloat16
    logits_bytes = training.BATCH * SMALL.context * SMALL.vocabulary * 2
    assert [after - before for before, after in pairwise(held[1:])] == [logits_bytes] * 3


def test_the_leak_ends_out_of_memory_and_says_what_holds_it() -> None:
    # GIVEN a card that holds some steps
    bench = make_bench(256 * MIB)
    with FakeTensorMode(), bench.mirror, pytest.raises(torch.OutOfMemoryError):
        leak.run(bench.job)
    assert bench.lines[-1].startswith("after ")
    assert "the list of logits holds" in bench.lines[-1]
