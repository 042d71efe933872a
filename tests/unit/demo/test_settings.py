from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from vramscope.demo import main
from vramscope.demo.rank import SCENARIOS, describe, simulated_gpu
from vramscope.demo.settings import SCENARIOS as OFFERED
from vramscope.demo.settings import DemoSettings
from vramscope.errors import BadInputError, VramscopeError
from vramscope.units import GIB


def test_each_scenario_that_the_command_offers_can_run() -> None:
    assert set(OFFERED) == set(SCENARIOS)


@pytest.mark.parametrize("scenario", OFFERED)
def test_each_scenario_has_a_card_of_its_own(scenario: str) -> None:
    assert DemoSettings(scenario).gpu_bytes >= 24 * GIB
    assert DemoSettings(scenario, capacity_bytes=GIB).gpu_bytes == GIB
    assert DemoSettings(scenario, small=True, capacity_bytes=GIB).gpu_bytes == GIB


def test_the_device_is_named_as_simulated_with_its_size() -> None:
    device = describe(DemoSettings(), 2, "demo-1")
    assert device.name == "Simulated GPU 80.0 GiB"
    assert (device.device, device.uuid) == (2, "SIM-2-demo-1")
    assert device.total_bytes == 80 * GIB
    assert device.backend == "simulated"


def test_the_simulated_gpu_has_the_settings_options_and_a_context() -> None:
    gpu = simulated_gpu(DemoSettings(alloc_conf="expandable_segments:True"), rank=1)
    assert gpu.settings.expandable_segments
    assert gpu.device_free_bytes == 80 * GIB - GIB // 2


def test_without_torch_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(VramscopeError, match="not installed") as raised:
        main.run(DemoSettings())
    assert "\n" not in str(raised.value)
    assert "pip install 'vramscope[demo]'" in str(raised.value)


def test_settings_that_pytorch_would_refuse_are_refused_before_a_process_starts() -> None:
    with pytest.raises(BadInputError, match="expandable"):
        main.run(DemoSettings(alloc_conf="expandable_segments:perhaps"))


def test_a_folder_whose_path_is_too_long_for_a_socket_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="socket path"):
        main.run(DemoSettings(runtime_folder=tmp_path / ("x" * 100)))
