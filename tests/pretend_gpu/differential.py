"""The simulated allocator against the real one, over all options and pairs of them: python -m tests.pretend_gpu.differential.

    python -m tests.pretend_gpu.differential [--traces 1000] [--operations 1500] [--seed 1]

Runs random programs on both and compares every address, size, state, counter, event and error. Exits with 1 at the first difference,
after it said where.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.allocator_traces import CAPACITY_BYTES, Operation, certain, random_program, simulate, without_other_streams
from tests.pretend_gpu.conftest import CHECKOUT, Pretend
from vramscope.allocator import parse_alloc_conf

STREAMS = 3
JOB = Path(__file__).with_name("job_allocator.py")
OPTIONS = (
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:128,max_non_split_rounding_mb:80",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[1:4,16:2,>:8]",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "per_process_memory_fraction:0.7",
    "large_segment_size_mb:26",
    "throw_on_cudamalloc_oom:True",
)
# A pool of each kind. Only one serves on out-of-memory: of several PyTorch asks in the order of a hash table.
POOLS: tuple[dict[str, bool], ...] = ({}, {"no_split": True}, {"use_on_oom": True})
BATCH = 20


@dataclass(frozen=True)
class Trace:
    """A program and the settings it runs under; ``is_certain`` where no figure depends on the order of a hash table."""

    alloc_conf: str
    program: list[Operation]
    pools: Sequence[dict[str, bool]]
    is_certain: bool = False


def keys(alloc_conf: str) -> set[str]:
    return {option.partition(":")[0] for option in alloc_conf.split(",")}


def configurations() -> list[str]:
    """Return no option, each option, and each pair of options that do not set the same key."""
    pairs = [f"{a},{b}" for a, b in combinations(OPTIONS, 2) if not keys(a) & keys(b)]
    return ["", *OPTIONS, *pairs]


def traces(count: int, operations: int, first_seed: int) -> Iterator[Trace]:
    """Yield random traces: every configuration in turn, each in turn with streams and more and more of pools and captures."""
    confs = configurations()
    for number in range(count):
        round_, place = divmod(number, len(confs))
        yield make_trace(confs[place], first_seed + number, operations, kind=round_ + place)


def make_trace(alloc_conf: str, seed: int, operations: int, *, kind: int) -> Trace:
    """Return the trace of a kind: 0 has streams, 1 pools too, 2 captures, 3 both, 4 none of them but all figures certain."""
    pools = POOLS if kind % 5 in (1, 3) else ()
    program = random_program(seed, operations, streams=STREAMS, pools=len(pools), captures=kind % 5 in (2, 3))
    if "expandable_segments" in alloc_conf:
        # torch 2.14.1 fails an internal assertion when it releases a private pool that has expandable segments.
        program = [operation for operation in program if operation[0] not in ("drop_pool", "drop_graph")]
    if kind % 5 == 4:
        program = without_other_streams(program)
    return Trace(alloc_conf, program, pools, is_certain=kind % 5 == 4)


def run_real(pretend: Pretend, folder: Path, batch: Sequence[Trace]) -> list[dict[str, Any]]:
    """Run programs on the CUDA build's allocator and return its answers, with the streams and pools it had."""
    asked, answers = folder / "programs.json", folder / "answers.json"
    asked.write_text(
        json.dumps(
            [
                {"program": t.program, "alloc_conf": t.alloc_conf, "streams": STREAMS, "pools": list(t.pools)}
                for t in batch
            ]
        )
    )
    done = pretend.run(JOB, str(asked), str(answers), devices=(CAPACITY_BYTES,), timeout_s=60 + 60 * len(batch))
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(answers.read_text())
    return found


def run_simulated(trace: Trace, real: dict[str, Any], *, validated: str = "") -> dict[str, Any]:
    """Run the program on the simulated allocator with the streams and pools that the real one had."""
    return simulate(
        trace.program,
        parse_alloc_conf(trace.alloc_conf),
        streams=real["streams"],
        pools=[tuple(pool) for pool in real["pools"]],
        pool_options=trace.pools,
        graph_pools=[tuple(pool) for pool in real["graph_pools"]],
        validated=validated,
    )


def differences(trace: Trace, real: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return a line for the first difference of each part of the answers."""
    parts = ("results", "checks", "events")
    expected, ours = {part: real[part] for part in parts}, json.loads(json.dumps(found))
    if not trace.is_certain:
        expected, ours = certain(expected), certain(ours)
    result = []
    for part in parts:
        pairs = list(zip(expected[part], ours[part], strict=False))
        place = next((index for index, (theirs, own) in enumerate(pairs) if theirs != own), len(pairs))
        if place < len(pairs):
            theirs, own = pairs[place]
            if part == "checks":
                theirs, own = _first_difference(theirs, own)
            result.append(f"{part} {place}: torch {str(theirs)[:300]} / simulated {str(own)[:300]}")
        elif len(expected[part]) != len(ours[part]):
            result.append(f"{part}: torch has {len(expected[part])}, simulated {len(ours[part])}")
    return result


def _first_difference(theirs: Any, own: Any) -> tuple[Any, Any]:
    """Return the innermost parts of two checks that differ."""
    if isinstance(theirs, dict) and isinstance(own, dict) and theirs.keys() == own.keys():
        name = next(name for name in theirs if theirs[name] != own[name])
        inner = _first_difference(theirs[name], own[name])
        return {name: inner[0]}, {name: inner[1]}
    if isinstance(theirs, list) and isinstance(own, list):
        pair = next(((a, b) for a, b in zip(theirs, own, strict=False) if a != b), None)
        return pair or (len(theirs), len(own))
    return theirs, own


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the simulated allocator with torch's own.")
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--operations", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    pretend = Pretend(CHECKOUT / ".pretend", CHECKOUT / ".venv-pretend" / "bin" / "python")
    started, actions, retries = time.monotonic(), Counter[str](), 0
    todo = list(traces(options.traces, options.operations, options.seed))
    for begin in range(0, len(todo), BATCH):
        batch = todo[begin : begin + BATCH]
        with tempfile.TemporaryDirectory() as folder:
            answers = run_real(pretend, Path(folder), batch)
        for number, (trace, real) in enumerate(zip(batch, answers, strict=True), begin):
            found = differences(trace, real, run_simulated(trace, real, validated="check"))
            if found:
                print(f"trace {number}, {trace.alloc_conf!r} with {len(trace.pools)} pools:", *found, sep="\n  ")
                return 1
            actions.update(event[0] for event in real["events"])
            retries += real["checks"][-1]["stats"]["num_alloc_retries"]
        print(f"{begin + len(batch)} traces equal after {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{len(todo)} traces of {options.operations} operations, {len(configurations())} configurations, no difference"
    )
    print(f"{retries} retries; events: {dict(actions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
