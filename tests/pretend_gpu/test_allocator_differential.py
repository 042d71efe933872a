"""The simulated allocator against the real one: the same programs, and every address, block, counter, event and error equal."""

from __future__ import annotations

from pathlib import Path

from tests.pretend_gpu.conftest import Pretend
from tests.pretend_gpu.differential import configurations, differences, make_trace, run_real, run_simulated

OPERATIONS = 450


def test_random_programs_go_as_on_the_real_allocator(pretend: Pretend, tmp_path: Path) -> None:
    # GIVEN a program for each option and each pair of them, in turn with pending frees, pools of each kind, captured graphs, and
    # with every figure certain
    batch = [make_trace(conf, seed, OPERATIONS, kind=seed) for seed, conf in enumerate(configurations())]

    # WHEN the real and the simulated allocator run them
    answers = run_real(pretend, tmp_path, batch)
    found = [run_simulated(trace, real, validated="check") for trace, real in zip(batch, answers, strict=True)]

    # THEN they agree
    pairs = zip(batch, answers, found, strict=True)
    assert {trace.alloc_conf: lines for trace, *both in pairs if (lines := differences(trace, *both))} == {}

    # THEN what the programs are for did happen: memory ran out, cached memory was given back, and graphs kept theirs
    assert sum(any(isinstance(result, str) for result in real["results"]) for real in answers) > len(batch) / 2
    assert sum(real["checks"][-1]["stats"]["num_alloc_retries"] for real in answers) > len(batch)
    assert any("private pools" in str(result) for real in answers for result in real["results"])
    assert any(event[4] in real["graph_pools"] for real in answers for event in real["events"])
