"""The pretend GPU's build and environment, without CUDA and without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.errors import BadInputError
from vramscope.pretend_gpu import build as building
from vramscope.pretend_gpu.environment import environment, nvml_environment
from vramscope.units import GIB

CUDART = "__attribute__((weak)) extern int cudaMalloc(void); int use(void) { return cudaMalloc(); }"


@pytest.fixture(scope="module")
def torch_lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like torch/lib: one library that imports cudaMalloc from libcudart.so.13."""
    torch = tmp_path_factory.mktemp("site") / "torch"
    lib = torch / "lib"
    lib.mkdir(parents=True)
    (torch / "version.py").write_text("__version__ = '0'")
    cudart = torch / "libcudart.so.13"
    subprocess.run(["gcc", "-shared", "-Wl,-soname,libcudart.so.13", "-o", cudart, "-xc", "/dev/null"], check=True)
    source = torch / "use.c"
    source.write_text(CUDART)
    library = lib / "libtorch_cuda.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", library, source, cudart], check=True)
    return lib


@pytest.fixture(scope="module")
def built(torch_lib: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return building.build(torch_lib, tmp_path_factory.mktemp("pretend") / "gpu")


def test_a_build_has_the_device_the_nvml_and_a_stand_in_for_each_library_torch_needs(built: Path) -> None:
    assert sorted(str(p.relative_to(built)) for p in built.rglob("*.so*")) == [
        "libfakecuda.so",
        "libnvidia-ml.so.1",
        "stubs/libcudart.so.13",
    ]


def test_building_again_changes_nothing_and_another_torch_builds_anew(torch_lib: Path, built: Path) -> None:
    # GIVEN a finished build
    before = (built / "libfakecuda.so").stat().st_mtime_ns

    # WHEN it is asked for again, for the same torch and for another
    building.build(torch_lib, built)
    again = (built / "libfakecuda.so").stat().st_mtime_ns
    (torch_lib.parent / "version.py").write_text("__version__ = '1'")
    building.build(torch_lib, built)

    # THEN only the second was work, and nothing else is left beside the folder
    assert again == before
    assert (built / "libfakecuda.so").stat().st_mtime_ns > before
    assert [path.name for path in built.parent.iterdir()] == [built.name]


@pytest.mark.parametrize("missing", building.TOOLS)
def test_a_missing_tool_is_named_in_one_line(
    torch_lib: Path, tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a PATH with the tools but one
    for tool in set(building.TOOLS) - {missing}:
        (tmp_path / tool).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))

    # WHEN / THEN the build refuses and names it
    with pytest.raises(BadInputError, match=f"needs {missing}; install gcc and binutils$"):
        building.build(torch_lib, tmp_path / "out")


def test_a_torch_without_cuda_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"no libtorch_cuda\.so"):
        building.build(tmp_path, tmp_path / "out")


def test_a_compiler_that_refuses_is_quoted_and_leaves_the_last_build(
    torch_lib: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN sources that do not compile
    for source in ("fakecuda.c", "fakenvml.c"):
        (tmp_path / source).write_text("this is not C\n")
    monkeypatch.setattr(building, "SOURCE_FOLDER", tmp_path)

    # WHEN / THEN the build fails in one line, and what was built before still lies there
    with pytest.raises(BadInputError, match=r"^building the pretend GPU failed: gcc: [^\n]+$"):
        building.build(torch_lib, built)
    assert (built / "libfakecuda.so").is_file()


def test_only_nvidias_imported_symbols_are_stubbed() -> None:
    listed = "                 U cudaMalloc@libcudart.so.13\n                 U malloc@GLIBC_2.2.5\n  w ncclGone\n"
    assert "cudaMalloc" in building.stub_source(listed)
    assert "set malloc" not in building.stub_source(listed)
    assert "ncclGone" not in building.stub_source(listed)


def test_the_preloaded_driver_has_no_stand_in() -> None:
    listed = "".join(
        f" 0x1 (NEEDED)  Shared library: [{name}]\n" for name in ("libcuda.so.1", "libcudnn.so.9", "libm.so.6")
    )
    assert building.stub_names(listed) == ["libcudnn.so.9"]


def test_a_job_and_a_collector_are_told_of_the_same_machine(built: Path, tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    job = environment(built, devices=[8 * GIB, 2 * GIB], state_file=state, other_bytes=GIB, environ={})
    collector = nvml_environment(built, state, environ={"LD_LIBRARY_PATH": "/opt/lib"})
    assert (job["FAKE_GPU_COUNT"], job["FAKE_GPU_BYTES"]) == ("2", "8589934592,2147483648")
    assert job["FAKE_GPU_STATE"] == collector["FAKE_GPU_STATE"] == str(state)
    assert collector["LD_LIBRARY_PATH"] == f"{built}:/opt/lib"
    assert "LD_PRELOAD" not in collector


def test_what_the_user_preloads_stays(built: Path) -> None:
    assert environment(built, environ={"LD_PRELOAD": "/lib/mine.so"})["LD_PRELOAD"].endswith(":/lib/mine.so")


@pytest.mark.parametrize(("devices", "other_bytes"), [([], 0), ([GIB] * 9, 0), ([GIB], GIB), ([GIB], -1)])
def test_a_machine_that_cannot_be_is_refused(built: Path, devices: list[int], other_bytes: int) -> None:
    with pytest.raises(BadInputError, match="a pretend machine has 1 to 8 GPUs"):
        environment(built, devices=devices, other_bytes=other_bytes)


def test_a_folder_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"run: python -m vramscope\.pretend_gpu\.build"):
        environment(tmp_path)


ALLOCATES = """
import ctypes, sys
cuda = ctypes.CDLL(None)
address = ctypes.c_void_p()
assert cuda.cudaSetDevice(int(sys.argv[1])) == 0
print(cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(int(sys.argv[2]))), flush=True)
sys.stdin.read()
"""
READS = """
import pynvml
pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    print(pynvml.nvmlDeviceGetMemoryInfo(handle).used, sorted(p.pid for p in processes))
"""


def test_processes_share_the_machine_and_a_dead_one_holds_nothing(built: Path, tmp_path: Path) -> None:
    state = tmp_path / "gpus"
    job_environ = {**os.environ, **environment(built, devices=[GIB, GIB], state_file=state)}
    reader_environ = {**os.environ, **nvml_environment(built, state)}

    def allocate(device: int, size_bytes: int, **extra: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", ALLOCATES, str(device), str(size_bytes)],
            env={**job_environ, **extra},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    def read() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", READS], env=reader_environ, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    # GIVEN two processes on GPU 1, for one of which it is device 0, and a third that no longer fits
    first, first_error = allocate(1, GIB // 2)
    second, second_error = allocate(0, GIB // 4, CUDA_VISIBLE_DEVICES="1")
    third, third_error = allocate(1, GIB // 2)
    assert (first_error, second_error, third_error) == ("0", "0", "2")

    # WHEN one of them is killed
    before = read()
    first.kill()
    first.communicate()
    after = read()
    for process in (second, third):
        process.communicate()

    # THEN NVML told of both, and its memory is free again
    assert before == ["0 []", f"{GIB * 3 // 4} {sorted([first.pid, second.pid])}"]
    assert after == ["0 []", f"{GIB // 4} [{second.pid}]"]
