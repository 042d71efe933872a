"""What the source makes of torch's answers, with a torch of the test's own; the real one is asked in tests/pretend_gpu."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.agent.fake_source import BASE, make_segment, make_stats
from vramscope.agent.torch_source import TorchSource

FRAME = {"filename": "train.py", "line": 7, "name": "main"}


def snapshot_of_2_11(segments: list[dict[str, Any]]) -> Callable[..., Any]:
    def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        assert include_traces is False
        return segments

    return memory_snapshot


def snapshot_of_2_1(segments: list[dict[str, Any]]) -> Callable[..., Any]:
    def memory_snapshot() -> list[dict[str, Any]]:
        return segments

    return memory_snapshot


def make_torch(
    *,
    properties: list[SimpleNamespace],
    reserved: list[int],
    backend: str = "native",
    snapshot: Callable[..., Any] | None = None,
    history: bool = False,
    nvml_uuids: Any = None,
    nvml_index: Callable[[int], int] = int,
) -> Any:
    """Return as much of torch as the source asks, with a device for each of ``properties``."""

    def stats(device: int) -> dict[str, Any]:
        return make_stats(reserved=reserved[device])

    cuda = SimpleNamespace(
        get_allocator_backend=lambda: backend,
        memory=SimpleNamespace(memory_snapshot=snapshot or snapshot_of_2_11([])),
        is_initialized=lambda: True,
        device_count=lambda: len(properties),
        get_device_properties=properties.__getitem__,
        _raw_device_uuid_nvml=lambda: nvml_uuids,
        _get_nvml_device_index=nvml_index,
    )
    c = SimpleNamespace(
        _cuda_memoryStats=stats,
        _cuda_isHistoryEnabled=lambda: history,
        _cuda_hasPrimaryContext=lambda device: reserved[device] > 0,
    )
    return SimpleNamespace(__version__="2.14.1", cuda=cuda, _C=c)


def properties(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(name="H100", total_memory=80 << 30, **more)


def uuid_of(torch: Any) -> str | None:
    (found,) = TorchSource(torch).devices()
    return found.uuid


def test_the_uuid_is_spelled_as_nvml_spells_it() -> None:
    assert uuid_of(make_torch(properties=[properties(uuid="46414b45-2d47")], reserved=[1])) == "GPU-46414b45-2d47"


def test_before_torch_2_4_nvml_tells_the_uuid_of_the_visible_device() -> None:
    # GIVEN CUDA_VISIBLE_DEVICES=1
    torch = make_torch(
        properties=[properties()], reserved=[1], nvml_uuids=["GPU-a", "GPU-b"], nvml_index=lambda device: device + 1
    )

    # THEN
    assert uuid_of(torch) == "GPU-b"


def test_a_uuid_that_nobody_tells_is_none() -> None:
    assert uuid_of(make_torch(properties=[properties()], reserved=[1], nvml_uuids=None)) is None


def test_a_mig_slice_is_known_by_its_own_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    assert uuid_of(make_torch(properties=[properties(uuid="the-whole-gpu")], reserved=[1])) == "MIG-1234"


def test_only_devices_that_ever_held_memory_are_named() -> None:
    # GIVEN a rank that uses device 1 of three
    reserved = [0, 5, 0]
    source = TorchSource(make_torch(properties=[properties(uuid=str(n)) for n in range(3)], reserved=reserved))
    assert [found.device for found in source.devices()] == [1]

    # WHEN it empties the cache, and uses device 2
    reserved[1:] = [0, 7]

    # THEN
    assert [found.device for found in source.devices()] == [1, 2]


def test_a_torch_without_the_history_free_call_says_what_a_map_costs() -> None:
    # GIVEN
    segments = [make_segment(BASE, [512])]
    old = TorchSource(make_torch(properties=[properties()], reserved=[1], snapshot=snapshot_of_2_1(segments)))
    new = TorchSource(make_torch(properties=[properties()], reserved=[1], snapshot=snapshot_of_2_11(segments)))

    # THEN both give the segments
    assert old.segments() == new.segments() == segments
    assert (old.map_way, new.map_way) == ("full snapshot", "history-free")
    assert "no extra cost while it is not" in old.notes()[0]
    assert new.notes() == []


def test_an_allocator_other_than_torchs_own_gives_nothing_and_a_note() -> None:
    source = TorchSource(make_torch(properties=[properties(uuid="a")], reserved=[1], backend="cudaMallocAsync"))
    assert (source.memory_stats(0), source.segments()) == ({}, [])
    assert "cudaMallocAsync" in source.notes()[0]
    assert [found.backend for found in source.devices()] == ["cudaMallocAsync"]


@pytest.mark.parametrize(
    ("address", "history", "frames", "reason"),
    [
        (BASE, True, [("train.py", 7, "main")], None),
        (BASE + 511, True, [("train.py", 7, "main")], None),
        (BASE + 512, True, [], "this block is free now"),
        (BASE + 1024, True, [], "before history was recorded"),
        (BASE + 1024, False, [], "history recording is off"),
        (BASE + (1 << 30), True, [], "segment is no longer there"),
    ],
)
def test_a_stack_or_the_reason_why_there_is_none(
    address: int, history: bool, frames: list[Any], reason: str | None
) -> None:
    # GIVEN a block with a stack, a free one and one without a stack
    segment = make_segment(BASE, [512, 512, 512])
    segment["blocks"][0]["frames"] = [FRAME]
    torch = make_torch(properties=[properties()], reserved=[1], snapshot=snapshot_of_2_11([segment]), history=history)

    # WHEN
    found, told = TorchSource(torch).stack(0, address)

    # THEN
    assert found == frames
    assert told is None if reason is None else reason in str(told)


class Tensor(SimpleNamespace):
    """As much of a tensor as its place needs."""


def tensor(address: int, size_bytes: int, *, is_cuda: bool = True) -> Tensor:
    storage = SimpleNamespace(data_ptr=lambda: address, nbytes=lambda: size_bytes)
    return Tensor(is_cuda=is_cuda, device=SimpleNamespace(index=3), untyped_storage=lambda: storage)


def storageless() -> Any:
    def refuse() -> None:
        raise NotImplementedError("Cannot access storage of a wrapper")

    return Tensor(is_cuda=True, device=SimpleNamespace(index=3), untyped_storage=refuse)


@pytest.mark.parametrize(
    ("found", "span"),
    [
        (tensor(BASE, 100), (3, BASE, 100)),
        (tensor(BASE, 100, is_cuda=False), None),
        (tensor(0, 0), None),
        (storageless(), None),
        # A DTensor has its shard's memory.
        (Tensor(_local_tensor=tensor(BASE, 50), is_cuda=True), (3, BASE, 50)),
    ],
)
def test_a_tensor_lies_where_its_storage_does(found: Any, span: tuple[int, int, int] | None) -> None:
    assert TorchSource(make_torch(properties=[properties()], reserved=[1])).tensor_span(found) == span
