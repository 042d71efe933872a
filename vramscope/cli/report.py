"""``vramscope report``: a snapshot as one HTML file, written whole or not at all."""

from __future__ import annotations

import argparse
import os
import stat
import tempfile
import time
from pathlib import Path

from vramscope.cli.opening import is_same_file, open_file
from vramscope.cli.printing import print_out
from vramscope.errors import BadInputError
from vramscope.report.content import content_of
from vramscope.report.page import BEGINNING, page
from vramscope.report.paths import shorten
from vramscope.snapshot.opening import printable, shown
from vramscope.units import format_bytes


def run(arguments: argparse.Namespace) -> int:
    """Write what ``arguments`` ask for. Raises BadInputError where the snapshot cannot be read or the file not written."""
    output = arguments.output
    check_may_write(output, force=arguments.force)
    if is_same_file(output, arguments.file):
        raise BadInputError(f"{shown(output)} is the snapshot itself; give another name with -o")
    content = content_of(
        open_file(arguments.file, arguments.state_dir),
        name=printable(arguments.file.name),
        device=arguments.device,
        at=arguments.at,
        shorten=shorten if arguments.shorten_paths else str,
    )
    made_at = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime())
    written = page(content, made_at=made_at).encode("utf-8", "replace")
    write_whole(output, written)
    print_out(f"{shown(output)}: {format_bytes(len(written))}, device {content.side.trace.device}, {content.side.when}")
    return 0


def check_may_write(output: Path, *, force: bool) -> None:
    """Raise BadInputError where ``output`` is something else than a report, a new name, or, with ``force``, a file."""
    try:
        found = output.stat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise _cannot_write(output, error) from None
    if not stat.S_ISREG(found.st_mode):
        raise BadInputError(f"{shown(output)} is not a file; give the name of an HTML file with -o")
    if not force and not _is_report(output):
        raise BadInputError(f"{shown(output)} is there and is no report of vramscope; give another name, or --force")


def _is_report(output: Path) -> bool:
    try:
        with output.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING.encode()
    except OSError as error:
        raise _cannot_write(output, error) from None


def write_whole(output: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``output`` in one step, readable as any new file is. Raises BadInputError."""
    target = output.resolve()
    try:
        descriptor, name = tempfile.mkstemp(prefix=".vramscope-", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _cannot_write(output, error) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o666 & ~_umask())
        os.replace(name, target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise _cannot_write(output, error) from None


def _umask() -> int:
    """Return the process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _cannot_write(output: Path, error: Exception) -> BadInputError:
    reason = getattr(error, "strerror", None) or str(error)
    return BadInputError(f"cannot write {shown(output)}: {printable(reason)}; give another place with -o")
