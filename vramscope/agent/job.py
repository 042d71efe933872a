"""Who this process is among the ranks of its job, from the variables that launchers set. Pure: the environment is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

LONGEST_NAME = 200
ALLOC_CONF_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class Identity(NamedTuple):
    """How ``hello`` names this process. Processes with the same ``name``, ``run_id`` and ``world_size`` are one job."""

    name: str
    run_id: str
    world_size: int
    rank: int
    local_rank: int
    pid: int
    started_unix_us: int
    argv0: str
    alloc_conf: dict[str, str]
    notes: tuple[str, ...]


class _Launcher(NamedTuple):
    """The variables of one launcher. They are read together: SLURM's rank and torchrun's world size do not mix."""

    rank: str
    local_rank: str
    world_size: str
    needs: str


# mpirun inside a SLURM job sets both, and then OMPI's are right. A batch script that was not started by srun has SLURM's
# rank 0 of N too, but no step.
_LAUNCHERS = (
    _Launcher("RANK", "LOCAL_RANK", "WORLD_SIZE", "RANK"),
    _Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    _Launcher("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_ID"),
)


def identify(
    environ: Mapping[str, str],
    argv: Sequence[str],
    *,
    pid: int,
    parent_pid: int,
    started_unix_us: int,
    name: str | None = None,
) -> Identity:
    """Return this process's identity; ``started_unix_us`` is when it attached.

    A variable that is not a number is ignored, with a note.
    """
    notes: list[str] = []
    rank, local_rank, world_size = _place(environ, notes)
    run_id = _run_id(environ, world_size, parent_pid) or f"{pid}-{started_unix_us}"
    alloc_conf = {variable: environ[variable] for variable in ALLOC_CONF_VARIABLES if environ.get(variable)}
    return Identity(
        (name or script_name(argv))[:LONGEST_NAME],
        run_id,
        world_size,
        rank,
        local_rank,
        pid,
        started_unix_us,
        argv[0] if argv else "",
        alloc_conf,
        tuple(notes),
    )


def script_name(argv: Sequence[str]) -> str:
    """Return the script's name without its suffix; "notebook" in Jupyter, "python" where there is no script."""
    script = PurePath(argv[0] if argv else "")
    if script.stem == "__main__" and script.parent.name:
        return script.parent.name
    if script.stem == "ipykernel_launcher":
        return "notebook"
    return "python" if script.stem in ("", "-c", "-m", "-") else script.stem


def _place(environ: Mapping[str, str], notes: list[str]) -> tuple[int, int, int]:
    """Return (rank, local rank, world size) of the first launcher whose variables make sense, else (0, 0, 1)."""
    for launcher in _LAUNCHERS:
        if not environ.get(launcher.needs):
            continue
        rank = _number(environ, launcher.rank, notes)
        if rank is None:
            continue
        world_size = _number(environ, launcher.world_size, notes) or rank + 1
        local_rank = _number(environ, launcher.local_rank, notes)
        if rank < world_size:
            return rank, rank if local_rank is None else local_rank, world_size
        notes.append(f"{launcher.rank}={rank} is not below {launcher.world_size}={world_size}, so both were ignored")
    return 0, 0, 1


def _number(environ: Mapping[str, str], variable: str, notes: list[str]) -> int | None:
    text = environ.get(variable)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        notes.append(f"{variable}={text[:40]!r} is not a number, so it was ignored")
        return None
    return int(text)


def _run_id(environ: Mapping[str, str], world_size: int, parent_pid: int) -> str | None:
    elastic = environ.get("TORCHELASTIC_RUN_ID")
    if elastic and elastic != "none":
        return elastic
    if elastic:
        # torchrun's default id is the word "none"; the ranks of one launch on this machine share torchrun as their parent.
        return f"torchrun-{parent_pid}"
    if environ.get("OMPI_COMM_WORLD_RANK"):
        return environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid")
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_STEP_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    if world_size > 1 and environ.get("MASTER_ADDR"):
        return f"{environ['MASTER_ADDR']}:{environ.get('MASTER_PORT', '')}"
    return None
