"""Who a process is: the variables of each launcher, and garbage in them."""

from __future__ import annotations

import pytest

from vramscope.agent.job import Identity, identify, script_name


def identity(environ: dict[str, str], argv: tuple[str, ...] = ("/srv/train.py",), **settings: str) -> Identity:
    return identify(environ, argv, pid=4242, parent_pid=99, started_unix_us=1_000_000, **settings)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, (0, 0, 1)),
        ({"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (5, 1, 8)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 1, 2)),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
            (3, 3, 4),
        ),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16"}, (9, 1, 16)),
        # A batch script without srun has a rank and a size too, but runs alone.
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "16"}, (0, 0, 1)),
        # torchrun inside a SLURM step: torchrun's own variables count, and are not mixed with SLURM's.
        (
            {"RANK": "2", "LOCAL_RANK": "2", "WORLD_SIZE": "4", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1"},
            (2, 2, 4),
        ),
    ],
)
def test_rank_and_world_size_come_from_the_launcher(environ: dict[str, str], place: tuple[int, int, int]) -> None:
    found = identity(environ)
    assert (found.rank, found.local_rank, found.world_size) == place
    assert found.notes == ()


@pytest.mark.parametrize(
    ("environ", "place", "note"),
    [
        ({"RANK": "abc", "WORLD_SIZE": "4"}, (0, 0, 1), "RANK='abc' is not a number"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, (0, 0, 1), "RANK='-1' is not a number"),
        ({"RANK": "2", "WORLD_SIZE": "many"}, (2, 2, 3), "WORLD_SIZE='many' is not a number"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, (0, 0, 1), "RANK=4 is not below WORLD_SIZE=4"),
        ({"RANK": "²", "WORLD_SIZE": "4"}, (0, 0, 1), "RANK='²' is not a number"),
        ({"RANK": "1", "LOCAL_RANK": "x", "WORLD_SIZE": "2"}, (1, 1, 2), "LOCAL_RANK='x' is not a number"),
    ],
)
def test_garbage_is_ignored_with_a_note(environ: dict[str, str], place: tuple[int, int, int], note: str) -> None:
    found = identity(environ)
    assert (found.rank, found.local_rank, found.world_size) == place
    assert len(found.notes) == 1
    assert note in found.notes[0]


@pytest.mark.parametrize(
    ("environ", "run_id"),
    [
        ({}, "4242-1000000"),
        ({"TORCHELASTIC_RUN_ID": "abc-1", "RANK": "0", "WORLD_SIZE": "2"}, "abc-1"),
        # torchrun's default id is the word "none": its ranks share their parent.
        ({"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}, "torchrun-99"),
        ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "slurm-77.3"),
        ({"SLURM_JOB_ID": "77"}, "4242-1000000"),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_MCA_ess_base_jobid": "55"}, "55"),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500"}, "node-1:29500"),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500"}, "4242-1000000"),
    ],
)
def test_ranks_of_one_run_share_an_id_and_other_processes_do_not(environ: dict[str, str], run_id: str) -> None:
    assert identity(environ).run_id == run_id


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (("/srv/train.py", "--lr", "1"), "train"),
        (("train.py",), "train"),
        (("",), "python"),
        (("-c",), "python"),
        ((), "python"),
        (("/site-packages/ipykernel_launcher.py",), "notebook"),
        (("/srv/pretrain/__main__.py",), "pretrain"),
    ],
)
def test_the_name_is_the_scripts(argv: tuple[str, ...], name: str) -> None:
    assert script_name(argv) == name
    assert identity({}, argv).name == name


def test_a_given_name_goes_first() -> None:
    assert identity({}, name="llama").name == "llama"


def test_only_allocator_settings_that_are_set_are_told() -> None:
    # GIVEN
    environ = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "", "OTHER": "x"}

    # THEN
    assert identity(environ).alloc_conf == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def test_a_name_of_any_length_is_cut() -> None:
    assert identify({}, ["train.py"], pid=1, parent_pid=1, started_unix_us=1, name="x" * 10_000).name == "x" * 200
