"""Answers the collector's requests for a snapshot file and for the stack of a block."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from vramscope.agent.sampler import cyclic_collection_paused
from vramscope.agent.source import Source
from vramscope.errors import BadInputError, VramscopeError, one_line


def answer(request: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """Return the fields of the ``reply`` to a request other than for a map; a failure is one line in ``error``."""
    try:
        if request.get("what") == "dump":
            return {"ok": True, **_dump(source, request.get("path"))}
        if request.get("what") == "stack":
            return {"ok": True, **_stack(source, request)}
    except (VramscopeError, OSError, RuntimeError, ValueError, KeyError) as error:
        return failure(f"the job could not answer: {one_line(error)}")
    return failure(f"this job's vramscope does not know the request {request.get('what')!r}")


def failure(message: str) -> dict[str, Any]:
    """Return the fields of a ``reply`` that failed."""
    return {"ok": False, "error": message}


def _dump(source: Source, path: object) -> dict[str, Any]:
    """Write a snapshot under ``path``: first beside it, then renamed, so that nobody reads a half-written one."""
    if not isinstance(path, str) or not os.path.isabs(path) or os.path.lexists(path):
        raise BadInputError(f"a snapshot needs an absolute path that does not exist yet, not {path!r}")
    if not source.ready():
        raise BadInputError("the job has not used CUDA yet, so there is nothing to write")
    partial = f"{path}.part"
    try:
        with cyclic_collection_paused():
            source.dump(partial)
        os.rename(partial, path)
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)
    return {"path": path, "file_bytes": os.stat(path).st_size}


def _stack(source: Source, request: Mapping[str, Any]) -> dict[str, Any]:
    if not source.ready():
        return {"frames": [], "reason": "the job has not used CUDA yet"}
    with cyclic_collection_paused():
        frames, reason = source.stack(int(request["device"]), int(request["address"]))
    return {"frames": frames, "reason": reason}
