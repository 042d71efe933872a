"""The errors a user can meet: each carries one line that says what, where, and what to do next."""

from __future__ import annotations


class VramscopeError(Exception):
    """Something the user can act on; its text is one line, and ``main`` prints it without a traceback."""


class WireError(VramscopeError):
    """A peer on the socket broke the protocol, or speaks another version of it."""


class BadInputError(VramscopeError):
    """A file, an argument or a setting that cannot be used as it is."""
