from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.unit.demo.conftest import Bench, make_bench
from vramscope.allocator import Allocator
from vramscope.demo.mirror import MAX_FRAMES, Mirror
from vramscope.demo.model import SMALL, build
from vramscope.demo.training import train_step
from vramscope.units import GIB, MIB


def test_live_bytes_are_those_of_the_storages_that_are_alive(bench: Bench) -> None:
    # GIVEN two tensors, a view and an operation in place
    with FakeTensorMode(), bench.mirror:
        first = torch.empty(1000, dtype=torch.uint8)
        second = torch.zeros(3, 1000, dtype=torch.float32)
        view = second[1:]
        view.add_(1)
        # THEN each storage counts once
        assert bench.live_bytes == 1000 + 12_000
        # WHEN one goes, and of the other only the view stays
        del first, second
        # THEN the view keeps its whole storage
        assert bench.live_bytes == 12_000
        del view
    assert bench.live_bytes == 0
    assert bench.current("allocated_bytes") == 0


def test_the_bytes_of_a_trained_model_are_its_parameters_and_optimizer_state(bench: Bench) -> None:
    # GIVEN a model in bfloat16, trained for two steps whose gradients were dropped
    with FakeTensorMode(), bench.mirror:
        model, optimizer = build(SMALL)
        for _ in range(2):
            train_step(model, optimizer)
        # THEN it holds each parameter, its two moments, and its count of steps (float32)
        parameters = list(model.parameters())
        elements = sum(parameter.numel() for parameter in parameters)
        assert bench.live_bytes == 3 * 2 * elements + 4 * len(parameters)


def test_a_training_step_needs_the_same_memory_each_time(bench: Bench) -> None:
    figures = []
    with FakeTensorMode(), bench.mirror:
        model, optimizer = build(SMALL)
        # GIVEN the first step, which makes the optimizer's state
        train_step(model, optimizer)
        # WHEN steps follow
        for _ in range(4):
            with bench.mirror.settled() as allocator:
                before = allocator.memory_stats()["allocation"]["all"]["allocated"]
            train_step(model, optimizer)
            with bench.mirror.settled() as allocator:
                allocator.validate()
                stats = allocator.memory_stats()
            figures.append(
                (
                    stats["allocation"]["all"]["allocated"] - before,
                    stats["allocated_bytes"]["all"]["current"],
                    stats["allocated_bytes"]["all"]["peak"],
                    stats["reserved_bytes"]["all"]["current"],
                )
            )
    # THEN none leaves anything behind, and all ask for the same
    assert len(set(figures)) == 1
    assert figures[0][0] > 100


def test_a_storage_that_dies_in_a_cycle_on_another_thread_is_freed(bench: Bench) -> None:
    # GIVEN a tensor that only a cycle of references keeps alive
    with FakeTensorMode(), bench.mirror:
        cycle: list[object] = [torch.empty(4096)]
        cycle.append(cycle)
        del cycle
        # WHEN another thread collects the garbage while this one holds the allocator
        with bench.mirror.settled():
            collector = threading.Thread(target=gc.collect)
            collector.start()
            collector.join(timeout=30)
            assert not collector.is_alive()
    # THEN the bytes are free once the allocator is asked again
    assert bench.live_bytes == 0


def test_a_request_that_does_not_fit_raises_as_on_a_gpu_and_the_program_goes_on() -> None:
    # GIVEN a GPU of 64 MiB
    bench = make_bench(64 * MIB)
    with FakeTensorMode(), bench.mirror:
        kept = torch.empty(40 * MIB, dtype=torch.uint8)
        # WHEN 30 MiB more are asked for
        # THEN the error is PyTorch's, with its text
        with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory. Tried to allocate 30.00 MiB."):
            torch.empty(30 * MIB, dtype=torch.uint8)
        # THEN nothing of the failed request is left, and smaller ones succeed
        assert bench.live_bytes == 40 * MIB
        smaller = torch.empty(20 * MIB, dtype=torch.uint8)
        assert bench.live_bytes == 60 * MIB
        del kept, smaller


def test_an_error_in_backward_reaches_the_training_code() -> None:
    # GIVEN a GPU that has room for a weight of 16 MiB and its square, and not for two gradients beside the weight
    bench = make_bench(40 * MIB)
    with FakeTensorMode(), bench.mirror:
        weight = torch.empty(2048, 2048, requires_grad=True)
        loss = (weight * weight).sum()
        # WHEN backward asks for more THEN the error is not turned into another
        with pytest.raises(torch.OutOfMemoryError):
            loss.backward()


def test_a_tensor_of_no_bytes_takes_no_block(bench: Bench) -> None:
    with FakeTensorMode(), bench.mirror:
        empty = torch.empty(0)
        assert bench.mirror.span(empty) is None
        # WHEN it gets elements later THEN it is seen
        empty.resize_(100)
        assert bench.mirror.span(empty) is not None
        assert bench.live_bytes == 400


def _allocate() -> torch.Tensor:
    return torch.nn.Linear(64, 64).weight


def test_a_block_keeps_the_python_stack_of_its_allocation_without_torchs_own_frames(bench: Bench) -> None:
    with FakeTensorMode(), bench.mirror:
        weight = _allocate()
    address, _ = bench.mirror.span(weight) or (0, 0)
    with bench.mirror.settled() as allocator:
        blocks = [block for segment in allocator.segments() for block in segment["blocks"]]
    frames = next(block["frames"] for block in blocks if block["address"] == address)
    # THEN the innermost frame is the caller of torch, and the list has an end
    assert (frames[0]["filename"], frames[0]["name"]) == (__file__, "_allocate")
    assert frames[0]["line"] == _allocate.__code__.co_firstlineno + 1
    assert len(frames) <= MAX_FRAMES
    assert not any("/torch/" in frame["filename"] for frame in frames)


def test_no_stack_is_recorded_without_history() -> None:
    mirror = Mirror(Allocator(GIB), record_stacks=False)
    with FakeTensorMode(), mirror:
        weight = _allocate()
    with mirror.settled() as allocator:
        assert all(block["frames"] == [] for segment in allocator.segments() for block in segment["blocks"])
    del weight


def test_each_new_storage_is_told(bench: Bench) -> None:
    told: list[int] = []
    mirror = Mirror(bench.allocator, after_each=lambda: told.append(1))
    with FakeTensorMode(), mirror:
        kept = [torch.empty(8), torch.empty(8)]
        kept.append(kept[0][2:])
    assert len(told) == 2
