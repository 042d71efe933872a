"""Prints a command's result; a reader that stops early, as ``head`` does, is no error."""

from __future__ import annotations

import os
import sys


def print_out(text: str) -> None:
    """Write ``text`` and a line end to the standard output."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
