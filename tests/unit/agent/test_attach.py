"""attach, detach and mark as a job sees them: each job is a process of its own, with a collector on a real socket here."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import vramscope
from tests.fake_collector import FakeCollector
from vramscope.errors import BadInputError

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 100


def run_job(script: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run a job to its end; warnings are errors in it too."""
    return subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", textwrap.dedent(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "VRAMSCOPE_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture
def collector(socket_path: Path) -> Iterator[FakeCollector]:
    with FakeCollector(socket_path) as found:
        yield found


WITH_FAKE_SOURCE = """
    import os, sys, time
    import vramscope
    from tests.unit.agent.fake_source import FakeSource

    def wait_until_connected(agent):
        until = time.monotonic() + 60
        while not agent.connected and time.monotonic() < until:
            time.sleep(0.01)
        assert agent.connected
"""


def job(body: str) -> str:
    return textwrap.dedent(WITH_FAKE_SOURCE) + textwrap.dedent(body)


def test_importing_vramscope_loads_nothing_else(tmp_path: Path) -> None:
    # GIVEN an interpreter without site-packages
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        before = set(sys.modules)
        import vramscope
        print(" ".join(sorted(set(sys.modules) - before)))
    """

    # WHEN
    found = run_job(script, tmp_path, "-I", "-S")

    # THEN
    assert found.returncode == 0, found.stderr
    loaded = found.stdout.split()
    assert set(loaded) == {"__future__", "vramscope"}


def test_without_torch_the_job_is_shown_with_a_note(collector: FakeCollector, socket_path: Path) -> None:
    # GIVEN an interpreter without site-packages
    script = f"""
        import sys, time
        sys.path.insert(0, {str(ROOT)!r})
        import vramscope
        agent = vramscope.attach(socket={str(socket_path)!r})
        while not agent.connected:
            time.sleep(0.01)
        print("trained")
    """

    # WHEN
    found = run_job(script, socket_path.parent, "-I", "-S")

    # THEN
    line = "torch cannot be imported here, so there is no GPU memory to show"
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert found.stderr == f"vramscope: {line}\n"
    hello = collector.wait("hello")[0].header
    assert (hello["job"]["torch_version"], hello["job"]["notes"], hello["devices"]) == ("none", [line], [])
    assert collector.wait("bye")[0].header["reason"] == "exited"


def test_a_torch_without_cuda_is_one_line_and_its_steps_are_still_counted(
    collector: FakeCollector, socket_path: Path
) -> None:
    # WHEN
    found = run_job(
        """
        import time, torch, vramscope
        torch.manual_seed(1)
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = torch.get_rng_state()
        agent = vramscope.attach(model, optimizer)
        while not agent.connected:
            time.sleep(0.01)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        print(agent.step, torch.equal(state, torch.get_rng_state()), torch.cuda.is_initialized())
        """,
        socket_path.parent,
    )

    # THEN
    assert (found.returncode, found.stdout) == (0, "1 True False\n"), found.stderr
    assert found.stderr.count("\n") == 1
    assert "was built without CUDA" in found.stderr
    assert "was built without CUDA" in collector.wait("hello")[0].header["job"]["notes"][0]
    assert collector.wait("mark")[0].header["mark"] == "step"
    assert collector.of_kind("counters") == []


def test_attaching_twice_gives_the_same_agent_and_detach_ends_it(collector: FakeCollector, socket_path: Path) -> None:
    # WHEN
    found = run_job(
        job(
            """
            import threading, torch
            from torch.optim import optimizer as optimizers
            first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
            agent = vramscope.attach(first, source=FakeSource(), name="mine")
            print(vramscope.attach(second) is agent, isinstance(agent, vramscope.Agent))
            wait_until_connected(agent)
            vramscope.mark("epoch 3")
            vramscope.detach()
            vramscope.detach()
            vramscope.mark("nobody hears this")
            print([len(m._forward_hooks) for m in (first, second)], len(optimizers._global_optimizer_post_hooks))
            print([thread.name for thread in threading.enumerate()])
            print(vramscope.attach(source=FakeSource()) is agent)
            """
        ),
        socket_path.parent,
    )

    # THEN
    assert found.stdout == "True True\n[0, 0] 0\n['MainThread']\nFalse\n", found.stderr
    assert found.stderr == ""
    assert collector.wait("hello")[0].header["job"]["name"] == "mine"
    assert collector.wait("bye")[0].header["reason"] == "detached"
    labels = [frame.header["label"] for frame in collector.of_kind("mark")]
    assert labels == ["epoch 3"]


def test_forked_children_are_silent_and_the_parent_goes_on(collector: FakeCollector, socket_path: Path) -> None:
    # WHEN children step, mark and exit in every way while the parent's agent is busy
    found = run_job(
        job(
            """
            import torch
            agent = vramscope.attach(source=FakeSource())
            wait_until_connected(agent)
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
            for number in range(6):
                child = os.fork()
                if child == 0:
                    vramscope.mark("from a child")
                    agent.mark("from a child")
                    optimizer.step()
                    sys.exit(0) if number % 2 else os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            vramscope.mark("from the parent")
            """
        ),
        socket_path.parent,
        "-W",
        "ignore::DeprecationWarning",  # Python 3.12 warns of fork() in a process with threads
    )

    # THEN
    assert (found.returncode, found.stderr) == (0, "")
    assert collector.wait("bye")[0].header["reason"] == "exited"
    assert [frame.header["label"] for frame in collector.of_kind("mark")] == ["from the parent"]
    assert (collector.accepted, len(collector.of_kind("bye")), collector.errors) == (1, 1, [])


def test_a_forked_child_may_attach_itself(collector: FakeCollector, socket_path: Path) -> None:
    # WHEN
    found = run_job(
        job(
            """
            wait_until_connected(vramscope.attach(source=FakeSource()))
            if os.fork() == 0:
                agent = vramscope.attach(source=FakeSource())
                wait_until_connected(agent)
                sys.exit(0)
            sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
            """
        ),
        socket_path.parent,
        "-W",
        "ignore::DeprecationWarning",
    )

    # THEN
    assert (found.returncode, found.stderr) == (0, "")
    assert len({frame.header["job"]["pid"] for frame in collector.wait("hello", count=2)}) == 2


def test_an_exit_in_the_middle_of_a_sample_is_quick_and_clean(collector: FakeCollector, socket_path: Path) -> None:
    # GIVEN a snapshot that would take a minute, and a job that ends while it is being taken
    script = job(
        """
        class Slow(FakeSource):
            def segments(self):
                os.write(1, b"sampling\\n")
                return super().segments()

        vramscope.attach(source=Slow(snapshot_s=60))
        os.write(1, b"attached\\n")
        sys.stdin.readline()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "VRAMSCOPE_RUNTIME_DIR": str(socket_path.parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines = {process.stdout.readline(), process.stdout.readline()}
        assert lines == {"attached\n", "sampling\n"}

        # WHEN
        begin_s = time.monotonic()
        _, errors = process.communicate("\n", timeout=TIMEOUT_S)

        # THEN long before the snapshot would have ended
        assert time.monotonic() - begin_s < 30
        assert (process.returncode, errors) == (0, "")


def test_a_path_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    found = run_job(
        job(
            """
            agent = vramscope.attach(source=FakeSource())
            vramscope.mark("x")
            print("trained", agent.connected)
            """
        ),
        tmp_path / ("long" * 30),
    )
    assert (found.returncode, found.stdout) == (0, "trained False\n")
    assert found.stderr.count("\n") == 1
    assert "shorter folder" in found.stderr


def test_a_folder_that_others_may_enter_is_one_line(tmp_path: Path) -> None:
    # GIVEN
    tmp_path.chmod(0o777)

    # WHEN
    found = run_job(
        job(
            """
            vramscope.attach(source=FakeSource())
            time.sleep(1.2)  # several tries
            print("trained")
            """
        ),
        tmp_path,
    )

    # THEN
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert found.stderr.count("\n") == 1
    assert "chmod 700" in found.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        {"budget_ratio": 0},
        {"budget_ratio": 1e-300},
        {"budget_ratio": 1.5},
        {"budget_ratio": "1 %"},
        {"counters_hz": 0},
        {"counters_hz": 1e-300},
        {"counters_hz": float("nan")},
        {"counters_hz": float("inf")},
        {"counters_hz": None},
        {"model": 5},
        {"model": dict},
        {"name": Path("gpt")},
        {"socket": 5},
    ],
    ids=str,
)
def test_arguments_that_cannot_be_used_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="attach"):
        vramscope.attach(**arguments)  # type: ignore[arg-type]
    vramscope.detach()


