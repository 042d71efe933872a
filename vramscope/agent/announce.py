"""The agent's ``hello``: who the job is and what it can tell."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from vramscope import __version__
from vramscope.agent.job import Identity
from vramscope.agent.source import Source
from vramscope.agent.wire import PROTOCOL_VERSION, encode


def hello_frame(
    identity: Identity, source: Source, *, notes: Sequence[str], devices: Sequence[Mapping[str, Any]]
) -> bytes:
    """Return the first frame of a connection; ``devices`` and ``notes`` are replaced by later ``notes`` frames."""
    job = {
        **identity._asdict(),
        "host": platform.node(),
        "torch_version": source.torch_version,
        "python_version": platform.python_version(),
        "simulated": source.simulated,
        "map_way": source.map_way,
        "notes": notes,
    }
    header = {"kind": "hello", "role": "agent", "protocol": PROTOCOL_VERSION, "vramscope_version": __version__}
    return encode({**header, "job": job, "devices": devices})
