"""The reader's child process: a file on standard input → columns in a new file, with progress as JSON lines on standard output.

Run as ``python -m vramscope.snapshot.child RESULT MEMORY_BYTES SECONDS UNPACKED_BYTES``. It ends with a line of
``{"done": true}``, or ``{"error": what is wrong}``, or is ended by the kernel at one of its limits.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
import time
from collections.abc import Callable

from vramscope.errors import BadInputError
from vramscope.snapshot.build import build_snapshot
from vramscope.snapshot.containers import DUMP_AGAIN, RefusedError, load
from vramscope.snapshot.limits import limit_this_process
from vramscope.snapshot.storage import write_traced
from vramscope.trace.build import traced

PROGRESS_INTERVAL_S = 0.1
MAX_REASON_LENGTH = 120


def main(arguments: list[str]) -> int:
    """Read standard input; return the exit status."""
    result, memory_bytes, seconds, unpacked_bytes = arguments[0], *map(int, arguments[1:])
    limit_this_process(memory_bytes, seconds, unpacked_bytes)
    # Nothing here makes cycles, and with millions of objects the collector takes three times the time of reading.
    gc.disable()
    try:
        _read(result, unpacked_bytes)
    except BrokenPipeError:
        return 1  # nobody listens any more
    except RefusedError as error:
        _tell({"error": str(error)})
    except BadInputError as error:
        _tell({"error": f"{error}; {DUMP_AGAIN}"})
    except MemoryError:
        limit = f"{memory_bytes >> 20} MiB of memory"
        _tell({"error": f"it is damaged, or takes more than {limit}; dump it again, with fewer events (max_entries)"})
    except RecursionError:
        _tell({"error": f"it is nested too deeply for a snapshot; {DUMP_AGAIN}"})
    except Exception as error:  # noqa: BLE001 - whatever a damaged file makes pickle, json, gzip or zstd raise
        reason = f"{type(error).__name__}: {str(error)[:MAX_REASON_LENGTH]}"
        _tell({"error": f"it is cut off or damaged ({reason}); {DUMP_AGAIN}"})
    # Taking what is left apart would cost a second.
    os._exit(0)


def _read(result: str, unpacked_bytes: int) -> None:
    file_bytes = os.fstat(0).st_size
    reading, building = _reporter("reading"), _reporter("building")
    loaded = load(io.FileIO(0), limit_bytes=unpacked_bytes, progress=lambda done: reading(done, file_bytes))
    snapshot = build_snapshot(
        loaded.tree, container=loaded.container, file_bytes=loaded.size_bytes, progress=building, notes=loaded.notes
    )
    try:
        with open(result, "xb") as file:
            write_traced(traced(snapshot), file)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        folder = os.path.dirname(result)
        raise RefusedError(
            f"its columns cannot be written to {folder}: {error.strerror}; set VRAMSCOPE_STATE_DIR"
        ) from None
    # Here, and not in main(): at this function's end its million dicts are taken apart, and nobody shall wait for that.
    _tell({"done": True})


def _reporter(stage: str) -> Callable[[int, int], None]:
    """Return what tells of progress, at most some times a second."""
    next_s = 0.0

    def report(done: int, total: int) -> None:
        nonlocal next_s
        now_s = time.monotonic()
        if now_s >= next_s:
            next_s = now_s + PROGRESS_INTERVAL_S
            _tell({"stage": stage, "done": done, "total": total})

    return report


def _tell(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