def test_a_mark_of_any_kind_and_size_is_kept_short_and_never_stops_the_job(
    collector: FakeCollector, socket_path: Path
) -> None:
    # WHEN a job marks with what is no text, with half a character, and with a megabyte
    found = run_job(
        job(
            """
            class Mute:
                def __str__(self):
                    raise LookupError("no words")

            agent = vramscope.attach(source=FakeSource())
            wait_until_connected(agent)
            for label in (5, None, Mute(), chr(0xD800), "x" * (1 << 20)):
                vramscope.mark(label)
            vramscope.detach()
            """
        ),
        socket_path.parent,
    )

    # THEN
    assert (found.returncode, found.stderr) == (0, "")
    marks = [frame.header["label"] for frame in collector.wait("mark", count=5)]
    assert marks == ["5", "None", "(Mute)", "\ud800", "x" * 200]


@pytest.mark.parametrize(
    ("limit", "words"), [("RLIMIT_NOFILE", "Too many open files"), ("RLIMIT_NPROC", "can't start new thread")]
)
def test_a_process_that_may_have_no_more_files_or_threads_goes_on(tmp_path: Path, limit: str, words: str) -> None:
    # GIVEN a job at its limit of files, or one that can start no thread
    spend = "files = []" if limit == "RLIMIT_NPROC" else "files = spend_files()"
    found = run_job(
        job(
            f"""
            import resource, threading
            import torch  # a module is a file too
            attach = vramscope.attach

            def spend_files():
                resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
                found = []
                try:
                    while True:
                        found.append(os.dup(0))
                except OSError:
                    return found

            def refuse(thread):
                raise RuntimeError("can't start new thread")

            {spend}
            if {limit!r} == "RLIMIT_NPROC":
                threading.Thread.start = refuse

            # WHEN it attaches, marks and detaches
            agent = attach(source=FakeSource())
            agent.mark("epoch 1")
            vramscope.mark("epoch 2")
            vramscope.detach()
            for file in files:
                os.close(file)
            print("trained", agent.connected)
            """
        ),
        tmp_path,
    )

    # THEN
    assert (found.returncode, found.stdout) == (0, "trained False\n")
    assert found.stderr.count("\n") == 1
    assert words in found.stderr
    assert "this job is not shown" in found.stderr


