"""``vramscope oom``: reads pasted out-of-memory messages and memory summaries, as words or as JSON."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from pathlib import Path

from vramscope.cli.printing import print_out
from vramscope.errors import BadInputError
from vramscope.memory_summary import read_summaries
from vramscope.oom_reading import describe, describe_table
from vramscope.oom_text import facts_of, read_out_of_memory

# A log of a long run, not a disk: what is larger is not a paste.
LIMIT_BYTES = 64 << 20
STANDARD_INPUT = "-"


def run(arguments: argparse.Namespace) -> int:
    """Print what the text at ``arguments.file`` says; raises BadInputError where it holds nothing to read."""
    text = _decode(_read(arguments.file))
    messages, tables = read_out_of_memory(text), read_summaries(text)
    if not messages and not tables:
        raise BadInputError(
            f"no out-of-memory message and no memory summary in {_name(arguments.file)}; paste the error's own lines"
        )
    if arguments.json:
        found = facts_of(messages) | ({"tables": [table.to_json() for table in tables]} if tables else {})
        shown = json.dumps(found, indent=1)
    else:
        parts = [describe(message) for message in messages] + [describe_table(table) for table in tables]
        shown = "\n\n".join("\n".join(lines) for lines in parts)
    print_out(shown)
    return 0


def _name(file: str) -> str:
    # repr: a file's name may hold line breaks.
    return "the standard input" if file == STANDARD_INPUT else repr(file)


def _read(file: str) -> bytes:
    try:
        if file == STANDARD_INPUT:
            data = sys.stdin.buffer.read(LIMIT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(LIMIT_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise BadInputError(f"cannot read {_name(file)}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LIMIT_BYTES:
        raise BadInputError(f"{_name(file)} is larger than {LIMIT_BYTES >> 20} MiB; cut out the part with the error")
    return data


def _decode(data: bytes) -> str:
    # PowerShell writes UTF-16 where a command's output goes to a file.
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if utf16 else "utf-8", errors="replace")
