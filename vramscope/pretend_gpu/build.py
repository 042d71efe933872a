"""Builds the pretend GPU for one PyTorch: libfakecuda.so, libnvidia-ml.so.1 and stand-ins for the NVIDIA libraries.

    python -m vramscope.pretend_gpu.build FOLDER

builds for the PyTorch of that interpreter, which is found and read but not imported. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from vramscope.errors import BadInputError, VramscopeError

SOURCE_FOLDER = Path(__file__).parent
STUBS_FOLDER = "stubs"
# Each object with its source and the soname by which torch and pynvml ask for it.
OBJECTS = {"libfakecuda.so": ("fakecuda.c", "libcuda.so.1"), "libnvidia-ml.so.1": ("fakenvml.c", "libnvidia-ml.so.1")}
TOOLS = ("gcc", "nm", "readelf")
STAMP = "built-for"

_STUBBED_SYMBOL = re.compile(
    r"(cublas|cudnn|cusparse|cufft|curand|cusolver|cuFile|nccl|pnccl|nvrtc|nvtx|nvJitLink|cupti|nvshmem|__cuda|cuda[A-Z])\w*"
)
_STUBBED_LIBRARY = re.compile(r"lib(cu[a-z]|nccl|nv).*")
_NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def build(torch_lib: Path, out: Path) -> Path:
    """Build everything for the PyTorch whose shared objects lie in ``torch_lib`` into the folder ``out``; return ``out``.

    Does nothing when ``out`` was built from these sources for this PyTorch. Raises BadInputError where a tool, the
    CUDA build of torch or permission is missing, or where the compiler refuses.
    """
    libraries = sorted(torch_lib.glob("*.so"))
    if not (torch_lib / "libtorch_cuda.so").exists():
        raise BadInputError(f"{torch_lib} holds no libtorch_cuda.so; install the CUDA build of torch there")
    stamp = _stamp(torch_lib, libraries)
    if (out / STAMP).is_file() and (out / STAMP).read_text() == stamp:
        return out
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise BadInputError(f"the pretend GPU needs {' and '.join(missing)}; install gcc and binutils")
    try:
        _build_anew(torch_lib, libraries, out, stamp)
    except OSError as error:
        raise BadInputError(f"cannot build the pretend GPU in {out}: {error.strerror}; choose another folder") from None
    return out


def torch_lib_folder() -> Path:
    """Return the folder of this interpreter's torch libraries, without importing torch. Raises BadInputError."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BadInputError(f"{sys.executable} has no torch; install its CUDA build there")
    return Path(spec.origin).parent / "lib"


def _stamp(torch_lib: Path, libraries: Iterable[Path]) -> str:
    """Return a digest of what the result depends on: our sources and which PyTorch it is."""
    digest = hashlib.sha256()
    version = torch_lib.parent / "version.py"
    for source in (Path(__file__), *(SOURCE_FOLDER / name for name, _ in OBJECTS.values()), version):
        digest.update(source.read_bytes())
    digest.update("\n".join(library.name for library in libraries).encode())
    return digest.hexdigest()


def _build_anew(torch_lib: Path, libraries: Sequence[Path], out: Path, stamp: str) -> None:
    """Build beside ``out`` and put the result in its place at the end, so that ``out`` is never half built."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-", ignore_cleanup_errors=True) as work:
        fresh = Path(work) / "fresh"
        fresh.mkdir()
        for name, (source, soname) in OBJECTS.items():
            _run("gcc", "-O2", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", fresh / name, SOURCE_FOLDER / source)
        _build_stubs(torch_lib, libraries, fresh / STUBS_FOLDER)
        (fresh / STAMP).write_text(stamp)
        if out.exists():
            out.rename(Path(work) / "old")
        fresh.rename(out)


def _build_stubs(torch_lib: Path, libraries: Sequence[Path], stubs: Path) -> None:
    """Make empty stand-ins for the NVIDIA libraries that torch links to: every symbol it imports returns 0.

    The names are read from torch itself, so one way serves every release (CUDA 12 and 13).
    """
    stubs.mkdir()
    source, compiled, version_script = stubs / "stubs.c", stubs / "stubs.o", stubs / "version"
    source.write_text(stub_source(_run("nm", "-D", "--undefined-only", *libraries)))
    _run("gcc", "-c", "-fPIC", "-o", compiled, source)
    for soname in stub_names(_run("readelf", "-d", *libraries)):
        if (torch_lib / soname).exists():  # torch brings it along (2.4: libcusparseLt)
            continue
        # The version name that torch asks for with its symbols.
        version = "NVSHMEM" if soname.startswith("libnvshmem") else soname
        version_script.write_text(f"{version} {{ *; }};\n")
        _run(
            *("gcc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{version_script}"),
            *("-o", stubs / soname, compiled),
        )
    if (stubs / "libcudnn.so.8").exists():  # torch before 2.4 looks for this one too
        shutil.copy(stubs / "libcudnn.so.8", stubs / "libcudnn_cnn_infer.so.8")
    for scratch in (source, compiled, version_script):
        scratch.unlink()


def stub_source(nm_output: str) -> str:
    """Return C that defines every NVIDIA symbol which ``nm -D --undefined-only`` lists as imported, as "return 0"."""
    names = {line.split()[1].split("@")[0] for line in nm_output.splitlines() if line.split()[:1] == ["U"]}
    stubbed = sorted(name for name in names if _STUBBED_SYMBOL.fullmatch(name))
    lines = [f'__asm__(".globl {name}\\n.type {name},@function\\n.set {name}, stub_noop");' for name in stubbed]
    return "\n".join(["int stub_noop(void) { return 0; }", *lines, ""])


def stub_names(readelf_output: str) -> list[str]:
    """Return the sonames of NVIDIA libraries that ``readelf -d`` lists as needed, less the one that is preloaded."""
    needed = set(_NEEDED.findall(readelf_output))
    return sorted(name for name in needed if _STUBBED_LIBRARY.fullmatch(name) and name != "libcuda.so.1")


def _run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BadInputError(f"building the pretend GPU failed: {command[0]}: {complaint}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m vramscope.pretend_gpu.build", description="Build the pretend GPU.")
    parser.add_argument("folder", type=Path, help="where the libraries go")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(f"{build(torch_lib_folder(), options.folder.absolute())}\n")
    except VramscopeError as error:
        sys.stderr.write(f"vramscope: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
