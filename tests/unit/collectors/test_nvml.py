"""NVML: what one device or one reading cannot tell is missing there alone, and never 0."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from collectors.announce import normal_uuid
from collectors.nvml import NvmlAway, Sampler, load_pynvml, read_devices
from tests.unit.collectors.fake_nvml import GIB, FakeNvml, NVMLError, device, not_supported
from tests.waiting import wait_for


def test_a_healthy_gpu_has_every_reading() -> None:
    module = FakeNvml(device())

    (found,) = read_devices(module, 5)

    assert (found.uuid, found.name, found.nvml_index, found.time_unix_us) == ("GPU-1", "NVIDIA H100", 0, 5)
    assert (found.total_bytes, found.used_bytes, found.free_bytes) == (80 * GIB, 30 * GIB, 50 * GIB)
    assert (found.utilization_percent, found.temperature_celsius, found.power_milliwatts) == (37, 55, 250_000)
    assert found.processes == ((10, GIB), (11, None))
    assert (found.missing, found.mig_parent_uuid) == ((), None)
    assert module.memory_versions == [2]


@pytest.mark.parametrize(
    ("reading", "field", "line"),
    [
        ("MemoryInfo", "used_bytes", "memory: Not Supported"),
        ("UtilizationRates", "utilization_percent", "utilization: Not Supported"),
        ("Temperature", "temperature_celsius", "temperature: Not Supported"),
        ("PowerUsage", "power_milliwatts", "power: Not Supported"),
        ("ComputeRunningProcesses", "processes", "processes: Not Supported"),
    ],
)
def test_a_reading_that_fails_is_missing_and_the_rest_is_there(reading: str, field: str, line: str) -> None:
    # GIVEN two GPUs, one of which does not support a reading
    module = FakeNvml(device("GPU-1", **{reading: not_supported()}), device("GPU-2"))

    # WHEN both are read
    broken, healthy = read_devices(module, 0)

    # THEN it is None there, with a line, and only there
    assert getattr(broken, field) is None
    assert broken.missing == (line,)
    assert getattr(healthy, field) is not None
    assert healthy.missing == ()


def test_a_gpu_that_was_lost_does_not_hide_the_others() -> None:
    lost, healthy = read_devices(FakeNvml(NVMLError("GPU is lost"), device()), 0)

    assert (lost.used_bytes, lost.missing) == (None, ("every reading: GPU is lost",))
    assert healthy.used_bytes == 30 * GIB


def test_a_driver_without_memory_version_2_gives_version_1() -> None:
    module = FakeNvml(device(), memory_v2=False)

    (found,) = read_devices(module, 0)

    assert (found.used_bytes, found.missing, module.memory_versions) == (30 * GIB, (), [None])


def test_names_may_be_bytes() -> None:
    (found,) = read_devices(FakeNvml(device(UUID=b"GPU-1", Name=b"NVIDIA H100")), 0)

    assert (found.uuid, found.name) == ("GPU-1", "NVIDIA H100")


def test_an_old_pynvml_without_a_function_is_no_error() -> None:
    module = FakeNvml(device())
    vars(module)["nvmlDeviceGetPowerUsage"] = None

    (found,) = read_devices(module, 0)

    assert (found.power_milliwatts, found.missing) == (None, ("power: this pynvml does not have it",))


def test_mig_devices_follow_their_gpu_with_its_uuid() -> None:
    # GIVEN a GPU in MIG mode with two devices at places that are not the first
    migs = {
        index: device(f"MIG-{index}", MemoryInfo=SimpleNamespace(total=10 * GIB, used=index * GIB, free=0))
        for index in (2, 5)
    }
    module = FakeNvml(device("GPU-1", MigMode=(1, 1), migs=migs), device("GPU-2", MigMode=(0, 1), migs=migs))

    # THEN both are there, and the GPU whose MIG mode is only pending has none
    found = [(one.uuid, one.mig_parent_uuid, one.nvml_index, one.used_bytes) for one in read_devices(module, 0)]
    assert found == [
        ("GPU-1", None, 0, 30 * GIB),
        ("MIG-2", "GPU-1", 0, 2 * GIB),
        ("MIG-5", "GPU-1", 0, 5 * GIB),
        ("GPU-2", None, 1, 30 * GIB),
    ]


def test_uuids_match_with_and_without_their_prefix() -> None:
    assert normal_uuid("GPU-AB12") == normal_uuid("ab12")
    assert normal_uuid("MIG-AB12") != normal_uuid("GPU-AB12")


def test_the_real_pynvml_without_a_driver_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the real package on a machine whose driver's library is not there
    def no_library(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "CDLL", no_library)
    monkeypatch.setattr(pynvml, "nvmlLib", None)

    with pytest.raises(NvmlAway, match="NVML Shared Library Not Found"):
        load_pynvml()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_sampler_says_why_there_are_no_figures() -> None:
    def load() -> Any:
        raise NvmlAway("the package nvidia-ml-py is not installed")

    sampler = Sampler(load)
    sampler.start()

    line = wait_for(sampler.message, "the sampler's line")
    sampler.stop()

    assert "nvidia-ml-py is not installed" in line
    assert (sampler.available, sampler.readings) == (False, {})


def test_the_sampler_survives_an_odd_answer() -> None:
    sampler = Sampler(lambda: FakeNvml(device(MemoryInfo=SimpleNamespace(used="much"))))
    sampler.start()

    line = wait_for(sampler.message, "the sampler's line")
    sampler.stop()

    assert "ValueError" in line


def test_a_driver_that_hangs_is_told_and_holds_nothing_up() -> None:
    # GIVEN a driver that answered once and then hangs
    clock, hanging, entered = Clock(), threading.Event(), threading.Event()
    module = FakeNvml(device())
    count = module.nvmlDeviceGetCount

    def hang() -> int:
        if sampler.readings:
            entered.set()
            hanging.wait(60)
        return count()

    module.nvmlDeviceGetCount = hang  # type: ignore[method-assign]
    sampler = Sampler(lambda: module, clock=clock)
    sampler.start()
    assert entered.wait(30)
    assert (sampler.available, list(sampler.readings)) == (True, ["1"])

    # WHEN more than ten seconds pass
    clock.now_s += 12

    # THEN the page is told, and stopping does not wait
    assert "has not answered for 12 s" in (sampler.message() or "")
    assert not sampler.available
    sampler.stop()
    hanging.set()
