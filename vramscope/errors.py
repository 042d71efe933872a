"""The errors a user can meet: each carries one line that says what, where, and what to do next."""

from __future__ import annotations


class VramscopeError(Exception):
    """Something the user can act on; its text is one line, and ``main`` prints it without a traceback."""


class WireError(VramscopeError):
    """A peer on the socket broke the protocol, or speaks another version of it."""


class BadInputError(VramscopeError):
    """A file, an argument or a setting that cannot be used as it is."""


def one_line(error: BaseException) -> str:
    """Return an error's kind and text as one line of at most 300 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def with_place(error: BaseException) -> str:
    """Return ``one_line(error)`` and where it was raised: what a report of a fault of ours needs, without a traceback."""
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    return one_line(error) + (f" ({found.tb_frame.f_code.co_filename}:{found.tb_lineno})" if found else "")
