"""The environment variables that put a job on the pretend GPU, and a collector beside it. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from vramscope.errors import BadInputError
from vramscope.pretend_gpu.build import OBJECTS, STUBS_FOLDER
from vramscope.units import GIB

MAX_DEVICES = 8  # as in fakecuda.c
NAME = "Pretend GPU"


def environment(
    folder: Path,
    *,
    devices: Sequence[int] = (80 * GIB,),
    state_file: Path | None = None,
    other_bytes: int = 0,
    name: str = NAME,
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the variables to add to ``environ`` for a process that shall see pretend GPUs.

    ``folder`` is what :func:`vramscope.pretend_gpu.build.build` made; ``devices`` has the bytes of each GPU;
    ``other_bytes`` are held by other processes on each. ``state_file`` stands for the machine: the jobs that name it
    share its GPUs, and :func:`nvml_environment` shows them to a process without CUDA.
    Raises BadInputError where the folder is not built or the devices cannot be.
    """
    folder = _built(folder)
    if not 1 <= len(devices) <= MAX_DEVICES or min(devices) <= other_bytes or other_bytes < 0:
        raise BadInputError(
            f"a pretend machine has 1 to {MAX_DEVICES} GPUs, each larger than other_bytes; "
            f"not {list(devices)} with {other_bytes}"
        )
    found = {
        "LD_PRELOAD": _joined(*(folder / library for library in OBJECTS), environ.get("LD_PRELOAD")),
        "LD_LIBRARY_PATH": _joined(folder / STUBS_FOLDER, environ.get("LD_LIBRARY_PATH")),
        "FAKE_GPU_COUNT": str(len(devices)),
        "FAKE_GPU_BYTES": ",".join(map(str, devices)),
        "FAKE_GPU_OTHER_BYTES": str(other_bytes),
        "FAKE_GPU_NAME": name,
    }
    if state_file is not None:
        found["FAKE_GPU_STATE"] = str(state_file.absolute())
    return found


def nvml_environment(
    folder: Path, state_file: Path, *, name: str = NAME, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables to add to ``environ`` for a process (a collector) whose NVML shall tell of the pretend GPUs.

    It sees what the jobs with the same ``state_file`` hold. Raises BadInputError where the folder is not built.
    """
    return {
        "LD_LIBRARY_PATH": _joined(_built(folder), environ.get("LD_LIBRARY_PATH")),
        "FAKE_GPU_STATE": str(state_file.absolute()),
        "FAKE_GPU_NAME": name,
    }


def _built(folder: Path) -> Path:
    missing = [name for name in OBJECTS if not (folder / name).is_file()]
    if missing:
        raise BadInputError(
            f"{folder} has no {missing[0]}; run: python -m vramscope.pretend_gpu.build {folder}, with the python of "
            "the CUDA build of torch"
        )
    return folder.absolute()


def _joined(*parts: Path | str | None) -> str:
    return os.pathsep.join(str(part) for part in parts if part)