def test_a_job_that_closes_all_files_loses_its_agent_in_one_line(collector: FakeCollector, socket_path: Path) -> None:
    # WHEN a job becomes a daemon by the book
    found = run_job(
        job(
            """
            agent = vramscope.attach(source=FakeSource())
            wait_until_connected(agent)
            os.closerange(3, 256)
            until = time.monotonic() + 60
            while agent._thread.is_alive() and time.monotonic() < until:
                time.sleep(0.01)
            vramscope.mark("epoch 3")
            print("trained")
            """
        ),
        socket_path.parent,
    )

    # THEN
    assert (found.returncode, found.stdout) == (0, "trained\n")
    assert "Traceback" not in found.stderr
    assert "the job goes on" in found.stderr


def test_a_relative_folder_is_that_of_the_moment_of_attaching(collector: FakeCollector, socket_path: Path) -> None:
    # GIVEN a job that names its socket relatively, and moves before the agent dials
    found = run_job(
        job(
            f"""
            os.chdir({str(socket_path.parent.parent)!r})
            agent = vramscope.attach(socket={str(socket_path.relative_to(socket_path.parent.parent))!r}, source=FakeSource())
            os.chdir("/")
            wait_until_connected(agent)
            """
        ),
        socket_path.parent,
    )
    assert (found.returncode, found.stderr) == (0, "")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attatch'"):
        vramscope.attatch  # noqa: B018
