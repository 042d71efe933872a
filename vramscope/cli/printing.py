"""Prints a command's result; a reader that stops early, as ``head`` does, is no error."""

from __future__ import annotations

import io
import os
import sys

from vramscope.errors import VramscopeError


def print_out(text: str) -> None:
    """Write ``text`` and a line end to the standard output. Raises VramscopeError where it cannot be written to."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An encoding that lacks a character, as ASCII lacks an arrow, is no reason to print nothing.
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer must not fail again at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise VramscopeError(f"cannot write to the standard output: {error.strerror}") from None
