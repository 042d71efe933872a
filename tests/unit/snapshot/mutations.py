"""Breaks a snapshot file in many ways and reads each through the reader's own child code, in a fork of this process.

Run: python -m tests.unit.snapshot.mutations FILE [--count 10000] [--seed 1]
Prints how the readings ended as JSON. Exit status 1 where one is a fault of the reader: no answer, more than a line, or figures
that cannot be. "silent" are readings with other totals and no word about it, as when a whole segment is lost.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from vramscope.errors import VramscopeError
from vramscope.snapshot import child
from vramscope.snapshot.opening import printable
from vramscope.snapshot.storage import read_traced
from vramscope.snapshot.summary import summarize_snapshot

LIMITS = ("2147483648", "20", "1073741824")
TOTALS = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes")
STRANGE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    1 << 64,
    1 << 63,
    "x",
    "\ud800\n",
    b"x",
    [],
    {},
    (),
    [[]],
    {"a": 1},
    10**30,
    float("nan"),
)
MAX_SHOWN = 20


def mutant(raw: bytes, dice: random.Random) -> bytes:
    """Return ``raw`` cut off, with bits flipped, bytes lost or repeated, or with one value of its objects replaced."""
    start = dice.randrange(len(raw))
    length = dice.choice((1, 2, 8, 512, 4096))
    way = dice.choice(("cut", "flip", "flip", "lose", "repeat", "replace", "replace"))
    if way == "cut":
        return raw[:start]
    if way == "lose":
        return raw[:start] + raw[start + length :]
    if way == "repeat":
        return raw[: start + length] + raw[start:]
    if way == "replace":
        return replaced(raw, dice)
    flipped = bytearray(raw)
    for _ in range(dice.choice((1, 1, 1, 3, 30))):
        flipped[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    return bytes(flipped)


def replaced(raw: bytes, dice: random.Random) -> bytes:
    """Return the pickle with one value somewhere in its objects replaced, or gone with its key."""
    tree = pickle.loads(raw)
    node = tree
    while True:
        key = dice.choice(list(node)) if isinstance(node, dict) else dice.randrange(len(node))
        if not (isinstance(node[key], dict | list) and node[key] and dice.random() < 0.9):
            break
        node = node[key]
    if dice.random() < 0.2:
        del node[key]
    else:
        number = node[key]
        node[key] = (
            dice.choice(STRANGE)
            if not isinstance(number, int) or dice.random() < 0.5
            else number + dice.choice((-512, 1, 512))
        )
    return pickle.dumps(tree)


def read(content: bytes, folder: Path) -> tuple[str, dict[str, Any] | None]:
    """Return how reading ends, and the figures where there are some."""
    source, output, result = folder / "file", folder / "output", folder / "result"
    source.write_bytes(content)
    result.unlink(missing_ok=True)
    process = os.fork()
    if not process:
        _become_child(source, output, result)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return f"ended by signal {os.WTERMSIG(status)}", None
    told = json.loads(output.read_bytes().splitlines()[-1])
    if "error" in told:
        return printable(str(told["error"])), None
    return "read", summarize_snapshot(read_traced(result))


def _become_child(source: Path, output: Path, result: Path) -> None:
    try:
        os.dup2(os.open(source, os.O_RDONLY), 0)
        sys.stdout = open(output, "w")  # noqa: SIM115 - the process ends with it
        child.main([str(result), *LIMITS])
    finally:
        os._exit(97)


def totals(figures: dict[str, Any]) -> list[int]:
    return [sum(device[key] or 0 for device in figures["devices"]) for key in TOTALS]


def fault(ending: str, figures: dict[str, Any] | None) -> str | None:
    """Return what the reader did wrong, None where nothing."""
    if figures is None:
        return None if ending.isprintable() and len(ending) < 400 else f"not a line: {ending[:400]!r}"
    for device in figures["devices"]:
        reserved, allocated, active = (device[key] for key in TOTALS[:3])
        if not allocated <= active <= reserved and not figures["missing"]:
            return f"impossible figures without a word: {device}"
        for peak, level in (("peak_active_bytes", "active_bytes"), ("peak_requested_bytes", "requested_bytes")):
            if device[peak] is not None and device[peak] < device[level]:
                return f"{peak} below {level}: {device}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    raw, dice = options.file.read_bytes(), random.Random(options.seed)
    endings: Counter[str] = Counter()
    faults, silent = [], []
    with tempfile.TemporaryDirectory() as name:
        _, expected = read(raw, Path(name))
        if expected is None:
            raise SystemExit(f"{options.file} cannot be read")
        for number in range(options.count):
            try:
                ending, figures = read(mutant(raw, dice), Path(name))
            except (VramscopeError, ValueError, IndexError) as error:
                faults.append(f"{number}: {error!r}")
                continue
            endings[ending.split(" (")[0] if figures is None else "read"] += 1
            wrong = fault(ending, figures)
            faults += [f"{number}: {wrong}"] if wrong else []
            if figures and totals(figures) != totals(expected) and figures["missing"] == expected["missing"]:
                silent.append(f"{number}: {totals(figures)} for {totals(expected)}")
    found = {"endings": dict(endings.most_common(40)), "faults": faults[:MAX_SHOWN], "silent": silent[:MAX_SHOWN]}
    sys.stdout.write(json.dumps({**found, "silent_count": len(silent)}, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
