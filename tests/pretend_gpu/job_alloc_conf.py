"""Has the real allocator read settings strings, one after the other: python job_alloc_conf.py IN.json OUT.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

# What a later string would not reset by itself.
RESET = "expandable_segments:False,large_segment_size_mb:20,per_process_memory_fraction:1,throw_on_cudamalloc_oom:False"
NAMES = ("max_split_size", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions")


def read(text: str) -> dict[str, Any] | None:
    """Return what torch's snapshot says of the settings after ``text``, or None where torch refuses it."""
    torch._C._accelerator_setAllocatorSettings(RESET)
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except (ValueError, RuntimeError, IndexError):
        return None
    found = torch.cuda.memory._snapshot()["allocator_settings"]
    return {name: found[name] for name in NAMES}


if __name__ == "__main__":
    torch.cuda.init()
    asked = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps([read(text) for text in asked]))
