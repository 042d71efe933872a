"""Settings strings, valid and not, are read as torch reads them: the same ones refused, and the same values."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.pretend_gpu.conftest import Pretend
from vramscope.allocator import Allocator, parse_alloc_conf
from vramscope.errors import BadInputError

JOB = Path(__file__).with_name("job_alloc_conf.py")
NAMES = ("max_split_size", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions")
KEYS = (
    *("max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb", "garbage_collection_threshold"),
    *("per_process_memory_fraction", "roundup_power2_divisions", "expandable_segments", "throw_on_cudamalloc_oom"),
    *("backend", "pinned_use_background_threads", "pinned_num_register_threads", "pinned_reserve_segment_size_mb"),
    *("pinned_max_cached_size_mb", "release_lock_on_cudamalloc", "graph_capture_record_stream_reuse", "unknown", ""),
)
VALUES = (
    *(
        "True",
        "False",
        "true",
        "1",
        "0",
        "-1",
        "+64",
        "64",
        "20",
        "19",
        "11",
        "10",
        "128MB",
        "6 4",
        "0x40",
        "1e3",
        "x",
        "",
    ),
    *(
        "18446744073709551615",
        "18446744073709551616",
        "0.5",
        ".5",
        "5.",
        "0.8x",
        "1e-310",
        "1e-400",
        "nan",
        "0x0.8",
        "-0.1",
    ),
    *("native", "8", "3", "[4:2,>:8]", "[4:2]", "[>:4]", "[]", "[", "]", "[300:2]", "[256]", "[4:2,8:4,]", "[4:2:8:4]"),
    *("[1:0,32768:2,65536:4]", "[4]2]", "[4:3]", "[True]", "[4:2,>:8", "\t64\n", "infinity", "6\u00e94"),
)


def random_texts(seed: int, count: int) -> list[str]:
    """Return settings strings out of likely and unlikely parts, with a separator wrong or missing now and then."""
    draw = random.Random(seed)

    def pair() -> str:
        return draw.choice(KEYS) + draw.choice([":"] * 8 + [",", "", " : "]) + draw.choice(VALUES)

    return [
        draw.choice(["", "", "", " ", ",", ":"]).join(
            pair() + draw.choice(["", ","]) for _ in range(draw.choice((1, 1, 2, 3)))
        )
        for _ in range(count)
    ]


def simulated(text: str) -> dict[str, Any] | None:
    try:
        settings = parse_alloc_conf(text)
    except BadInputError:
        return None
    found = Allocator(1, settings).snapshot()["allocator_settings"]
    return {name: found[name] for name in NAMES}


def test_settings_are_read_as_torch_reads_them(pretend: Pretend, tmp_path: Path) -> None:
    # GIVEN each key with each value, and longer texts; less what is valid but not simulated (backend:cudaMallocAsync)
    texts = [f"{key}:{value}" for key in KEYS for value in VALUES] + random_texts(1, 4000)
    asked, answer = tmp_path / "texts.json", tmp_path / "answer.json"
    asked.write_text(json.dumps(texts))

    # WHEN torch reads them
    done = pretend.run(JOB, str(asked), str(answer))
    assert done.returncode == 0, done.stderr[-2000:]

    # THEN the same ones are refused, and of the others the values are equal
    expected = json.loads(answer.read_text())
    different = [(text, value) for text, value in zip(texts, expected, strict=True) if simulated(text) != value]
    assert different == []
    accepted = sum(value is not None for value in expected)
    assert accepted > 200
    assert len(expected) - accepted > 200
