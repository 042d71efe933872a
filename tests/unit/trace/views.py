"""What the views' tests share: a snapshot of plain objects as columns, and with what its stacks say."""

from __future__ import annotations

from typing import Any

from vramscope.snapshot.build import build_snapshot
from vramscope.snapshot.columns import Snapshot
from vramscope.trace.build import trace_of
from vramscope.trace.categories import rules_of, sites_of
from vramscope.trace.described import Described
from vramscope.units import GIB

TORCH = "/env/lib/python3.11/site-packages/torch"


def columns(content: dict[str, Any]) -> Snapshot:
    return build_snapshot(content, container="", file_bytes=GIB, progress=lambda done, total: None)


def described(content: dict[str, Any]) -> Described:
    snapshot = columns(content)
    trace = trace_of(snapshot, snapshot.devices[0])
    return Described(snapshot, trace, rules_of(snapshot), sites_of(snapshot))
